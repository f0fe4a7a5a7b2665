"""The sample's HTTP side."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from gateway.devtools.sample.desk import Desk, Order
from gateway.devtools.sample.events import Events, Hook
from gateway.devtools.sample.ledger import Charge, Ledger, OperationRefused, Outcome, Refund
from gateway.devtools.sample.orders import carry_out
from gateway.devtools.sample.responses import answer, error
from gateway.devtools.sample.variants import HEADERS, seconds_of

LEDGER = web.AppKey("ledger", Ledger)
DESK = web.AppKey("desk", Desk)
EVENTS = web.AppKey("events", Events)
LARGEST_AMOUNT = 10**12
LISTED = 100

INDEX = {
    "name": "sample payments API",
    "note": "deduplicates nothing unless it is told to: a request that arrives twice is booked twice",
    "operations": {
        "POST /v1/charges": {"account": "acme", "amount": 100, "currency": "EUR", "reference": "order-1 (may be left out)"},
        "GET /v1/charges": f"the last {LISTED}; ?account= selects; ?idempotency_key= looks up what a key has executed, and its outcome",
        "GET /v1/charges/{id}": "one charge",
        "POST /v1/charges/cancel": {
            "idempotency_key": "what has come under this key and is not executed yet never will be; or the answer says that it was",
            "for_good": "true: nor will what comes later (false if left out)",
        },
        "POST /v1/refunds": {"charge": "ch_000001", "amount": 50},
        "GET /v1/refunds": f"the last {LISTED}; ?account= and ?idempotency_key= as for charges",
        "GET /v1/accounts/{id}": "balance, number of charges, sums; every account starts with 100000",
        "GET /v1/executions": "the truth: how often each key was executed, whatever lookups say; ?idempotency_key= selects one",
        "GET /v1/events": "the last events for the webhook (--webhook-url), and what became of them",
        "POST /v1/outage": {"for": "5s: answers 503 for that long; 0s ends it", "of": "lookup (if left out) or everything"},
    },
    "request_headers": HEADERS,
}


def build(ledger: Ledger, *, deduplicate: bool = False, hook: Hook | None = None) -> web.Application:
    """The application over `ledger`. `deduplicate`: every request is one of `X-Sample-Deduplicate: yes`; `hook` gets the events."""
    app = web.Application(middlewares=[errors_as_json])
    app[LEDGER] = ledger
    app[EVENTS] = Events(hook)
    app[DESK] = Desk(ledger, app[EVENTS], deduplicate=deduplicate)
    app.cleanup_ctx.append(closing)
    app.router.add_get("/", index)
    app.router.add_post("/v1/charges", create_charge)
    app.router.add_get("/v1/charges", list_charges)
    app.router.add_post("/v1/charges/cancel", cancel_charge)
    app.router.add_get("/v1/charges/{id}", show_charge)
    app.router.add_post("/v1/refunds", create_refund)
    app.router.add_get("/v1/refunds", list_refunds)
    app.router.add_get("/v1/accounts/{id}", show_account)
    app.router.add_get("/v1/executions", show_executions)
    app.router.add_get("/v1/events", show_events)
    app.router.add_post("/v1/outage", be_away)
    return app


async def closing(app: web.Application) -> AsyncIterator[None]:
    yield
    await app[DESK].close()


@web.middleware
async def errors_as_json(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    try:
        return await handler(request)
    except OperationRefused as refused:
        return error(refused.status, refused.code, refused.message)
    except web.HTTPException as problem:
        headers = {"Allow": problem.headers["Allow"]} if "Allow" in problem.headers else None
        return error(problem.status, problem.reason.lower().replace(" ", "_"), problem.reason, headers)


async def index(request: web.Request) -> web.Response:
    return answer(INDEX, indent=2)


# ---- operations


async def create_charge(request: web.Request) -> web.StreamResponse:
    body = await body_of(request)
    account, amount = text(body, "account"), positive(body, "amount")
    currency = text(body, "currency")
    if re.fullmatch("[A-Z]{3}", currency) is None:
        raise OperationRefused(422, "invalid_field", "currency is three capital letters, such as EUR")
    reference = text(body, "reference") if "reference" in body else None
    ledger, key = request.app[LEDGER], key_of(request)
    order = Order("charge", key, reference, lambda: ledger.charge(account, amount, currency, key, reference))
    return await carry_out(request, request.app[DESK], order)


async def create_refund(request: web.Request) -> web.StreamResponse:
    body = await body_of(request)
    charge = text(body, "charge")
    amount = positive(body, "amount") if "amount" in body else None
    ledger, key = request.app[LEDGER], key_of(request)
    return await carry_out(request, request.app[DESK], Order("refund", key, None, lambda: ledger.refund(charge, amount, key)))


async def cancel_charge(request: web.Request) -> web.Response:
    """200 if nothing was executed under the key and nothing will be, 409 with the outcome if something was."""
    body = await body_of(request)
    key, for_good = bare(text(body, "idempotency_key")), body.get("for_good", False)
    if not isinstance(for_good, bool):
        raise OperationRefused(422, "invalid_field", "for_good is true or false")
    request.app[DESK].require_up(lookup=True)
    done = request.app[DESK].cancel(key, for_good=for_good)
    if done is None:
        return answer({"idempotency_key": key, "state": "cancelled"})
    return answer({"idempotency_key": key, "state": "executed", "outcome": asdict(done)}, status=409)


# ---- looking


async def list_charges(request: web.Request) -> web.Response:
    """The last charges; with `idempotency_key`, all that this key made, how often it was executed, and its first outcome."""
    return looked_up(request, "charges", request.app[LEDGER].charges.values())


async def list_refunds(request: web.Request) -> web.Response:
    """As charges."""
    return looked_up(request, "refunds", request.app[LEDGER].refunds.values())


def looked_up(request: web.Request, name: str, booked: Iterable[Charge | Refund]) -> web.Response:
    desk = request.app[DESK]
    desk.require_up(lookup=True)
    if (account := request.query.get("account")) is not None:
        booked = [one for one in booked if one.account == account]
    asked: dict[str, Any] = {}
    if (asked_key := request.query.get("idempotency_key")) is not None:
        key = bare(asked_key)
        executions, outcome = desk.look(key)
        booked = [one for one in booked if one.idempotency_key == key] if executions else []
        asked = {"idempotency_key": key, "executions": executions, "outcome": shown(outcome)}
    return answer({**asked, name: [asdict(one) for one in list(booked)[-LISTED:]]})


async def show_charge(request: web.Request) -> web.Response:
    charge = request.app[LEDGER].charges.get(request.match_info["id"])
    if charge is None:
        raise OperationRefused(404, "no_such_charge", f"there is no charge {request.match_info['id']}")
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


async def show_executions(request: web.Request) -> web.Response:
    """The books' own count, which nothing hides."""
    executions = request.app[LEDGER].executions
    if (key := request.query.get("idempotency_key")) is not None:
        return answer({"idempotency_key": bare(key), "executions": executions[bare(key)]})
    return answer({"most": max(executions.values(), default=0), "executions": executions})


