"""Mistakes about who asks: between the fields of one source, between sources, and with what they lean on elsewhere."""

from collections.abc import Sequence
from typing import assert_never

from gateway.config.algorithms import SECRET_BYTES
from gateway.config.certificates import FileError
from gateway.config.edge_fields import TlsServerFields
from gateway.config.fields import ConfigFields
from gateway.config.key_sets import looks_public, missing_library, usable_algorithms
from gateway.config.kinds import Reader, did_you_mean
from gateway.config.mistakes import Place
from gateway.config.model import UnixListener
from gateway.config.principal_fields import CertificateFields, ForwardAuthFields, JwtFields, SourceFields
from gateway.config.resolve_principal import resolve_sources
from gateway.config.shapes import Section
from gateway.config.units import format_duration
from gateway.core.field_names import FRAMING, HOP_BY_HOP, REPLACED
from gateway.core.policy import (
    BasicPrincipal,
    CertificatePrincipal,
    Combine,
    ForwardAuthPrincipal,
    HeaderPrincipal,
    JwksFile,
    JwksUrl,
    JwtPrincipal,
    JwtSecret,
    PrincipalSource,
)

_NOT_SENT_ON = HOP_BY_HOP | FRAMING | REPLACED | {b"x-forwarded-method", b"x-forwarded-uri", b"x-forwarded-host", b"x-forwarded-proto"}
"""Request fields that an authentication service does not see as they came."""


def check_sources(reader: Reader, root: Section, sections: Sequence[Section], combine: Combine) -> None:
    """Report what is wrong with the sources of one principal, each a section without a mistake of its own."""
    sources = resolve_sources(sections)
    if combine is Combine.FIRST:
        _check_issuers(reader, sections, sources)
    seen: dict[PrincipalSource, int] = {}
    for index, (section, source) in enumerate(zip(sections, sources, strict=True)):
        spelled = HeaderPrincipal(source.name.lower()) if isinstance(source, HeaderPrincipal) else source
        if seen.setdefault(spelled, index) != index:
            place, name = _named(section, source)
            reader.report(place, f"`{name}` is listed twice")
        match source:
            case HeaderPrincipal() | BasicPrincipal():
                pass
            case JwtPrincipal():
                _check_jwt(reader, section.sub(SourceFields.JWT), source)
            case ForwardAuthPrincipal():
                _check_forward_auth(reader, root, section.sub(SourceFields.FORWARD_AUTH))
            case CertificatePrincipal():
                _check_certificate(reader, root, section)
            case _:
                assert_never(source)


def meaning(source: PrincipalSource) -> tuple[object, ...]:
    """What two sources have in common that call every caller the same. Where a token stands and for whom it is may differ."""
    match source:
        case HeaderPrincipal(name):
            return "header", name.lower()
        case BasicPrincipal():
            return ("basic",)
        case CertificatePrincipal(header):
            return "client_certificate", header and header.lower()
        case ForwardAuthPrincipal():
            return "forward_auth", source.upstream, source.path, source.answer_header.lower()
        case JwtPrincipal():
            return "jwt", source.claim, source.issuer, source.keys.url if isinstance(source.keys, JwksUrl) else source.keys
        case _:
            assert_never(source)


def _check_issuers(reader: Reader, sections: Sequence[Section], sources: Sequence[PrincipalSource]) -> None:
    """Tokens of two sources meet in one scope, in which none may be able to name a caller of the other's."""
    tokens = [(section, source) for section, source in zip(sections, sources, strict=True) if isinstance(source, JwtPrincipal)]
    for section, source in tokens if len(tokens) > 1 else ():
        if source.issuer is None:
            place = section.sub(SourceFields.JWT).place_of(JwtFields.ISSUER)
            reader.report(
                place, "is required with `principal_combine: first` and several tokens: two issuers may call two callers the same"
            )


def _named(section: Section, source: PrincipalSource) -> tuple[Place, str]:
    """Where a source stands, and what to call it."""
    if isinstance(source, HeaderPrincipal):
        return section.place_of(SourceFields.HEADER), source.name
    return section.place, next(iter(section.fields))


