"""How accepted operations stand, for their clients: `GET {operations_path}/{id}`, its `/response`, and `DELETE` to cancel.

An operation's name is its scope's name and its key. Whose it is says the caller, by the same source as in the request: an operation of
somebody else is not there.
"""

import datetime as dt
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from orjson import OPT_APPEND_NEWLINE, dumps

from gateway.core.accepted import LONGEST_WAIT, parse_operation_id, preference_of, seconds_left, whole_seconds
from gateway.core.cors import answer_preflight, preflight_of
from gateway.core.decision import Label, Replay, ReplayWithoutBody, Unknown, decide
from gateway.core.model import Headers, RecordKey, Status, StoredResponse
from gateway.core.policy import OnExpired
from gateway.core.problems import Problem
from gateway.engine.answers import Passed, Refused, Reply
from gateway.engine.decided import answer_to, replay_of
from gateway.engine.engine import ANOTHER_MEANING
from gateway.engine.meanings import Meanings
from gateway.http.body import ClientGone
from gateway.http.cancel_on_disconnect import WhilePresent
from gateway.plan import RoutePlan
from gateway.ports import Body, Clock, Observer, Store, StoreUnavailable, Transition
from gateway.ports.accepted import Acceptance, Standing
from gateway.proxy.call import Call
from gateway.proxy.guard import identify

POLL_FIRST, POLL_LONGEST = 0.05, 1.0
"""Seconds between two looks for a client that waits for a change: the first ones, and at most."""

MOST_HELD = 200
"""Clients that wait for a change at a time, each with a look a second at the authority; one more is answered at once."""

READING = ("GET", "HEAD")
_METHODS_HERE = "How an operation stands, and its response, are read (GET); what waits is cancelled (DELETE)."

_RUNNING = frozenset({Status.PENDING, Status.IN_PROGRESS})


