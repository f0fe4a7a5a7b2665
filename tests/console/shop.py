"""A gateway in front of a shop's API, with records in every state, and users: what the console is looked at with."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from gateway.core.user_token import ENTROPY, digest_of, make_token, write_digest
from tests.support.client import Answer, ask, payment
from tests.support.gateway import Gateway, Setup, running
from tests.support.upstream import CountingUpstream, Exchange

ROUTES = """
  - id: create-charge
    methods: [POST]
    path: /v1/charges
    upstream: payments
    idempotency:
      principal: [{header: Authorization}]
      reconcile:
        probe: lookup
        request: {method: GET, path: "/v1/charges?idempotency_key={key}"}
        capture: {amount: /amount, order: /order}
        rules:
          - {when: [{pointer: /charges, not_empty: true}], verdict: executed, answer: {status: 201, pointer: /charges/0}}
          - {when: [{pointer: /charges, empty: true}], verdict: not_executed}
        looks: 1
        attempts: 1
        timeout: 2s
  - id: create-refund
    methods: [POST]
    path: /v1/refunds
    upstream: payments
    idempotency:
      principal: [{header: Authorization}]
      reconcile: {capture: {amount: /amount, order: /order}}
  - id: create-payout
    methods: [POST]
    path: /v1/payouts
    upstream: slow
    idempotency:
      principal: [{header: Authorization}]
      reconcile: {capture: {amount: /amount}}
  - id: observed
    methods: [POST]
    path: /v1/quotes
    upstream: payments
    idempotency: {principal: [{header: Authorization}], mode: observe}
  - {id: rest, path: /**, upstream: payments}
"""

ROLES = ("viewer", "operator", "approver", "admin")
NAMES = {"viewer": "vera", "operator": "ana", "approver": "bo", "admin": "cy"}


@dataclass(slots=True)
class Bank:
    """The upstream. It executes under a key, and answers, as the beginning of the key says: `lost-…` executes and hangs up, `void-…`
    hangs up. While it is `away` it answers no lookup.
    """

    away: bool = True
    charges: dict[str, dict[str, object]] = field(default_factory=dict)

    async def behave(self, exchange: Exchange) -> None:
        target = urlsplit(exchange.seen.target.decode("latin-1"))
        if exchange.seen.method == b"GET":
            await self._look_up(exchange, parse_qs(target.query).get("idempotency_key", [""])[0])
            return
        key = (exchange.seen.value("idempotency-key") or b"").decode("latin-1").strip('"')
        if key.startswith("void-"):
            exchange.hang_up()
            return
        exchange.execute()
        given = json.loads(exchange.seen.body or b"{}")
        self.charges[key] = {"id": f"ch_{len(self.charges) + 1:06}", **given, "state": "succeeded", "client_secret": "cs_do_not_show"}
        if key.startswith("lost-"):
            exchange.hang_up()
            return
        await exchange.answer(201, json.dumps(self.charges[key]).encode())

    async def _look_up(self, exchange: Exchange, key: str) -> None:
        if self.away:
            await exchange.answer(503, b'{"error": "maintenance"}')
            return
        found = self.charges.get(key)
        await exchange.answer(200, json.dumps({"charges": [] if found is None else [found]}).encode())


@dataclass(slots=True)
class Shop:
    """A running gateway with its bank. `tokens` of users, by role."""

    gateway: Gateway
    bank: Bank
    upstream: CountingUpstream
    tokens: dict[str, str]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.gateway.admin}"

    async def pay(self, key: str, path: str = "/v1/charges", **members: object) -> Answer:
        """One request of a client."""
        body = json.dumps({"order": "A-1", "amount": 4200, "currency": "EUR", **members}).encode()
        return await ask(self.gateway.port, payment(json.dumps(key).encode(), body, target=path.encode()))

    async def dead_letters(self, count: int) -> None:
        """Wait until so many wait for a person."""
        async with asyncio.timeout(20):
            while await self._dead() < count:
                await asyncio.sleep(0.1)

    async def _dead(self) -> int:
        token = self.tokens.get("viewer")
        fields = (b"Authorization: Bearer " + token.encode(),) if token else ()
        raw = payment(None, b"", method=b"GET", target=b"/admin/v1/dead-letters", principal=None, more=fields)
        raw = raw.replace(b"Host: gateway.test", b"Host: localhost")
        return len(json.loads((await ask(self.gateway.admin, raw)).body)["records"])


@asynccontextmanager
async def shop(
    postgres: str, redis: str, folder: Path, *, users: bool = True, more: str = "", options: Sequence[str] = ()
) -> AsyncIterator[Shop]:
    """A shop that is open."""
    bank, upstream = Bank(), CountingUpstream()
    upstream.behave = bank.behave
    await upstream.start()
    tokens = {role: make_token(secrets.token_bytes(ENTROPY)) for role in ROLES} if users else {}
    lines = "".join(
        f'\n    - {{name: {NAMES[role]}, role: {role}, token_digest: "{write_digest(digest_of(token))}"}}' for role, token in tokens.items()
    )
    timeouts = "{connect: 1s, first_byte: 1s, read_idle: 1s, total: 1s}"
    setup = Setup(postgres, upstream.port, redis, routes=ROUTES, timeouts=timeouts, more=more)
    try:
        async with running(_Furnished(setup, lines), folder, options=options) as gateway:  # type: ignore[arg-type]  # of a Setup it uses this
            yield Shop(gateway, bank, upstream, tokens)
    finally:
        await upstream.stop()


@dataclass(frozen=True, slots=True)
class _Furnished:
    """A setup with users."""

    setup: Setup
    users: str
    admin_ca: Path | None = None

    def yaml(self, port: int, admin: int) -> str:
        text = self.setup.yaml(port, admin)
        listen = f'admin: {{listen: "127.0.0.1:{admin}"}}'
        assert listen in text
        second = "\n  second_approval: {above: {capture: amount, value: 100000}}" if self.users else ""
        furnished = f'admin:\n  listen: "127.0.0.1:{admin}"{second}' + (f"\n  users:{self.users}" if self.users else "")
        slow = f'\n  slow: {{url: "http://127.0.0.1:{self.setup.upstream_port}", max_execution: 10m}}\ndefaults:'
        return text.replace(listen, furnished).replace("\ndefaults:", slow)
