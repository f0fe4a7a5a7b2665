"""OpenID Connect for users of the admin listener: what is said to the provider, and what is believed of its answers. Pure.

The code flow (OpenID Connect Core 1.0 section 3.1) with PKCE (RFC 7636, S256 alone), state and nonce. Signatures are not judged here.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard
from urllib.parse import urlencode, urlsplit

from gateway.core.roles import Role, highest
from gateway.core.strict_json import AS_PYTHON, read
from gateway.core.visible import is_visible

LEEWAY = 60.0
"""Seconds by which the provider's clock may differ."""
OLDEST = 600.0
"""Seconds between an id token's `iat` and now, at most: one login takes no longer."""
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
NAME_MAX = 200

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a provider says of itself (OpenID Connect Discovery 1.0 section 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str | None
    basic: bool
    """Whether a client shows its secret as HTTP Basic; else in the form."""
    names_itself: bool
    """Whether its answers to the browser name the issuer (RFC 9207)."""


def secure_url(text: str) -> bool:
    """Whether it is an https URL without a fragment; on loopback http will do."""
    try:
        url = urlsplit(text)
        host = url.hostname
    except ValueError:
        return False
    encrypted = url.scheme == "https" or (url.scheme == "http" and host in _LOOPBACK)
    return bool(host) and encrypted and not url.fragment and "@" not in url.netloc


def metadata_url(issuer: str) -> str:
    return f"{issuer.rstrip('/')}/.well-known/openid-configuration"


def read_metadata(body: bytes, issuer: str) -> Metadata:
    """Raises ValueError with a sentence for what is no metadata of this issuer, or offers no code flow with S256."""
    document = read(body, AS_PYTHON)
    if not isinstance(document, dict) or document.get("issuer") != issuer:
        raise ValueError("the provider's metadata names another issuer")
    authorization, token, keys = (_endpoint(document, name) for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"))
    methods = document.get("code_challenge_methods_supported")
    if isinstance(methods, list) and "S256" not in methods:
        raise ValueError("the provider knows no PKCE with S256")
    end, shown = document.get("end_session_endpoint"), document.get("token_endpoint_auth_methods_supported")
    return Metadata(
        issuer,
        authorization,
        token,
        keys,
        end_session_endpoint=end if isinstance(end, str) and secure_url(end) else None,
        basic=not isinstance(shown, list) or "client_secret_basic" in shown,
        names_itself=document.get("authorization_response_iss_parameter_supported") is True,
    )


def _endpoint(document: Mapping[str, object], name: str) -> str:
    url = document.get(name)
    if not isinstance(url, str) or not secure_url(url):
        raise ValueError(f"the provider's {name} is no https URL")
    return url


def challenge_of(verifier: str) -> str:
    """RFC 7636 section 4.2, S256."""
    return urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")


def authorization_url(
    endpoint: str, *, client_id: str, redirect_uri: str, scopes: Sequence[str], state: str, nonce: str, verifier: str
) -> str:
    """Where the browser goes to log in."""
    parameters = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "scope": " ".join(("openid", *(scope for scope in scopes if scope != "openid"))),
        "state": state,
        "nonce": nonce,
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": "S256",
    }
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}"


def logout_url(endpoint: str, *, client_id: str, back_to: str) -> str:
    """Where the browser goes to end its session at the provider (OpenID Connect RP-Initiated Logout 1.0)."""
    return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode({'client_id': client_id, 'post_logout_redirect_uri': back_to})}"


def find_fault(claims: Mapping[str, object], *, issuer: str, client_id: str, nonce: str, now: float) -> str | None:
    """What speaks against an id token whose signature is good (OpenID Connect Core 1.0 section 3.1.3.7); None: nothing."""
    fault = _fault_of_any(claims, issuer, client_id, now)
    if fault is not None:
        return fault
    if claims.get("nonce") != nonce:
        return "The id token is of another login."
    if not isinstance(claims.get("sub"), str) or not claims["sub"]:
        return "The id token does not say who it is about."
    expiry = claims.get("exp")
    return None if _is_instant(expiry) and expiry > now - LEEWAY else "The id token has expired."


def find_logout_fault(claims: Mapping[str, object], *, issuer: str, client_id: str, now: float) -> str | None:
    """The same of a logout token (OpenID Connect Back-Channel Logout 1.0 section 2.6)."""
    fault, events, expiry = _fault_of_any(claims, issuer, client_id, now), claims.get("events"), claims.get("exp", now)
    if fault is not None:
        return fault
    if not isinstance(events, dict) or LOGOUT_EVENT not in events or "nonce" in claims:
        return "The token is no logout token."
    if not _is_instant(expiry) or expiry <= now - LEEWAY:
        return "The logout token has expired."
    return None if named_session(claims) or named_subject(claims) else "The logout token names nobody."


def ended_at(claims: Mapping[str, object], now: float) -> int:
    """Up to which instant sessions have begun that a sound logout token ends: that of its making, with room for two clocks. So one that is
    sent again ends none that began later.
    """
    issued = claims.get("iat")
    return int(min(now, issued + LEEWAY) if _is_instant(issued) else now)


def named_session(claims: Mapping[str, object]) -> str:
    """The provider's own name of its session, or nothing."""
    sid = claims.get("sid")
    return sid if isinstance(sid, str) else ""


def named_subject(claims: Mapping[str, object]) -> str:
    sub = claims.get("sub")
    return sub if isinstance(sub, str) else ""


def name_of(claims: Mapping[str, object], claim: str) -> str | None:
    """The user as the audit table names it: `oidc:` and the claim, so that none has a configured user's. None for what is no name."""
    name = claims.get(claim)
    good = isinstance(name, str) and 0 < len(name) <= NAME_MAX and is_visible(name) and name == name.strip()
    return f"oidc:{name}" if good else None


def role_of(claims: Mapping[str, object], claim: str, roles: Sequence[tuple[str, Role]]) -> Role | None:
    """The highest role that one of the user's groups has; None: no group of the user has one."""
    groups = claims.get(claim)
    held = {group for group in (groups if isinstance(groups, list) else [groups]) if isinstance(group, str)}
    return highest(tuple(role for group, role in roles if group in held))


def _fault_of_any(claims: Mapping[str, object], issuer: str, client_id: str, now: float) -> str | None:
    audience, party, issued = claims.get("aud"), claims.get("azp"), claims.get("iat")
    if claims.get("iss") != issuer:
        return "The token is from another issuer."
    audiences = audience if isinstance(audience, list) else [audience]
    if client_id not in audiences or (len(audiences) > 1 and party is None) or (party is not None and party != client_id):
        return "The token is for another client."
    if not _is_instant(issued) or not now - OLDEST - LEEWAY < issued < now + LEEWAY:
        return "The token was not made just now."
    return None


def _is_instant(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
