"""What the cache of completed answers tells, for how long, and how much it takes."""

import secrets
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.core.model import Fingerprint, RecordKey, StoredResponse
from gateway.core.packing import ZLIB, pack, unpacked
from gateway.store.completed import CompletedEntry
from gateway.store.replay_cache import OVERHEAD, ReplayCache

SECONDS = 3.0
MEANING, OTHER = Fingerprint(3, b"p" * 32, b"d" * 32), Fingerprint(3, b"p" * 32, b"e" * 32)
KEY = RecordKey("payments:alice", "k-1")
EXPIRES = 1_000_000_000


def response(body: bytes | None = b"paid") -> StoredResponse:
    return StoredResponse(201, b"Created", ((b"Content-Type", b"text/plain"),), body, len(body or b""), b"d" * 32)


def answer(body: bytes | None = b"paid", expires_at_us: int = EXPIRES, life: int = 1) -> CompletedEntry:
    return CompletedEntry(MEANING, b"o" * 16, expires_at_us, UUID(int=life), 0, 1, "request-1", response(body))


def at(now_us: int | None) -> Callable[[], int | None]:
    """An authority's clock that shows this."""
    return lambda: now_us


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Bench:
    clock: Clock = field(default_factory=Clock)
    deleted: set[UUID] = field(default_factory=set)

    def cache(self, limit: int = 1 << 20) -> ReplayCache:
        return ReplayCache(limit, SECONDS, self.clock, deleted=self.deleted.__contains__, ready=lambda _key, _id, kept: unpacked(kept))


def test_what_was_put_is_told_as_the_record_that_it_is() -> None:
    bench = Bench()
    cache = bench.cache()
    cache.put(KEY, answer(), bench.clock.now)
    told = cache.get(KEY, MEANING, at(EXPIRES - 5_000_000))
    assert told is not None
    found = told.record
    assert (found.key, found.response, found.request_id, found.expires_at_us, found.expires_in) == (
        KEY,
        response(),
        "request-1",
        EXPIRES,
        5.0,
    )
    assert not found.expired
    assert cache.get(KEY, MEANING, at(EXPIRES - 4_000_000)) is told


def test_another_meaning_or_key_is_told_nothing() -> None:
    bench = Bench()
    cache = bench.cache()
    cache.put(KEY, answer(), bench.clock.now)
    assert cache.get(KEY, OTHER, at(0)) is None
    assert cache.get(RecordKey("payments:bob", "k-1"), MEANING, at(0)) is None
    assert cache.get(KEY, MEANING, at(0)) is not None


def test_the_seconds_count_from_the_question_and_a_hit_does_not_prolong_them() -> None:
    bench = Bench()
    cache = bench.cache()
    asked = bench.clock.now
    bench.clock.now += 1.0
    cache.put(KEY, answer(), asked)
    for _ in range(3):
        bench.clock.now += 0.5
        assert cache.get(KEY, MEANING, at(0)) is not None
    bench.clock.now = asked + SECONDS
    assert cache.get(KEY, MEANING, at(0)) is None
    assert cache.held == 0


def test_nothing_is_told_from_the_expiry_on_or_without_a_clock() -> None:
    bench = Bench()
    cache = bench.cache()
    cache.put(KEY, answer(), bench.clock.now)
    assert cache.get(KEY, MEANING, at(None)) is None
    assert cache.get(KEY, MEANING, at(EXPIRES - 1)) is not None
    assert cache.get(KEY, MEANING, at(EXPIRES)) is None


def test_a_deleted_life_is_not_told_and_the_next_one_is() -> None:
    bench = Bench()
    cache = bench.cache()
    cache.put(KEY, answer(), bench.clock.now)
    bench.deleted.add(UUID(int=1))
    assert cache.get(KEY, MEANING, at(0)) is None
    cache.put(KEY, answer(life=2), bench.clock.now)
    assert cache.get(KEY, MEANING, at(0)) is not None


def test_what_was_asked_before_a_deletion_or_a_reload_does_not_come_back() -> None:
    """The answer to such a question may arrive after it."""
    bench = Bench()
    cache = bench.cache()
    ends: list[Callable[[], None]] = [lambda: cache.forget(KEY), cache.clear]
    for end in ends:
        asked = bench.clock.now
        cache.put(KEY, answer(), asked)
        bench.clock.now += 0.25
        end()
        assert cache.get(KEY, MEANING, at(0)) is None
        cache.put(KEY, answer(), asked)
        assert cache.get(KEY, MEANING, at(0)) is None
        bench.clock.now += 0.25
        cache.put(KEY, answer(), bench.clock.now)
        assert cache.get(KEY, MEANING, at(0)) is not None


