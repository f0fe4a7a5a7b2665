"""Texts with a form: addresses, names, URLs, pointers. Each function returns the value or raises ValueError with the remedy.

No message repeats the text of a secret.
"""

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from gateway.config.model import Listener, Network, TcpListener, UnixListener
from gateway.core.routes import parse_pattern

NAME_PATTERN = r"^[A-Za-z0-9_.-]{1,64}$"
HEADER_PATTERN = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
METHOD_PATTERN = r"^[A-Z][A-Z0-9_-]{0,31}$"
PSEUDONYM_PATTERN = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$"
TARGET_PATTERN = r"^(https?://|unix:/)"
POINTER_PATTERN = r"^(/([^~/]|~[01])*)+$"
MIN_SECRET = 16
MAX_UNIX_PATH = 107  # sun_path of Linux holds 108 bytes with the closing NUL

_NAME = re.compile(NAME_PATTERN[1:-1])
_HEADER = re.compile(HEADER_PATTERN[1:-1])
_PSEUDONYM = re.compile(PSEUDONYM_PATTERN[1:-1])
_METHOD = re.compile(METHOD_PATTERN[1:-1])
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)+", re.DOTALL)
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_WITH_PORT = re.compile(r"https?://[^/?#]*:([0-9]{1,9})/?", re.ASCII | re.IGNORECASE)
_HOST = re.compile(r"(?!-)[A-Za-z0-9_.-]{1,253}")
_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_DNS_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")
_URI_BASE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[\x21\x23-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e]*")
_VISIBLE = re.compile(r"[\x21-\x7e]+")


def name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f'"{text[:70]}" is not a name; use 1 to 64 characters of A-Z a-z 0-9 _ . -')
    return text


def route_id(text: str) -> str:
    if text == "unmatched":
        raise ValueError("`unmatched` is how metrics and logs call requests that no route takes; choose another id")
    return name(text)


def header_name(text: str) -> str:
    """RFC 9110 section 5.1."""
    if not _HEADER.fullmatch(text):
        raise ValueError(f'"{text[:70]}" is not a header name; use letters, digits and -')
    return text


def pseudonym(text: str) -> str:
    """A name in Via (RFC 9110 section 7.6.3): a token. The length is ours."""
    if not _PSEUDONYM.fullmatch(text):
        raise ValueError(f'"{text[:70]}" is not a token; use 1 to 64 letters, digits, - _ and . as in edge-1')
    return text


def method(text: str) -> str:
    if not _METHOD.fullmatch(text):
        remedy = f"write {text.upper()}" if _METHOD.fullmatch(text.upper()) else "write for example POST"
        raise ValueError(f'"{text[:70]}" is not a method in capitals; {remedy}')
    return text


def path_pattern(text: str) -> str:
    parse_pattern(text)
    return text


def pointer(text: str) -> str:
    """RFC 6901. The empty pointer, the whole document, is refused: `body: none` says that better."""
    if not text:
        raise ValueError("the empty pointer means the whole body; write `body: none` instead")
    if not _POINTER.fullmatch(text):
        raise ValueError(f'"{text[:70]}" is not a JSON pointer; it starts with /, and ~ is written ~0, / inside a name ~1 (RFC 6901)')
    return text


def network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        pass
    try:
        wider = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f'"{text[:50]}" is not a network; write for example 10.0.0.0/8 or 2001:db8::/32') from None
    raise ValueError(f"{text} has host bits set; the network is {wider}")


def listener(text: str) -> Listener:
    """`host:port`, `[v6]:port` or `unix:/path`."""
    if text.startswith("unix:"):
        return UnixListener(_socket_path(text, "unix:/run/gateway.sock"))
    host, colon, port = text.rpartition(":")
    if not colon or not _PORT.fullmatch(port):
        raise ValueError(f'"{text[:70]}" is not a listen address; write host:port, [::1]:port or unix:/path')
    if int(port) > 65535:
        raise ValueError(f"{port} is not a port; ports go up to 65535")
    return TcpListener(_listen_host(host, port), int(port))


def optional_listener(text: str) -> Listener | None:
    return listener(text) if text else None


def _socket_path(text: str, example: str) -> str:
    """`unix:/path`, and `unix:///path` as URLs have it: between the second and the third slash would be a host, and there is none."""
    path = text.removeprefix("unix:")
    if path.startswith("//") and not path.startswith("///"):
        raise ValueError(f"a Unix socket is on no host; write unix:{path[1:71]}, or unix:/ and the absolute path")
    if path.startswith("/"):
        path = "/" + path.lstrip("/")
    if not path.startswith("/") or len(path.encode()) > MAX_UNIX_PATH or "\0" in path:
        raise ValueError(f"a Unix socket needs an absolute path of at most {MAX_UNIX_PATH} bytes, as in {example}")
    return path


