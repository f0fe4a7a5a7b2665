"""Who asked is kept with the record where the route names `{principal}`, and nowhere else."""

import json

import pytest

from tests.proxy.house import TENANT_B, House, fresh

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEBHOOK = (
    "{path: /hooks/NAME, signature: {stripe: {secret: 0123456789abcdef}}, event_id: /id, find: /k, "
    "rules: [{when: [{pointer: /type, equals: done}WHOSE], verdict: executed, answer: {status: 201}}]}"
)
CAPTURE = "{capture: {principal: /owner}}"


def route(name: str, whose: str) -> str:
    webhook = WEBHOOK.replace("NAME", name).replace("WHOSE", whose)
    idempotency = f"{{forward_key: derived, reconcile: {CAPTURE}, webhook: {webhook}}}"
    return f"  - {{id: {name}, path: /{name}, upstream: payments, methods: [POST], idempotency: {idempotency}}}\n"


ROUTES = "\n" + route("named", ", {pointer: /account, same_as: '{principal}'}") + route("unnamed", "")


@pytest.mark.parametrize(("path", "kept"), [(b"/named", "tenant-b"), (b"/unnamed", None)])
async def test_who_asked(house: House, path: bytes, kept: str | None) -> None:
    """As the scope has it. A value of the body that is captured under that name is another one."""
    key = fresh()
    await house.ask(path, key, b'{"owner": "tenant-a"}', account=TENANT_B)
    (record,) = await house.records(key)
    captured = json.loads(record["captured"])
    assert captured.get("@principal") == kept
    assert captured["principal"] == "tenant-a"
