"""Every answer and mark that a dialect defines, on the wire, as its file says. A new file is tested by being there."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest
import pytest_asyncio

from gateway.core.dialect_model import Replay, Situation, Template
from gateway.core.problems import Problem
from tests.dialects.files import NAMES, dialect
from tests.dialects.stage import Stage, fresh_key, request, staged
from tests.support.client import Answer
from tests.support.services import Services

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROBLEMS = {
    Situation.MISSING: Problem.KEY_MISSING,
    Situation.INVALID: Problem.KEY_INVALID,
    Situation.MISMATCH: Problem.KEY_REUSED,
    Situation.IN_FLIGHT: Problem.REQUEST_IN_PROGRESS,
    Situation.UNKNOWN: Problem.OUTCOME_UNKNOWN,
    Situation.EXPIRED: Problem.KEY_EXPIRED,
    Situation.NOT_STORED: Problem.RESPONSE_NOT_STORED,
    Situation.STORE_UNAVAILABLE: Problem.STORE_UNAVAILABLE,
}
DEFAULT_MARKS = (("Idempotent-Replayed", "true"), ("Original-Request", "{original_request}"))
PLACEHOLDER = re.compile(r"(\{[a-z_]+(?::[^{}\"\s]*)?\})")
RETRY_AFTER = r"[1-9]|[1-5][0-9]|60"


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(services: Services, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(services, tmp_path_factory.mktemp("gateway")) as stage:
        yield stage


def as_written(text: str, values: Mapping[str, str]) -> re.Pattern[str]:
    """What a template's text may become: placeholders are `values`, or anything but nothing."""
    known = {"{retry_after}": f"(?:{RETRY_AFTER})", **{f"{{{name}}}": re.escape(value) for name, value in values.items()}}
    return re.compile(
        "".join(known.get(part, ".+") if index % 2 else re.escape(part) for index, part in enumerate(PLACEHOLDER.split(text))), re.DOTALL
    )


def assert_fields(
    answer: Answer, wanted: tuple[tuple[str, str], ...], values: Mapping[str, str], *, may_lack: tuple[str, ...] = ()
) -> None:
    """Each field is there once, as its template says. One with a placeholder of `may_lack` may be missing."""
    for name, text in wanted:
        found = [value.decode() for field, value in answer.fields if field.lower() == name.lower().encode()]
        if not found and any(f"{{{one}}}" in text for one in may_lack):
            continue
        assert len(found) == 1, (name, answer.head)
        assert as_written(text, values).fullmatch(found[0]), (name, found)


def values_of(answer: Answer, key: str | None) -> dict[str, str]:
    """The values of placeholders as a client knows them."""
    request_id = answer.field("x-request-id")
    assert request_id
    return {"request_id": request_id.decode(), "status": str(answer.status), **({} if key is None else {"key": key})}


def assert_answer(name: str, situation: Situation, answer: Answer, key: str | None, status: int | None = None) -> None:
    """An answer is the dialect's own, or, where its file says nothing, the problem document. `status` is a more exact one."""
    template = dialect(name).answers.get(situation)
    assert answer.field("cache-control") == b"no-store"
    assert answer.field("date")
    if template is None:
        problem = PROBLEMS[situation].value
        assert answer.problem == problem.slug
        assert answer.status == (status or problem.status)
        return
    assert answer.status == (status or template.status), answer.body
    values = values_of(answer, key)
    assert_fields(answer, template.headers, values, may_lack=("retry_after",) if situation is Situation.UNKNOWN else ())
    assert as_written(template.body, values).fullmatch(answer.body.decode()), answer.body
    if "json" in (answer.field("content-type") or b"").decode():
        json.loads(answer.body)


class Caller:
    """Who asks in one dialect. `key` and `status` are those of the answer that is then judged."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = name
        self.key: str | None = fresh_key()

    async def ask(self, do: str = "answer", note: str = "") -> Answer:
        return await self.stage.ask(request(self.name, self.key, do, note))


async def missing(caller: Caller) -> Answer:
    """No key at all."""
    caller.key = None
    return await caller.ask()


async def invalid(caller: Caller) -> Answer:
    """A key that no dialect takes: the longest that any takes has 255 characters."""
    caller.key = "x" * 300
    return await caller.ask()


async def mismatch(caller: Caller) -> Answer:
    """Another target under a used key, since bodies need not count."""
    assert (await caller.ask()).status == 201
    return await caller.stage.ask(request(caller.name, caller.key, query="more=1"))


async def in_flight(caller: Caller) -> Answer:
    """The same request while the first one runs."""
    note = fresh_key()
    first = asyncio.ensure_future(caller.ask("hold", note))
    try:
        await asyncio.wait_for(caller.stage.running[note].wait(), 20)
        return await caller.ask("hold", note)
    finally:
        caller.stage.released[note].set()
        assert (await first).status == 201


async def unknown(caller: Caller) -> Answer:
    """A retry after the upstream hung up without a word."""
    assert (await caller.ask("hang_up")).status == 502
    return await caller.ask("hang_up")


async def expired(caller: Caller) -> Answer:
    """The same request after the record's time."""
    raw = request(caller.name, caller.key, path=f"{caller.name}/short")
    assert (await caller.stage.ask(raw)).status == 201
    replay = await caller.stage.ask(raw)
    async with asyncio.timeout(30):
        while (answer := await caller.stage.ask(raw)).body == replay.body or answer.status == replay.status:
            await asyncio.sleep(0.1)
    return answer


