"""The part of the table about the client's side: TLS on a listener, client connections, memory."""

from gateway.config.kinds import Duration, Size, Version, Whole
from gateway.config.paths import LocalPath
from gateway.config.shapes import Field, Struct

FILE = LocalPath("a file path")
MIN_VERSION = Field("min_version", Version({"1.2": "1.2", "1.3": "1.3"}), "The oldest TLS version that is spoken.", "1.2")


class TlsServerFields:
    """`tls` and `admin.tls`."""

    CERT_FILE = Field("cert_file", FILE, "PEM: the listener's certificate, then its issuers.", required=True)
    KEY_FILE = Field("key_file", FILE, "PEM: the certificate's key, without a passphrase. Default: `cert_file` holds it too.")
    CLIENT_CA_FILE = Field("client_ca_file", FILE, "PEM: with it every client needs a certificate from one of these authorities.")
    MIN_VERSION = MIN_VERSION


TLS_SERVER = Struct.of(TlsServerFields, meant={"ca_file": "client_ca_file"})


class ClientFields:
    """`client`."""

    HEADER_TIMEOUT = Field("header_timeout", Duration("10ms", "10m"), "For the whole head of a request, from its first byte.", 15.0)
    BODY_TIMEOUT = Field("body_timeout", Duration("10ms", "1h"), "How long a client may send nothing of a request's body.", 60.0)
    SEND_TIMEOUT = Field("send_timeout", Duration("10ms", "1h"), "How long a client may take nothing of an answer.", 60.0)
    MIN_RATE = Field(
        "min_rate", Size("1MiB"), "Bytes a second that a client must send of a body, or take of an answer, on the whole; 0: no least.", 240
    )
    HALF_CLOSE_TIMEOUT = Field(
        "half_close_timeout",
        Duration("10ms", "1h"),
        "How long an answer that streams may be silent when the client has ended its sending, and may be gone.",
        30.0,
    )
    IDLE_TIMEOUT = Field("idle_timeout", Duration("10ms", "1h"), "How long a connection is kept between two requests.", 75.0)
    MAX_CONNECTIONS = Field("max_connections", Whole(1, 1_000_000), "Client connections of one process.", 10_000)
    MAX_CONNECTIONS_PER_ADDRESS = Field(
        "max_connections_per_address", Whole(0, 1_000_000), "Of these, from one address; 0: no limit of its own.", 0
    )
    MAX_HEADER_SIZE = Field("max_header_size", Size("1MiB", "1KiB"), "The largest head of a request; above it: 431.", 64 * 1024)
    MAX_HEADERS = Field("max_headers", Whole(1, 10_000), "The most header lines of a request; above it: 431.", 256)


class MemoryFields:
    """`memory`."""

    TOTAL = Field(
        "total", Size("1024GiB", "16MiB"), "Bodies that one process holds in memory; beyond it new work gets 503.", 256 * 1024 * 1024
    )
    SPILL_DIRECTORY = Field(
        "spill_directory", LocalPath("a folder path"), "Where large bodies wait on disk. Default: the system's temporary directory."
    )