def test_a_slow_reply_does_not_replace_what_was_learned_later() -> None:
    """It may be of an earlier life. What was learned later and is too large to be kept replaces it all the same."""
    bench = Bench()
    cache = bench.cache()
    cache.put(KEY, answer(life=2), bench.clock.now)
    cache.put(KEY, answer(life=1), bench.clock.now - 1)
    found = cache.get(KEY, MEANING, at(0))
    assert found is not None
    assert found.record.record_id == UUID(int=2)
    cache.put(KEY, answer(bytes(100_000), life=3), bench.clock.now + 1)
    assert cache.get(KEY, MEANING, at(0)) is None


def test_a_packed_body_is_unpacked_once() -> None:
    """A replay needs it plain; what it takes then counts, and a body that cannot be unpacked is left to the store."""
    bench = Bench()
    cache = bench.cache()
    plain = b'{"id": "ch_1"}' * 1000
    encoding, body = pack(plain, ())
    assert encoding == ZLIB
    kept = replace(response(plain), body=body, encoding=ZLIB)
    cache.put(KEY, replace(answer(), response=kept), bench.clock.now)
    found = cache.get(KEY, MEANING, at(0))
    assert found is not None
    assert found.record.response == response(plain)
    assert cache.held == OVERHEAD + len(b"Created") + 128 + 2 * len(b"Content-Typetext/plain") + len(plain)
    cache.put(KEY, replace(answer(), response=replace(kept, body=body[:-1])), bench.clock.now)
    assert cache.get(KEY, MEANING, at(0)) is None
    assert cache.held == 0


def test_a_body_that_was_not_kept_is_told_so() -> None:
    bench = Bench()
    cache = bench.cache()
    cache.put(KEY, answer(None), bench.clock.now)
    found = cache.get(KEY, MEANING, at(0))
    assert found is not None
    assert found.record.response == response(None)


def test_the_oldest_make_room_and_a_large_one_stays_out() -> None:
    bench = Bench()
    cache = bench.cache(20 * OVERHEAD)
    keys = [RecordKey("s", str(number)) for number in range(40)]
    for key in keys:
        cache.put(key, answer(), bench.clock.now)
    assert cache.held <= 20 * OVERHEAD
    told = [cache.get(key, MEANING, at(0)) is not None for key in keys]
    assert told == sorted(told)
    assert told[-1]
    cache.put(KEY, answer(secrets.token_bytes(2 * OVERHEAD)), bench.clock.now)
    assert cache.get(KEY, MEANING, at(0)) is None


def test_an_answer_that_nobody_has_asked_for_takes_a_third() -> None:
    """Nearly all are never asked for: so that many fit, they are kept as bytes until they are."""
    bench = Bench()
    cache = bench.cache()
    cache.put(KEY, answer(), bench.clock.now)
    before = cache.held
    cache.get(KEY, OTHER, at(0))
    assert cache.held == before
    cache.get(KEY, MEANING, at(0))
    assert cache.held > 3 * before


def test_the_bytes_that_it_counts_are_those_that_it_takes() -> None:
    """Within a tenth, told or not."""
    bench = Bench()
    cache = bench.cache(1 << 24)
    keys = [(f"payments:{'s' * 40}-{number % 3}", secrets.token_hex(18)) for number in range(4000)]
    for told in (False, True):
        tracemalloc.start()
        for scope, key in keys:
            cache.put(RecordKey(scope, f"{key[:20]}{key[20:]}"), _of_its_own(), bench.clock.now)
        if told:
            assert all(cache.get(RecordKey(scope, key), MEANING, at(0)) is not None for scope, key in keys)
        taken, _ = tracemalloc.get_traced_memory()
        assert taken < cache.held * 1.1
        cache.clear()
        tracemalloc.stop()
        bench.clock.now += 1.0


def test_the_longest_keys_count() -> None:
    """Clients choose them: where answers are short, they are a third of what one takes."""
    bench = Bench()
    cache = bench.cache(1 << 24)
    tracemalloc.start()
    for _ in range(4000):
        cache.put(RecordKey(f"payments:{secrets.token_hex(20)}", secrets.token_hex(128)[1:]), _of_its_own(lines=0), bench.clock.now)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < cache.held * 1.1


