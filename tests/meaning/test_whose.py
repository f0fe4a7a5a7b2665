"""Who asked is kept with the record where the route names `{principal}`, and nowhere else."""

import json

import pytest

from tests.meaning.house import TENANT_B, House, fresh

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULES = "[{status: [200], verdict: executed}]"
LOOKUP = f"{{probe: lookup, capture: {{principal: /owner}}, request: {{path: '/o?of={{principal}}&n={{key}}'}}, rules: {RULES}}}"
ROUTES = f"""
  - {{id: named, path: /named, upstream: payments, methods: [POST], idempotency: {{reconcile: {LOOKUP}}}}}
  - id: unnamed
    path: /unnamed
    upstream: payments
    methods: [POST]
    idempotency: {{forward_key: derived, reconcile: {LOOKUP.replace("of={principal}&", "")}}}
"""


@pytest.mark.parametrize(("path", "kept"), [(b"/named", "tenant-b"), (b"/unnamed", None)])
async def test_who_asked(house: House, path: bytes, kept: str | None) -> None:
    """As the scope has it. A value of the body that is captured under that name is another one."""
    key = fresh()
    await house.ask(path, key, b'{"owner": "tenant-a"}', account=TENANT_B)
    (record,) = await house.records(key)
    captured = json.loads(record["captured"])
    assert captured.get("@principal") == kept
    assert captured["principal"] == "tenant-a"
