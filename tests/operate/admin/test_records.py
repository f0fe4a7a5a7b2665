"""The operators' API over a real Postgres: what it shows, what it changes, what it refuses."""

import base64
import hashlib
import io
import json
import secrets
from typing import Any

import aiohttp
import pytest

from gateway.core.model import RecordKey
from gateway.operate.operations import parse_record_id
from tests.operate.admin.house import BODY, House, listening, silent_ports

GROUNDS = {"reason": "INC-7: asked the provider", "actor": "ada"}


async def told(response: aiohttp.ClientResponse, status: int = 200) -> dict[str, Any]:
    """The document of an answer, whose status and media type are as expected."""
    text = await response.text()
    assert response.status == status, text
    assert response.content_type == ("application/json" if status == 200 else "application/problem+json")
    document: dict[str, Any] = json.loads(text)
    assert status == 200 or document["status"] == status
    return document


async def get(api: aiohttp.ClientSession, path: str, expected: int = 200, /, **query: str) -> dict[str, Any]:
    async with api.get(f"/admin/v1/{path}", params=query) as response:
        return await told(response, expected)


async def post(api: aiohttp.ClientSession, path: str, expected: int = 200, /, **members: object) -> dict[str, Any]:
    async with api.post(f"/admin/v1/{path}", json={**GROUNDS, **members}) as response:
        return await told(response, expected)


async def keys(api: aiohttp.ClientSession, path: str = "records", **query: str) -> list[str]:
    return [record["key"] for record in (await get(api, path, **query))["records"]]


async def test_records_are_filtered(api: aiohttp.ClientSession, house: House) -> None:
    """By state, route, scope and key, together and alone."""
    await house.completed("a")
    await house.completed("a", "create-refund")
    await house.unknown("b")
    await house.unknown("c", "create-refund")
    await house.retryable("d")
    await house.in_progress("e")
    assert sorted(await keys(api)) == ["a", "a", "b", "c", "d", "e"]
    assert await keys(api, state="unknown") == ["b", "c"]
    assert await keys(api, state="dead_letter") == ["c"] == await keys(api, "dead-letters")
    assert await keys(api, "dead-letters", route="create-charge") == []
    assert await keys(api, state="failed_retryable") == ["d"]
    assert await keys(api, state="in_progress") == ["e"]
    assert await keys(api, key="a", route="create-refund") == ["a"]
    assert await keys(api, scope="create-refund") == ["a", "c"]
    assert await keys(api, key="nothing") == []
    assert await keys(api, trace_id="4bf92f3577b34da6a3ce929d0e0e4736") == []


async def test_pages_are_walked_by_cursor(api: aiohttp.ClientSession, house: House) -> None:
    """Each record is on one page, and the last page has no cursor."""
    for number in range(5):
        await house.unknown(f"k{number}")
    seen: list[str] = []
    cursor: dict[str, str] = {}
    pages = 0
    while True:
        page = await get(api, "records", state="unknown", limit="2", **cursor)
        seen += [record["key"] for record in page["records"]]
        pages += 1
        if page["cursor"] is None:
            break
        cursor = {"cursor": page["cursor"]}
    assert seen == [f"k{number}" for number in range(5)]
    assert pages == 3


async def test_a_record_is_shown_whole_but_for_its_body(api: aiohttp.ClientSession, house: House) -> None:
    """Target, captured values, answer and history are there; nothing of it is audited."""
    name = await house.completed("a")
    shown = await get(api, f"records/{name}")
    assert (shown["id"], shown["state"], shown["key"], shown["target"]) == (name, "completed", "a", "/v1/charges?x=\xff")
    assert shown["captured"]["key"] == "a"
    assert shown["response"] == {
        "status": 201,
        "reason": "Created",
        "headers": [["Content-Type", "application/json"]],
        "body_length": len(BODY),
        "body_sha256": hashlib.sha256(BODY).hexdigest(),
    }
    assert (await get(api, "audit"))["lines"] == []