async def not_stored(caller: Caller) -> Answer:
    """A retry of an operation whose answer was too large to keep."""
    assert (await caller.ask("large")).status == 201
    return await caller.ask("large")


async def store_unavailable(caller: Caller) -> Answer:
    """Any request while Postgres is away."""
    async with caller.stage.without_postgres():
        return await caller.ask()


PROVOKED: Mapping[Situation, Callable[[Caller], Awaitable[Answer]]] = {
    Situation.MISSING: missing,
    Situation.INVALID: invalid,
    Situation.MISMATCH: mismatch,
    Situation.IN_FLIGHT: in_flight,
    Situation.UNKNOWN: unknown,
    Situation.EXPIRED: expired,
    Situation.NOT_STORED: not_stored,
    Situation.STORE_UNAVAILABLE: store_unavailable,
}


@pytest.mark.parametrize("situation", PROVOKED)
@pytest.mark.parametrize("name", NAMES)
async def test_an_answer_is_the_dialects(stage: Stage, name: str, situation: Situation) -> None:
    """Status, fields and body of a refusal are those of the file, with the client's key and this exchange's id in them."""
    caller = Caller(stage, name)
    answer = await PROVOKED[situation](caller)
    assert_answer(name, situation, answer, caller.key)


@pytest.mark.parametrize("name", NAMES)
async def test_a_fresh_doubt_keeps_its_exact_status(stage: Stage, name: str) -> None:
    """The first client of an unknown outcome learns in the dialect's words that the upstream failed: 502, not the status for later ones."""
    caller = Caller(stage, name)
    assert_answer(name, Situation.UNKNOWN, await caller.ask("hang_up"), caller.key, 502)


@pytest.mark.parametrize("name", NAMES)
async def test_a_first_answer_is_marked(stage: Stage, name: str) -> None:
    """What the upstream answers has the dialect's fields on top."""
    caller = Caller(stage, name)
    answer = await caller.ask()
    assert answer.status == 201
    request_id = (answer.field("x-request-id") or b"").decode()
    assert_fields(answer, dialect(name).first_headers, {**values_of(answer, caller.key), "original_request": request_id})


@pytest.mark.parametrize("name", NAMES)
async def test_an_answer_without_a_key_is_not_marked(stage: Stage, name: str) -> None:
    """Where no key is required a request without one is the upstream's alone: nothing says that it was accepted once."""
    answer = await stage.ask(request(name, None, path=f"{name}/open"))
    assert answer.status == 201
    ours = {field.lower() for field, _ in dialect(name).first_headers}
    assert not ours & {field.decode().lower() for field, _ in answer.fields}


def assert_replay(name: str, caller: Caller, first: Answer, again: Answer) -> None:
    """The first answer again, marked, in an exchange of its own."""
    assert (again.status, again.body) == (first.status, first.body)
    assert again.field("x-request-id") != first.field("x-request-id")
    marks = dialect(name).replay_headers
    original = (first.field("x-request-id") or b"").decode()
    assert_fields(again, DEFAULT_MARKS if marks is None else marks, {**values_of(again, caller.key), "original_request": original})


@pytest.mark.parametrize("name", NAMES)
async def test_a_retry_of_a_success(stage: Stage, name: str) -> None:
    """It gets the first answer with the dialect's marks, or the conflict that names what exists."""
    caller = Caller(stage, name)
    first, again = await caller.ask(), await caller.ask()
    if dialect(name).replay is Replay.VERBATIM:
        assert_replay(name, caller, first, again)
        return
    assert_answer(name, Situation.REPLAYED, again, caller.key)
    template: Template = dialect(name).answers[Situation.REPLAYED]
    if "{stored:/*/id}" in template.body:
        assert json.loads(first.body)["things"]["id"].encode() in again.body


@pytest.mark.parametrize("name", [name for name in NAMES if dialect(name).replay is Replay.CONFLICT])
async def test_a_retry_of_a_failure_is_no_conflict(stage: Stage, name: str) -> None:
    """Where failures are kept a retry gets the failure, where they are not it runs again; it is never told that something was created."""
    caller = Caller(stage, name)
    assert [(await caller.ask("fail")).status for _ in range(2)] == [402, 402]
