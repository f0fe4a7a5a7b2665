"""Texts of the route map that have a form: names, pointers, paths, secrets. Each function returns the value or raises
ValueError with the remedy, and no message repeats the text of a secret.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

from gateway.core.field_names import DROPPABLE
from gateway.core.kinds import did_you_mean
from gateway.core.path_pattern import parse_pattern

NAME_PATTERN = r"^[A-Za-z0-9_.-]{1,64}$"
HEADER_PATTERN = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
METHOD_PATTERN = r"^[A-Z][A-Z0-9_-]{0,31}$"
POINTER_PATTERN = r"^(/([^~/]|~[01])*)+$"
WHOLE_POINTER_PATTERN = r"^(/([^~/]|~[01])*)*$"
CAPTURED_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
EVENT_ID_PATTERN = r"^(header:|/)"
ORIGIN_PATTERN = r"^(\*|[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\s]+)$"
MAX_UNIX_PATH = 107  # sun_path of Linux holds 108 bytes with the closing NUL

_NAME = re.compile(NAME_PATTERN[1:-1])
_HEADER = re.compile(HEADER_PATTERN[1:-1])
_METHOD = re.compile(METHOD_PATTERN[1:-1])
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)+", re.DOTALL)
_CAPTURED = re.compile(CAPTURED_PATTERN[1:-1])
_PATH = re.compile(r"/[\x21\x22\x24-\x7e]*")
_ONE_LINE = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*")
_VALUE = re.compile(r"[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_WITH_PORT = re.compile(r"https?://[^/?#]*:([0-9]{1,9})/?", re.ASCII | re.IGNORECASE)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s,*]+")
_STANDARD = "whsec_"
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


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


def lower_header_name(text: str) -> str:
    return header_name(text).lower()


def droppable(text: str) -> str:
    """A field that the fingerprint covers without being asked to, in lower case."""
    name = header_name(text).lower()
    if name not in DROPPABLE:
        remedy = did_you_mean(name, DROPPABLE) or "; remove it"
        raise ValueError(f'"{text[:70]}" does not count by itself{remedy}')
    return name


def parameter(text: str) -> str:
    """A query parameter's name, decoded."""
    if not 1 <= len(text) <= 128 or not text.isprintable():
        raise ValueError("a query parameter has a name of 1 to 128 printable characters, as in request_id; write it decoded")
    return text


def member_pointer(text: str) -> str:
    """RFC 6901, to a member: the whole document is no place for a key."""
    if not text:
        raise ValueError("the empty pointer means the whole body; name a member, as in /idempotency_key")
    return pointer(text)


def field_value(text: str) -> str:
    """One value of a header field, compared without regard to letter case."""
    if not _ONE_LINE.fullmatch(text) or len(text) > 256:
        raise ValueError("a header value is visible ASCII with single spaces inside, 256 characters at most")
    return text


def target_path(text: str) -> str:
    """The target of a request of our own: a path, perhaps with a query."""
    if not _PATH.fullmatch(text):
        raise ValueError(f'"{text[:70]}" is not a path; it starts with / and is ASCII without spaces and #, as in /auth/check')
    return text


def plain_path(text: str) -> str:
    """A path of our own, without anything that could be read in two ways."""
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", text) or any(part in {".", ".."} for part in text.split("/")):
        raise ValueError(f'"{text[:70]}" is not a plain path; segments are letters, digits, . _ ~ -, as in /.idempotency/operations')
    return text


def not_empty(what: str) -> Callable[[str], str]:
    """A reader of texts that hold something; `what` says what."""

    def read(text: str) -> str:
        if not text:
            raise ValueError(what)
        return text

    return read


def optional(text: str) -> str | None:
    """An empty text says nothing."""
    return text or None


def jwks_url(text: str) -> str | None:
    """`https://` or `http://`, with a path and a query if need be."""
    if not text:
        return None
    url = parse_url(text)
    if url is None or url.scheme not in {"http", "https"} or not _VISIBLE.fullmatch(text):
        raise ValueError("the address of public keys looks like https://login.example.com/.well-known/jwks.json")
    if url.username is not None or url.password is not None or "#" in text:
        raise ValueError("the address of public keys holds no credentials and no #fragment")
    try:
        upstream_url(f"{url.scheme}://{url.netloc}")
    except ValueError:
        raise ValueError(f'"{url.netloc[:70]}" is not a host, or a host and a port') from None
    return text


def exposed(url: str) -> bool:
    """Whether keys from this address may be read and changed on their way here."""
    parts = parse_url(url)
    assert parts is not None
    if parts.scheme == "https":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname != "localhost"