async def test_a_body_is_shown_on_request_and_that_is_audited(api: aiohttp.ClientSession, house: House) -> None:
    """It comes as it was, also where it is kept compressed, and the audit table says who saw it and why."""
    body = BODY * 1000
    name = await house.completed("a", body=body)
    await get(api, f"records/{name}", 400, body="true")
    shown = await get(api, f"records/{name}", body="true", **GROUNDS)
    assert base64.b64decode(shown["response"]["body_base64"]) == body
    (line,) = (await get(api, "audit"))["lines"]
    assert (line["action"], line["id"], line["actor"], line["reason"]) == ("show_body", name, GROUNDS["actor"], GROUNDS["reason"])


async def test_an_unknown_record_is_resolved_as_completed(api: aiohttp.ClientSession, house: House) -> None:
    """Retries get the given answer from now on; history and audit table name who said so and why."""
    name = await house.unknown("b")
    body = b'{"id": "ch_9"}'
    headers = {"Content-Type": "application/json", "Content-Length": "3", "Set-Cookie": "a=b"}
    done = await post(api, f"records/{name}/resolve", verdict="executed", status=201, headers=headers, body=body.decode(), retention=7200)
    assert (done["result"], done["record"]["state"]) == ("done", "completed")
    record = await house.store.find(RecordKey("create-charge:none", "b"))
    assert record is not None
    assert record.response is not None
    assert record.response.body == body
    assert record.response.headers == ((b"Content-Type", b"application/json"),)
    shown = await get(api, f"records/{name}")
    entry = shown["history"][-1]
    assert (entry["source"], entry["what"], entry["actor"], entry["reason"]) == ("operator", "executed", *reversed(GROUNDS.values()))
    (line,) = (await get(api, "audit"))["lines"]
    assert (line["action"], line["detail"]["was"]) == ("resolve", "unknown")


@pytest.mark.parametrize("given", [{"body_base64": base64.b64encode(b"\xff\x00").decode()}, {"headers": [["X-A", "1"], ["X-A", "2"]]}])
async def test_answers_may_be_bytes_and_repeat_fields(api: aiohttp.ClientSession, house: House, given: dict[str, Any]) -> None:
    """Bodies that are no text come as base64, fields that repeat as pairs in order."""
    name = await house.unknown("b")
    await post(api, f"records/{name}/resolve", verdict="executed", status=200, **given)
    record = await house.store.find(parse_record_id(name))
    assert record is not None
    assert record.response is not None
    if "headers" in given:
        assert record.response.headers == ((b"X-A", b"1"), (b"X-A", b"2"))
    else:
        assert record.response.body == b"\xff\x00"


@pytest.mark.parametrize(("step", "members"), [("resolve", {"verdict": "not_executed"}), ("release", {})])
async def test_not_executed_is_too_early_until_the_upstream_has_surely_finished(
    api: aiohttp.ClientSession, house: House, step: str, members: dict[str, Any]
) -> None:
    """The refusal says until when, as a member and as Retry-After; afterwards the record is free for a retry."""
    name = await house.unknown("b")
    async with api.post(f"/admin/v1/records/{name}/{step}", json={**GROUNDS, **members}) as response:
        refusal = await told(response, 409)
        assert response.headers["Retry-After"].endswith(" GMT")
    assert (refusal["result"], refusal["record"]["state"]) == ("too_early", "unknown")
    assert refusal["not_before"] == refusal["record"]["doubtful_until"]
    await house.age()
    done = await post(api, f"records/{name}/{step}", **members)
    assert done["record"]["state"] == "failed_retryable"
    again = await post(api, f"records/{name}/{step}", 409, **members)
    assert (again["result"], again["record"]["state"]) == ("conflict", "failed_retryable")