def _listen_host(host: str, port: str) -> str:
    if not host:
        raise ValueError(f"the host is missing; write 0.0.0.0:{port} for every interface or 127.0.0.1:{port} for this machine")
    if host.startswith("[") and host.endswith("]"):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise ValueError(f"{host[:70]} is not an IPv6 address") from None
    if ":" in host:
        raise ValueError(f"an IPv6 address stands in brackets, as in [::1]:{port}")
    if re.fullmatch(r"[0-9.]+", host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise ValueError(f"{host[:70]} is not an IPv4 address") from None
    if not _HOST.fullmatch(host):
        raise ValueError(f'"{host[:70]}" is not a host name')
    return host


def upstream_url(text: str) -> str:
    """`http(s)://host[:port]`, returned without a closing slash, or `unix:/path`."""
    if text.startswith("unix:"):
        return f"unix:{_socket_path(text, 'unix:/run/api.sock')}"
    if (found := _WITH_PORT.fullmatch(text)) and not 1 <= int(found[1]) <= 65535:
        raise ValueError(f"{found[1]} is not a port; ports go from 1 to 65535")
    url = parse_url(text)
    if url is None or url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError("an upstream is http://host:port, https://host:port or unix:/path")
    if url.username is not None or url.password is not None:
        raise ValueError("an upstream URL holds no credentials")
    if url.path not in {"", "/"} or url.query or url.fragment or "?" in text or "#" in text:
        raise ValueError("an upstream URL ends after the host and port: the request target is forwarded as it came")
    if not _VISIBLE.fullmatch(text):
        raise ValueError("an upstream URL is ASCII without spaces; write an international host name in its xn-- form")
    return text.rstrip("/")


def host_line(text: str) -> str:
    """`forward`, `target`, or the value of a Host line (RFC 9110 section 7.2): a name or an address, and perhaps a port."""
    if text.lower() in {"forward", "target"}:
        if text != text.lower():
            raise ValueError(f"write {text.lower()}, in small letters")
        return text
    found = _AUTHORITY.fullmatch(text)
    if found is None or not _is_host(found["host"]) or not 1 <= int(found["port"] or 1) <= 65535:
        raise ValueError(f'"{text[:70]}" is not a Host line; write forward, target, or a name such as api.example or api.example:8443')
    return text


def _is_host(text: str) -> bool:
    if "%" in text:
        return False
    try:
        if text.startswith("["):
            ipaddress.IPv6Address(text[1:-1])
        elif re.fullmatch(r"[0-9.]+", text):
            ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return text.startswith("[") or _HOST.fullmatch(text) is not None


def server_name(text: str) -> str | None:
    """A name or an address as a certificate has it: no port, no brackets, no closing dot."""
    try:
        ipaddress.ip_address(text.replace("%", "?"))
    except ValueError:
        if text and not _DNS_NAME.fullmatch(text):
            raise ValueError(f'"{text[:70]}" is not a name that a certificate could have; write for example api.example') from None
    return text or None


def postgres_dsn(text: str) -> str | None:
    """One host, or several with commas between them."""
    scheme, mark, rest = text.partition("://")
    login, at, hosts = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")
    wrong = (
        scheme not in {"postgres", "postgresql"}
        or not mark
        or any(parse_url(f"{scheme}://{login}{at}{host}") is None for host in hosts.split(","))
    )
    if text and wrong:
        raise ValueError(
            "a Postgres DSN looks like postgresql://user:password@host:5432/database, or with several hosts host1:5432,host2:5432"
        )
    return text or None


def redis_url(text: str) -> str | None:
    url = parse_url(text)
    if text and (url is None or url.scheme not in {"redis", "rediss", "unix"}):
        raise ValueError("a Redis URL looks like redis://host:6379/0, rediss://host:6379/0 or unix:///run/redis.sock")
    return text or None


def digest_secret(text: str) -> bytes | None:
    if text and len(text) < MIN_SECRET:
        raise ValueError(f"has {len(text)} characters and needs {MIN_SECRET} or more; make one with: openssl rand -hex 32")
    return text.encode() or None


def admin_token(text: str) -> str | None:
    if text and not _VISIBLE.fullmatch(text):
        raise ValueError("holds characters that an Authorization header cannot carry; use visible ASCII")
    return text or None


def problem_base(text: str) -> str:
    """The start of an absolute URI (RFC 3986) to which a problem's word is appended."""
    if not _URI_BASE.fullmatch(text) or text[-1] not in ":/#=":
        raise ValueError("must be an absolute URI that ends in / : # or =, such as https://docs.example.com/problems/")
    return text


def parse_url(text: str) -> SplitResult | None:
    """The parts of a URL; None if it has none that could be told apart, or a port that is none."""
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        return None
    return url
