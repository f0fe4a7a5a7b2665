"""Opening connections: name look-up, one address after the other, TLS. Whatever fails here, nothing of a request was
written.

The steps are taken apart, since the event loops' own `create_connection` tells neither a handshake that hangs from an
address that does (uvloop), nor leaves time for the next address when the first one does not answer (both, in turn).
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections.abc import Callable, Sequence

from gateway.ports import NotSent, NotSentReason
from gateway.upstream.connection import Connection
from gateway.upstream.settings import Endpoint


async def dial(
    where: Endpoint, tls: ssl.SSLContext | None, server_name: str | None, make: Callable[[], Connection], until: float
) -> Connection:
    """A connection that is ready for its first request, by `until` (loop time). `server_name` is sent as SNI and
    verified under TLS.

    The addresses of a name are tried in the resolver's order, each with an equal share of the time that is left. Raises
    NotSent: DNS, CONNECT_REFUSED, CONNECT_TIMEOUT (the look-up's included) or, once TCP is connected, TLS, whatever
    ends the handshake. A server that refuses our certificate under TLS 1.3 says so only after the handshake, as its
    answer to the request: InDoubt.
    """
    if where.path is not None:
        connection = await _reach_path(where.path, make, until)
    else:
        connection = await reach_first(await _addresses(where, until), where.port, make, until)
    if tls is not None:
        await _secure(connection, tls, server_name or where.host, until)
    return connection


async def _reach_path(path: str, make: Callable[[], Connection], until: float) -> Connection:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout_at(until):
            _, connection = await loop.create_unix_connection(make, path)
    except OSError as error:
        raise NotSent(_why_unreached(error)) from error
    return connection


async def reach_first(addresses: Sequence[str], port: int, make: Callable[[], Connection], until: float) -> Connection:
    """A TCP connection to the first of these addresses that takes one. Raises NotSent for the last one tried."""
    loop = asyncio.get_running_loop()
    failure = NotSent(NotSentReason.DNS)
    for tried, address in enumerate(addresses):
        share = (until - loop.time()) / (len(addresses) - tried)
        try:
            async with asyncio.timeout(share):
                _, connection = await loop.create_connection(make, address, port)
        except OSError as error:
            failure = NotSent(_why_unreached(error))
            failure.__cause__ = error
        else:
            return connection
    raise failure


async def _addresses(where: Endpoint, until: float) -> list[str]:
    """The host itself if it is an address, else what its name stands for, without repetitions."""
    with contextlib.suppress(ValueError):
        return [str(ipaddress.ip_address(where.host))]
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout_at(until):
            found = await loop.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
    except TimeoutError as error:
        raise NotSent(NotSentReason.CONNECT_TIMEOUT) from error
    except (OSError, UnicodeError) as error:  # the latter: a name that IDNA cannot encode
        raise NotSent(NotSentReason.DNS) from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def _secure(connection: Connection, tls: ssl.SSLContext, server_name: str, until: float) -> None:
    try:
        async with asyncio.timeout_at(until):
            await connection.secure(tls, server_name)
    except (OSError, ValueError) as error:  # the latter: a server name that cannot be sent
        connection.cut()
        raise NotSent(NotSentReason.TLS) from error
    except BaseException:
        connection.cut()
        raise
    if not connection.sound:
        raise NotSent(NotSentReason.TLS)


def _why_unreached(error: OSError) -> NotSentReason:
    return NotSentReason.CONNECT_TIMEOUT if isinstance(error, TimeoutError) else NotSentReason.CONNECT_REFUSED
