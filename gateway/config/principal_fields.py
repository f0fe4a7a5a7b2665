"""The part of the table about principals: who asks."""

from gateway.config import policy_texts, texts
from gateway.config.algorithms import Algorithm
from gateway.config.alternatives import Alternatives
from gateway.config.edge_fields import FILE
from gateway.config.key_fields import HEADER
from gateway.config.kinds import Duration, Flag, Text
from gateway.config.one_or_many import OneOrMany
from gateway.config.shapes import Field, ListOf, Section, Struct
from gateway.core.policy import ForwardAuthPrincipal, JwksUrl, JwtPrincipal, JwtSecret

_JWT = JwtPrincipal(claim=(), keys=JwtSecret(b""), algorithms=())
_URL = JwksUrl("")
_AUTH = ForwardAuthPrincipal(upstream="", path="", answer_header="")


class JwtFields:
    """`principal[].jwt`."""

    CLAIM = Field(
        "claim",
        OneOrMany(Text("the name of a claim", policy_texts.claim)),
        "The claim that says who asks, such as sub; a list leads to a nested one.",
        required=True,
    )
    JWKS_FILE = Field("jwks_file", FILE, "JSON: the issuer's public keys (RFC 7517).")
    JWKS_URL = Field("jwks_url", Text("a URL", policy_texts.jwks_url), "Where the issuer publishes its keys.")
    SECRET = Field(
        "secret", Text("text", policy_texts.secret, secret=True), "A secret shared with the issuer; for HS256 and its like.", twin=True
    )
    ALGORITHMS = Field(
        "algorithms", ListOf(Algorithm(), at_least=1), "What a token may be signed with, as in [RS256]; all else is refused.", required=True
    )
    HEADER = Field("header", HEADER, "The header field that holds the token, as Bearer credentials or bare.", _JWT.header)
    ISSUER = Field("issuer", Text("an issuer", policy_texts.issuer), "What `iss` must be.")
    AUDIENCE = Field(
        "audience",
        OneOrMany(Text("an audience", policy_texts.audience)),
        "What `aud` must name, one of these at least; without it a token for another service counts too.",
    )
    LEEWAY = Field("leeway", Duration("0s", "5m"), "By how much clocks may differ, for `exp` and `nbf`.", _JWT.leeway)
    REFRESH = Field("refresh", Duration("10s", "24h"), "How often the keys of `jwks_url` are asked for.", _URL.refresh)
    STALE = Field("stale", Duration("10s", "30d"), "How long keys of `jwks_url` are used while nobody answers there.", _URL.stale)


class ForwardAuthFields:
    """`principal[].forward_auth`."""

    UPSTREAM = Field(
        "upstream", Text("a name", texts.name, texts.NAME_PATTERN), "The service that is asked: a name among `upstreams`.", required=True
    )
    PATH = Field("path", Text("a path", policy_texts.target_path, r"^/"), "What is asked for: GET this path. 2xx means yes.", required=True)
    ANSWER_HEADER = Field("answer_header", HEADER, "The header field of its answer that says who asks.", required=True)
    FORWARD = Field("forward", ListOf(HEADER, at_least=1), "The header fields of the request that it gets to see.", _AUTH.forward)
    CACHE = Field("cache", Duration("0s", "5m"), "How long a yes counts for the same fields; 0s: it is asked every time.", _AUTH.cache)


class CertificateFields:
    """`principal[].client_certificate`."""

    HEADER = Field(
        "header", HEADER, "The header field in which a trusted proxy names the subject. Default: the certificate of our own TLS."
    )


class SourceFields:
    """`principal[]`."""

    HEADER = Field("header", HEADER, "A request header; its value is kept as a keyed digest only.")
    JWT: Field[Section] = Field(
        "jwt",
        Struct.of(JwtFields, Alternatives(("jwks_file", "jwks_url", "secret"), required=True, twins=frozenset({"secret"}))),
        "A claim of a token (RFC 7519) that is verified.",
    )
    FORWARD_AUTH: Field[Section] = Field(
        "forward_auth", Struct.of(ForwardAuthFields), "What an authentication service says of the request."
    )
    BASIC = Field("basic", Flag(), "true: the user and password of HTTP Basic credentials, as a keyed digest.")
    CLIENT_CERTIFICATE: Field[Section] = Field(
        "client_certificate", Struct.of(CertificateFields), "The subject of the client's certificate; {} for that of our own TLS."
    )


_NAMES = tuple(field.name for field in Struct.of(SourceFields).table)
SOURCE = Struct.of(SourceFields, Alternatives(_NAMES, required=True), {"certificate": "client_certificate", "claim": "jwt", "token": "jwt"})
