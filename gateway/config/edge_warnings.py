"""Findings about listeners, clients, memory and the way to upstreams that stop nothing."""

from collections.abc import Iterator, Mapping, Sequence

from gateway.config.check_edges import ROOM, largest_body, total_and
from gateway.config.edge_fields import ClientFields, MemoryFields, TlsServerFields
from gateway.config.expiry import expiry_of
from gateway.config.fields import AdminFields, ConfigFields, RouteFields
from gateway.config.kinds import did_you_mean
from gateway.config.mistakes import Place
from gateway.config.policy_fields import IdempotencyFields
from gateway.config.resolve import ResolvedRoute
from gateway.config.shapes import Field, Section
from gateway.config.units import format_duration, format_size
from gateway.config.upstream_fields import HealthFields, TimeoutFields, TlsClientFields, UpstreamFields

SHORT_STREAM = 60.0
_HOST_WORDS = frozenset({"forward", "target"})


def warn_of_edges(routes: Sequence[ResolvedRoute], root: Section) -> Iterator[tuple[Place, str]]:
    upstreams: Mapping[str, Section] = root.get(ConfigFields.UPSTREAMS) or {}
    yield from _warn_of_forwarding(root)
    yield from _warn_of_clients(root.sub(ConfigFields.CLIENT))
    yield from _warn_of_memory(root.sub(ConfigFields.MEMORY), routes)
    for tls in (root.sub(ConfigFields.TLS), root.sub(ConfigFields.ADMIN).sub(AdminFields.TLS)):
        yield from _warn_of_expiry(tls, TlsServerFields.CERT_FILE, TlsServerFields.CLIENT_CA_FILE)
    for section in upstreams.values():
        yield from _warn_of_upstream(section)
    for one in routes:
        upstream = upstreams.get(one.route.upstream)
        if one.idempotency is not None and one.route.policy is not None and one.route.policy.stream and upstream is not None:
            yield from _warn_of_stream(one.idempotency, one.section.get(RouteFields.UPSTREAM), upstream.sub(UpstreamFields.TIMEOUTS))


def _warn_of_expiry(tls: Section, *fields: Field[str | None]) -> Iterator[tuple[Place, str]]:
    for field in fields:
        path = tls.get(field)
        if path is not None and (found := expiry_of(path)):
            yield tls.place_of(field), found


def _warn_of_forwarding(root: Section) -> Iterator[tuple[Place, str]]:
    for network in root.get(ConfigFields.TRUSTED_PROXIES):
        if network.prefixlen == 0:
            words = "is everybody: each client is believed about who it is, whatever it writes"
            yield root.place_of(ConfigFields.TRUSTED_PROXIES), f"{network} {words}; name the networks of the proxies in front"
    if root.get(ConfigFields.FORWARDED).value == "none" and root.get(ConfigFields.TRUSTED_PROXIES):
        yield (
            root.place_of(ConfigFields.FORWARDED),
            "none: upstreams learn nothing about the client, although `trusted_proxies` are believed about it",
        )


def _warn_of_clients(client: Section) -> Iterator[tuple[Place, str]]:
    all_of_them, of_one = client.get(ClientFields.MAX_CONNECTIONS), client.get(ClientFields.MAX_CONNECTIONS_PER_ADDRESS)
    if of_one > all_of_them:
        place = client.place_of(ClientFields.MAX_CONNECTIONS_PER_ADDRESS)
        yield place, f"{of_one} is greater than max_connections ({all_of_them}), and so never counts"


def _warn_of_memory(memory: Section, routes: Sequence[ResolvedRoute]) -> Iterator[tuple[Place, str]]:
    largest = largest_body(routes, "response_body", "request_body")
    total = memory.get(MemoryFields.TOTAL)
    if largest is None or total >= ROOM * largest[0]:
        return
    size, words, place = largest
    where, subject = total_and(memory, place)
    yield (
        where,
        f"{subject} is less than {ROOM} times {words}: a few such bodies fill it, then work gets 503; "
        f"{format_size(ROOM * size)} or more would do",
    )


def _warn_of_upstream(section: Section) -> Iterator[tuple[Place, str]]:
    host = section.get(UpstreamFields.HOST)
    if host not in _HOST_WORDS and (meant := did_you_mean(host, _HOST_WORDS)):
        yield section.place_of(UpstreamFields.HOST), f"the upstream gets `Host: {host}`{meant}"
    wait, total = section.get(UpstreamFields.SLOT_WAIT), section.sub(UpstreamFields.TIMEOUTS).get(TimeoutFields.TOTAL)
    if wait >= total:
        place = section.place_of(UpstreamFields.SLOT_WAIT)
        yield place, f"{format_duration(wait)} is not shorter than the total timeout ({format_duration(total)}), which counts the wait too"
    health = section.sub(UpstreamFields.HEALTH)
    if health.get(HealthFields.FAILURES) == 0 and health.given(HealthFields.COOLDOWN):
        yield health.place_of(HealthFields.COOLDOWN), "has no effect with `failures: 0`"
    if health.get(HealthFields.FAILURES) == 0 and health.get(HealthFields.CIRCUIT):
        yield health.place_of(HealthFields.CIRCUIT), "has no effect with `failures: 0`"
    yield from _warn_of_tls(section.sub(UpstreamFields.TLS))
    yield from _warn_of_expiry(section.sub(UpstreamFields.TLS), TlsClientFields.CERT_FILE, TlsClientFields.CA_FILE)


def _warn_of_tls(tls: Section) -> Iterator[tuple[Place, str]]:
    if tls.get(TlsClientFields.VERIFY):
        return
    place = tls.place_of(TlsClientFields.VERIFY)
    yield place, "false: whoever sits between gateway and upstream can read and change everything; name the authority in `ca_file` instead"
    if tls.get(TlsClientFields.CA_FILE) is not None:
        yield tls.place_of(TlsClientFields.CA_FILE), "has no effect with `verify: false`"


def _warn_of_stream(idempotency: Section, name: str, timeouts: Section) -> Iterator[tuple[Place, str]]:
    total = timeouts.get(TimeoutFields.TOTAL)
    if total < SHORT_STREAM:
        words = f"a stream is cut at the total timeout of upstream `{name}`, {format_duration(total)}"
        yield idempotency.place_of(IdempotencyFields.STREAM), f"{words}; most take a minute or more"
