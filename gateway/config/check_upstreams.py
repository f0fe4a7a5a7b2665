"""Mistakes between the values of one upstream, and with its files on disk."""

import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from gateway.config.certificates import load_authorities, load_pair
from gateway.config.check_edges import try_files
from gateway.config.fields import ConfigFields
from gateway.config.kinds import Reader
from gateway.config.resolve_edges import targets_of
from gateway.config.shapes import Section
from gateway.config.upstream_fields import TlsClientFields, UpstreamFields


def check_upstreams(reader: Reader, root: Section) -> None:
    for section in (root.get(ConfigFields.UPSTREAMS) or {}).values():
        if section.lost:
            continue
        if section.sound(UpstreamFields.URL, UpstreamFields.TARGETS):
            _check_given(reader, section)
            _check_targets(reader, section, targets_of(section))
        if section.given(UpstreamFields.TLS):
            _check_tls(reader, section.sub(UpstreamFields.TLS))


def _check_given(reader: Reader, section: Section) -> None:
    url, targets = section.given(UpstreamFields.URL), section.given(UpstreamFields.TARGETS)
    if url and targets:
        reader.report(section.place_of(UpstreamFields.TARGETS), "`url` is given too; keep one of them")
    elif not url and not targets:
        reader.report(section.place_of(UpstreamFields.URL), "is required (or `targets`, a list)")


def _check_targets(reader: Reader, section: Section, targets: Sequence[str]) -> None:
    place = section.place_of(UpstreamFields.TARGETS if section.given(UpstreamFields.TARGETS) else UpstreamFields.URL)
    seen: dict[str, str] = {}
    for target in targets:
        first = seen.setdefault(_meaning(target), target)
        if first is not target:
            reader.report(place, f"{first} and {target} are one target; keep one of them")
    plain = [target for target in targets if not target.startswith("https://")]
    if plain and len(plain) < len(targets):
        reader.report(place, f"{plain[0]} is not https:// while others are; the targets of one upstream are all https:// or none")
    elif plain and section.given(UpstreamFields.TLS):
        reader.report(section.place_of(UpstreamFields.TLS), f"needs https:// targets, and {plain[0]} is none")
    sockets = [target for target in targets if target.startswith("unix:")]
    if sockets and section.get(UpstreamFields.HOST) == "target":
        message = f"{sockets[0]} has no host of its own; write forward, or a name such as api.example"
        reader.report(section.place_of(UpstreamFields.HOST), message)


def _meaning(target: str) -> str:
    """Equal for two spellings of one target."""
    if target.startswith("unix:"):
        return target
    parts = urlsplit(target)
    return f"{parts.scheme}://{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


def _check_tls(reader: Reader, tls: Section) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    names = TlsClientFields
    if tls.sound(names.CERT_FILE, names.KEY_FILE):
        cert_file, key_file = tls.get(names.CERT_FILE), tls.get(names.KEY_FILE)
        if cert_file is not None:
            places = {cert_file: tls.place_of(names.CERT_FILE)}
            if key_file is not None:
                places.setdefault(key_file, tls.place_of(names.KEY_FILE))
            try_files(reader, lambda: load_pair(context, cert_file, key_file or cert_file), places)
        elif key_file is not None:
            reader.report(tls.place_of(names.KEY_FILE), "a key without a certificate does nothing; name it in `cert_file`, or remove this")
    ca_file = tls.get(names.CA_FILE)
    if ca_file is not None:
        try_files(reader, lambda: load_authorities(context, ca_file), {ca_file: tls.place_of(names.CA_FILE)})
