"""From the sections of a principal's sources to their values. As in `resolve`, nothing is judged here."""

from collections.abc import Sequence

from gateway.config.certificates import digest_files
from gateway.config.principal_fields import CertificateFields, ForwardAuthFields, JwtFields, SourceFields
from gateway.config.shapes import Section
from gateway.core.policy import (
    BasicPrincipal,
    CertificatePrincipal,
    ForwardAuthPrincipal,
    HeaderPrincipal,
    JwksFile,
    JwksUrl,
    JwtPrincipal,
    JwtSecret,
    PrincipalSource,
)


def resolve_sources(sections: Sequence[Section]) -> tuple[PrincipalSource, ...]:
    """The sources in order, one for each section."""
    return tuple(_source(section) for section in sections)


def _source(section: Section) -> PrincipalSource:
    names = SourceFields
    if section.given(names.HEADER):
        return HeaderPrincipal(section.get(names.HEADER))
    if section.given(names.JWT):
        return _jwt(section.sub(names.JWT))
    if section.given(names.FORWARD_AUTH):
        return _forward_auth(section.sub(names.FORWARD_AUTH))
    if section.given(names.CLIENT_CERTIFICATE):
        return CertificatePrincipal(section.sub(names.CLIENT_CERTIFICATE).get(CertificateFields.HEADER))
    return BasicPrincipal()


def _jwt(section: Section) -> JwtPrincipal:
    names = JwtFields
    return JwtPrincipal(
        claim=section.get(names.CLAIM),
        keys=_keys(section),
        algorithms=section.get(names.ALGORITHMS),
        header=section.get(names.HEADER),
        issuer=section.get(names.ISSUER),
        audience=section.get(names.AUDIENCE) or (),
        leeway=section.get(names.LEEWAY),
    )


def _keys(section: Section) -> JwksFile | JwksUrl | JwtSecret:
    path, url, secret = section.get(JwtFields.JWKS_FILE), section.get(JwtFields.JWKS_URL), section.get(JwtFields.SECRET)
    if path is not None:
        return JwksFile(path, digest_files(path))
    if url is not None:
        return JwksUrl(url, section.get(JwtFields.REFRESH), section.get(JwtFields.STALE))
    return JwtSecret((secret or "").encode())


def _forward_auth(section: Section) -> ForwardAuthPrincipal:
    names = ForwardAuthFields
    return ForwardAuthPrincipal(
        upstream=section.get(names.UPSTREAM),
        path=section.get(names.PATH),
        answer_header=section.get(names.ANSWER_HEADER),
        forward=section.get(names.FORWARD),
        cache=section.get(names.CACHE),
    )
