"""Upstreams: mistakes between the values of one and with its files on disk, and what is rarely meant."""

import ipaddress
import ssl
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from gateway.config.addresses import Listener, UnixListener
from gateway.config.checks.common import Findings, ResolvedRoute, check_tls, warn_of_expiry
from gateway.config.names import CONFIG, HEALTH, POLICY, TARGETS, TIMEOUTS, TLS_CLIENT, UPSTREAM
from gateway.config.section import Section
from gateway.config.settings.upstreams import Targets
from gateway.core.kinds import did_you_mean
from gateway.core.units import format_duration

SHORT_STREAM = 60.0
_HOST_WORDS = frozenset({"forward", "target"})


def check_upstreams(root: Section) -> Findings:
    for section in root.by_name(CONFIG.upstreams).values():
        if section.lost:
            continue
        if section.sound(TARGETS.url, TARGETS.targets):
            yield from _check_given(section)
            yield from _check_targets(section, section.make(Targets).value())
        if section.given(UPSTREAM.tls):
            yield from _check_tls(section.sub(UPSTREAM.tls))


def unknown_upstream(name: str, root: Section) -> str | None:
    """What to say of a name that no upstream has; None if one has it, or if that cannot be told."""
    names = root.by_name(CONFIG.upstreams)
    if name in names or not root.sound(CONFIG.upstreams):
        return None
    return f"unknown upstream `{name}`{did_you_mean(name, names)}"


def _check_given(section: Section) -> Findings:
    url, targets = section.given(TARGETS.url), section.given(TARGETS.targets)
    if url and targets:
        yield section.place_of(TARGETS.targets), "`url` is given too; keep one of them"
    elif not url and not targets:
        yield section.place_of(TARGETS.url), "is required (or `targets`, a list)"


def _check_targets(section: Section, targets: Sequence[str]) -> Findings:
    place = section.place_of(TARGETS.targets, TARGETS.url)
    seen: dict[str, str] = {}
    for target in targets:
        first = seen.setdefault(_meaning(target), target)
        if first is not target:
            yield place, f"{first} and {target} are one target; keep one of them"
    plain = [target for target in targets if not target.startswith("https://")]
    if plain and len(plain) < len(targets):
        yield place, f"{plain[0]} is not https:// while others are; the targets of one upstream are all https:// or none"
    elif plain and section.given(UPSTREAM.tls):
        yield section.place_of(UPSTREAM.tls), f"needs https:// targets, and {plain[0]} is none"
    sockets = [target for target in targets if target.startswith("unix:")]
    if sockets and section.get(UPSTREAM.host) == "target":
        message = f"{sockets[0]} has no host of its own; write forward, or a name such as api.example"
        yield section.place_of(UPSTREAM.host), message


def _meaning(target: str) -> str:
    """Equal for two spellings of one target."""
    parts = urlsplit(target)
    return target if target.startswith("unix:") else f"{parts.scheme}://{parts.hostname}:{_port(parts)}{parts.path}"


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _check_tls(tls: Section) -> Findings:
    names = {"cert": TLS_CLIENT.cert_file, "key": TLS_CLIENT.key_file, "authorities": TLS_CLIENT.ca_file}
    yield from check_tls(tls, ssl.PROTOCOL_TLS_CLIENT, **names)
    alone = tls.get(TLS_CLIENT.cert_file) is None and tls.get(TLS_CLIENT.key_file) is not None
    if alone and tls.sound(TLS_CLIENT.cert_file, TLS_CLIENT.key_file):
        words = "a key without a certificate does nothing; name it in `cert_file`, or remove this"
        yield tls.place_of(TLS_CLIENT.key_file), words


def warn_of_upstreams(root: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    upstreams = root.by_name(CONFIG.upstreams)
    for section in upstreams.values():
        yield from _warn_of_upstream(section, root.get(CONFIG.listen))
        yield from _warn_of_times(section)
        yield from _warn_of_tls(section.sub(UPSTREAM.tls))
    for one in routes:
        upstream = upstreams.get(one.route.upstream)
        if one.guard is not None and one.guard[1].stream and upstream is not None:
            total = upstream.sub(UPSTREAM.timeouts).get(TIMEOUTS.total)
            if total < SHORT_STREAM:
                words = f"a stream is cut at the total timeout of upstream `{one.route.upstream}`, {format_duration(total)}"
                yield one.guard[0].place_of(POLICY.stream), f"{words}; most take a minute or more"


def _warn_of_upstream(section: Section, listen: Listener) -> Findings:
    if any(_is_own(target, listen) for target in section.make(Targets).value()):
        place = section.place_of(TARGETS.url, TARGETS.targets)
        yield place, f"is the gateway's own listener, {listen}: requests would go round in a circle"
    host = section.get(UPSTREAM.host)
    if host not in _HOST_WORDS and (meant := did_you_mean(host, _HOST_WORDS)):
        yield section.place_of(UPSTREAM.host), f"the upstream gets `Host: {host}`{meant}"
    health = section.sub(UPSTREAM.health)
    if health.get(HEALTH.failures) == 0:
        if health.given(HEALTH.cooldown):
            yield health.place_of(HEALTH.cooldown), "has no effect with `failures: 0`"
        if health.get(HEALTH.circuit):
            yield health.place_of(HEALTH.circuit), "has no effect with `failures: 0`"


def _warn_of_times(section: Section) -> Findings:
    timeouts = section.sub(UPSTREAM.timeouts)
    total, first_byte = timeouts.get(TIMEOUTS.total), timeouts.get(TIMEOUTS.first_byte)
    if total < first_byte:
        place = timeouts.place_of(TIMEOUTS.total, TIMEOUTS.first_byte)
        words = f"total ({format_duration(total)}) is shorter than first_byte ({format_duration(first_byte)})"
        yield place, f"{words}, which then never counts"
    wait = section.get(UPSTREAM.slot_wait)
    if wait >= total:
        words = f"{format_duration(wait)} is not shorter than the total timeout ({format_duration(total)}), which counts the wait too"
        yield section.place_of(UPSTREAM.slot_wait), words


def _warn_of_tls(tls: Section) -> Findings:
    if not tls.get(TLS_CLIENT.verify):
        words = "false: whoever sits between gateway and upstream can read and change everything"
        yield tls.place_of(TLS_CLIENT.verify), f"{words}; name the authority in `ca_file` instead"
        if tls.get(TLS_CLIENT.ca_file) is not None:
            yield tls.place_of(TLS_CLIENT.ca_file), "has no effect with `verify: false`"
    yield from warn_of_expiry(tls, TLS_CLIENT.cert_file, TLS_CLIENT.ca_file)


def _is_own(url: str, listen: Listener) -> bool:
    """Whether what connects to `url` on this machine surely or very likely reaches `listen`."""
    if isinstance(listen, UnixListener) or url.startswith("unix:"):
        return url == str(listen)
    parts = urlsplit(url)
    if _port(parts) != listen.port:
        return False
    wanted, bound = (parts.hostname or "").lower(), listen.host.lower()
    if wanted == bound:
        return True
    here = {_kind(wanted), _kind(bound)}
    return "other" not in here and (here != {"loopback"} or "localhost" in {wanted, bound})


def _kind(host: str) -> str:
    """`loopback`, `any` (every address of this machine) or `other`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "loopback" if host == "localhost" else "other"
    if address.is_unspecified:
        return "any"
    return "loopback" if address.is_loopback else "other"
