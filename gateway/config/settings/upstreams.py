"""The APIs behind the gateway."""

from dataclasses import dataclass, field
from typing import Annotated
from urllib.parse import urlsplit

from gateway.config import addresses
from gateway.config.settings.tls import TlsClient
from gateway.core import texts
from gateway.core.kinds import Choice, Duration, Inline, ListOf, Text, Whole
from gateway.core.setting import Form, Key

_TARGET = Text("a URL", texts.upstream_url, addresses.TARGET_PATTERN)


@dataclass(frozen=True, slots=True)
class UpstreamTimeouts:
    """How long each step of an exchange may take. `stream_idle` bounds the silence in event streams and tunnels."""

    connect: Annotated[float, Duration("1ms", "5m"), "For a connection: resolving, connecting, TLS."] = 2.0
    first_byte: Annotated[float, Duration("1ms", "1h"), "From the request's end to the response's head."] = 30.0
    read_idle: Annotated[float, Duration("1ms", "1h"), "Between two pieces of a response."] = 30.0
    stream_idle: Annotated[float, Duration("1ms", "7d"), "Silence in event streams and tunnels."] = 3600.0
    total: Annotated[float, Duration("1ms", "24h"), "For the whole exchange."] = 60.0


@dataclass(frozen=True, slots=True)
class UpstreamHealth:
    """A target that failed `failures` times in a row is left alone for `cooldown`; 0 means never. `circuit`: requests
    are refused while no target can be connected to; None means if there are several.
    """

    failures: Annotated[int, Whole(0, 1000), "Failures in a row after which a target is left alone; 0: never."] = 10
    cooldown: Annotated[float, Duration("10ms", "1h"), "How long it is left alone before one request tries it."] = 5.0
    circuit: Annotated[bool | None, "Whether requests are refused while no target can be connected to. Default: with several targets."] = (
        None
    )


@dataclass(frozen=True, slots=True)
class Targets(Form[tuple[str, ...]]):
    """The targets of an upstream, however the file spells them."""

    url: Annotated[
        str | None,
        _TARGET,
        "http(s)://host:port, with a path to stand before every path if need be, or unix:/path. Either this or `targets`.",
    ] = None
    targets: Annotated[
        tuple[str, ...] | None, ListOf(_TARGET, at_least=1), "Several URLs of one API, tried in turn. Either this or `url`."
    ] = None

    def value(self) -> tuple[str, ...]:
        return (self.url,) if self.url else self.targets or ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig:
    """One upstream API. Each of `targets` (one or more, distinct) is scheme, host, optional port and optional path, or
    `unix:/path`, nothing else.

    `max_execution` is how long after its lease lapsed a request may still be running there. `host` is `forward` (the
    Host line as received), `target` (each target's own) or the Host line's literal value. `forwards_overrides`: it
    knows no other path or method than the request line's, so what asks for one goes on. `tls` is None unless the
    targets are `https://`, and may be None then too.
    """

    name: str
    targets: Annotated[tuple[str, ...], Inline(Targets)]
    host: Annotated[str, Text("a host name", addresses.host_line), "The Host line: forward (as received), target (its own) or a name."] = (
        "forward"
    )
    forwards_overrides: Annotated[
        bool,
        Key("overrides"),
        Choice({"refuse": False, "forward": True}),
        "Fields and parameters that ask for another path or method: refuse what could lead around a guarded route, or forward all.",
    ] = False
    tls: Annotated[TlsClient | None, "How https:// targets are spoken to."] = None
    health: Annotated[UpstreamHealth, "When a failing target is left alone."] = field(default_factory=UpstreamHealth)
    timeouts: Annotated[UpstreamTimeouts, "How long each step may take."] = field(default_factory=UpstreamTimeouts)
    max_execution: Annotated[float, Duration("0s", "7d"), "After this the upstream has surely finished or dropped a request."] = 120.0
    keepalive: Annotated[float, Duration("0s", "1h"), "How long an idle connection is kept; less than the upstream keeps it."] = 4.0
    max_connections: Annotated[int, Whole(1, 65535), "Connections of one process to each target."] = 256
    slot_wait: Annotated[float, Duration("0s", "5m"), "How long a request waits while all of them are taken."] = 1.0

    @property
    def servers(self) -> frozenset[tuple[str, str]]:
        """Its servers, each with the path in front. Two upstreams that name one server are one to whoever asks what a request reaches."""
        return frozenset(map(_server, self.targets))

    @property
    def fronts(self) -> tuple[str, ...]:
        """The paths that its targets put in front of every request's, without a closing slash; "" for none."""
        return tuple(dict.fromkeys(_server(target)[1] for target in self.targets))

    @property
    def prefixed(self) -> bool:
        """Whether some target puts a path in front of every request's."""
        return self.fronts != ("",)


def _server(target: str) -> tuple[str, str]:
    if target.startswith("unix:"):
        return target, ""
    url = urlsplit(target)
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    return f"{(url.hostname or '').lower()}:{port}", url.path.removesuffix("/")
