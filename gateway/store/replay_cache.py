"""Completed answers that this process has seen a moment ago, in its own memory: a replay of one asks neither Redis nor the authority.

Theory of operation. What is completed never changes; it can only end, by its expiry or by an operator's hand. So an answer that was true
when it was asked for may be told again for a few seconds, and no longer: that is what operators are told to wait.

* The seconds of an answer count from before the question was sent from which it was learned, and a hit does not prolong them. So whatever
  an operator has deleted is told by no process later than that many seconds after the deletion.
* In the process that is told of the deletion, it is forgotten at once, and a question that was sent before and is answered after cannot
  bring it back. A question that is sent after can, while Redis has not acknowledged the deletion: then within those seconds.
* An answer is told only under its own fingerprint, and only while an upper estimate of the authority's clock is before its expiry. Without
  such an estimate nothing is told.
* It takes no more than so many bytes. The oldest go first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from gateway.core.model import Fingerprint, Record, RecordKey, Status, StoredResponse
from gateway.ports import Remembered

OVERHEAD = 1792
"""Bytes that an entry takes beside its answer: its key, its record, its place in the table, and the marks of a replay."""

_HEADER = 128
"""Bytes that a header line takes beside its text, which is there twice: in the answer, and in what is written of it."""

_SHARE = 16
"""An answer that takes more than this part of the whole is not kept: it would drive out too many others."""

_Name: TypeAlias = tuple[str, str]


@dataclass(slots=True, eq=False)
class Answer:
    """A completed record, without what only its place tells. `expires_at_us` is on the authority's clock.

    The last three are the cache's: when it ends (CLOCK_BOOTTIME), the bytes that it takes, and what is told of it: the record, which is
    made when it is first asked for, with its response made ready.
    """

    record_id: UUID
    fingerprint: Fingerprint
    owner: bytes
    attempt: int
    request_id: str
    expires_at_us: int
    response: StoredResponse
    version: int = 0
    ends: float = 0.0
    size: int = 0
    told: Remembered | None = None


class ReplayCache:
    """At most `limit` bytes, each answer for at most `seconds`.

    `now` is CLOCK_BOOTTIME; `deleted` knows lives that operators have deleted; `ready` gives a response the form that a replay needs, and
    raises ValueError if it cannot. It is called at the first hit.
    """

    def __init__(
        self,
        limit: int,
        seconds: float,
        now: Callable[[], float],
        *,
        deleted: Callable[[UUID], bool] = lambda _: False,
        ready: Callable[[RecordKey, UUID, StoredResponse], StoredResponse] = lambda _key, _id, kept: kept,
    ) -> None:
        self.seconds = seconds
        self.limit = limit
        self._now = now
        self._deleted = deleted
        self._ready = ready
        self._answers: dict[_Name, Answer] = {}
        self._forgotten: dict[_Name, float] = {}
        self._cleared = float("-inf")
        self._held = 0

    @property
    def held(self) -> int:
        """The bytes that it takes."""
        return self._held

    def get(self, key: RecordKey, fingerprint: Fingerprint, now_us: Callable[[], int | None], at: float | None = None) -> Remembered | None:
        """The record, if it can be told `at` an instant of CLOCK_BOOTTIME, by default now. `now_us` is `Store.now_us`.

        Its `expires_in` is that of the first hit, so it may be `seconds` old.
        """
        name = (key.scope_id, key.key)
        answer = self._answers.get(name)
        if answer is None or (now := now_us()) is None:
            return None
        if answer.ends <= (self._now() if at is None else at) or answer.expires_at_us <= now or self._deleted(answer.record_id):
            self._drop(name)
            return None
        if answer.fingerprint != fingerprint:
            return None
        return answer.told or self._first(key, name, answer, now)

    def put(self, key: RecordKey, answer: Answer, asked: float) -> None:
        """Keep what was learned from a question that was sent after `asked` (CLOCK_BOOTTIME)."""
        name = (key.scope_id, key.key)
        answer.ends, answer.size = asked + self.seconds, _size(answer.response)
        if asked <= self._cleared or asked <= self._forgotten.get(name, self._cleared):
            return
        known = self._answers.get(name)
        if known is not None:
            if known.ends > answer.ends:
                return  # a slow reply: what is known was learned later, and may be of a later life
            self._drop(name)
        if answer.size * _SHARE > self.limit:
            return
        self._answers[name] = answer
        self._held += answer.size
        if self._held > self.limit:
            self._make_room()

    def forget(self, key: RecordKey) -> None:
        """An operator has deleted it."""
        now = self._now()
        self._forgotten = {name: when for name, when in self._forgotten.items() if when + self.seconds > now}
        name = (key.scope_id, key.key)
        self._forgotten[name] = now
        self._drop(name)

    def clear(self) -> None:
        """Whatever was learned up to now may mean something else from now on."""
        self._cleared = self._now()
        self._answers.clear()
        self._forgotten.clear()
        self._held = 0

    def purge(self) -> None:
        """Give back what nobody will be told any more. To be called now and then; until it is, entries that have ended are merely kept."""
        now = self._now()
        for name in [name for name, answer in self._answers.items() if answer.ends <= now]:
            self._drop(name)

    def _first(self, key: RecordKey, name: _Name, answer: Answer, now_us: int) -> Remembered | None:
        """What all hits are told, made once. None: it cannot be made ready, and the store shall say so."""
        try:
            response = self._ready(key, answer.record_id, answer.response)
        except ValueError:
            self._drop(name)
            return None
        if response is not answer.response:
            self._held -= answer.size
            answer.response, answer.size = response, _size(response)
            self._held += answer.size
        record = Record(
            key,
            answer.record_id,
            answer.version,
            Status.COMPLETED,
            answer.fingerprint,
            answer.owner,
            answer.attempt,
            answer.request_id,
            expires_in=(answer.expires_at_us - now_us) / 1e6,
            expires_at_us=answer.expires_at_us,
            response=response,
        )
        answer.told = told = Remembered(record)
        if self._held > self.limit:
            self._make_room()
        return told

    def _make_room(self) -> None:
        while self._held > self.limit:
            self._drop(next(iter(self._answers)))

    def _drop(self, name: _Name) -> None:
        answer = self._answers.pop(name, None)
        if answer is not None:
            self._held -= answer.size


def _size(response: StoredResponse) -> int:
    size = OVERHEAD + len(response.reason)
    if response.body is not None:
        size += len(response.body)
    for name, value in response.headers:
        size += _HEADER + 2 * (len(name) + len(value))
    return size