async def test_a_deleted_record_is_gone_and_its_audit_line_stays(api: aiohttp.ClientSession, house: House) -> None:
    """Only what has ended can be deleted; afterwards it is not found, and the key is free."""
    name, unknown = await house.completed("a"), await house.unknown("b")
    async with api.delete(f"/admin/v1/records/{unknown}", params=GROUNDS) as response:
        assert (await told(response, 409))["record"]["state"] == "unknown"
    async with api.delete(f"/admin/v1/records/{name}", params=GROUNDS) as response:
        assert await told(response) == {"result": "done", "record": None, "redis": None, "memory": None}
    async with api.delete(f"/admin/v1/records/{name}", params=GROUNDS) as response:
        await told(response, 404)
    await get(api, f"records/{name}", 404)
    (line,) = (await get(api, "audit"))["lines"]
    assert (line["action"], line["id"] == name, line["key"][:7], len(line["key"])) == ("delete", False, "sha256:", 71)


async def test_a_dead_letter_is_requeued(api: aiohttp.ClientSession, house: House) -> None:
    """It is looked at again, if its route has something that looks; a record that is none is a conflict."""
    name = await house.unknown("c", "create-refund")
    assert "neither a probe nor a webhook" in (await post(api, f"dead-letters/{name}/requeue", 409))["detail"]
    house.policies["create-refund"] = house.policies["create-charge"]
    assert (await post(api, f"dead-letters/{name}/requeue"))["record"]["state"] == "unknown"
    assert await keys(api, "dead-letters") == []
    assert (await post(api, f"dead-letters/{name}/requeue", 409))["result"] == "conflict"


async def test_a_change_may_insist_on_a_version(api: aiohttp.ClientSession, house: House) -> None:
    """What somebody decided about a record that has changed since is refused, with the record as it is now."""
    name = await house.unknown("b")
    version = (await get(api, f"records/{name}"))["version"]
    refusal = await post(api, f"records/{name}/resolve", 409, verdict="executed", status=200, version=version + 1)
    assert refusal["record"]["version"] == version
    await post(api, f"records/{name}/resolve", verdict="executed", status=200, version=version)


async def test_what_is_no_record_is_not_found(api: aiohttp.ClientSession) -> None:
    """Whatever is asked of it, also under an id that no list ever showed."""
    for name in ("rec_", "rec_x", "nothing", "rec_Y3JlYXRlLWNoYXJnZTpub25lAGI", "%00", "rec_%F0"):
        async with api.get(f"/admin/v1/records/{name}") as response:
            await told(response, 404)
        async with api.post(f"/admin/v1/records/{name}/release", json=GROUNDS) as response:
            await told(response, 404)


WRONG_QUERIES = [
    ("records", "state=lost", "state"),
    ("records", "limit=0", "limit"),
    ("records", "limit=1001", "limit"),
    ("records", "limit=" + "9" * 5000, "limit"),
    ("records", "limit=1e2", "limit"),
    ("records", "key=a&key=b", "key"),
    ("records", "kee=a", "kee"),
    ("records", "trace_id=4BF92F3577B34DA6A3CE929D0E0E4736", "trace_id"),
    ("records", "key=%00", "key"),
    ("records", "key=", "key"),
    ("records", "cursor=zzz", "cursor"),
    ("dead-letters", "state=unknown", "state"),
    ("audit", "after=-1", "after"),
    ("audit", f"after={2**63}", "after"),
    ("audit", "before=0", "before"),
    ("export", "reason=r", "actor"),
    ("export", "actor=a&reason=%20", "reason"),
    ("export", "actor=a&reason=r&bodies=1", "bodies"),
    ("records/rec_x", "body=yes", "body"),
    ("openapi.json", "x=1", "x"),
]


async def test_a_wrong_parameter_is_named(api: aiohttp.ClientSession) -> None:
    """A mistake is a 400 that says where it is."""
    for path, query, field in WRONG_QUERIES:
        async with api.get(f"/admin/v1/{path}?{query}") as response:
            assert (await told(response, 400))["field"] == field, query


