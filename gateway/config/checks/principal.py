"""Mistakes about who asks: between the fields of one source, between sources, and with what they lean on elsewhere."""

from collections.abc import Sequence
from typing import assert_never

from gateway.config.addresses import UnixListener
from gateway.config.certificates import FileError
from gateway.config.checks.common import Findings
from gateway.config.checks.upstreams import unknown_upstream
from gateway.config.key_sets import looks_public, missing_library, usable_algorithms
from gateway.config.mistakes import Place
from gateway.config.names import CERTIFICATE, CONFIG, FORWARD_AUTH, JWT, JWT_KEYS, POLICY, SOURCE, TLS_SERVER
from gateway.config.section import Section
from gateway.core.field_names import FRAMING, HOP_BY_HOP, REPLACED
from gateway.core.policy import Policy
from gateway.core.principal_source import (
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
from gateway.core.signing import SECRET_BYTES
from gateway.core.texts import exposed
from gateway.core.units import format_duration

_NOT_SENT_ON = HOP_BY_HOP | FRAMING | REPLACED | {b"x-forwarded-method", b"x-forwarded-uri", b"x-forwarded-host", b"x-forwarded-proto"}
"""Request fields that an authentication service does not see as they came."""
RAW_CREDENTIALS = frozenset({"authorization", "proxy-authorization", "cookie"})


def check_sources(root: Section, sections: Sequence[Section], policy: Policy) -> Findings:
    """What is wrong with the sources of one principal, each a section without a mistake of its own."""
    sources = policy.principal
    if policy.combine is Combine.FIRST:
        yield from _check_issuers(sections, sources)
    seen: dict[PrincipalSource, int] = {}
    for index, (section, source) in enumerate(zip(sections, sources, strict=True)):
        spelled = HeaderPrincipal(source.name.lower()) if isinstance(source, HeaderPrincipal) else source
        if seen.setdefault(spelled, index) != index:
            place, name = _named(section, source)
            yield place, f"`{name}` is listed twice"
        match source:
            case HeaderPrincipal() | BasicPrincipal():
                pass
            case JwtPrincipal():
                yield from _check_jwt(section.sub(SOURCE.jwt), source)
            case ForwardAuthPrincipal():
                yield from _check_forward_auth(root, section.sub(SOURCE.forward_auth))
            case CertificatePrincipal():
                yield from _check_certificate(root, section)
            case _:
                assert_never(source)


def meaning(source: PrincipalSource) -> tuple[object, ...]:
    """What two sources have in common that call every caller the same. Where a token stands and for whom it is may
    differ.
    """
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


def _check_issuers(sections: Sequence[Section], sources: Sequence[PrincipalSource]) -> Findings:
    """Tokens of two sources meet in one scope, in which none may be able to name a caller of the other's."""
    tokens = [(section, source) for section, source in zip(sections, sources, strict=True) if isinstance(source, JwtPrincipal)]
    for section, source in tokens if len(tokens) > 1 else ():
        if source.issuer is None:
            place = section.sub(SOURCE.jwt).place_of(JWT.issuer)
            words = "is required with `principal_combine: first` and several tokens"
            yield place, f"{words}: two issuers may call two callers the same"


def _named(section: Section, source: PrincipalSource) -> tuple[Place, str]:
    """Where a source stands, and what to call it."""
    if isinstance(source, HeaderPrincipal):
        return section.place_of(SOURCE.header), source.name
    return section.place, next(iter(section.fields))


def _check_jwt(section: Section, source: JwtPrincipal) -> Findings:
    if (missing := missing_library()) is not None:
        yield section.place, f"needs {missing}: pip install 'idempotency-gateway[jwt]'"
        return
    shared = [name for name in source.algorithms if name in SECRET_BYTES]
    public = [name for name in source.algorithms if name not in SECRET_BYTES]
    place = section.place_of(JWT.algorithms)
    match source.keys:
        case JwtSecret(secret):
            if public:
                yield place, f"{public[0]} takes public keys: name them in `jwks_file` or `jwks_url`, or write HS256"
            yield from _check_secret(section.place_of(JWT_KEYS.secret), secret, shared)
        case JwksFile() | JwksUrl() as keys:
            if shared:
                words = "takes a shared secret, and whoever knows the public keys could sign with them"
                yield place, f"{shared[0]} {words}; write what the issuer signs with, such as RS256"
            if isinstance(keys, JwksFile):
                yield from _check_keys(section.place_of(JWT_KEYS.jwks_file), keys.path, public)
            elif keys.stale < keys.refresh:
                words = f"stale ({format_duration(keys.stale)}) is shorter than refresh ({format_duration(keys.refresh)})"
                place = section.place_of(JWT_KEYS.stale, JWT_KEYS.refresh)
                yield place, f"{words}: between two refreshes there would be no keys"
        case _:
            assert_never(source.keys)


def _check_secret(place: Place, secret: bytes, algorithms: Sequence[str]) -> Findings:
    """RFC 7518 section 3.2."""
    longest = max(algorithms, key=lambda name: SECRET_BYTES[name], default=None)
    if longest is not None and len(secret) < SECRET_BYTES[longest]:
        yield place, f"has {len(secret)} bytes, and {longest} needs {SECRET_BYTES[longest]} or more: a shorter one can be guessed"
    elif looks_public(secret):
        yield place, "is a public key or a certificate, which everybody may know, and no secret; name it in `jwks_file`"


def _check_keys(place: Place, path: str, algorithms: Sequence[str]) -> Findings:
    try:
        usable = usable_algorithms(path)
    except FileError as error:
        yield place, str(error)
        return
    missing = [name for name in algorithms if name not in usable]
    if missing and len(missing) == len(algorithms):
        kinds = f"its keys are for {', '.join(sorted(usable))}" if usable else "it holds no public key that could verify a signature"
        yield place, f"{path} has no key for {', '.join(missing)}: {kinds}"


def _check_forward_auth(root: Section, section: Section) -> Findings:
    for name in section.get(FORWARD_AUTH.forward):
        if name.lower().encode() in _NOT_SENT_ON:
            words = f"{name} is about one connection, or the gateway's own to write; name the fields that hold credentials"
            yield section.place_of(FORWARD_AUTH.forward), words
    if (unknown := unknown_upstream(section.get(FORWARD_AUTH.upstream), root)) is not None:
        yield section.place_of(FORWARD_AUTH.upstream), unknown


def _check_certificate(root: Section, source: Section) -> Findings:
    section = source.sub(SOURCE.client_certificate)
    header, tls = section.get(CERTIFICATE.header), root.sub(CONFIG.tls)
    if header is None:
        if root.sound(CONFIG.tls) and tls.sound(TLS_SERVER.client_ca_file) and tls.get(TLS_SERVER.client_ca_file) is None:
            words = "needs `tls.client_ca_file`: without it no client shows a certificate"
            yield section.place, f"{words}; or name the `header` in which a trusted proxy tells the subject"
        return
    place = section.place_of(CERTIFICATE.header)
    if root.sound(CONFIG.trusted_proxies) and not root.get(CONFIG.trusted_proxies):
        yield place, f"needs `trusted_proxies`: {header} is believed from these alone, and there are none"
    elif root.sound(CONFIG.listen) and isinstance(root.get(CONFIG.listen), UnixListener):
        words = f"{header} is believed from `trusted_proxies` alone, and who connects to a Unix socket has no address"
        yield place, f"{words}; use basic or jwt"


def warn_of_sources(section: Section, policy: Policy) -> Findings:
    for one, source in zip(section.each(POLICY.principal), policy.principal, strict=True):
        match source:
            case HeaderPrincipal(name) if name.lower() in RAW_CREDENTIALS:
                words = f"{name.title()} is a raw credential: a token refresh is a new scope, in which a retry executes again"
                remedy = "name what stays the same, such as {jwt: {claim: sub, ...}} or {basic: true}"
                yield section.place_of(POLICY.principal), f"{words}; {remedy}"
            case JwtPrincipal():
                yield from _warn_of_jwt(one.sub(SOURCE.jwt), source)
            case HeaderPrincipal() | BasicPrincipal() | CertificatePrincipal() | ForwardAuthPrincipal():
                pass
            case _:
                assert_never(source)


def _warn_of_jwt(section: Section, source: JwtPrincipal) -> Findings:
    match source.keys:
        case JwksUrl(url):
            if exposed(url):
                yield section.place_of(JWT_KEYS.jwks_url), "http: whoever sits between can put in keys of their own; use https"
        case JwksFile() | JwtSecret():
            for field in (JWT_KEYS.refresh, JWT_KEYS.stale):
                if section.given(field):
                    yield section.place_of(field), "has no effect without `jwks_url`"
        case _:
            assert_never(source.keys)
    if not source.audience and not isinstance(source.keys, JwtSecret):
        words = "is not given: a token that was meant for another service of the issuer counts here too"
        yield section.place_of(JWT.audience), words
    if len(source.claim) == 1 and "." in source.claim[0] and "/" not in source.claim[0]:
        nested = ", ".join(source.claim[0].split("."))
        yield section.place_of(JWT.claim), f"is the claim called `{source.claim[0]}`; if a nested one is meant, write [{nested}]"
