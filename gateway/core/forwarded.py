"""Addresses as `X-Forwarded-For` and `Forwarded` (RFC 7239) write them: made for the upstream, read for the logs."""

import ipaddress
import re
from functools import lru_cache

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_QUOTED = rb'"((?:[^"\\]|\\.)*)"'

_IS_TOKEN = re.compile(_TOKEN)
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_ESCAPED = re.compile(rb'(["\\])')
_QUOTED_PAIR = re.compile(rb"\\(.)")
_CLOSED = re.compile(rb'(?:[^"]|"(?:[^"\\]|\\.)*")*', re.DOTALL)
_PAIR = re.compile(rb"[ \t]*+(?:(%b)=(?:([^\s\",;=\\\\]++)|%b))?[ \t]*+(?:;|\Z)" % (_TOKEN, _QUOTED), re.DOTALL)
_NODE = re.compile(rb"(?:\[([^\]]*)\]|([0-9.]+))(?::[0-9A-Za-z._-]+)?")


def address_of(text: str) -> str | None:
    """An IP address in its usual spelling; else None. Without a zone, which only its own host understands; IPv4-mapped IPv6 as IPv4."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


@lru_cache(maxsize=1024)
def for_value(peer: bytes) -> bytes:
    """A peer as an entry of `X-Forwarded-For`: its address; what is none (`unix`) stands as it is."""
    address = address_of(peer.decode("latin-1"))
    return peer if address is None else address.encode()


@lru_cache(maxsize=1024)
def node(peer: bytes) -> bytes:
    """A peer as the value of `for` in `Forwarded`: IPv6 in brackets and quotes, `unknown` for what has no address (RFC 7239 section 6)."""
    address = address_of(peer.decode("latin-1"))
    if address is None:
        return b"unknown"
    return b'"[%b]"' % address.encode() if ":" in address else address.encode()


def element(peer: bytes, host: bytes, scheme: bytes) -> bytes:
    """One hop's `for`, `host` and `proto` (RFC 7239 section 4). Without `by`: `Via` names us. Without a host that cannot be quoted."""
    said = b""
    if _IS_TOKEN.fullmatch(host):
        said = b";host=" + host
    elif host and not _CONTROL.search(host):
        said = b';host="' + _ESCAPED.sub(rb"\\\1", host) + b'"'
    return b"for=%b%b;proto=%b" % (node(peer), said, scheme)


def closes_quotes(value: bytes) -> bool:
    """Whether every quoted string in a line ends in it. One that does not would swallow what the next hop appends."""
    return _CLOSED.fullmatch(value) is not None


def read_address(entry: bytes) -> str | None:
    """The address in an entry of `X-Forwarded-For`, or in a `for` value: with or without brackets and port. None for anything else."""
    found = _NODE.fullmatch(entry)
    return address_of((entry if found is None else found[1] or found[2] or b"").decode("latin-1"))


def read_for(text: bytes) -> str | None:
    """The address in one element of `Forwarded`. None if it names none, or is no element at all.

    Elements are told apart by every comma, quoted or not: no address, host or scheme has one, and the end of a quoted string never
    makes an element by itself.
    """
    value: bytes | None = None
    position = 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            return None
        name, token, quoted = pair.groups()
        if name is not None and name.lower() == b"for":
            if value is not None:
                return None
            value = token if quoted is None else _QUOTED_PAIR.sub(rb"\1", quoted)
        position = pair.end()
    return None if value is None else read_address(value)