def upstream_url(text: str) -> str:
    """`http(s)://host[:port][/prefix]`, returned without a closing slash, or `unix:/path`."""
    if text.startswith("unix:"):
        return f"unix:{socket_path(text, 'unix:/run/api.sock')}"
    if (found := _WITH_PORT.fullmatch(text)) and not 1 <= int(found[1]) <= 65535:
        raise ValueError(f"{found[1]} is not a port; ports go from 1 to 65535")
    url = parse_url(text)
    if url is None or url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError("an upstream is http://host:port, https://host:port or unix:/path")
    if url.username is not None or url.password is not None:
        raise ValueError("an upstream URL holds no credentials")
    if url.query or url.fragment or "?" in text or "#" in text:
        raise ValueError("an upstream URL ends after the path: the request's query is forwarded as it came")
    if not _VISIBLE.fullmatch(text):
        raise ValueError("an upstream URL is ASCII without spaces; write an international host name in its xn-- form")
    prefix = _upstream_prefix(url.path)
    return text[: len(text) - len(url.path)] + prefix


def _upstream_prefix(path: str) -> str:
    """What stands before every path, without a closing slash."""
    if path in {"", "/"}:
        return ""
    pattern = parse_pattern(path)
    if pattern.rest or None in pattern.segments:
        raise ValueError("the path of an upstream URL is written out, without parameters and without /**")
    return path.removesuffix("/")


def socket_path(text: str, example: str) -> str:
    """`unix:/path`, and `unix:///path` as URLs have it: between the second and the third slash would be a host, and
    there is none.
    """
    path = text.removeprefix("unix:")
    if path.startswith("//") and not path.startswith("///"):
        raise ValueError(f"a Unix socket is on no host; write unix:{path[1:71]}, or unix:/ and the absolute path")
    if path.startswith("/"):
        path = "/" + path.lstrip("/")
    if not path.startswith("/") or len(path.encode()) > MAX_UNIX_PATH or "\0" in path:
        raise ValueError(f"a Unix socket needs an absolute path of at most {MAX_UNIX_PATH} bytes, as in {example}")
    return path


def parse_url(text: str) -> SplitResult | None:
    """The parts of a URL; None if it has none that could be told apart, or a port that is none."""
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        return None
    return url


def captured(text: str) -> str:
    if not _CAPTURED.fullmatch(text):
        raise ValueError(f'"{text[:70]}" is not the name of a captured value; use letters, digits and _, as in customer_id')
    return text


def whole_pointer(text: str) -> str:
    """RFC 6901; the empty one is the whole body."""
    return pointer(text) if text else ""


def inner_pointer(text: str) -> str:
    """RFC 6901, into a request or an event: to something in it."""
    if not text:
        raise ValueError("the empty pointer means the whole of it; name a member, as in /data/object/id")
    return pointer(text)


def event_id(text: str) -> str:
    """A pointer into the event, or `header:<name>`."""
    if text.startswith("header:"):
        return f"header:{header_name(text.removeprefix('header:'))}"
    if not text.startswith("/"):
        raise ValueError(f'"{text[:70]}" names no place of an event\'s id; write a pointer such as /id, or header:webhook-id')
    return pointer(text)


def request_target(text: str) -> str:
    """A request's path and query with placeholders. Spaces and what is not ASCII are written percent-encoded."""
    if not _PATH.fullmatch(text):
        raise ValueError("is a path, perhaps with a query; it starts with / and is ASCII without spaces and #, as in /v1/charges?key={key}")
    return text


def header_value(text: str) -> str:
    """A field's value, perhaps with placeholders, perhaps with a secret."""
    if not _VALUE.fullmatch(text):
        raise ValueError("a header value is visible ASCII, with spaces inside if need be, and not empty")
    return text


def literal_path(text: str) -> str:
    """A path without parameters, as it stands in a request."""
    pattern = parse_pattern(text)
    if pattern.rest or None in pattern.segments:
        raise ValueError("a webhook has one path, without {parameters} and **, as in /webhooks/payments")
    return text


def signature_prefix(text: str) -> str:
    if text and not _VALUE.fullmatch(text):
        raise ValueError("what stands before a signature is visible ASCII, as in sha256=")
    return text


def signing_secret(text: str) -> bytes | None:
    """A secret whose text itself is the key, as with Stripe (`whsec_` included) and plain HMAC."""
    return text.encode() or None


def standard_secret(text: str) -> bytes | None:
    """`whsec_` and base64, or base64 alone, decoded (Standard Webhooks: 24 to 64 bytes)."""
    if not text:
        return None
    try:
        key = base64.b64decode(text.removeprefix(_STANDARD), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64: a secret of Standard Webhooks is whsec_ and base64, as the provider shows it") from None
    if not 24 <= len(key) <= 64:
        raise ValueError(f"holds {len(key)} bytes, and a secret of Standard Webhooks has 24 to 64; is it whole?")
    return key


def origin(text: str) -> str:
    """`*`, or scheme, host and, if it is not the scheme's own, port."""
    if text == "*":
        return text
    plain = text.lower()
    scheme, _, host = plain.partition("://")
    if not _ORIGIN.fullmatch(plain) or not plain.isascii():
        raise ValueError(f'"{text[:70]}" is no origin; write scheme, host and perhaps a port, as in https://shop.example, or *')
    if host.endswith(_DEFAULT_PORTS.get(scheme, "/")):
        raise ValueError(f"browsers leave out the port that is the scheme's own; write {scheme}://{host.rpartition(':')[0]}")
    return plain
