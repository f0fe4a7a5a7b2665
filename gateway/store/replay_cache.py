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
* An answer is kept as bytes until it is first asked for: most never are (`gateway.store.completed`). One with a large body stays as it
  is: copying it would hold the event loop up.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from gateway.core.model import Fingerprint, RecordKey, StoredResponse
from gateway.core.packing import INLINE
from gateway.ports import Remembered
from gateway.store.completed import CompletedEntry, parts_of, read_completed, record_of

PACKED = 352
"""Bytes that an answer which is kept as bytes takes beside them and its key: the scope, and its place in the table."""

OVERHEAD = 1792
"""Bytes that one which was asked for takes beside its text: its key, its record, its place in the table, and the marks of a replay."""

_HEADER = 128
"""Bytes that a header line takes beside its text, which is there twice: in the answer, and in what is written of it."""

_SHARE = 16
"""An answer that takes more than this part of the whole is not kept: it would drive out too many others."""

_HEAD = struct.Struct("=dqHBB16s")
"""When it ends (CLOCK_BOOTTIME), when it expires, fingerprint version, lengths of its policy and digest, owner. Of this process alone."""

_Name: TypeAlias = tuple[str, str]


@dataclass(slots=True, eq=False)
class _Answer:
    """One that was asked for, or is large. `ends` is CLOCK_BOOTTIME, `size` the bytes that all of it takes. Once it was told, `told` is the
    record with its response made ready.
    """

    entry: CompletedEntry
    ends: float
    told: Remembered | None = None
    size: int = 0


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
        # The oldest leaves first. A plain dict looks for its first entry among all that have left before.
        self._answers: OrderedDict[_Name, bytes | _Answer] = OrderedDict()
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
        kept = self._answers.get(name)
        if kept is None or (now := now_us()) is None:
            return None
        answer = _read(kept) if isinstance(kept, bytes) else kept
        entry = answer.entry
        if answer.ends <= (self._now() if at is None else at) or entry.expires_at_us <= now or self._deleted(entry.record_id):
            self._drop(name)
            return None
        if entry.fingerprint != fingerprint:
            return None
        return answer.told or self._first(key, name, answer, now)

    def put(self, key: RecordKey, entry: CompletedEntry, asked: float) -> None:
        """Keep what was learned from a question that was sent after `asked` (CLOCK_BOOTTIME)."""
        name, ends = (key.scope_id, key.key), asked + self.seconds
        if asked <= self._cleared or (self._forgotten and asked <= self._forgotten.get(name, self._cleared)):
            return
        known = self._answers.get(name)
        if known is not None:
            if _ends(known) > ends:
                return  # a slow reply: what is known was learned later, and may be of a later life
            self._drop(name)
        answer = _kept(entry, ends, self.limit // _SHARE)
        if answer is None:
            return
        self._answers[name] = answer
        self._held += _size(name, answer)
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
        """Give back what nobody will be told any more, from the oldest on, up to one that may be. To be called now and then; until it is,
        entries that have ended are merely kept.
        """
        now = self._now()
        while self._answers:
            oldest = next(iter(self._answers))
            if _ends(self._answers[oldest]) > now:
                return
            self._drop(oldest)

    def _first(self, key: RecordKey, name: _Name, answer: _Answer, now_us: int) -> Remembered | None:
        """What all hits are told, made once. None: it cannot be made ready, and the store shall say so."""
        entry = answer.entry
        try:
            response = self._ready(key, entry.record_id, entry.response)
        except ValueError:
            self._drop(name)
            return None
        answer.told = told = Remembered(record_of(key, entry, response, now_us))
        before, answer.size = _size(name, self._answers[name]), _size_of(response)
        self._held += answer.size - before
        self._answers[name] = answer  # in the place of its bytes
        if self._held > self.limit:
            self._make_room()
        return told

    def _make_room(self) -> None:
        while self._held > self.limit:
            self._held -= _size(*self._answers.popitem(last=False))

    def _drop(self, name: _Name) -> None:
        answer = self._answers.pop(name, None)
        if answer is not None:
            self._held -= _size(name, answer)


def _kept(entry: CompletedEntry, ends: float, most: int) -> bytes | _Answer | None:
    """None leaves it to the store: it takes more than `most` bytes, or the form cannot hold it."""
    meaning, body = entry.fingerprint, entry.response.body
    if body is not None and len(body) > INLINE:
        size = _size_of(entry.response)
        return _Answer(entry, ends, size=size) if size <= most else None
    policy, digest = meaning.policy, meaning.digest
    try:
        head = _HEAD.pack(ends, entry.expires_at_us, meaning.version, len(policy), len(digest), entry.owner)
        packed = b"".join((head, policy, digest, *parts_of(entry)))
    except (struct.error, ValueError):
        return None
    return packed if len(packed) + PACKED <= most else None


def _read(packed: bytes) -> _Answer:
    ends, expires_at_us, version, policy_length, digest_length, owner = _HEAD.unpack_from(packed)
    middle = _HEAD.size + policy_length
    end = middle + digest_length
    meaning = Fingerprint(version, packed[_HEAD.size : middle], packed[middle:end])
    entry = read_completed(packed, end, len(packed), meaning, owner, expires_at_us)
    assert entry is not None, "it was packed here"
    return _Answer(entry, ends)


def _ends(answer: bytes | _Answer) -> float:
    if isinstance(answer, bytes):
        ends: float = _HEAD.unpack_from(answer)[0]
        return ends
    return answer.ends


def _size(name: _Name, answer: bytes | _Answer) -> int:
    return PACKED + len(name[1]) + len(answer) if isinstance(answer, bytes) else answer.size


def _size_of(response: StoredResponse) -> int:
    size = OVERHEAD + len(response.reason)
    if response.body is not None:
        size += len(response.body)
    for name, value in response.headers:
        size += _HEADER + 2 * (len(name) + len(value))
    return size
