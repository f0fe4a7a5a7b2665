"""Addresses and names in the settings of the process: listeners, networks, the database. As in `gateway.core.texts`,
each function returns the value or raises ValueError with the remedy, and no message repeats the text of a secret.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import TypeAlias

from gateway.core.conninfo import complete, parse_dsn
from gateway.core.kinds import Text
from gateway.core.oidc import secure_url
from gateway.core.redis_url import parse_redis_url
from gateway.core.texts import socket_path
from gateway.core.user_token import read_digest
from gateway.core.visible import is_visible

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

USER_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}$"
PSEUDONYM_PATTERN = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$"
TARGET_PATTERN = r"^(https?://|unix:/)"
MIN_SECRET = 16
MIN_ENCRYPTION_KEY = 32

_USER = re.compile(USER_PATTERN[1:-1], re.ASCII)
_PSEUDONYM = re.compile(PSEUDONYM_PATTERN[1:-1])
_PORT = re.compile(r"[0-9]{1,5}", re.ASCII)
_HOST = re.compile(r"(?!-)[A-Za-z0-9_.-]{1,253}")
_AUTHORITY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]+)(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_DNS_NAME = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")
_COLLECTOR = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]+/[\x21\x23-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e]*")
_ORIGIN = re.compile(r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::[0-9]{1,5})?", re.ASCII)
_URI_BASE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[\x21\x23-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e]*")
_VISIBLE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class TcpListener:
    """`host` is a name or an address without brackets; `port` 0 lets the system choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect. A name other than `localhost` counts as reachable from outside."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True)
class UnixListener:
    """A Unix socket at an absolute path."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"

    @property
    def loopback(self) -> bool:
        return True


Listener: TypeAlias = TcpListener | UnixListener


_EVERYWHERE = {"0.0.0.0": (4,), "::": (4, 6)}  # noqa: S104 - compared with, not listened on
"""The addresses that stand for all of a machine, and of which versions: at `::` the gateway takes IPv4, too."""


def overlap(one: Listener, other: Listener) -> bool:
    """Whether some connection could be for either. Port 0 is another one each time; a name may have addresses of both versions."""
    if not isinstance(one, TcpListener) or not isinstance(other, TcpListener):
        return one == other
    if one.port != other.port or not one.port:
        return False
    return one.host == other.host or _covers(one.host, other.host) or _covers(other.host, one.host)


def _covers(host: str, other: str) -> bool:
    versions = _EVERYWHERE.get(host, ())
    try:
        return ipaddress.ip_address(other).version in versions
    except ValueError:
        return bool(versions)


def pseudonym(text: str) -> str:
    """A name in Via (RFC 9110 section 7.6.3): a token. The length is ours."""
    if not _PSEUDONYM.fullmatch(text):
        raise ValueError(f'"{text[:70]}" is not a token; use 1 to 64 letters, digits, - _ and . as in edge-1')
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
        return UnixListener(socket_path(text, "unix:/run/gateway.sock"))
    host, colon, port = text.rpartition(":")
    if not colon or not _PORT.fullmatch(port):
        raise ValueError(f'"{text[:70]}" is not a listen address; write host:port, [::1]:port or unix:/path')
    if int(port) > 65535:
        raise ValueError(f"{port} is not a port; ports go up to 65535")
    return TcpListener(_listen_host(host, port), int(port))


ADDRESS = Text("an address such as 127.0.0.1:8080 or unix:/run/gateway.sock", listener)
"""The address of a listener, as a setting."""


def optional_listener(text: str) -> Listener | None:
    return listener(text) if text else None


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


def host_line(text: str) -> str:
    """`forward`, `target`, or the value of a Host line (RFC 9110 section 7.2): a name or an address, and perhaps a
    port.
    """
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
    """Any spelling that libpq reads. What it refers to may be another place's: it is looked up when the server is needed."""
    if text:
        complete(parse_dsn(text), {}, {})
    return text or None


def redis_url(text: str) -> str | None:
    """One server, the Sentinels of a primary, or nodes of a cluster."""
    if text:
        parse_redis_url(text)
    return text or None


def digest_secret(text: str) -> bytes | None:
    if text and len(text) < MIN_SECRET:
        raise ValueError(f"has {len(text)} characters and needs {MIN_SECRET} or more; make one with: openssl rand -hex 32")
    return text.encode() or None


def encryption_key(text: str) -> bytes | None:
    if text and len(text) < MIN_ENCRYPTION_KEY:
        raise ValueError(f"has {len(text)} characters and needs {MIN_ENCRYPTION_KEY} or more; make one with: openssl rand -hex 32")
    return text.encode() or None


def admin_token(text: str) -> str | None:
    if text and not _VISIBLE.fullmatch(text):
        raise ValueError("holds characters that an Authorization header cannot carry; use visible ASCII")
    return text or None


def user_name(text: str) -> str:
    """A user as the audit table names it. A colon is for users of other sources."""
    if not _USER.fullmatch(text):
        raise ValueError(f'"{text[:70]}" is no name of a user; use 1 to 64 letters, digits and . _ @ + - as in ana or ana@example.com')
    return text


def token_digest(text: str) -> bytes:
    return read_digest(text)


def subject(text: str) -> str:
    """A user's name for good at an OpenID Connect provider (OpenID Connect Core 1.0 section 2), compared exactly."""
    if not 1 <= len(text) <= 255 or text != text.strip() or not is_visible(text):
        raise ValueError(f'"{text[:70]}" is no `sub`; write it as id tokens have it: 1 to 255 characters, without spaces around them')
    return text


def optional_text(text: str) -> str | None:
    return text or None


def issuer(text: str) -> str:
    """The issuer of an OpenID Connect provider, as its metadata spells it."""
    if not secure_url(text) or "?" in text:
        raise ValueError("must be the https URL of an issuer, such as https://login.example/realms/staff (http on loopback alone)")
    return text


def session_secret(text: str) -> bytes | None:
    return encryption_key(text)


def origin(text: str) -> str:
    """Scheme, host and perhaps a port (RFC 6454 section 6.2), without a path; in small letters, without the scheme's own port."""
    if not _ORIGIN.fullmatch(text.rstrip("/")):
        raise ValueError(f'"{text[:70]}" is no origin; write scheme and host, as in https://gateway-admin.example')
    scheme, _, authority = text.rstrip("/").lower().partition("://")
    return f"{scheme}://{authority.removesuffix(':443' if scheme == 'https' else ':80')}"


def collector(text: str) -> str:
    """Where spans are sent."""
    if not _COLLECTOR.fullmatch(text):
        raise ValueError("must be the URL of a collector for OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces")
    return text


def problem_base(text: str) -> str:
    """The start of an absolute URI (RFC 3986) to which a problem's word is appended."""
    if not _URI_BASE.fullmatch(text) or text[-1] not in ":/#=":
        raise ValueError("must be an absolute URI that ends in / : # or =, such as https://docs.example.com/problems/")
    return text