@dataclass(slots=True)
class Operations:
    """Answers requests below `operations_path`. `cancelled` makes what a cancelled operation is completed with. While `closing` nobody is
    held: the process is being drained. `held` is how many are.
    """

    acceptance: Acceptance
    store: Store
    meanings: Meanings
    clock: Clock
    observer: Observer
    cancelled: Callable[[], StoredResponse]
    recall: Callable[[StoredResponse], Awaitable[bytes | Body]]
    closing: bool = False
    held: int = 0

    async def answer(self, call: Call, path: bytes) -> Reply:
        """`path` is what follows the prefix and its slash. Raises nothing."""
        path, _, query = path.partition(b"?")
        name, slash, part = path.decode("latin-1").partition("/")
        named = parse_operation_id(name) if not slash or part == "response" else None
        plan = None if named is None else _plan_of(call, named[0])
        if plan is not None and plan.guard is not None:
            call.guard, call.guarded, call.route, call.mode, call.cors = plan.guard, True, plan.id, plan.mode, plan.cors
        self.observer.request_started(call.route)
        if named is None or plan is None:
            return _nothing()
        if (answered := self._answer_preflight(call)) is not None:
            return answered
        if self.meanings.differs(call.guard.policy):
            return _unavailable(ANOTHER_MEANING)
        try:
            return await self._answer(call, named[1], query, response=bool(slash))
        except StoreUnavailable:
            return _unavailable()

    def _answer_preflight(self, call: Call) -> Reply | None:
        """For pages that may read what the route answers: no upstream could say it of a resource of ours."""
        asked = preflight_of(call.method, call.fields)
        if asked is None or call.cors is None or not call.cors.origins:
            return None
        fields = (*answer_preflight(call.cors, asked), (b"Date", self.clock.http_date()))
        call.guarded, call.cors = False, None
        return Reply(Label.STATUS, Passed(204, b"No Content", fields, b""))

    async def _answer(self, call: Call, key: str, query: bytes, *, response: bool) -> Reply:
        allowed = READING if response else (*READING, "DELETE")
        if call.method not in allowed:
            other = Refused(Problem.METHOD_REFUSED, detail=_METHODS_HERE, allow=", ".join(allowed).encode())
            return Reply(Label.STATUS, other)
        if (refused := await identify(call)) is not None:
            return refused
        assert call.scope is not None, "the caller was identified"
        call.key = RecordKey(call.scope.id, key)
        if response:
            return await self._respond(call)
        if call.method == "DELETE":
            return await self._cancel(call)
        seconds = _wait_of(call, query)
        if isinstance(seconds, Reply):
            return seconds
        if seconds == 0 or self.held >= MOST_HELD:
            return await self._look(call, 0)
        self.held += 1
        try:
            return await self._look(call, seconds)
        finally:
            self.held -= 1

    # ---- how it stands

    async def _look(self, call: Call, seconds: int) -> Reply:
        """How it stands, as soon as that changes, after so many seconds at the latest. Who has left, or ended its sending and may have, is
        not held.
        """
        first = standing = await self.acceptance.standing(call.key)
        pause, deadline = POLL_FIRST, self.clock.boottime() + seconds
        while standing is not None and standing.status in _RUNNING and standing.status is (first or standing).status:
            left = deadline - self.clock.boottime()
            if left <= 0 or self.closing or call.connection.half_closed:
                break
            try:
                with WhilePresent(call.connection, streaming=True):  # around no call of a store, which no client cuts
                    await self.clock.sleep(min(pause, left))
            except ClientGone:
                break
            pause = min(POLL_LONGEST, pause * 2)
            standing = await self.acceptance.standing(call.key)
        return await self._absent(call) if standing is None else self._told(call, standing)

    # ---- its answer

    async def _respond(self, call: Call) -> Reply:
        """The stored answer, byte for byte as a retry gets it."""
        found = await self.store.find(call.key)
        if found is None or found.observed:
            return await self._absent(call)
        if found.status is not Status.COMPLETED:
            return Reply(Label.STATUS, Refused(Problem.NOT_COMPLETED, retry_after=seconds_left(found.due_in)))
        match decide(found, found.fingerprint, call.guard.policy):
            case Replay() as replay:
                try:
                    return replay_of(replay, await self.recall(replay.response))
                except ValueError as error:
                    self.observer.background_failed("replay", error)
                    return _unavailable()
            case ReplayWithoutBody() | Unknown() as told:
                return answer_to(told)
            case _:
                return _expired(call)

    # ---- cancel

    async def _cancel(self, call: Call) -> Reply:
        standing = await self.acceptance.standing(call.key)
        if standing is None:
            return await self._absent(call)
        if standing.expired:
            return _expired(call)
        if await self.acceptance.cancel(standing, self.cancelled()) in {Transition.STALE, Transition.MISSING}:
            return Reply(Label.STATUS, Refused(Problem.NOT_PENDING))
        after = await self.acceptance.standing(call.key)
        return await self._absent(call) if after is None else self._told(call, after)

    async def _absent(self, call: Call) -> Reply:
        """There is no record: the route may remember that there was one."""
        gone = call.guard.policy.on_expired is OnExpired.GONE
        return _expired(call) if gone and await self.acceptance.tombstone(call.key) is not None else _nothing()

    def _told(self, call: Call, standing: Standing) -> Reply:
        if standing.expired:
            return _expired(call)
        at, retry_after = call.origin_form.partition(b"?")[0].decode("latin-1"), _retry_after(standing)
        created = dt.datetime.fromtimestamp(standing.created_at_us / 1e6, dt.UTC)
        document: dict[str, object] = {
            "operation": at,
            "status": standing.status.value,
            "created_at": created.isoformat(timespec="milliseconds"),
            "attempt": standing.attempt,
            "recovery_point": standing.recovery_point,
            "retry_after": retry_after,
        }
        if standing.status is Status.COMPLETED:
            document["response"] = f"{at}/response"
        date = self.clock.http_date()
        headers: Headers = ((b"Content-Type", b"application/json"), (b"Cache-Control", b"no-store"), (b"Date", date))
        if retry_after is not None:
            headers += ((b"Retry-After", b"%d" % retry_after),)
        return Reply(Label.STATUS, Passed(200, b"OK", headers, dumps(document, option=OPT_APPEND_NEWLINE)))


def _plan_of(call: Call, scope: str) -> RoutePlan | None:
    """A route that has this scope, and tells its clients of operations. Routes that share a scope agree on who asks."""
    plans = call.routing.plans.values()
    return next((plan for plan in plans if plan.guard and plan.guard.policy.scope == scope and plan.guard.policy.has_status), None)


def _wait_of(call: Call, query: bytes) -> int | Reply:
    """The seconds for which the answer may be held: `wait=N` in the query, or Prefer: wait=N."""
    asked = dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)).get("wait")
    seconds = (preference_of(call.fields.values(b"prefer")).wait or 0) if asked is None else whole_seconds(asked)
    if seconds is not None and seconds <= LONGEST_WAIT:
        return seconds
    detail = f"`wait` is a whole number of seconds, {LONGEST_WAIT} at most."
    return Reply(Label.STATUS, Refused(Problem.BAD_REQUEST, detail=detail))


def _unavailable(detail: str | None = None) -> Reply:
    return Reply(Label.STATUS, Refused(Problem.STORE_UNAVAILABLE, retry_after=1, detail=detail))


def _nothing() -> Reply:
    return Reply(Label.STATUS, Refused(Problem.NO_OPERATION))


def _expired(call: Call) -> Reply:
    gone = call.guard.policy.on_expired is OnExpired.GONE
    return Reply(Label.STATUS, Refused(Problem.KEY_EXPIRED if gone else Problem.NO_OPERATION))


def _retry_after(standing: Standing) -> int | None:
    match standing.status:
        case Status.COMPLETED:
            return None
        case Status.UNKNOWN:
            return None if standing.dead_lettered else seconds_left(standing.reconcile_in)
        case _:
            return seconds_left(standing.due_in)
