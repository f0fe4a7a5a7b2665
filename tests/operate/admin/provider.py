"""A small OpenID Connect provider for tests: it speaks the standard, logs everybody in, and can be made to do wrong."""

import base64
import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from jwt.algorithms import ECAlgorithm

CLIENT, SECRET = "gateway", "a client's secret: %&"


@dataclass
class Grant:
    """What a code stands for."""

    nonce: str
    challenge: str
    redirect_uri: str


@dataclass
class Provider:
    """`claims` are added to those of each id token. `wrong` replaces claims; None takes one out."""

    now: float
    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=lambda: {"preferred_username": "ana", "groups": ["ops", "staff"]})
    wrong: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, EllipticCurvePrivateKey] = field(default_factory=dict)
    key_id: str = "first"
    grants: dict[str, Grant] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)

    def rotate(self, key_id: str) -> None:
        """From now on another key signs; the one before is gone."""
        self.key_id, self.keys = key_id, {key_id: generate_private_key(SECP256R1())}

    def sign(self, claims: dict[str, Any], key: Any = None, **headers: Any) -> str:
        headers = {"kid": self.key_id, **headers}
        return jwt.encode(claims, key or self.keys[self.key_id], headers.pop("alg", "ES256"), headers=headers)

    def id_token(self, nonce: str) -> str:
        now = int(self.now)
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": "u-1", "iat": now, "exp": now + 300, "nonce": nonce, "sid": "s-1"}
        claims = {**claims, **self.claims, **self.wrong}
        return self.sign({name: value for name, value in claims.items() if value is not None})

    def logout_token(self, **claims: Any) -> str:
        now = int(self.now)
        event: dict[str, Any] = {"http://schemas.openid.net/event/backchannel-logout": {}}
        said = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 120, "jti": secrets.token_hex(8), "events": event, **claims}
        return self.sign({name: value for name, value in said.items() if value is not None}, typ="logout+jwt")

    # ---- endpoints

    async def discovery(self, _: web.Request) -> web.Response:
        self.asked.append("metadata")
        ends = {name: f"{self.issuer}/{path}" for name, path in ENDPOINTS.items()}
        return web.json_response({"issuer": self.issuer, **ends, "code_challenge_methods_supported": ["S256"], **self.metadata})

    async def authorize(self, request: web.Request) -> web.Response:
        query = request.query
        assert (query["response_type"], query["client_id"], query["code_challenge_method"]) == ("code", CLIENT, "S256")
        assert "openid" in query["scope"].split()
        code = secrets.token_urlsafe(16)
        self.grants[code] = Grant(query["nonce"], query["code_challenge"], query["redirect_uri"])
        answer = urlencode({"code": code, "state": query["state"], "iss": self.issuer})
        return web.Response(status=302, headers={"Location": f"{query['redirect_uri']}?{answer}"})

    async def token(self, request: web.Request) -> web.Response:
        form = await request.post()
        login = base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode()
        grant = self.grants.pop(str(form["code"]), None)
        verifier = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
        good = grant is not None and (
            base64.urlsafe_b64encode(verifier).decode().rstrip("="),
            form["redirect_uri"],
            form["grant_type"],
        ) == (grant.challenge, grant.redirect_uri, "authorization_code")
        if grant is None or not good or login != f"{CLIENT}:a+client%27s+secret%3A+%25%26":
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"token_type": "Bearer", "access_token": "x", "id_token": self.id_token(grant.nonce)})

    async def jwks(self, _: web.Request) -> web.Response:
        self.asked.append("keys")
        keys = [{**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": key_id, "use": "sig"} for key_id, key in self.keys.items()]
        return web.json_response({"keys": keys})


ENDPOINTS = {
    "authorization_endpoint": "authorize",
    "token_endpoint": "token",
    "jwks_uri": "keys",
    "end_session_endpoint": "logout",
}


@asynccontextmanager
async def providing(now: float) -> AsyncIterator[Provider]:
    """A provider on loopback, with one key."""
    provider = Provider(now)
    provider.rotate("first")
    app = web.Application()
    app.add_routes(
        [
            web.get("/.well-known/openid-configuration", provider.discovery),
            web.get("/authorize", provider.authorize),
            web.post("/token", provider.token),
            web.get("/keys", provider.jwks),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    provider.issuer = f"http://{host}:{port}"
    try:
        yield provider
    finally:
        await runner.cleanup()
