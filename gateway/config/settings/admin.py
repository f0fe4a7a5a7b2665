"""The admin listener: who may use it, sessions of browsers, and the provider of their users."""

from dataclasses import dataclass, field
from typing import Annotated

from gateway.config import addresses
from gateway.config.addresses import ADDRESS, Listener, TcpListener
from gateway.config.settings.tls import TlsServer
from gateway.core.kinds import Choice, Duration, ListOf, Named, SectionOf, Text
from gateway.core.roles import Role
from gateway.core.second_approval import SecondApproval
from gateway.core.user_token import DIGEST_PATTERN

_LOOPBACK = TcpListener("127.0.0.1", 9464)
_USER_NAME = Text("a name such as ana", addresses.user_name, addresses.USER_PATTERN)
_TOKEN_DIGEST = Text("a digest such as sha256:…, made by `idempotency-gateway users token`", addresses.token_digest, DIGEST_PATTERN)
_CLAIM = Text("the name of a claim")
_GROUP = Text("the name of a group")
_ISSUER = Text("an https URL, such as https://login.example", addresses.issuer)
_SESSION_SECRET = Text("text of 32 characters or more", addresses.session_secret, secret=True)
_ORIGIN = Text("scheme and host, such as https://gateway-admin.example", addresses.origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A named user of the admin listener and of the commands. The configuration knows the digest of the token alone."""

    name: Annotated[str, _USER_NAME, "As the audit table names this user."]
    role: Annotated[Role, "viewer, operator, approver or admin; each may do what those before it may."]
    token_digest: Annotated[bytes, _TOKEN_DIGEST, "The digest of the user's token; `idempotency-gateway users token` makes both."] = field(
        repr=False
    )
    subject: Annotated[str | None, Text("a `sub`", addresses.subject), "The `sub` of the same person at the provider (`oidc`)."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Sessions of browsers. Without a `secret` the key of their cookies is made of `encryption_key`; without either, of chance."""

    idle: Annotated[float, Duration("1m", "24h"), "How long a browser's session lasts without a request."] = 900.0
    absolute: Annotated[float, Duration("1m", "7d"), "How long one lasts in any case; then its user logs in again."] = 43200.0
    secret: Annotated[
        bytes | None,
        _SESSION_SECRET,
        "The key of their cookies, the same at all gateways that one console is served by. Default: made of `encryption_key`.",
    ] = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """A provider whose users may use the console: OpenID Connect's code flow, with PKCE. `roles` are pairs of group and role."""

    issuer: Annotated[str, _ISSUER, "Who the provider is; its metadata is at <issuer>/.well-known/openid-configuration."]
    client_id: Annotated[str, Text("text"), "As the provider knows the gateway."]
    client_secret: Annotated[
        str | None, Text("text", addresses.optional_text, secret=True), "The gateway's secret there. Without it: a public client."
    ] = field(default=None, repr=False)
    scopes: Annotated[tuple[str, ...], ListOf(Text("a scope")), "What is asked for beside `openid`."] = ("profile", "groups")
    name_claim: Annotated[str, _CLAIM, "The claim by which the audit table names a user; one that users cannot change."] = (
        "preferred_username"
    )
    groups_claim: Annotated[str, _CLAIM, "The claim with the user's groups."] = "groups"
    roles: Annotated[
        tuple[tuple[str, Role], ...], Named(_GROUP, Choice.of(Role)), "Which role each group has; the highest one counts, and none is none."
    ]


@dataclass(frozen=True, slots=True)
class Admin:
    """The admin listener. Only a loopback listener may do without `token` and `users`; `tls` None means plain HTTP.

    `token` is that of a user `admin` with the role admin. `url` is where browsers reach the listener, None: where they say they do.
    """

    listen: Annotated[Listener, ADDRESS, "Where health, metrics and the admin API are served."] = _LOOPBACK
    token: Annotated[str | None, Text("text", addresses.admin_token, secret=True), "Bearer token; required off loopback."] = field(
        default=None, repr=False
    )
    tls: Annotated[TlsServer | None, "Serve HTTPS. Without it: plain HTTP."] = None
    users: Annotated[tuple[User, ...], ListOf(SectionOf(User), unique=False), "Who may do what there, and by the commands."] = ()
    url: Annotated[str | None, _ORIGIN, "Where browsers reach this listener, if a proxy with TLS stands before it."] = None
    sessions: Annotated[SessionSettings, "How long browsers stay logged in."] = field(default_factory=SessionSettings)
    oidc: Annotated[OidcSettings | None, "Users of an OpenID Connect provider; needs the `oidc` extra, and `url`."] = None
    second_approval: Annotated[SecondApproval | None, "Which verdicts another user must confirm."] = None

    @property
    def open(self) -> bool:
        """Whether whoever reaches the listener may do everything."""
        return self.token is None and not self.users and self.oidc is None