def _check_jwt(reader: Reader, section: Section, source: JwtPrincipal) -> None:
    names = JwtFields
    if (missing := missing_library()) is not None:
        reader.report(section.place, f"needs {missing}: pip install 'idempotency-gateway[jwt]'")
        return
    shared = [name for name in source.algorithms if name in SECRET_BYTES]
    public = [name for name in source.algorithms if name not in SECRET_BYTES]
    place = section.place_of(names.ALGORITHMS)
    match source.keys:
        case JwtSecret(secret):
            if public:
                reader.report(place, f"{public[0]} takes public keys: name them in `jwks_file` or `jwks_url`, or write HS256")
            _check_secret(reader, section.place_of(names.SECRET), secret, shared)
        case JwksFile() | JwksUrl() as keys:
            if shared:
                words = "takes a shared secret, and whoever knows the public keys could sign with them"
                reader.report(place, f"{shared[0]} {words}; write what the issuer signs with, such as RS256")
            if isinstance(keys, JwksFile):
                _check_keys(reader, section.place_of(names.JWKS_FILE), keys.path, public)
            elif keys.stale < keys.refresh:
                words = f"stale ({format_duration(keys.stale)}) is shorter than refresh ({format_duration(keys.refresh)})"
                wrong = names.STALE if section.given(names.STALE) else names.REFRESH
                reader.report(section.place_of(wrong), f"{words}: between two refreshes there would be no keys")
        case _:
            assert_never(source.keys)


def _check_secret(reader: Reader, place: Place, secret: bytes, algorithms: Sequence[str]) -> None:
    """RFC 7518 section 3.2."""
    longest = max(algorithms, key=lambda name: SECRET_BYTES[name], default=None)
    if longest is not None and len(secret) < SECRET_BYTES[longest]:
        reader.report(place, f"has {len(secret)} bytes, and {longest} needs {SECRET_BYTES[longest]} or more: a shorter one can be guessed")
    elif looks_public(secret):
        reader.report(place, "is a public key or a certificate, which everybody may know, and no secret; name it in `jwks_file`")


def _check_keys(reader: Reader, place: Place, path: str, algorithms: Sequence[str]) -> None:
    try:
        usable = usable_algorithms(path)
    except FileError as error:
        reader.report(place, str(error))
        return
    missing = [name for name in algorithms if name not in usable]
    if missing and len(missing) == len(algorithms):
        kinds = f"its keys are for {', '.join(sorted(usable))}" if usable else "it holds no public key that could verify a signature"
        reader.report(place, f"{path} has no key for {', '.join(missing)}: {kinds}")


def _check_forward_auth(reader: Reader, root: Section, section: Section) -> None:
    for name in section.get(ForwardAuthFields.FORWARD):
        if name.lower().encode() in _NOT_SENT_ON:
            words = f"{name} is about one connection, or the gateway's own to write; name the fields that hold credentials"
            reader.report(section.place_of(ForwardAuthFields.FORWARD), words)
    upstream, names = section.get(ForwardAuthFields.UPSTREAM), root.get(ConfigFields.UPSTREAMS)
    if root.sound(ConfigFields.UPSTREAMS) and upstream not in names:
        reader.report(section.place_of(ForwardAuthFields.UPSTREAM), f"unknown upstream `{upstream}`{did_you_mean(upstream, names)}")


def _check_certificate(reader: Reader, root: Section, source: Section) -> None:
    section = source.sub(SourceFields.CLIENT_CERTIFICATE)
    header, tls = section.get(CertificateFields.HEADER), root.sub(ConfigFields.TLS)
    if header is None:
        if root.sound(ConfigFields.TLS) and tls.sound(TlsServerFields.CLIENT_CA_FILE) and tls.get(TlsServerFields.CLIENT_CA_FILE) is None:
            words = "needs `tls.client_ca_file`: without it no client shows a certificate"
            reader.report(section.place, f"{words}; or name the `header` in which a trusted proxy tells the subject")
        return
    place = section.place_of(CertificateFields.HEADER)
    if root.sound(ConfigFields.TRUSTED_PROXIES) and not root.get(ConfigFields.TRUSTED_PROXIES):
        reader.report(place, f"needs `trusted_proxies`: {header} is believed from these alone, and there are none")
    elif root.sound(ConfigFields.LISTEN) and isinstance(root.get(ConfigFields.LISTEN), UnixListener):
        reader.report(
            place, f"{header} is believed from `trusted_proxies` alone, and who connects to a Unix socket has no address; use basic or jwt"
        )
