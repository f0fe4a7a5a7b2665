"""The address of the client, for logs and for what is counted by it: by the word of trusted proxies, never by the client's own."""

import ipaddress
from collections.abc import Callable, Iterator
from typing import TypeAlias

from gateway.core.forwarded import address_of, read_address, read_for
from gateway.core.headers import Fields, Forwarding

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def trusted(peer: str, networks: tuple[Network, ...]) -> bool:
    """Whether an address lies in one of the networks; an IPv4 address that came mapped into IPv6 counts as itself."""
    if not networks:
        return False
    address = address_of(peer)
    if address is None:
        return False
    ip = ipaddress.ip_address(address)
    return any(ip in network for network in networks)


def client_address(fields: Fields, peer: str, trusts: Callable[[str], bool], mode: Forwarding) -> str:
    """The nearest address, seen from here, that is no trusted proxy; `peer` itself where it has none (a unix socket).

    `mode` says which field is walked, from the right: `Forwarded` in the mode of that name, else `X-Forwarded-For`.
    Only one, because a proxy that writes the one lets its clients' copies of the other through. An entry that holds no
    address ends the walk at the last trusted hop, since a client may have invented what lies behind it. `trusts` is
    asked about addresses as `gateway.core.forwarded.address_of` spells them.
    """
    nearest = address_of(peer) or peer
    if not trusts(nearest):
        return nearest
    for address in _from_the_right(fields, mode):
        if address is None:
            break
        nearest = address
        if not trusts(nearest):
            break
    return nearest


def _from_the_right(fields: Fields, mode: Forwarding) -> Iterator[str | None]:
    """What each hop said of the one before it, the last hop first."""
    newer = mode is Forwarding.FORWARDED
    for line in reversed(fields.values(b"forwarded" if newer else b"x-forwarded-for")):
        for entry in reversed(line.split(b",")):
            text = entry.strip(b" \t")
            if text:
                yield read_for(text) if newer else read_address(text)