EXECUTED = {**GROUNDS, "verdict": "executed", "status": 201}
WRONG_BODIES: list[tuple[object, str]] = [
    ({**EXECUTED, "reason": ""}, "reason"),
    ({**EXECUTED, "reason": "a\0b"}, "reason"),
    ({**EXECUTED, "reason": 1}, "reason"),
    ({**EXECUTED, "actor": "a" * 256}, "actor"),
    ({"verdict": "executed", "status": 201, "reason": "r"}, "actor"),
    ({**GROUNDS, "verdict": "executed"}, "status"),
    ({**EXECUTED, "status": True}, "status"),
    ({**EXECUTED, "status": 99}, "status"),
    ({**EXECUTED, "status": 201.5}, "status"),
    ({**EXECUTED, "status": 10**400}, "status"),
    ({**EXECUTED, "status": "201"}, "status"),
    ({**EXECUTED, "status": 204, "body": "x"}, "body"),
    ({**EXECUTED, "body": 1}, "body"),
    ({**EXECUTED, "body": "x", "body_base64": "eA=="}, "body_base64"),
    ({**EXECUTED, "body_base64": "!"}, "body_base64"),
    ({**EXECUTED, "headers": {"a b": "c"}}, "headers"),
    ({**EXECUTED, "headers": {"a": "b\r\nc: d"}}, "headers"),
    ({**EXECUTED, "headers": {"a": "\u2603"}}, "headers"),
    ({**EXECUTED, "headers": [["a"]]}, "headers"),
    ({**EXECUTED, "headers": "a: b"}, "headers"),
    ({**EXECUTED, "retention": 0}, "retention"),
    ({**EXECUTED, "retention": 10**400}, "retention"),
    ({**EXECUTED, "retention": "24h"}, "retention"),
    ({**EXECUTED, "version": 0}, "version"),
    ({**EXECUTED, "verdict": "maybe"}, "verdict"),
    ({**EXECUTED, "verdict": ["executed"]}, "verdict"),
    ({**EXECUTED, "verdict": "not_executed"}, "status"),
    ({**EXECUTED, "statis": 1}, "statis"),
    ([EXECUTED], "body"),
    (3, "body"),
]


async def test_a_wrong_member_is_named(api: aiohttp.ClientSession, house: House) -> None:
    """A mistake is a 400 that says where it is, and nothing is changed."""
    name = await house.unknown("b")
    for document, field in WRONG_BODIES:
        async with api.post(f"/admin/v1/records/{name}/resolve", json=document) as response:
            assert (await told(response, 400))["field"] == field, document
    assert (await get(api, f"records/{name}"))["state"] == "unknown"


NO_JSON = [
    (b"", "body"),
    (b"{", "body"),
    (b"null", "body"),
    (b"\xff", "body"),
    (b'{"reason": "a", "reason": "b"}', "reason"),
    (b'{"status": NaN}', "body"),
    (b'{"reason": "\\ud800"}', "body"),
    (b"[" * 100_000, "body"),
    (b'{"status": ' + b"9" * 5000 + b"}", "body"),
]


async def test_what_is_no_json_is_refused(api: aiohttp.ClientSession) -> None:
    """So is JSON that could be read in two ways."""
    for body, field in NO_JSON:
        async with api.post("/admin/v1/records/rec_x/resolve", data=body, headers={"Content-Type": "application/json"}) as response:
            assert (await told(response, 400))["field"] == field, body[:50]


async def test_a_body_is_json_by_its_media_type(api: aiohttp.ClientSession) -> None:
    """A page in a browser can send a form or a text unasked, and gets 415."""
    for media_type in ("text/plain", "application/x-www-form-urlencoded"):
        async with api.post("/admin/v1/records/rec_x/release", data=b"{}", headers={"Content-Type": media_type}) as response:
            await told(response, 415)


