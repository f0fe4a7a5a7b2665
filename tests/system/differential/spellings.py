"""Requests that some server may route to a guarded operation, made at random from the spellings that are known to work somewhere."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.core.model import Headers

_OPERATIONS = (
    (b"POST", b"/v1/pay"),
    (b"POST", b"/v1/pay"),
    (b"POST", b"/v1/7/refund"),
    (b"PATCH", b"/v1/orders/7"),
    (b"POST", b"/v1/orders/7"),
)
_INSERTS = b"""
    / // /. /./ /x/../ /.. \\ ; ;p ;p=1 ;a/b . .. %20 %09 %00 %00.txt %0d%0a %3F %3f/.. %23 %2F %2f %5C %252F
    %2e %2E%2e %3B + %00/ ' * %c0%af %ef%bc%8f
""".split()
_PREFIXES = b"""
    / // /. //host /\\host /%2F /x/.. /;p /index.php /app/index.php /app.cgi /%2e /static/.. http://h
    http://h:1/ /x /v1/.. /index.php/x/..
""".split()
_SUFFIXES = b"""
    / // . .json .xml .JSON %2Ejson ;x %00 %20 /. /.. ? # %3Fq %23f \\ %5C + ;jsessionid=1 ?_method=PATCH
    ?_method=POST ?a=1;_method=patch ?%5Fmethod=patch
""".split()
_PREFIX_FIELDS = b"SCRIPT_NAME Script-Name X-Script-Name PATH_INFO Path-Info X-Forwarded-Prefix".split()
_PATH_FIELDS = b"X-Original-URL X_Original_URL X-Rewrite-URL X-Override-URL X-Forwarded-Path".split()
_METHOD_FIELDS = b"X-HTTP-Method-Override X_HTTP_METHOD_OVERRIDE X-HTTP-Method X-Method-Override X.HTTP.Method.Override".split()
_FIELDS: tuple[tuple[bytes, bytes], ...] = (
    *(
        (name, value)
        for name in (b"SCRIPT_NAME", b"Script-Name", b"X-Script-Name", b"PATH_INFO", b"Path-Info")
        for value in (b"/x", b"/v1", b"/v1/pay", b"/")
    ),
    *(
        (name, b"/v1/pay")
        for name in (b"X-Original-URL", b"X_Original_URL", b"X-Rewrite-URL", b"X-Override-URL", b"X-Forwarded-Prefix", b"X-Forwarded-Path")
    ),
    *(
        (name, b"PATCH")
        for name in (
            b"X-HTTP-Method-Override",
            b"X_HTTP_METHOD_OVERRIDE",
            b"X-HTTP-Method",
            b"X-Method-Override",
            b"X.HTTP.Method.Override",
        )
    ),
)
_BODIES = (
    (b"application/x-www-form-urlencoded", b"_method=PATCH"),
    (b"application/x-www-form-urlencoded", b"a=1&%5fmethod=patch"),
    (b"application/x-www-form-urlencoded", b".method=PATCH"),
    (b"multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="_method"\r\n\r\npatch\r\n--b--\r\n'),
    (
        b"multipart/form-data; boundary=b",
        b"--b\r\ncontent-disposition: form-data; filename=x; name=_method\r\nX: y\r\n\r\npatch\r\n--b--\r\n",
    ),
    (b"application/json", b'{"_method":"PATCH"}'),
    (b"application/json", b'{"\\u005fmethod":"patch"}'),
)


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sends, but for `Host` and framing."""

    method: bytes
    target: bytes
    headers: Headers = ()
    body: bytes = b""


def requests(number: int) -> Iterator[Request]:
    """Endless, and the same for the same number."""
    dice = random.Random(number)
    while True:
        method, path = dice.choice(_OPERATIONS)
        for _ in range(dice.choice((0, 1, 1, 1, 2, 3))):
            path = _misspelt(path, dice)
        headers: list[tuple[bytes, bytes]] = []
        body = b""
        if dice.random() < 0.3:
            headers.append(dice.choice(_FIELDS))
        if method == b"POST" and dice.random() < 0.3:
            kind, body = dice.choice(_BODIES)
            headers.append((b"Content-Type", kind))
        yield Request(method, path, tuple(headers), body)


def _misspelt(path: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(path) + 1)
    match dice.randrange(8):
        case 0 | 1:
            return path[:at] + dice.choice(_INSERTS) + path[at:]
        case 2:
            prefix = dice.choice(_PREFIXES)
            return prefix + path if path.startswith(b"/") or prefix.endswith(b"/") else prefix + b"/" + path
        case 3:
            return path + dice.choice(_SUFFIXES)
        case 4:
            return path[: at - 1] + path[at - 1 : at].swapcase() + path[at:] if at else path
        case 5:
            return path.replace(b"/", dice.choice((b"%2F", b"\\", b"//", b"/./", b"%5C", b"%252f")), dice.randint(1, 2)) if at else path
        case _:
            return path[: at - 1] + b"%%%02x" % path[at - 1] + path[at:] if at else path
