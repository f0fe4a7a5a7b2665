"""Who asks: the sources of a principal, as a route's `principal:` section says them. `gateway.principal` reads them in
a request.
"""

import enum
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, TypeAlias, assert_never

from gateway.core import texts
from gateway.core.common_kinds import FILE, HEADER, NAME
from gateway.core.kinds import Duration, Inline, ListOf, OneOrMany, Text, Yes
from gateway.core.setting import Form, Shape
from gateway.core.signing import Algorithm


class Combine(enum.StrEnum):
    """How several sources of a principal work together: each must be there, or the first that is there counts."""

    ALL = "all"
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class HeaderPrincipal:
    """The value of a header field, as a keyed digest."""

    name: str


@dataclass(frozen=True, slots=True)
class BasicPrincipal:
    """The user and password of HTTP Basic credentials (RFC 7617), as a keyed digest. The upstream judges the password.
    It never sees a replay, so a replay is only for a caller with the same password.
    """


@dataclass(frozen=True, slots=True)
class CertificatePrincipal:
    """The subject of the client's certificate: of our own TLS, or (`header`) as a trusted proxy tells it."""

    header: Annotated[
        str | None, HEADER, "The header field in which a trusted proxy names the subject. Default: the certificate of our own TLS."
    ] = None


@dataclass(frozen=True, slots=True)
class JwksFile:
    """A file of public keys. `stamp` digests its contents."""

    path: str
    stamp: str


@dataclass(frozen=True, slots=True)
class JwksUrl:
    """An address of public keys, asked for again after `refresh` seconds and used for at most `stale` seconds without
    an answer.
    """

    url: str = field(repr=False)
    refresh: float = 300.0
    stale: float = 86400.0


@dataclass(frozen=True, slots=True)
class JwtSecret:
    """A shared secret (HS256, HS384, HS512)."""

    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class JwtKeys(Form[JwksFile | JwksUrl | JwtSecret]):
    """Where the file says that the keys are. The reader of the file adds the stamp of `JwksFile`."""

    SHAPE: ClassVar = Shape(one_of=("jwks_file", "jwks_url", "secret"), required=True)

    jwks_file: Annotated[str | None, FILE, "JSON: the issuer's public keys (RFC 7517)."] = None
    jwks_url: Annotated[str | None, Text("a URL", texts.jwks_url), "Where the issuer publishes its keys."] = None
    secret: Annotated[str | None, Text("text", texts.optional, secret=True), "A secret shared with the issuer; for HS256 and its like."] = (
        field(default=None, repr=False)
    )
    refresh: Annotated[float, Duration("10s", "24h"), "How often the keys of `jwks_url` are asked for."] = 300.0
    stale: Annotated[float, Duration("10s", "30d"), "How long keys of `jwks_url` are used while nothing answers there."] = 86400.0

    def value(self) -> JwksFile | JwksUrl | JwtSecret:
        if self.jwks_file is not None:
            return JwksFile(self.jwks_file, "")
        return JwtSecret((self.secret or "").encode()) if self.jwks_url is None else JwksUrl(self.jwks_url, self.refresh, self.stale)


@dataclass(frozen=True, slots=True)
class JwtPrincipal:
    """A claim of a JWT (RFC 7519) that is verified: signature by `keys` and one of `algorithms`, `exp` and `nbf` within
    `leeway`, `iss` and `aud` where given. `claim` is the path to a text or whole number.
    """

    claim: Annotated[
        tuple[str, ...],
        OneOrMany(Text("the name of a claim", texts.not_empty("a claim has a name, such as sub"))),
        "The claim that says who asks, such as sub; a list leads to a nested one.",
    ]
    keys: Annotated[JwksFile | JwksUrl | JwtSecret, Inline(JwtKeys)]
    algorithms: Annotated[
        tuple[str, ...], ListOf(Algorithm.any(), at_least=1), "What a token may be signed with, as in [RS256]; all else is refused."
    ]
    header: Annotated[str, HEADER, "The header field that holds the token, as Bearer credentials or bare."] = "Authorization"
    issuer: Annotated[str | None, Text("an issuer", texts.optional), "What `iss` must be."] = None
    audience: Annotated[
        tuple[str, ...],
        OneOrMany(Text("an audience", texts.not_empty("an audience is a text that is not empty, as in https://api.example.com"))),
        "What `aud` must name, one of these at least; without it a token for another service counts too.",
    ] = ()
    leeway: Annotated[float, Duration("0s", "5m"), "By how much clocks may differ, for `exp` and `nbf`."] = 30.0


@dataclass(frozen=True, slots=True)
class ForwardAuthPrincipal:
    """A header of the answer to a subrequest: GET `path` of `upstream` with the request's `forward` fields. 2xx is yes,
    for `cache`.
    """

    upstream: Annotated[str, NAME, "The service that is asked: a name among `upstreams`."]
    path: Annotated[str, Text("a path", texts.target_path, r"^/"), "What is asked for: GET this path. 2xx means yes."]
    answer_header: Annotated[str, HEADER, "The header field of its answer that says who asks."]
    forward: Annotated[tuple[str, ...], ListOf(HEADER, at_least=1), "The header fields of the request that it gets to see."] = (
        "Authorization",
        "Cookie",
    )
    cache: Annotated[float, Duration("0s", "5m"), "How long a yes counts for the same fields; 0s: it is asked every time."] = 5.0


PrincipalSource: TypeAlias = HeaderPrincipal | BasicPrincipal | CertificatePrincipal | JwtPrincipal | ForwardAuthPrincipal


@dataclass(frozen=True, slots=True)
class SourceForm(Form[PrincipalSource]):
    """One source as the file says it."""

    SHAPE: ClassVar = Shape(
        one_of=("header", "jwt", "forward_auth", "basic", "client_certificate"),
        required=True,
        meant={"certificate": "client_certificate", "claim": "jwt", "token": "jwt"},
    )

    header: Annotated[str | None, HEADER, "A request header; its value is kept as a keyed digest only."] = None
    jwt: Annotated[JwtPrincipal | None, "A claim of a token (RFC 7519) that is verified."] = None
    forward_auth: Annotated[ForwardAuthPrincipal | None, "What an authentication service says of the request."] = None
    basic: Annotated[
        bool | None, Yes("write true, or remove this source"), "true: the user and password of HTTP Basic credentials, as a keyed digest."
    ] = None
    client_certificate: Annotated[CertificatePrincipal | None, "The subject of the client's certificate; {} for that of our own TLS."] = (
        None
    )

    def value(self) -> PrincipalSource:
        if self.header is not None:
            return HeaderPrincipal(self.header)
        found = self.jwt or self.forward_auth or self.client_certificate or (BasicPrincipal() if self.basic else None)
        assert found is not None, "one of them is required"
        return found


def needs_waiting(principal: tuple[PrincipalSource, ...]) -> bool:
    """Whether identifying a caller may have to wait for another server's answer."""
    return any(
        isinstance(source, ForwardAuthPrincipal) or (isinstance(source, JwtPrincipal) and isinstance(source.keys, JwksUrl))
        for source in principal
    )


def principal_headers(sources: tuple[PrincipalSource, ...]) -> tuple[str, ...]:
    """The request fields that say who asks."""
    names: list[str] = []
    for source in sources:
        match source:
            case HeaderPrincipal(name):
                names.append(name)
            case JwtPrincipal():
                names.append(source.header)
            case BasicPrincipal():
                names.append("Authorization")
            case CertificatePrincipal(header):
                names += [] if header is None else [header]
            case ForwardAuthPrincipal():
                names += source.forward
            case _:
                assert_never(source)
    return tuple(names)
