"""The host that a request is for, in one spelling (RFC 9110 section 4.2.3; RFC 9112 section 3.2)."""

import re
from functools import lru_cache

from gateway.core.headers import Fields

_FORWARDED_HOST = re.compile(rb'(?i:(?<![^ \t;])host=)(?:"[^"]*"|[^;]*)')
_DEFAULT_PORT = {b"http": b"80", b"https": b"443"}
_AUTHORITY = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]*\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")


def is_host(value: bytes) -> bool:
    """Whether a text is `host[:port]` as a Host line may hold it, the empty one included."""
    return _HOST.fullmatch(value) is not None


def sound_authority(target: bytes) -> bool:
    """Whether a target may go on as far as its host is concerned: an absolute one names one (RFC 9110 section 4.2.1)."""
    absolute = None if target.startswith(b"/") else _AUTHORITY.match(target)
    return absolute is None or (is_host(host := absolute[1].rpartition(b"@")[2]) and not host.startswith(b":") and host != b"")


def effective_host(target: bytes, host: bytes | None) -> bytes:
    """The host that a request is for: an absolute-form target's own, else the value of its Host line, else (HTTP/1.0) the empty one."""
    absolute = None if target.startswith(b"/") else _AUTHORITY.match(target)
    return absolute[1].rpartition(b"@")[2] if absolute else (host or b"")


@lru_cache(maxsize=1024)
def normal_host(host: bytes, scheme: bytes) -> bytes:
    """One spelling for all that name the same host and port: lower case, without the scheme's default port, without one final dot."""
    name, port = split_port(host.strip(b" \t").lower())
    name = name.removesuffix(b".")
    return name if port in {b"", _DEFAULT_PORT.get(scheme)} else b"%b:%b" % (name, port)


def split_port(host: bytes) -> tuple[bytes, bytes]:
    """Name and port; the brackets of an IPv6 address belong to the name."""
    if host.endswith(b"]"):
        return host, b""
    name, colon, port = host.rpartition(b":")
    return (name, port.lstrip(b"0") or port[-1:]) if colon else (host, b"")


def asked_for(host: bytes, fields: Fields) -> bytes:
    """A normal host, and behind a blank, which no host has, the one that trusted proxies say the client asked for, if they do: many
    frameworks believe them. Of `Forwarded` (RFC 7239) the first element counts, which is of the first hop.
    """
    said = fields.values(b"x-forwarded-host")
    said += [found[0] for line in fields.values(b"forwarded")[:1] if (found := _FORWARDED_HOST.search(line.partition(b",")[0]))]
    return b" ".join([host, *(value.strip(b" \t").lower() for value in said)]) if said else host
