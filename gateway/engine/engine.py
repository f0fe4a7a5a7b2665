"""One guarded request's life: reserve, decide, execute or answer.

The engine awaits a store, lets `gateway.core.decision` judge what is there, and carries out. It holds no rule of its own about
states. Everything that is not pure comes in as an argument, so that the whole engine runs under a virtual clock and a seeded scheduler.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, assert_never

from gateway.core.decision import (
    Claim,
    Decision,
    Gone,
    InProgress,
    KeyMisuse,
    Label,
    Lapse,
    Replay,
    ReplayWithoutBody,
    Unknown,
    Unreadable,
    decide,
)
from gateway.core.duplicates import Duplicates
from gateway.core.model import Earlier, Fingerprint, Intent, Lease, Record, RecordKey, Status, Tombstone
from gateway.core.packing import INLINE
from gateway.core.policy import InFlight, OnStoreOutage
from gateway.core.problems import Problem
from gateway.engine.answers import LOOK_AGAIN, Refused, Replayed, Reply
from gateway.engine.attempt import Attempt
from gateway.engine.fingerprints import Fingerprints
from gateway.engine.intents import intent_of
from gateway.engine.lost import LostReplies, LostReply
from gateway.engine.request import GuardedRequest
from gateway.engine.response_packing import recall
from gateway.engine.sealed import seal
from gateway.engine.tools import Tools
from gateway.engine.unprotected import forward_unprotected
from gateway.engine.waiting import Waiting
from gateway.ports import Retention, StoreUnavailable, Swept, Upstream

ROUNDS = 3
"""How often a request looks again after another one was faster. Then somebody else is at it: `request-in-progress`."""

ANOTHER_MEANING = "Whose keys these are is configured otherwise by now, and this gateway has not learnt of it."


class Engine:
    """Guards requests. One for each process; attempts and their background work are its own and end with `drain`."""

    def __init__(self, tools: Tools, upstreams: Mapping[str, Upstream], fingerprints: Fingerprints) -> None:
        self._tools = tools
        self._upstreams = upstreams
        self._fingerprints = fingerprints
        self._running: dict[RecordKey, Attempt] = {}
        self._tasks: dict[asyncio.Task[None], Attempt | None] = {}
        self._waiting = Waiting(tools.clock, tools.observer, tools.store.find, self._running.__contains__)
        self._duplicates: dict[str, Duplicates] = {}
        self._closing = False
        self._lost = LostReplies(tools)

    def reconfigure(self, upstreams: Mapping[str, Upstream], fingerprints: Fingerprints) -> None:
        """Use a new route map's upstreams and policies from the next request on; running attempts keep theirs.

        Upstreams that left the map stay known: a request that was matched against the old map may still be reading its body.
        """
        self._upstreams = {**self._upstreams, **upstreams}
        self._fingerprints = fingerprints

    async def handle(self, request: GuardedRequest) -> Reply:
        """Answer one request. Raises nothing; a cancelled call leaves a running attempt alone.

        The request is closed as soon as nobody needs its body.
        """
        clock = self._tools.clock
        started = clock.boottime()
        upstream = self._upstreams[request.upstream]  # before anything is reserved: a reload may take it out of the map meanwhile
        attempt: Attempt | None = None
        try:
            if self._tools.meanings.differs(request.policy):
                return Reply(Label.STORE_UNAVAILABLE, Refused(Problem.STORE_UNAVAILABLE, retry_after=1, detail=ANOTHER_MEANING))
            found = await self._resolve(request)
            store_seconds = clock.boottime() - started
            if isinstance(found, Reply):
                found.store_seconds = store_seconds
                return found
            attempt = Attempt(self._tools, request, found, upstream, store_seconds=store_seconds, duplicate=self._duplicate(request))
        except StoreUnavailable as unavailable:
            if request.policy.on_store_outage is OnStoreOutage.FORWARD and not unavailable.asked:
                return await forward_unprotected(self._tools, request, upstream)
            return Reply(
                Label.STORE_UNAVAILABLE, Refused(Problem.STORE_UNAVAILABLE, retry_after=1), store_seconds=clock.boottime() - started
            )
        finally:
            if attempt is None:
                request.close()
        if self._closing:
            attempt.stop()
        self._running[request.key] = attempt
        self._own(attempt.run(), attempt)
        return await attempt.reply

    async def observe(self, request: GuardedRequest) -> Reply:
        """Forward one request whatever is decided about it, and record it, so that a later one can be judged.

        The reply's label is the decision.
        """
        upstream = self._upstreams[request.upstream]
        attempt: Attempt | None = None
        try:
            found = await self._look(request)
            if isinstance(found, Lease):
                attempt = Attempt(self._tools, request, found, upstream, duplicate=self._duplicate(request))
            else:
                return await forward_unprotected(self._tools, request, upstream, found)
        except StoreUnavailable:
            return await forward_unprotected(self._tools, request, upstream, Label.STORE_UNAVAILABLE)
        finally:
            if attempt is None:
                request.close()
        self._own(attempt.run(), attempt)
        return await attempt.reply

    def _duplicate(self, request: GuardedRequest) -> bool:
        """Whether this caller has lately sent an equal request under another key: counted and told of, never deduplicated."""
        window = request.policy.duplicates
        if not window or request.meaning is None:
            return False
        watch = self._duplicates.get(request.route_id)
        if watch is None or watch.window != window:
            watch = self._duplicates[request.route_id] = Duplicates(window)
        now = self._tools.clock.boottime()
        if not watch.seen(request.key.scope_id, request.meaning.digest, request.key.lookup_digest(), now):
            return False
        self._tools.observer.duplicate_seen(request.route_id, request.key_digest)
        return True

    async def _look(self, request: GuardedRequest) -> Lease | Label:
        """What would be decided: a lease if the request would execute, else the label of its answer. Nobody is waited for."""
        sent = request.meaning = await self._meaning(request)
        found = await self._reserve(request, sent)
        for _ in range(ROUNDS):
            if isinstance(found, Lease):
                return found
            if isinstance(found, Tombstone):
                return Label.GONE
            decision = decide(found, await self._comparable(request, sent, found), request.policy)
            match decision:
                case Claim() if found.status is Status.UNKNOWN:
                    return Label.REEXECUTE
                case Claim():
                    lease = await self._claim(request, found, self._intent(request, sent))
                    if lease is not None:
                        return lease
                case Lapse():
                    await self._lapse(request, found)
                case Replay():
                    return Label.REPLAY
                case _:
                    return answer_found(decision).label
            found = await self._reserve(request, sent)
        return found if isinstance(found, Lease) else Label.IN_PROGRESS

    # ---- reserve and decide

    async def _resolve(self, request: GuardedRequest) -> Lease | Reply:
        """Reserve, and look at what is there until it is an answer or ours to execute. At most ROUNDS rounds."""
        sent = request.meaning = await self._meaning(request)
        await seal(self._tools, request)
        found = await self._reserve(request, sent)
        try:
            rounds = 0
            while not isinstance(found, Lease):
                if isinstance(found, Tombstone):
                    return _gone()
                judged = await self._judge(request, sent, found, last=rounds == ROUNDS)
                if judged is not None:
                    return judged
                found = await self._reserve(request, sent)
                rounds += 1
            return found
        except StoreUnavailable as unavailable:
            # The record exists: forwarding without it could run the operation twice, whatever the route says of an outage.
            landed = unavailable.may_have_landed
            raise StoreUnavailable(unavailable.store, unavailable.reason, may_have_landed=landed, asked=True) from unavailable

    async def _meaning(self, request: GuardedRequest) -> Fingerprint:
        """The request's fingerprint; that of a large body is made off the event loop."""
        content = request.content
        if isinstance(content.body, bytes) and len(content.body) > INLINE:
            made: Fingerprint = await self._tools.offload(self._fingerprints.current, request.route_id, content)
            return made
        return self._fingerprints.current(request.route_id, content)

    async def _comparable(self, request: GuardedRequest, sent: Fingerprint, found: Record) -> Fingerprint | None:
        return await self._fingerprints.comparable(request.content, sent, found.fingerprint)

    async def _judge(self, request: GuardedRequest, sent: Fingerprint, found: Record, *, last: bool = False) -> Lease | Reply | None:
        """Carry out what the core decides about a record that is there. None: somebody was faster, look again (not in the `last` round)."""
        decision = decide(found, await self._comparable(request, sent, found), request.policy)
        match decision:
            case Claim() | Lapse() if last:
                return _conflict()
            case Claim():
                return await self._claim(request, found, self._intent(request, sent))
            case Lapse():
                await self._lapse(request, found)
                return None
            case InProgress() if request.policy.in_flight is InFlight.WAIT and not self._waiting.full:
                return await self._wait(request, sent)
            case Replay():
                return await self._replay(decision)
            case _:
                return answer_found(decision)

    async def _replay(self, decision: Replay) -> Reply:
        """The stored answer. One that cannot be unpacked is told like a record that cannot be read: never guessed at, never run again."""
        response = decision.response
        try:
            body = await recall(self._tools, response)
        except ValueError as error:
            self._tools.observer.background_failed("replay", error)
            return Reply(Label.STORE_UNAVAILABLE, Refused(Problem.STORE_UNAVAILABLE, retry_after=1))
        found = decision.found
        answer = Replayed(response.status, response.reason, response.headers, body, found.request_id, found.expires_at_us)
        return Reply(Label.REPLAY, answer, expires_at_us=found.expires_at_us)

    async def _lapse(self, request: GuardedRequest, found: Record) -> None:
        """What the sweeper would do, found on the way: counted and logged like its own finds."""
        if await self._tools.store.lapse(found):
            self._tools.observer.swept([Swept(found.key, request.route_id, found.request_id, found.attempt)])

    def _intent(self, request: GuardedRequest, sent: Fingerprint) -> Intent:
        """A fresh owner token for each statement: one that was lost can then never be taken for another's."""
        return intent_of(request, sent, self._tools.randomness.token())

    async def _reserve(self, request: GuardedRequest, sent: Fingerprint) -> Lease | Record | Tombstone:
        intent = self._intent(request, sent)
        started = self._tools.clock.boottime()
        try:
            found = await self._tools.store.reserve(intent)
        except StoreUnavailable as unavailable:
            if not unavailable.may_have_landed:
                raise
            lease = await self._confirm(_lost(request, intent, started, settled_by_stale=True))
            if lease is None:
                raise
            return lease
        except asyncio.CancelledError:
            self._lost.take_back(_lost(request, intent, started, settled_by_stale=True))
            raise
        if isinstance(found, Record) and found.owner == intent.owner:  # the store repeated the statement, and sees that it had landed
            lease = await self._confirm(_lost(request, intent, started, settled_by_stale=True))
            if lease is None:
                raise StoreUnavailable("authority", "timeout", may_have_landed=True)
            return lease
        return found

    async def _claim(self, request: GuardedRequest, found: Record, intent: Intent) -> Lease | None:
        started, earlier = self._tools.clock.boottime(), found.earlier
        try:
            return await self._tools.store.claim(found, intent)
        except StoreUnavailable as unavailable:
            if not unavailable.may_have_landed:
                raise
            lease = await self._confirm(_lost(request, intent, started, settled_by_stale=False, earlier=earlier))
            if lease is None:
                raise
            return lease
        except asyncio.CancelledError:
            self._lost.take_back(_lost(request, intent, started, settled_by_stale=False, earlier=earlier))
            raise

    async def _confirm(self, lost: LostReply) -> Lease | None:
        """Our statement may have landed. Either a write of ours says that the record is ours, and we go on; or we answer 503, having sent
        nothing upstream, and release in the background. Never both.
        """
        return await self._lost.confirm(lost)

    async def _wait(self, request: GuardedRequest, sent: Fingerprint) -> Lease | Reply:
        """Wait for the running attempt's end, at most `wait` seconds: then a replay, or the conflict answer. Where the record is gone
        meanwhile, one of those who wait reserves the key as any request would; nobody runs again what an attempt has given back.
        """
        with self._waiting.place(request.key, request.policy.wait, request.client) as place:
            while (seen := await place.next()) is not None:
                found: Lease | Record | Tombstone | None = seen.found
                if found is None and seen.mine:
                    found = await self._reserve(request, sent)
                    place.hurry()
                answer = None if found is None else await self._judge_end(request, sent, found)
                if isinstance(answer, Lapse):
                    if seen.mine:
                        await self._lapse(request, answer.found)
                        place.hurry()
                elif answer is not None:
                    return answer
        return _conflict()

    async def _judge_end(
        self, request: GuardedRequest, sent: Fingerprint, found: Lease | Record | Tombstone
    ) -> Lease | Reply | Lapse | None:
        """What has become of the attempt that was waited for. None: it goes on."""
        if isinstance(found, Lease):
            return found
        if isinstance(found, Tombstone):
            return _gone()
        decision = decide(found, await self._comparable(request, sent, found), request.policy)
        match decision:
            case InProgress():
                return None
            case Lapse():
                return decision
            case Claim():
                return _conflict()
            case Replay():
                return await self._replay(decision)
            case _:
                return answer_found(decision)

    # ---- lifetimes

    def _own(self, work: Coroutine[Any, Any, None], attempt: Attempt | None = None) -> None:
        """Run `work` as the process's own: no client's connection can cancel it, and `drain` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = attempt
        task.add_done_callback(self._disown)

    def _disown(self, task: asyncio.Task[None]) -> None:
        attempt = self._tasks.pop(task, None)
        if attempt is not None:
            attempt.give_up()
            if self._running.get(attempt.key) is attempt:
                del self._running[attempt.key]
                self._waiting.ended(attempt.key)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tools.observer.background_failed("attempt", error)

    @property
    def in_flight(self) -> int:
        """How many attempts and background releases this process still owes an end."""
        return len(self._tasks) + self._lost.pending

    async def drain(self, timeout: float, grace: float = 2.0) -> bool:
        """Wait for all attempts to settle. After `timeout` seconds those at an upstream end in doubt at once, so that nobody has to wait
        for their leases to lapse, and nothing new is sent; after `grace` more the rest is given up. True if no attempt was given up.

        What was to be taken back after a lost reply is asked for once more, for `grace` at most.
        """
        await self._quiet(timeout)
        self._closing = True
        for task, attempt in list(self._tasks.items()):
            if attempt is not None:
                attempt.stop()
            if attempt is None or attempt.executing:
                task.cancel()
        await asyncio.gather(self._quiet(grace), self._lost.drain(grace))
        left = list(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return not left

    async def _quiet(self, timeout: float) -> None:
        """Until nothing is owned any more, also of what came meanwhile, at most `timeout` seconds."""
        deadline = self._tools.clock.boottime() + timeout
        while self._tasks and (remaining := deadline - self._tools.clock.boottime()) > 0:
            await asyncio.wait(self._tasks, timeout=remaining)


def _gone() -> Reply:
    return Reply(Label.GONE, Refused(Problem.KEY_EXPIRED))


def _conflict() -> Reply:
    return Reply(Label.IN_PROGRESS, Refused(Problem.REQUEST_IN_PROGRESS, retry_after=1))


def _lost(
    request: GuardedRequest, intent: Intent, started: float, *, settled_by_stale: bool, earlier: Earlier = Earlier.NOTHING
) -> LostReply:
    retention = Retention.of(request.policy)
    return LostReply.of(intent, started, retention, settled_by_stale=settled_by_stale, earlier=earlier)


def answer_found(decision: Decision) -> Reply:
    """The answer to a decision that asks nothing more of anybody."""
    match decision:
        case ReplayWithoutBody(_, response):
            members = {
                "original_status": response.status,
                "body_length": response.body_length,
                "body_sha256": response.body_digest.hex(),
            }
            return Reply(Label.REPLAY_WITHOUT_BODY, Refused(Problem.RESPONSE_NOT_STORED, members=members))
        case InProgress(_, retry_after):
            return Reply(Label.IN_PROGRESS, Refused(Problem.REQUEST_IN_PROGRESS, retry_after=retry_after))
        case KeyMisuse():
            return Reply(Label.KEY_MISUSE, Refused(Problem.KEY_REUSED))
        case Unknown(_, retry_after):
            detail = None if retry_after is None else LOOK_AGAIN
            return Reply(Label.UNKNOWN, Refused(Problem.OUTCOME_UNKNOWN, retry_after=retry_after, detail=detail))
        case Gone():
            return Reply(Label.GONE, Refused(Problem.KEY_EXPIRED))
        case Unreadable():
            detail = "This record was written by a newer version of the gateway, which alone can compare requests with it."
            return Reply(Label.STORE_UNAVAILABLE, Refused(Problem.STORE_UNAVAILABLE, retry_after=1, detail=detail))
        case Replay() | Claim() | Lapse():
            raise AssertionError("replays, claims and lapses are carried out")
        case _:
            assert_never(decision)
