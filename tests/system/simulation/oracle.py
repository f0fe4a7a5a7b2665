"""The judge: it sees what really happened, and holds every answer against the promises.

* I1: a key executes at most once in the life of its record.
* I2: an answer is an upstream's answer to this very operation, or a refusal of ours; and a refusal's words are true.
* I4 (asked by the world at the end): nothing stays in progress, nothing is left over.
* Besides: nothing is sent but under a live lease, nothing answers before its commit (`settle_timeout` aside), nothing is replayed that
  was never committed, nobody is told that a request is in progress whose end was committed before they asked.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gateway.core.attempt_token import AttemptToken
from gateway.core.headers import first, to_store
from gateway.core.model import Headers, RecordKey, Status, StoredResponse
from gateway.core.problems import Problem
from gateway.engine.answers import Refused
from gateway.ports import Settled, Transition
from tests.system.simulation.authority import at_once
from tests.system.simulation.scenario import MAX_EXECUTION
from tests.system.simulation.upstream import Operation

if TYPE_CHECKING:
    from tests.system.simulation.clients import Answer, Ask
    from tests.system.simulation.world import World

NOTHING_SENT = {
    Problem.STORE_UNAVAILABLE,
    Problem.REQUEST_IN_PROGRESS,
    Problem.KEY_REUSED,
    Problem.KEY_EXPIRED,
    Problem.RESPONSE_NOT_STORED,
    Problem.UPSTREAM_UNREACHABLE,
    Problem.SHUTTING_DOWN,
}
"""Refusals that promise, in so many words, that this request did not execute."""

EPSILON = 1e-6


@dataclass(slots=True)
class Facts:
    """What is known of one (scope, key)."""

    executions: list[tuple[float, Operation]] = field(default_factory=list)
    committed: list[tuple[float, StoredResponse]] = field(default_factory=list)
    meanings: set[str] = field(default_factory=set)
    recorded: set[str] = field(default_factory=set)
    answered: dict[int, bytes] = field(default_factory=dict)
    at_work: tuple[float, Operation] | None = None
    """The attempt that the upstream works on, where that takes part, and since when."""
    point: str | None = None
    """The last recovery point that was kept."""


class Oracle:
    def __init__(self, world: "World") -> None:
        self._world = world
        self.facts: dict[RecordKey, Facts] = defaultdict(Facts)
        self._asks: dict[str, Ask] = {}
        self._sent: dict[str, Operation] = {}
        self._read: dict[str, float] = {}
        self._statements: dict[str, int] = defaultdict(int)
        self._refused: dict[str, Problem] = {}
        self._unprotected: set[str] = set()
        self._forgotten: list[tuple[float, float]] = []
        self.promised: set[RecordKey] = set()

    # ---- what happens

    def asked(self, ask: "Ask") -> None:
        """A client sends a request."""
        self._asks[ask.request_id] = ask
        self.facts[ask.key].meanings.add(ask.meaning)

    def recorded(self, key: RecordKey, request_id: str) -> None:
        """The authority has given a lease to a request: from now on its key stands for this operation."""
        self.facts[key].recorded.add(self._asks[request_id].meaning)

    def statement_sent(self, store: str) -> None:
        request = self._world.current_request()
        if request is not None and store == "authority":
            self._statements[request] += 1

    def sent(self, operation: Operation) -> bool:
        """The first byte of a request is written at this instant: its lease must be live on the authority's own clock.

        False: it is passed on unprotected, as its route says.
        """
        if operation.request_id in self._sent and not self._world.scenario.policy.accepts:  # which is tried again under its own name
            self._world.fail(f"{operation.request_id} was sent twice")
        self._sent[operation.request_id] = operation
        key = RecordKey(operation.scope, operation.key)
        if operation.request_id in self._unprotected or self._world.may_be_unprotected(self._statements[operation.request_id]):
            self._unprotected.add(operation.request_id)
            return False
        record = at_once(self._world.authority.find(key))
        if record is None or record.request_id != operation.request_id or record.status is not Status.IN_PROGRESS or not record.lease_live:
            self._world.fail(f"{operation.request_id} was sent without a live lease of its own: {record}")
        return True

    def executed(self, operation: Operation) -> int:
        """Count one execution. Returns its number for this key."""
        now = self._world.loop.time()
        facts = self.facts[RecordKey(operation.scope, operation.key)]
        self._world.journal.tell("upstream", "executes {} for {}", operation.request_id, operation.key)
        if operation.request_id not in self._unprotected:
            for when, before in facts.executions:
                if now - when < self._world.scenario.policy.retention:
                    self._world.fail(f"{operation.key} executed twice: for {before.request_id}, then for {operation.request_id}")
            facts.executions.append((now, operation))
        return len(facts.executions)

    # ---- upstreams that take part

    def attempt_began(self, operation: Operation) -> None:
        """One attempt after the other, and from where the one before has stopped."""
        facts = self.facts[RecordKey(operation.scope, operation.key)]
        now = self._world.loop.time()
        if facts.at_work is not None and now < facts.at_work[0] + MAX_EXECUTION:
            self._world.fail(f"{operation.request_id} began while the upstream still worked on {facts.at_work[1].request_id}")
        if operation.point != facts.point:
            self._world.fail(f"{operation.request_id} was told to resume at {operation.point}, and the last point is {facts.point}")
        if operation.point is not None:
            self._world.journal.count("resumed")
        facts.at_work = now, operation

    def attempt_ended(self, operation: Operation) -> None:
        facts = self.facts[RecordKey(operation.scope, operation.key)]
        if facts.at_work is not None and facts.at_work[1] == operation:
            facts.at_work = None

    def told_point(self, token: AttemptToken) -> None:
        self.facts[token.key].point = "charged"

    def next_number(self, operation: Operation) -> int:
        """Of the execution that is about to be committed."""
        return len(self.facts[RecordKey(operation.scope, operation.key)].executions) + 1

    def co_committed(self, key: RecordKey) -> None:
        """The upstream has completed the record."""
        record = at_once(self._world.authority.find(key))
        assert record is not None
        assert record.response is not None
        self.facts[key].committed.append((self._world.loop.time(), record.response))

    def answer_read(self, operation: Operation) -> None:
        """The last piece of the upstream's answer reaches the gateway now."""
        self._read[operation.request_id] = self._world.loop.time()

    def settled(self, key: RecordKey, response: StoredResponse, settled: Settled) -> None:
        """The authority has answered a complete."""
        record = at_once(self._world.authority.find(key))
        told = first(response.headers, b"x-answer")
        if settled.transition is Transition.DONE and record is not None and told not in {record.request_id.encode(), b"rebuilt"}:
            self._world.fail(f"the record of {record.request_id} was completed with the answer to {told!r}")
        if settled.transition is Transition.DONE:
            self.facts[key].committed.append((self._world.loop.time(), response))

    def forgotten(self, begins: float, ends: float) -> None:
        """A failover has taken back what was committed between these instants."""
        self._forgotten.append((begins, ends))

    def has_executed(self, request_id: str, key: RecordKey) -> bool:
        return any(operation.request_id == request_id for _, operation in self.facts[key].executions)

    # ---- what clients are told

    def told(self, ask: "Ask", answer: "Answer") -> None:
        """Judge one whole answer."""
        if answer.promised:
            self._promise(ask.key)
            return
        if answer.abandoned:
            self._judge_abandoned(ask)
            return
        if isinstance(answer.refused, Refused):
            self._judge_refusal(ask, answer.refused)
            return
        told = self._same_operation(ask, answer)
        if answer.replayed or told["request"] != ask.request_id:
            self._judge_replay(ask, answer)
        elif not self._is_unprotected(ask):
            self._judge_first(ask, answer)
        if told["executed"] and not told["verdict"] and told["request"] not in self._unprotected:
            kept = self.facts[ask.key].answered.setdefault(told["number"], answer.body)
            if kept != answer.body:
                self._world.fail(f"{ask.request_id}: two answers for execution {told['number']} of {ask.key.key}")

    def _promise(self, key: RecordKey) -> None:
        """From now on the operation comes to an end, unless the process that promised dies before the record says so."""
        found = at_once(self._world.authority.find(key))
        if found is not None and found.accepted:
            self.promised.add(key)
        else:
            self._world.journal.count("promised unconfirmed")

    def abandoned(self, request_id: str, answer: StoredResponse) -> None:
        """The authority has ended accepted work."""
        self._world.journal.count("abandoned")
        self.facts[self._asks[request_id].key].committed.append((self._world.loop.time(), answer))

    def _judge_abandoned(self, ask: "Ask") -> None:
        if self.facts[ask.key].executions:
            self._world.fail(f"{ask.request_id} was told that nothing was sent; it was executed")

    def judge_kept(self) -> None:
        """At the end: what was promised is done, or in doubt, and nothing waits."""
        for key in self.promised:
            found = at_once(self._world.authority.find(key))
            if found is None or found.status not in {Status.COMPLETED, Status.UNKNOWN}:
                self._world.fail(f"{key.key} was promised, and is {None if found is None else found.status.value}")

    def _same_operation(self, ask: "Ask", answer: "Answer") -> dict[str, Any]:
        told: dict[str, Any] = json.loads(answer.body)
        if (told["scope"], told["key"], told["meaning"]) != (ask.key.scope_id, ask.key.key, ask.meaning):
            self._world.fail(f"{ask.request_id} was answered with another operation's answer: {told}")
        return told

    def _judge_refusal(self, ask: "Ask", refused: Refused) -> None:
        problem = refused.problem
        if problem in NOTHING_SENT:
            self._refused[ask.request_id] = problem
        if problem is Problem.KEY_REUSED and self.facts[ask.key].recorded <= {ask.meaning}:
            self._world.fail(f"{ask.request_id} was told that its key means something else; it never did")
        if problem is Problem.REQUEST_IN_PROGRESS and (done := self._done_before(ask)) is not None:
            self._world.fail(f"{ask.request_id} was told that its request is in progress; it was completed {done:.3f} s before it asked")
        if problem is Problem.RESPONSE_NOT_STORED and refused.members["body_sha256"] not in self._committed_digests(ask.key):
            self._world.fail(f"{ask.request_id} was told of a response that was never committed")

    def _done_before(self, ask: "Ask") -> float | None:
        """For how many seconds the key's operation had been completed when this was asked, if it was, and is still kept."""
        kept_until = self._world.loop.time() - self._world.scenario.policy.retention
        committed = [
            when for when, _ in self.facts[ask.key].committed if not any(begins < when <= ends for begins, ends in self._forgotten)
        ]
        ages = [ask.asked - when for when in committed if kept_until < when <= ask.asked]
        return max(ages, default=None)

    def _committed_digests(self, key: RecordKey) -> set[str]:
        return {response.body_digest.hex() for _, response in self.facts[key].committed}

    def _judge_replay(self, ask: "Ask", answer: "Answer") -> None:
        """Only what was committed is replayed, just as it was committed, and for no longer than its retention."""
        commits = [
            when
            for when, kept in self.facts[ask.key].committed
            if (kept.status, kept.body) == (answer.status, answer.body) and _same(kept.headers, answer.headers)
        ]
        if commits and max(commits) + self._world.scenario.policy.retention < ask.asked:
            self._world.fail(f"{ask.request_id} was told a replay that had expired")
        if commits:
            return
        self._world.fail(f"{ask.request_id} was told a replay that was never committed: {answer.status} {answer.body!r}")

    def _judge_first(self, ask: "Ask", answer: "Answer") -> None:
        """A first answer waits for its commit, at most `settle_timeout`."""
        policy = self._world.scenario.policy
        if answer.status in policy.release_on | policy.doubt_on:
            return
        waited = self._world.loop.time() - self._read.get(ask.request_id, self._world.loop.time())
        committed = any(response.body_digest == answer.digest for _, response in self.facts[ask.key].committed)
        if not committed and waited < policy.settle_timeout - EPSILON:
            self._world.fail(f"{ask.request_id} was answered {waited:.3f} s after its upstream, uncommitted")

    def _is_unprotected(self, ask: "Ask") -> bool:
        return ask.request_id in self._unprotected

    def judge_promises(self) -> None:
        """At the end: no request that was told "nothing was executed" has ever reached the upstream."""
        for request_id, problem in self._refused.items():
            if request_id in self._sent:
                self._world.fail(f"{request_id} was told {problem.value.slug}, but it was sent")


def _same(kept: Headers, told: Headers) -> bool:
    """Whether a replay carries the headers as they were stored: nothing less, and nothing of one exchange."""
    return kept == told and kept == to_store(kept)
