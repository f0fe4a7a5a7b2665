"""The sample's HTTP side."""

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from gateway.sample.ledger import Charge, Ledger, Refund, Refused
from gateway.sample.variants import DELAY, FAIL, MEANINGS, answer, carry_out, error

LEDGER = web.AppKey("ledger", Ledger)
LARGEST_AMOUNT = 10**12
LISTED = 100

INDEX = {
    "name": "sample payments API",
    "note": "deduplicates nothing: a request that arrives twice is booked twice",
    "operations": {
        "POST /v1/charges": {"account": "acme", "amount": 100, "currency": "EUR"},
        "GET /v1/charges": f"the last {LISTED}; ?account= and ?idempotency_key= select",
        "GET /v1/charges/{id}": "one charge",
        "POST /v1/refunds": {"charge": "ch_000001", "amount": 50},
        "GET /v1/accounts/{id}": "balance, number of charges, sums; every account starts with 100000",
    },
    "request_headers": {
        DELAY: "2s or 500ms: waits that long after executing and before answering",
        FAIL: {str(fail): meaning for fail, meaning in MEANINGS.items()},
    },
}


def build(ledger: Ledger) -> web.Application:
    """The application over `ledger`."""
    app = web.Application(middlewares=[errors_as_json])
    app[LEDGER] = ledger
    app.router.add_get("/", index)
    app.router.add_post("/v1/charges", create_charge)
    app.router.add_get("/v1/charges", list_charges)
    app.router.add_get("/v1/charges/{id}", show_charge)
    app.router.add_post("/v1/refunds", create_refund)
    app.router.add_get("/v1/accounts/{id}", show_account)
    return app


@web.middleware
async def errors_as_json(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as refused:
        return error(refused.status, refused.code, refused.message)
    except web.HTTPException as problem:
        headers = {"Allow": problem.headers["Allow"]} if "Allow" in problem.headers else None
        return error(problem.status, problem.reason.lower().replace(" ", "_"), problem.reason, headers)


async def index(request: web.Request) -> web.Response:
    return answer(INDEX, indent=2)


async def create_charge(request: web.Request) -> web.StreamResponse:
    body = await body_of(request)
    account, amount = text(body, "account"), positive(body, "amount")
    currency = text(body, "currency")
    if re.fullmatch("[A-Z]{3}", currency) is None:
        raise Refused(422, "invalid_field", "currency is three capital letters, such as EUR")
    ledger, key = request.app[LEDGER], key_of(request)
    return await carry_out(request, lambda: booked("charges", lambda: ledger.charge(account, amount, currency, key)))


async def create_refund(request: web.Request) -> web.StreamResponse:
    body = await body_of(request)
    charge = text(body, "charge")
    amount = positive(body, "amount") if "amount" in body else None
    ledger, key = request.app[LEDGER], key_of(request)
    return await carry_out(request, lambda: booked("refunds", lambda: ledger.refund(charge, amount, key)))


async def list_charges(request: web.Request) -> web.Response:
    """The last charges; with `idempotency_key`, all that this key made and how often it was executed."""
    ledger = request.app[LEDGER]
    charges = list(ledger.charges.values())
    if (account := request.query.get("account")) is not None:
        charges = [charge for charge in charges if charge.account == account]
    asked: dict[str, Any] = {}
    if (key := request.query.get("idempotency_key")) is not None:
        charges = [charge for charge in charges if charge.idempotency_key == bare(key)]
        asked = {"idempotency_key": bare(key), "executions": ledger.executions[bare(key)]}
    return answer({**asked, "charges": [asdict(charge) for charge in charges[-LISTED:]]})


async def show_charge(request: web.Request) -> web.Response:
    charge = request.app[LEDGER].charges.get(request.match_info["id"])
    if charge is None:
        raise Refused(404, "no_such_charge", f"there is no charge {request.match_info['id']}")
    return answer(asdict(charge))


async def show_account(request: web.Request) -> web.Response:
    """Every name is an account; what it holds is its opening balance less its charges plus its refunds."""
    ledger, name = request.app[LEDGER], request.match_info["id"]
    charges = [charge for charge in ledger.charges.values() if charge.account == name]
    refunds = [refund for refund in ledger.refunds.values() if refund.account == name]
    return answer(
        {
            "id": name,
            "balance": ledger.balance(name),
            "charges": len(charges),
            "charged": sum(charge.amount for charge in charges),
            "refunds": len(refunds),
            "refunded": sum(refund.amount for refund in refunds),
        }
    )


def booked(kind: str, book: Callable[[], Charge | Refund]) -> web.Response:
    """The answer to one booking, made now. One that the books do not allow was executed too: its answer is final."""
    try:
        booking = book()
    except Refused as refused:
        return error(refused.status, refused.code, refused.message)
    return answer({**asdict(booking), "status": "succeeded"}, status=201, headers={"Location": f"/v1/{kind}/{booking.id}"})


async def body_of(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError):
        raise Refused(400, "invalid_json", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refused(400, "invalid_json", "the body is not a JSON object")
    return body


def text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= 255:
        raise Refused(422, "invalid_field", f"{name} is a text of 1 to 255 characters")
    return value


def positive(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LARGEST_AMOUNT:
        raise Refused(422, "invalid_field", f"{name} is a positive whole number of minor units")
    return value


def key_of(request: web.Request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    return None if key is None else bare(key)


def bare(key: str) -> str:
    """The key without the quotes of its structured-field spelling."""
    return key[1:-1] if len(key) > 1 and key[0] == key[-1] == '"' else key
