"""Listening sockets: what they pass on to those that are accepted, and which of them cannot be there together."""

import itertools
import socket

import pytest

from gateway.config import TcpListener
from gateway.config.addresses import UnixListener, overlap
from gateway.devtools.embedded.ports import free_port
from gateway.run.server.sockets import KEEPALIVE_AFTER, VANISHED_AFTER, ListenError, listen

HOSTS = ("127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", "::")


def test_a_client_that_vanished_is_noticed() -> None:
    """A silent event stream would keep its upstream busy for hours for a client whose machine lost its power."""
    with listen(TcpListener("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()):
        listening.setblocking(True)
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_AFTER
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == VANISHED_AFTER * 1000


@pytest.mark.parametrize(("one", "other"), list(itertools.product(HOSTS, HOSTS)))
def test_two_listeners_overlap_where_the_system_refuses_the_second(one: str, other: str) -> None:
    """So `check` says it before a start does."""
    if ":" in one + other and not _knows_ipv6():
        pytest.skip("no IPv6 here")
    port = free_port()
    first, second = TcpListener(one, port), TcpListener(other, port)
    with listen(first):
        try:
            listen(second).close()
        except ListenError:
            refused = True
        else:
            refused = False
    assert overlap(first, second) == refused


def test_names_sockets_and_other_ports() -> None:
    assert overlap(TcpListener("0.0.0.0", 1), TcpListener("localhost", 1))
    assert not overlap(TcpListener("localhost", 1), TcpListener("127.0.0.1", 1))
    assert not overlap(TcpListener("::", 1), TcpListener("::", 2))
    assert not overlap(TcpListener("::", 0), TcpListener("::", 0))
    assert overlap(UnixListener("/a"), UnixListener("/a"))
    assert not overlap(UnixListener("/a"), TcpListener("::", 1))


def _knows_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return False
    return True
