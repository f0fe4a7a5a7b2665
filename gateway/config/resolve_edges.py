"""From sections to values, for both edges: the clients' and the upstreams'. As in `resolve`, nothing is judged here."""

from gateway.config.certificates import digest_files
from gateway.config.edge_fields import ClientFields, MemoryFields, TlsServerFields
from gateway.config.model import ClientSettings, MemorySettings, TlsClient, TlsServer, UpstreamConfig
from gateway.config.shapes import Field, Section
from gateway.config.upstream_fields import HealthFields, TimeoutFields, TlsClientFields, UpstreamFields


def resolve_tls(section: Section, field: Field[Section]) -> TlsServer | None:
    """A listener's TLS; None for plain HTTP. For a section without any mistake."""
    if not section.given(field):
        return None
    tls = section.sub(field)
    cert_file, client_ca_file = tls.get(TlsServerFields.CERT_FILE), tls.get(TlsServerFields.CLIENT_CA_FILE)
    assert cert_file is not None
    key_file = tls.get(TlsServerFields.KEY_FILE) or cert_file
    stamp = digest_files(cert_file, key_file, client_ca_file)
    return TlsServer(cert_file, key_file, client_ca_file, tls.get(TlsServerFields.MIN_VERSION), stamp)


def resolve_client(section: Section) -> ClientSettings:
    return ClientSettings(
        header_timeout=section.get(ClientFields.HEADER_TIMEOUT),
        body_timeout=section.get(ClientFields.BODY_TIMEOUT),
        send_timeout=section.get(ClientFields.SEND_TIMEOUT),
        min_rate=section.get(ClientFields.MIN_RATE),
        half_close_timeout=section.get(ClientFields.HALF_CLOSE_TIMEOUT),
        idle_timeout=section.get(ClientFields.IDLE_TIMEOUT),
        max_connections=section.get(ClientFields.MAX_CONNECTIONS),
        max_connections_per_address=section.get(ClientFields.MAX_CONNECTIONS_PER_ADDRESS),
        max_header_size=section.get(ClientFields.MAX_HEADER_SIZE),
        max_headers=section.get(ClientFields.MAX_HEADERS),
    )


def resolve_memory(section: Section) -> MemorySettings:
    return MemorySettings(section.get(MemoryFields.TOTAL), section.get(MemoryFields.SPILL_DIRECTORY))


def targets_of(section: Section) -> tuple[str, ...]:
    """The targets of an upstream, however the file spells them; none where it names none, or where a mistake was reported."""
    url = section.get(UpstreamFields.URL)
    return (url,) if url else section.get(UpstreamFields.TARGETS) or ()


def resolve_upstream(name: str, section: Section) -> UpstreamConfig:
    timeouts, health = section.sub(UpstreamFields.TIMEOUTS), section.sub(UpstreamFields.HEALTH)
    return UpstreamConfig(
        name=name,
        targets=targets_of(section),
        connect=timeouts.get(TimeoutFields.CONNECT),
        first_byte=timeouts.get(TimeoutFields.FIRST_BYTE),
        read_idle=timeouts.get(TimeoutFields.READ_IDLE),
        total=timeouts.get(TimeoutFields.TOTAL),
        max_execution=section.get(UpstreamFields.MAX_EXECUTION),
        keepalive=section.get(UpstreamFields.KEEPALIVE),
        max_connections=section.get(UpstreamFields.MAX_CONNECTIONS),
        host=section.get(UpstreamFields.HOST),
        forwards_overrides=section.get(UpstreamFields.OVERRIDES),
        tls=_tls_client(section),
        failures=health.get(HealthFields.FAILURES),
        cooldown=health.get(HealthFields.COOLDOWN),
        circuit=health.get(HealthFields.CIRCUIT),
        stream_idle=timeouts.get(TimeoutFields.STREAM_IDLE),
        slot_wait=section.get(UpstreamFields.SLOT_WAIT),
    )


def _tls_client(section: Section) -> TlsClient | None:
    if not section.given(UpstreamFields.TLS):
        return None
    tls = section.sub(UpstreamFields.TLS)
    ca_file, cert_file = tls.get(TlsClientFields.CA_FILE), tls.get(TlsClientFields.CERT_FILE)
    key_file = tls.get(TlsClientFields.KEY_FILE) or cert_file
    return TlsClient(
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
        server_name=tls.get(TlsClientFields.SERVER_NAME),
        min_version=tls.get(TlsClientFields.MIN_VERSION),
        verify=tls.get(TlsClientFields.VERIFY),
        stamp=digest_files(ca_file, cert_file, key_file),
    )