async def show_events(request: web.Request) -> web.Response:
    return answer({"events": [asdict(delivery) for delivery in request.app[EVENTS].deliveries]})


async def be_away(request: web.Request) -> web.Response:
    body = await body_of(request)
    seconds, of = seconds_of(text(body, "for")), body.get("of", "lookup")
    if seconds is None or of not in ("lookup", "everything"):
        raise OperationRefused(422, "invalid_field", 'for is a time such as 5s, at most 60s; of is "lookup" or "everything"')
    request.app[DESK].go_down(seconds, everything=of == "everything")
    return answer({"for": seconds, "of": of})


# ---- reading


def shown(outcome: Outcome | None) -> dict[str, Any] | None:
    return None if outcome is None else asdict(outcome)


async def body_of(request: web.Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.read())
    except (ValueError, RecursionError):
        raise OperationRefused(400, "invalid_json", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise OperationRefused(400, "invalid_json", "the body is not a JSON object")
    return body


def text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= 255:
        raise OperationRefused(422, "invalid_field", f"{name} is a text of 1 to 255 characters")
    return value


def positive(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= LARGEST_AMOUNT:
        raise OperationRefused(422, "invalid_field", f"{name} is a positive whole number of minor units")
    return value


def key_of(request: web.Request) -> str | None:
    key = request.headers.get("Idempotency-Key")
    return None if key is None else bare(key)


def bare(key: str) -> str:
    """The key without the quotes of its structured-field spelling."""
    return key[1:-1] if len(key) > 1 and key[0] == key[-1] == '"' else key