async def test_a_body_has_a_limit(api: aiohttp.ClientSession) -> None:
    """More than 16 MiB are not taken."""
    body = io.BytesIO(b" " * (16 * 1024 * 1024 + 1))
    async with api.post("/admin/v1/records/rec_x/resolve", data=body, headers={"Content-Type": "application/json"}) as response:
        await told(response, 413)


async def test_an_export_is_one_json_line_a_record(api: aiohttp.ClientSession, house: House) -> None:
    """As lists show them; with `bodies` whole, and then each record is audited."""
    await house.completed("a")
    await house.unknown("b")
    lines: list[dict[str, Any]] = []
    for bodies in ("false", "true"):
        async with api.get("/admin/v1/export", params={**GROUNDS, "bodies": bodies}) as response:
            assert (response.status, response.content_type) == (200, "application/jsonl")
            lines = [json.loads(line) for line in (await response.text()).splitlines()]
        assert [line["key"] for line in lines] == ["a", "b"]
        assert ("response" in lines[0]) is (bodies == "true")
    assert base64.b64decode(lines[0]["response"]["body_base64"]) == BODY
    actions = [line["action"] for line in (await get(api, "audit"))["lines"]]
    assert actions == ["export", "export", "show_body", "show_body"]


async def test_an_export_that_fails_midway_does_not_end_normally(api: aiohttp.ClientSession, house: House) -> None:
    """Whoever reads it must not take it for whole."""
    for number in range(12):
        await house.completed(f"k{number}", body=secrets.token_bytes(2 * 1024 * 1024))
    async with api.get("/admin/v1/export", params={**GROUNDS, "bodies": "true"}) as response:
        await response.content.readany()
        await house.store.close()
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_an_export_of_nothing_is_empty(api: aiohttp.ClientSession) -> None:
    """And no refusal."""
    async with api.get("/admin/v1/export", params={**GROUNDS, "state": "unknown"}) as response:
        assert (response.status, await response.text()) == (200, "")


async def test_an_upstream_that_has_no_lookup_cannot_be_asked(api: aiohttp.ClientSession, house: House) -> None:
    """And nothing is written down of it."""
    await post(api, f"records/{await house.unknown('a', 'create-refund')}/ask", 409)
    await post(api, "records/rec_zzzzzzzzzz/ask", 404)
    assert (await get(api, "audit"))["lines"] == []


async def test_the_audit_is_read_on_from_a_line(api: aiohttp.ClientSession, house: House) -> None:
    """In order, after the last line that was seen; or the newest first, before it."""
    for key in ("a", "b", "c"):
        await get(api, f"records/{await house.completed(key)}", body="true", **GROUNDS)
    first = (await get(api, "audit", limit="2"))["lines"]
    rest = (await get(api, "audit", after=str(first[-1]["line"])))["lines"]
    assert [line["key"] for line in (*first, *rest)] == ["a", "b", "c"]
    newest = (await get(api, "audit", newest="true", limit="2"))["lines"]
    older = (await get(api, "audit", before=str(newest[-1]["line"])))["lines"]
    assert [line["key"] for line in (*newest, *older)] == ["c", "b", "a"]


async def test_without_an_operator_records_are_503() -> None:
    """A listener that has no way to the records says so, and describes itself all the same."""
    async with listening(silent_ports(None)) as api:
        await get(api, "records", 503)
        await post(api, "records/rec_x/release", 503)
        assert (await get(api, "openapi.json"))["openapi"] == "3.1.0"


async def test_a_store_that_is_away_is_503(house: House) -> None:
    """With Retry-After, for reads and changes alike."""
    await house.store.close()
    async with listening(silent_ports(house.operator)) as api:
        async with api.get("/admin/v1/records") as response:
            await told(response, 503)
            assert response.headers["Retry-After"] == "1"
        async with api.get("/admin/v1/export", params=GROUNDS) as response:
            await told(response, 503)
