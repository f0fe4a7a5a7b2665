"""The part of the table about the APIs behind the gateway."""

from gateway.config import texts
from gateway.config.edge_fields import FILE, MIN_VERSION
from gateway.config.kinds import Choice, Duration, Flag, Text, Whole
from gateway.config.shapes import Field, ListOf, Section, Struct

_TARGET = Text("a URL", texts.upstream_url, texts.TARGET_PATTERN)


class TimeoutFields:
    """`upstreams.<name>.timeouts`."""

    CONNECT = Field("connect", Duration("1ms", "5m"), "For a connection: resolving, connecting, TLS.", 2.0)
    FIRST_BYTE = Field("first_byte", Duration("1ms", "1h"), "From the request's end to the response's head.", 30.0)
    READ_IDLE = Field("read_idle", Duration("1ms", "1h"), "Between two pieces of a response.", 30.0)
    STREAM_IDLE = Field("stream_idle", Duration("1ms", "7d"), "Silence in event streams and tunnels.", 3600.0)
    TOTAL = Field("total", Duration("1ms", "24h"), "For the whole exchange.", 60.0)


class TlsClientFields:
    """`upstreams.<name>.tls`."""

    CA_FILE = Field("ca_file", FILE, "PEM: the authorities that are trusted. Default: the system's.")
    CERT_FILE = Field("cert_file", FILE, "PEM: the certificate that the gateway shows, then its issuers.")
    KEY_FILE = Field("key_file", FILE, "PEM: the certificate's key, without a passphrase. Default: `cert_file` holds it too.")
    SERVER_NAME = Field(
        "server_name", Text("a host name", texts.server_name), "The name asked for (SNI) and verified. Default: the target's host."
    )
    MIN_VERSION = MIN_VERSION
    VERIFY = Field("verify", Flag(), "false: any certificate will do, also an attacker's.", default=True)


class HealthFields:
    """`upstreams.<name>.health`."""

    FAILURES = Field("failures", Whole(0, 1000), "Failures in a row after which a target is left alone; 0: never.", 10)
    COOLDOWN = Field("cooldown", Duration("10ms", "1h"), "How long it is left alone before one request tries it.", 5.0)
    CIRCUIT = Field("circuit", Flag(), "Whether requests are refused while no target can be connected to. Default: with several targets.")


class UpstreamFields:
    """`upstreams.<name>`."""

    URL = Field("url", _TARGET, "http://host:port, https://host:port or unix:/path. Either this or `targets`.")
    TARGETS = Field("targets", ListOf(_TARGET, at_least=1), "Several URLs of one API, tried in turn. Either this or `url`.")
    HOST = Field(
        "host", Text("a host name", texts.host_line), "The Host line: forward (as received), target (its own) or a name.", "forward"
    )
    OVERRIDES = Field(
        "overrides",
        Choice({"refuse": False, "forward": True}),
        "Fields and parameters that ask for another path or method: refuse what could lead around a guarded route, or forward all.",
        default=False,
    )
    TLS: Field[Section] = Field(
        "tls", Struct.of(TlsClientFields, meant={"client_ca_file": "ca_file"}), "How https:// targets are spoken to."
    )
    HEALTH: Field[Section] = Field("health", Struct.of(HealthFields), "When a failing target is left alone.")
    TIMEOUTS: Field[Section] = Field("timeouts", Struct.of(TimeoutFields), "How long each step may take.")
    MAX_EXECUTION = Field("max_execution", Duration("0s", "7d"), "After this the upstream has surely finished or dropped a request.", 120.0)
    KEEPALIVE = Field("keepalive", Duration("0s", "1h"), "How long an idle connection is kept; less than the upstream keeps it.", 4.0)
    MAX_CONNECTIONS = Field("max_connections", Whole(1, 65535), "Connections of one process to each target.", 256)
    SLOT_WAIT = Field("slot_wait", Duration("0s", "5m"), "How long a request waits while all of them are taken.", 1.0)
