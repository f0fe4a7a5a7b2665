"""How one upstream is reached. Durations are seconds."""

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where connections go: a host and port, with or without TLS, or the path of a Unix socket. `prefix` stands before every target that is
    a path.
    """

    host: str = ""
    port: int = 0
    tls: bool = False
    path: str | None = None
    prefix: bytes = b""


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """One upstream's address, time limits and connection limit.

    `connect` bounds name look-up, TCP and TLS together. `first_byte` counts from the write of the request (of a
    streamed body's end; also from each moment at which the upstream stops reading it) to the complete head of the final
    response. `read_idle` bounds the silence between two pieces of the body, counted while a caller waits for the next
    one; `stream_idle` stands in for it in event streams (`text/event-stream`) and bounds the silence of tunnels.
    `total` counts from the call to the last body byte, waiting for a slot included; None switches it off. Where the
    request is `lasting`, it counts to the response's head, or, if its body is streamed, only to the connection.
    `keepalive` is how long an idle connection is kept, 0 for never. `slot_wait` is how long a call waits when all
    `max_connections` are taken. `host` replaces the value of the request's Host line; None leaves it as it is.
    """

    url: str
    connect: float = 2.0
    first_byte: float = 30.0
    read_idle: float = 30.0
    total: float | None = 60.0
    keepalive: float = 4.0
    max_connections: int = 256
    slot_wait: float = 1.0
    stream_idle: float = 3600.0
    host: bytes | None = None


def parse_endpoint(url: str) -> Endpoint:
    """`http://host[:port][/prefix]`, the same with `https`, or `unix:/path`. Raises ValueError for anything else, credentials included."""
    if url.startswith("unix:"):
        path = url.removeprefix("unix:")
        if not path.startswith("/"):
            raise ValueError(f"not an absolute socket path: {url!r}")
        return Endpoint(path=path)
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"not an http://, https:// or unix:/ address: {url!r}")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(f"an upstream address is a scheme, a host, a port and a path, nothing else: {url!r}")
    tls = parts.scheme == "https"
    prefix = parts.path.removesuffix("/").encode()
    return Endpoint(host=parts.hostname, port=parts.port or (443 if tls else 80), tls=tls, prefix=prefix)
