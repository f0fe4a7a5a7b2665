"""The forms of a request target (RFC 9112 section 3.2). Pure."""

import ipaddress
import re

from gateway.core.host import is_host

_ABSOLUTE = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]+)")
_FUTURE = re.compile(rb"\[v[0-9A-Fa-f]+\.[^\]]+\]")
_HIGHEST_PORT = 65535


def is_target(method: str, target: bytes) -> bool:
    """Whether a target has the form that its method wants: a path, a URI with a host, for CONNECT a host, and for OPTIONS also `*`."""
    if target.startswith(b"/") and method != "CONNECT":
        return True
    if method == "CONNECT":
        return _is_authority(target)
    if target == b"*":
        return method == "OPTIONS"
    absolute = _ABSOLUTE.match(target)
    return absolute is not None and _is_authority(absolute[1])


def _is_authority(text: bytes) -> bool:
    """Whether it names a host, as far as it can be told without asking for it."""
    host = text.rpartition(b"@")[2]
    if not is_host(host):
        return False
    name, _, port = host.rpartition(b":") if not host.endswith(b"]") and b":" in host else (host, b"", b"")
    if port and int(port[:6]) > _HIGHEST_PORT:
        return False
    return _is_ip_literal(name) if name.startswith(b"[") else name != b""


def _is_ip_literal(text: bytes) -> bool:
    if _FUTURE.fullmatch(text):
        return True
    try:
        ipaddress.IPv6Address(text[1:-1].decode("ascii"))
    except ValueError:
        return False
    return True
