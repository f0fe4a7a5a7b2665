"""What pages of other origins may read: of our own answers, of first answers, of replays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.cors import Cors, Preflight, answer_preflight, first_opened, opened, origin_of, preflight_of, replay_opened
from gateway.core.headers import Fields
from gateway.core.model import Headers

SHOP, EVIL = b"https://shop.example", b"https://evil.example"
CORS = Cors(frozenset({SHOP.decode()}), credentials=True, expose=("X-Total",))
ANYWHERE = Cors(frozenset({"*"}))
NAMES = (b"Retry-After",)
OF_SHOP: Headers = (
    (b"Access-Control-Allow-Origin", SHOP),
    (b"Access-Control-Allow-Credentials", b"true"),
    (b"Access-Control-Expose-Headers", b"Retry-After, X-Total"),
)
STORED: Headers = ((b"Content-Type", b"a/b"), (b"access-control-allow-origin", SHOP), (b"Access-Control-Expose-Headers", b"B"))


def allowed(headers: Headers) -> list[bytes]:
    return [value for name, value in headers if name.lower() == b"access-control-allow-origin"]


def test_our_own_answers() -> None:
    """Who may read is told; who may not is not; and no cache gives one page's answer to another."""
    assert opened((), CORS, SHOP, NAMES) == ((b"Vary", b"Origin"), *OF_SHOP)
    for origin in (EVIL, None, b"null", b"\xff", b"HTTPS://SHOP.EXAMPLE"):
        assert opened((), CORS, origin, NAMES) == ((b"Vary", b"Origin"),)
    assert opened(((b"Vary", b"Accept, ORIGIN"),), CORS, EVIL, NAMES) == ((b"Vary", b"Accept, ORIGIN"),)
    assert opened((), ANYWHERE, EVIL, NAMES) == ((b"Access-Control-Allow-Origin", b"*"), (b"Access-Control-Expose-Headers", b"Retry-After"))
    assert opened((), None, SHOP, NAMES) == ()


def test_first_answers() -> None:
    """The upstream's own word stands; where it has none, ours is given."""
    said: Headers = ((b"access-control-allow-origin", EVIL),)
    assert first_opened(said, CORS, SHOP, NAMES) == said
    assert allowed(first_opened((), CORS, SHOP, NAMES)) == [SHOP]
    assert first_opened((), None, SHOP, NAMES) == ()


@pytest.mark.parametrize(
    ("cors", "origin", "want"),
    [
        (None, SHOP, [SHOP]),
        (None, None, [SHOP]),
        (None, EVIL, []),
        (CORS, SHOP, [SHOP]),
        (CORS, EVIL, []),
        (CORS, None, []),
        (ANYWHERE, EVIL, [b"*"]),
    ],
)
def test_replays(cors: Cors | None, origin: bytes | None, want: list[bytes]) -> None:
    """No page gets what was said to another: what is kept goes out to the page that it names, or `cors` speaks anew."""
    found = replay_opened(STORED, cors, origin, NAMES)
    assert allowed(found) == want
    assert found[0] == STORED[0]


def test_a_replay_that_any_page_may_read() -> None:
    stored: Headers = ((b"Access-Control-Allow-Origin", b" * "),)
    assert replay_opened(stored, None, EVIL, NAMES) == stored


origins = st.sampled_from([SHOP, EVIL, b"null", b"*", b""])
fields = st.lists(st.tuples(st.sampled_from([b"Access-Control-Allow-Origin", b"Vary", b"A"]), origins), max_size=4).map(tuple)


@given(fields, st.none() | st.just(CORS), st.none() | origins)
def test_no_page_reads_what_another_was_allowed(stored: Headers, cors: Cors | None, origin: bytes | None) -> None:
    """Of a replay to a page, whatever was kept."""
    found = allowed(replay_opened(stored, cors, origin, NAMES))
    if origin is not None:
        assert set(found) <= {b"*", origin}
        assert cors is None or found == ([SHOP] if origin == SHOP else [])


def asking(*lines: tuple[bytes, bytes], method: str = "OPTIONS") -> Preflight | None:
    return preflight_of(method, Fields(lines))


def test_what_a_preflight_is() -> None:
    """OPTIONS with one origin and one method: else it is a request like any other."""
    origin, wanted = (b"Origin", SHOP), (b"Access-Control-Request-Method", b"POST")
    assert asking(origin, wanted) == Preflight(SHOP, "POST", None)
    assert asking(origin, wanted, (b"Access-Control-Request-Headers", b"a, B-c")) == Preflight(SHOP, "POST", b"a, B-c")
    assert asking(origin, wanted, (b"Access-Control-Request-Headers", b"a: b")) == Preflight(SHOP, "POST", None)
    for lines in ((origin,), (wanted,), (origin, origin, wanted), (origin, wanted, wanted), (origin, (wanted[0], b"A B"))):
        assert asking(*lines) is None
    assert asking(origin, wanted, method="GET") is None
    assert origin_of(Fields((origin, origin))) is None


def test_the_answer_to_a_preflight() -> None:
    """What was asked for is allowed to whom it may be; the others are told nothing."""
    vary = (b"Vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers")
    assert answer_preflight(CORS, Preflight(SHOP, "POST", b"idempotency-key")) == (
        *OF_SHOP[:2],
        (b"Access-Control-Allow-Methods", b"POST"),
        (b"Access-Control-Allow-Headers", b"idempotency-key"),
        (b"Access-Control-Max-Age", b"600"),
        vary,
    )
    assert answer_preflight(CORS, Preflight(EVIL, "POST", b"a")) == (vary,)
    named = Cors(frozenset({"*"}), headers=("Idempotency-Key", "Content-Type"))
    assert (b"Access-Control-Allow-Headers", b"idempotency-key, content-type") in answer_preflight(named, Preflight(EVIL, "POST", b"x"))
