"""One attempt, from the fence to the settled record. It belongs to the process, not to the client's connection.

Order: send behind the fence, read the answer, settle in the authority (commit), then let the answer go. What happens if ...

* the process dies before the settle: the lease lapses, the record becomes `unknown`, nobody runs it again;
* the settle's reply is lost: it is repeated, which the owner token makes harmless;
* the authority stays away: after `settle_timeout` the client gets the true answer and settling goes on for as long as the process
  lives, also past a lapsed lease (`complete` is allowed from `unknown` for the attempt's own owner);
* the settle is refused: the record is read again, and the client gets what is stored, or `outcome-unknown`;
* the client is gone: nothing changes.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from gateway.core import decision as core
from gateway.core.decision import Complete, Doubt, Label, Release, Settlement, settlement_name
from gateway.core.headers import first, to_client, to_store
from gateway.core.model import Headers, Lease, Status, StoredResponse
from gateway.core.problems import Problem
from gateway.engine.answers import Answer, Passed, Refused, Relayed, Replayed, Reply
from gateway.engine.leases import LeaseKeeper
from gateway.engine.relay import BUFFER_BYTES, Relay
from gateway.engine.request import GuardedRequest
from gateway.ports import (
    Clock,
    DoubtReason,
    InDoubt,
    NotSent,
    NotSentReason,
    Observer,
    Randomness,
    Settled,
    Store,
    StoreUnavailable,
    Transition,
    Upstream,
    UpstreamRequest,
    UpstreamResponse,
)

SETTLE_BACKOFF = 0.05
COMMIT_UNCONFIRMED = "commit_unconfirmed"
"""The logged reason of an answer that left after `settle_timeout`, while its settle goes on."""
SETTLE_BACKOFF_MAX = 2.0

_UNREACHABLE = {
    NotSentReason.CONNECT_TIMEOUT: 504,
    NotSentReason.NO_SLOT: 503,
    NotSentReason.LEASE_LAPSED: 503,
    NotSentReason.SHUTTING_DOWN: 503,
}
_TIMEOUTS = {DoubtReason.FIRST_BYTE_TIMEOUT, DoubtReason.READ_TIMEOUT, DoubtReason.TOTAL_TIMEOUT}


@dataclass(frozen=True, slots=True)
class Tools:
    """What an attempt works with; the same for all attempts of a process."""

    store: Store
    clock: Clock
    randomness: Randomness
    observer: Observer
    keeper: LeaseKeeper


@dataclass(frozen=True, slots=True)
class _Response:
    """A whole response as the client and the store see it. `body` is None once it outgrew what is kept."""

    status: int
    reason: bytes
    headers: Headers
    body: bytes | None
    length: int
    digest: bytes

    def stored(self) -> StoredResponse:
        return StoredResponse(self.status, self.reason, to_store(self.headers), self.body, self.length, self.digest)


_Failure: TypeAlias = NotSent | InDoubt


class Attempt:
    """One execution under one lease. `run` is to be run as a task of its own; `reply` is done as soon as the client may be answered.

    Cancelled while the upstream works (`executing`), the attempt ends in doubt and still settles; cancelled later, it gives up settling.
    One that is stopped before `run` begins sends nothing and is released.
    """

    def __init__(self, tools: Tools, request: GuardedRequest, lease: Lease, upstream: Upstream, *, store_seconds: float = 0.0) -> None:
        self._tools = tools
        self._request = request
        self._lease = lease
        self._upstream = upstream
        self._store_seconds = store_seconds
        self._label = Label.EXECUTE if lease.attempt == 1 else Label.EXECUTE_RETRY
        self._relay: Relay | None = None
        self._held_back = b""
        self._upstream_seconds = 0.0
        self._upstream_status: int | None = None
        self._executing = False
        self._stopped = False
        self.reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.settled = asyncio.Event()

    async def run(self) -> None:
        """Execute and settle. Always leaves `reply` done; raises nothing but CancelledError."""
        self._tools.keeper.hold(self._lease)
        try:
            outcome = NotSent(NotSentReason.SHUTTING_DOWN) if self._stopped else await self._execute()
            await self._settle(outcome)
        finally:
            self._tools.keeper.drop(self._lease)
            if self._relay is not None and not self._relay.ended:
                self._relay.cut()
            self.give_up()

    @property
    def executing(self) -> bool:
        return self._executing

    def stop(self) -> None:
        """The process is going away: if nothing has been begun yet, nothing will be."""
        self._stopped = True

    def give_up(self) -> None:
        """Leave `reply` done, also if `run` was cancelled before its first step."""
        self.settled.set()
        if not self.reply.done():
            self._answer(self._unknown_answer(None), None)

    # ---- execute

    async def _execute(self) -> _Response | _Failure:
        """Send once and read the whole answer. A stop of the process while the upstream works is a doubt like any other."""
        started = self._tools.clock.boottime()
        self._executing = True
        try:
            response = await self._upstream.send(self._upstream_request(), lambda: self._tools.keeper.trusted(self._lease))
            try:
                self._upstream_status = response.status
                return await self._read(response)
            finally:
                response.close()
        except (NotSent, InDoubt) as failure:
            return failure
        except asyncio.CancelledError:
            return InDoubt(DoubtReason.GATEWAY_STOPPED)
        except Exception as error:  # a defect of ours must end in doubt, never in a record that nobody settles
            self._tools.observer.background_failed("attempt", error)
            return InDoubt(DoubtReason.GATEWAY_ERROR)
        finally:
            self._executing = False
            self._upstream_seconds = self._tools.clock.boottime() - started
            self._tools.observer.upstream_answered(self._request.route_id, self._upstream_status, self._upstream_seconds)

    def _upstream_request(self) -> UpstreamRequest:
        request = self._request
        framed = first(request.headers, b"content-length") is not None or first(request.headers, b"transfer-encoding") is not None
        return UpstreamRequest(request.method.encode(), request.target, request.forward(), request.body, frame_empty=framed)

    async def _read(self, response: UpstreamResponse) -> _Response:
        """Read to the end, keeping at most `response_body`. What is larger, or streams by the route's wish, is relayed meanwhile."""
        policy = self._request.policy
        headers = to_client(response.headers)
        if first(headers, b"date") is None:
            headers += ((b"Date", self._tools.clock.http_date()),)
        cap = policy.limits.response_body
        body = None if policy.stream else await response.read(cap)
        if body is not None:
            return _Response(response.status, response.reason, headers, body, len(body), hashlib.sha256(body).digest())
        return await self._relay_body(response, headers, cap)

    async def _relay_body(self, response: UpstreamResponse, headers: Headers, cap: int) -> _Response:
        """Let the answer out as it comes, all but its last piece, which waits for the commit; keep it if it is at most `cap` bytes long."""
        pieces: list[bytes] = []
        length, digest = 0, hashlib.sha256()
        relay = self._relay = Relay(BUFFER_BYTES if self._request.policy.stream else BUFFER_BYTES + cap)
        self._answer(Relayed(response.status, response.reason, headers, response.content_length, relay.chunks()), None)
        async for chunk in response.chunks():
            if not chunk:
                continue  # the piece that is held back until the commit must be a real one
            length += len(chunk)
            digest.update(chunk)
            relay.push(self._held_back)
            self._held_back = chunk
            if length <= cap:
                pieces.append(chunk)
            else:
                pieces.clear()
        body = b"".join(pieces) if length <= cap else None
        return _Response(response.status, response.reason, headers, body, length, digest.digest())

    # ---- settle

    async def _settle(self, outcome: _Response | _Failure) -> None:
        settlement = core.settle(_as_core(outcome), self._request.policy)
        answer = self._first_answer(outcome)
        patience = asyncio.get_running_loop().call_later(self._request.policy.settle_timeout, self._let_go, answer, None)
        try:
            transition = await self._until_answered(self._write(settlement, outcome))
        finally:
            patience.cancel()
        self._tools.observer.settled(self._request.route_id, settlement_name(settlement), settlement.reason)
        if transition in (Transition.DONE, Transition.ALREADY):  # a set would be made anew every time, and its enums hashed
            self._let_go(answer, settlement)
        else:
            self._tools.observer.stale_write(settlement_name(settlement))
            await self._answer_stale(outcome)

    def _write(self, settlement: Settlement, outcome: _Response | _Failure) -> Callable[[], Awaitable[Settled]]:
        """The statement that settles in the authority."""
        policy, lease, store = self._request.policy, self._lease, self._tools.store
        match settlement:
            case Complete():
                assert isinstance(outcome, _Response), "only a response completes"
                stored = outcome.stored()
                return lambda: store.complete(lease, stored, policy.retention)
            case Release(reason):
                return lambda: store.release(lease, reason, policy.retention)
            case Doubt(reason):
                return lambda: store.doubt(lease, reason)
            case _:
                assert_never(settlement)

    async def _until_answered(self, write: Callable[[], Awaitable[Settled]]) -> Transition:
        """Again and again until the authority answers. Repeating is harmless: the owner token tells our own write."""
        backoff = SETTLE_BACKOFF
        while True:
            try:
                return (await write()).transition
            except StoreUnavailable:
                await self._tools.clock.sleep(backoff * (0.5 + self._tools.randomness.jitter()))
                backoff = min(SETTLE_BACKOFF_MAX, backoff * 2)

    async def _answer_stale(self, outcome: _Response | _Failure) -> None:
        """Our write was refused: somebody with better knowledge was first. The client gets what is stored, if anything is.

        Stored in this very record, that is: under its key another operation may have begun a new life since.
        """
        if self._relay is not None:
            self._relay.cut()
        if self.reply.done():
            return
        try:
            found = await self._tools.store.find(self._lease.key)
        except StoreUnavailable:
            found = None
        kept = None if found is None or found.record_id != self._lease.record_id else found.response
        if found is not None and found.status is Status.COMPLETED and kept is not None and kept.body is not None:
            self._answer(Replayed(kept.status, kept.reason, kept.headers, kept.body, found.request_id), None)
        else:
            self._answer(self._unknown_answer(outcome), None)

    # ---- answer

    def _first_answer(self, outcome: _Response | _Failure) -> Answer:
        match outcome:
            case _Response(status, reason, headers, body):
                return Passed(status, reason, headers, body or b"")
            case NotSent():
                exact = _UNREACHABLE.get(outcome.reason)
                return Refused(Problem.UPSTREAM_UNREACHABLE, exact, retry_after=1, members={"reason": outcome.reason.value})
            case InDoubt():
                return self._unknown_answer(outcome)
            case _:
                assert_never(outcome)

    def _unknown_answer(self, outcome: _Response | _Failure | None) -> Refused:
        timed_out = isinstance(outcome, InDoubt) and outcome.reason in _TIMEOUTS
        return Refused(Problem.OUTCOME_UNKNOWN, 504 if timed_out else 502)

    def _let_go(self, answer: Answer, settlement: Settlement | None) -> None:
        """Let the true answer out: whole, or the end of what is being relayed already."""
        if self._relay is None:
            self._answer(answer, settlement, COMMIT_UNCONFIRMED if settlement is None else None)
        elif isinstance(answer, Passed):
            self._relay.push(self._held_back)
            self._held_back = b""
            self._relay.end()
        else:
            self._relay.cut()

    def _answer(self, answer: Answer, settlement: Settlement | None, unsettled: str | None = None) -> None:
        if self.reply.done():
            return
        name, reason = (settlement_name(settlement), settlement.reason) if settlement is not None else (None, unsettled)
        reply = Reply(
            self._label,
            answer,
            name,
            reason,
            self._lease.attempt,
            self._store_seconds,
            self._upstream_seconds,
            self._upstream_status,
        )
        self.reply.set_result(reply)


def _as_core(outcome: _Response | _Failure) -> core.Outcome:
    match outcome:
        case _Response(status):
            return core.Responded(status)
        case NotSent():
            return core.NotSent(outcome.reason.value)
        case InDoubt():
            return core.InDoubt(outcome.reason.value)
        case _:
            assert_never(outcome)
