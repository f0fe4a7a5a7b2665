"""What listening sockets pass on to those that are accepted."""

import socket

from gateway.config import TcpListener
from gateway.run.server.sockets import KEEPALIVE_AFTER, VANISHED_AFTER, listen


def test_a_client_that_vanished_is_noticed() -> None:
    """A silent event stream would keep its upstream busy for hours for a client whose machine lost its power."""
    with listen(TcpListener("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()):
        listening.setblocking(True)
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEPALIVE_AFTER
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == VANISHED_AFTER * 1000