def test_a_large_body_is_never_copied() -> None:
    """Neither one that is kept, when it is learned, told or refused, nor one that is too large: up to `limits.response_body` of bytes would
    hold the event loop up, and be there twice.
    """
    bench = Bench()
    cache = bench.cache(1 << 24)
    large, too_large = answer(bytes(1_000_000)), answer(bytes(8 << 20))
    tracemalloc.start()
    cache.put(KEY, large, bench.clock.now)
    assert cache.get(KEY, OTHER, at(0)) is None
    found = cache.get(KEY, MEANING, at(0))
    cache.put(RecordKey("payments:alice", "k-2"), too_large, bench.clock.now)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 16
    assert found is not None
    assert found.record.response == large.response
    assert cache.held == OVERHEAD + len(b"Created") + 128 + 2 * len(b"Content-Typetext/plain") + 1_000_000
    cache.forget(KEY)
    assert cache.held == 0


def _of_its_own(*, lines: int = 8) -> CompletedEntry:
    """An answer that shares nothing with another one."""
    fields = tuple((b"X-Field-%d" % number, secrets.token_bytes(20).replace(b"\n", b"")) for number in range(lines))
    kept = StoredResponse(201, b"Created", fields, secrets.token_bytes(300), 300, secrets.token_bytes(32))
    return CompletedEntry(MEANING, secrets.token_bytes(16), EXPIRES, uuid4(), 0, 1, secrets.token_hex(24), kept)


def test_what_nobody_asks_for_is_given_back() -> None:
    bench = Bench()
    cache = bench.cache()
    cache.put(KEY, answer(), bench.clock.now)
    bench.clock.now += SECONDS
    cache.purge()
    assert cache.held == 0


def test_giving_back_does_not_look_at_all_that_may_still_be_told() -> None:
    """Once a second thousands of them would hold the event loop up for milliseconds."""
    bench = Bench()
    cache = bench.cache(1 << 24)
    cache.put(KEY, answer(), bench.clock.now - 1)
    for number in range(2000):
        cache.put(RecordKey("payments:alice", str(number)), answer(), bench.clock.now)
    bench.clock.now += SECONDS - 0.5
    before, calls = cache.held, 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    cache.purge()
    sys.setprofile(None)
    assert cache.held < before
    assert calls < 50


class Model(RuleBasedStateMachine):
    """Whatever happens in whatever order: what is told was learned from a question younger than the seconds, than the last deletion and
    than the last reload, has its own meaning, and has not expired; and the bytes are within their bound.
    """

    LIMIT = 40 * OVERHEAD

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.cache = self.bench.cache(self.LIMIT)
        self.learned: dict[RecordKey, list[tuple[float, CompletedEntry]]] = {}
        self.barred: dict[RecordKey, float] = {}

    keys = st.integers(0, 3).map(lambda number: RecordKey("s", str(number)))

    @rule(key=keys, ago=st.floats(0, 4), expires=st.integers(0, 20), size=st.integers(0, 5000), life=st.integers(1, 4))
    def put(self, key: RecordKey, ago: float, expires: int, size: int, life: int) -> None:
        asked = self.bench.clock.now - ago
        given = replace(answer(bytes(size), expires, life), request_id=f"request-{len(self.learned.get(key, ()))}")
        self.cache.put(key, given, asked)
        self.learned.setdefault(key, []).append((asked, given))

    @rule(key=keys, now_us=st.integers(0, 20), meaning=st.sampled_from((MEANING, OTHER)))
    def get(self, key: RecordKey, now_us: int, meaning: Fingerprint) -> None:
        found = self.cache.get(key, meaning, at(now_us))
        if found is not None:
            asked = next(asked for asked, given in self.learned[key] if given.request_id == found.record.request_id)
            assert meaning == MEANING
            assert self.bench.clock.now < asked + SECONDS
            assert asked > self.barred.get(key, float("-inf"))
            assert found.record.expires_at_us is not None
            assert now_us < found.record.expires_at_us
            assert found.record.record_id not in self.bench.deleted

    @rule(key=keys)
    def forget(self, key: RecordKey) -> None:
        self.cache.forget(key)
        self.barred[key] = self.bench.clock.now

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.barred = {RecordKey("s", str(number)): self.bench.clock.now for number in range(4)}

    @rule(life=st.integers(1, 4))
    def delete(self, life: int) -> None:
        self.bench.deleted.add(UUID(int=life))

    @rule(seconds=st.floats(0, 2))
    def wait(self, seconds: float) -> None:
        self.bench.clock.now += seconds

    @rule()
    def purge(self) -> None:
        self.cache.purge()

    @precondition(lambda self: self.bench.deleted)
    @rule()
    def undelete(self) -> None:
        """The list forgets what has expired."""
        self.bench.deleted.clear()

    @invariant()
    def bounded(self) -> None:
        assert 0 <= self.cache.held <= self.LIMIT


TestModel = Model.TestCase
