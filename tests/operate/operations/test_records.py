"""What operators see of records, over real Postgres and Redis."""

from typing import cast

import asyncpg
import pytest

from gateway.operate.operations import NotFound, Wrong, record_id_text
from gateway.ports.reconciliation import Selection, Shown
from tests.operate.operations.bench import BY, KEPT, Bench, key
from tests.store.contract.harness import packed_response, response


async def test_a_page_is_filled_past_rare_matches(bench: Bench) -> None:
    """Filters, cursor, and mistakes named by their field."""
    for n in range(6):
        await bench.make(f"k{n}", "unknown", route_id="rare" if n % 3 == 0 else "create-charge")
    page = await bench.operator.records.select(Selection(state="unknown", route="rare"), limit=1)
    assert [listed.key.key for listed in page.records] == ["k0"]
    page = await bench.operator.records.select(Selection(state="unknown", route="rare"), limit=5, cursor=page.cursor)
    assert ([listed.key.key for listed in page.records], page.cursor) == (["k3"], None)
    for selection, limit, cursor, name in (
        (Selection(state="lost"), 5, None, "state"),
        (Selection(route=""), 5, None, "route"),
        (Selection(key="a\0"), 5, None, "key"),
        (Selection(scope="\ud800"), 5, None, "scope"),
        (Selection(), 0, None, "limit"),
        (Selection(), 1001, None, "limit"),
        (Selection(), 5, "x", "cursor"),
    ):
        with pytest.raises(Wrong) as caught:
            await bench.operator.records.select(selection, limit=limit, cursor=cursor)
        assert caught.value.field == name


async def test_a_body_is_shown_to_whoever_says_why(bench: Bench) -> None:
    """Without asking there is none."""
    await bench.make("k", "completed")
    plain = await bench.operator.records.show(key("k"))
    assert isinstance(plain, Shown)
    assert plain.response == response().without_body()
    assert await bench.audited() == []
    shown = await bench.operator.records.show_body(key("k"), BY)
    assert isinstance(shown, Shown)
    assert shown.response == response()
    assert [audit.action for audit in await bench.audited()] == ["show_body"]
    assert await bench.operator.records.show_body(key("other"), BY) == NotFound()


async def test_an_export_gives_every_record_and_is_written_down(bench: Bench) -> None:
    """One line for it, and one for each body that leaves; ready for JSON."""
    for n in range(5):
        await bench.make(f"k{n}", "completed" if n % 2 else "unknown")
    lines = [line async for line in bench.operator.records.export(Selection(), BY)]
    assert [line["id"] for line in lines] == [record_id_text(key(f"k{n}")) for n in range(5)]
    assert not any("response" in line for line in lines)
    (audit,) = await bench.audited()
    assert (audit.action, audit.detail) == ("export", {"bodies": False})
    whole = [line async for line in bench.operator.records.export(Selection(state="completed"), BY, bodies=True)]
    assert [cast("dict[str, object]", line["response"])["body_base64"] for line in whole] == ["eyJpZCI6ICJjaF8xIn0="] * 2
    assert [audit.action for audit in await bench.audited()] == ["export", "export", "show_body", "show_body"]
    with pytest.raises(Wrong):
        await anext(bench.operator.records.export(Selection(state="lost"), BY))


async def test_a_damaged_body_is_left_out(bench: Bench) -> None:
    """What was stored still has its length and digest; looking at it is no failure."""
    lease = await bench.make("k", "in_progress")
    await bench.store.complete(lease, packed_response(), KEPT)
    connection = await asyncpg.connect(bench.dsn)
    await connection.execute("UPDATE gateway_records SET response_body = substr(response_body, 5)")
    await connection.close()
    shown = await bench.operator.records.show_body(key("k"), BY)
    assert isinstance(shown, Shown)
    assert shown.response == packed_response().without_body()
