"""`Via` (RFC 9110 section 7.6.3): what we add to it, and how a request that comes back to us is told."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.headers import Fields, Hop, looped, to_upstream
from gateway.core.model import Headers
from gateway.core.via import forwarders, without_comments

NAME = b"pay-gw"
HOP = Hop(b"192.0.2.7", b"https", b"api.test", trusted=False, request_id=b"r-1", name=NAME)


def via(*values: bytes) -> Headers:
    return tuple((b"vIA", value) for value in values)


@pytest.mark.parametrize(
    ("earlier", "want"),
    [
        ((), b"1.1 pay-gw"),
        ((b"",), b"1.1 pay-gw"),
        ((b"1.0 fred", b"2 cdn (a, b)"), b"1.0 fred, 2 cdn (a, b), 1.1 pay-gw"),
    ],
)
def test_via_is_kept_and_extended(earlier: tuple[bytes, ...], want: bytes) -> None:
    """Earlier hops stay as they are, in order, in one line, with this hop at its end."""
    found = to_upstream(via(*earlier), HOP)
    assert [value for name, value in found if name.lower() == b"via"] == [want]


def test_via_names_the_version_that_came_in() -> None:
    """The protocol is that of the message as we received it."""
    assert (b"Via", b"1.0 pay-gw") in to_upstream((), HOP._replace(version=b"1.0"))


@pytest.mark.parametrize(
    "values",
    [
        [b"1.1 pay-gw"],
        [b"HTTP/1.1 pay-gw"],
        [b"1.1 PAY-GW"],
        [b"1.0 fred, 1.1 pay-gw (edge), 2 cdn"],
        [b"1.0 fred", b"1.1\tpay-gw"],
        [b"1.1 a (x (y)), 1.1 pay-gw(z)"],
        [b"1.1 a (never closed, 1.1 pay-gw"],
        [b"1.1 a (\\", b"1.1 pay-gw"],
        [b"1.1 a (\\, 1.1 pay-gw, 1.1 b (c\\))"],
        [b"1.1 a ((, 1.1 pay-gw, 1.1 b (c)"],
        [b"1.1 a ), 1.1 pay-gw"],
        [b'1.1 "a, 1.1 pay-gw'],
        [b"1.1 a \\(, 1.1 pay-gw"],
    ],
)
def test_looped(values: list[bytes]) -> None:
    """Our name as any hop of any line is a loop, and no comment, open parenthesis, backslash or quote of a client hides it."""
    assert looped(Fields(via(*values)), NAME)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [b""],
        [b"pay-gw"],
        [b"1.1 pay-gw2, 1.1 x-pay-gw, 1.1 pay-gw:80"],
        [b"1.1 x (1.1 pay-gw)"],
        [b"1.1 x (a, 1.1 pay-gw, b)"],
        [b"1.1 x (a (b) , 1.1 pay-gw, (c))"],
        [b"1.1 x (a \\) , 1.1 pay-gw, b)"],
        [b"1.1 x (\\(, 1.1 pay-gw, )"],
        [b"1.1 x ((y) \\( , 1.1 pay-gw, b)"],
        [b"pay-gw 1.1"],
        [b"pay-gw/1.1 x"],
    ],
)
def test_not_looped(values: list[bytes]) -> None:
    """Our name in a comment, in a longer name, as a protocol or without one is no hop of ours."""
    assert not looped(Fields(via(*values)), NAME)


def test_letter_case_of_our_own_name() -> None:
    """A name is configured in any case, and other hops may have changed it."""
    assert looped(Fields(to_upstream((), HOP._replace(name=b"Pay-GW"))), b"Pay-GW")
    assert looped(Fields(via(b"1.1 pay-gw")), b"Pay-GW")


def test_only_via_counts() -> None:
    """Other fields may say what they like."""
    assert not looped(Fields(((b"X-Via", b"1.1 pay-gw"),)), NAME)


scraps = st.lists(st.sampled_from([b"(", b")", b"\\", b",", b" ", b"1.1", b"other", b'"', b"\xe9"]), max_size=12).map(b"".join)
comments = st.recursive(
    st.lists(st.sampled_from([b"a", b" ", b",", b"1.1 pay-gw", b"\\(", b"\\)", b"\\\\"]), max_size=4).map(b"".join),
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: b"".join(b"(%b)" % part for part in parts)),
    max_leaves=6,
).map(lambda text: b"(%b)" % text)
hops = st.tuples(
    st.sampled_from([b"1.0 ", b"1.1 ", b"HTTP/2 "]),
    st.sampled_from([b"fred", b"a:80", b"pay"]),
    st.one_of(st.just(b""), comments.map(lambda c: b" " + c)),
).map(b"".join)


@given(st.lists(scraps, max_size=3), st.lists(hops, max_size=3))
@example([b"1.1 a (", b"\\"], [b"1.1 b (c)"])
def test_a_loop_is_always_seen(earlier: list[bytes], later: list[bytes]) -> None:
    """Whatever a client wrote before us, and whichever well-formed hops came after us: what we have forwarded is known again."""
    forwarded = to_upstream(via(*earlier), HOP)
    assert looped(Fields(forwarded), NAME)
    again = to_upstream(to_upstream(forwarded + via(*later), HOP._replace(name=b"another")), HOP._replace(name=b"third"))
    assert looped(Fields(again), NAME)


@given(st.lists(st.lists(hops, max_size=3).map(b" , ".join), max_size=3))
def test_no_loop_is_made_up(lines: list[bytes]) -> None:
    """Well-formed lines of other hops, with whatever comments, are no loop; nor is what another gateway of ours forwarded."""
    assert not looped(Fields(via(*lines)), NAME)
    assert not looped(Fields(to_upstream(via(*lines), HOP._replace(name=b"another"))), NAME)


@given(st.binary(max_size=60))
def test_any_bytes_can_be_read(value: bytes) -> None:
    """No line breaks the reading, and without parentheses nothing is a comment."""
    assert forwarders([value]) == forwarders([without_comments(value)])
    assert without_comments(value.translate(None, b"()")) == value.translate(None, b"()")


def test_a_long_line_is_read_in_one_pass() -> None:
    """Sixty-four kilobytes of open parentheses, closed or not, are no work to speak of."""
    half = 32 * 1024
    assert without_comments(b"(" * half + b")" * half) == b" "
    assert without_comments(b"(" * half + b"()" * 10) == b"(" * half + b" " * 10
