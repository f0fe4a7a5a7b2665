"""Maps of a cluster, as its nodes draw them."""

from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.redis_url import spelled
from gateway.store.redis.codec import entry_key
from gateway.store.redis.server import Refusal
from gateway.store.redis.slots import SLOTS, SlotMap, latest, read_map, read_redirect, slot_of
from tests.store.redis.support import digest

ASKED = ("10.0.0.9", 7000)
WELL = b"cluster_state:ok\r\ncluster_current_epoch:7\r\n"


def test_a_map_names_the_primary_of_each_slot() -> None:
    """A node that gives no name is where it was asked; what no range holds is nobody's."""
    slots = [[100, 199, [b"", 7001, b"id", []]], [0, 99, [b"10.0.0.1", 7000, b"id", []], [b"10.0.0.2", 7000, b"id", []]]]
    found = read_map(WELL, slots, ASKED)
    assert found == SlotMap(True, 7, ((0, 99, ("10.0.0.1", 7000)), (100, 199, ("10.0.0.9", 7001))))
    assert [found.owners()[slot] for slot in (0, 99, 100, 199, 200, SLOTS - 1)] == [
        *[("10.0.0.1", 7000)] * 2, *[("10.0.0.9", 7001)] * 2, None, None
    ]  # fmt: skip


def test_the_latest_map_counts() -> None:
    """That of a node which was cut off names a former primary, and that of one which knows nothing names nobody."""
    ranges = ((0, SLOTS - 1, ASKED),)
    cut_off, old, new, empty = SlotMap(False, 9, ranges), SlotMap(True, 5, ranges), SlotMap(True, 6, ranges), SlotMap(True, 10, ())
    assert latest([cut_off, old, new, empty]) is new
    assert latest([cut_off, empty]) is cut_off
    assert latest([empty]) is None


ADDRESSES = (st.integers(0, 2**32 - 1).map(IPv4Address) | st.integers(0, 2**128 - 1).map(IPv6Address)).map(str)
REPLIES = st.recursive(
    st.none() | st.integers() | st.binary(max_size=8) | st.builds(Refusal, st.just("ERR"), st.text(max_size=4)),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


@given(REPLIES, REPLIES)
def test_what_is_no_map_is_none(about: object, slots: object) -> None:
    found = read_map(about, slots, ASKED)
    assert found is None or len(found.owners()) == SLOTS


@given(st.integers(0, SLOTS - 1), ADDRESSES, st.integers(0, 65535))
def test_redirects_are_read(slot: int, host: str, port: int) -> None:
    assert read_redirect(f"MOVED {slot} {host}:{port}") == (slot, (host, port))
    assert read_redirect(f"ASK {slot} {spelled((host, port))}") == (slot, (host, port))
    assert read_redirect(f"MOVED {slot} :{port}") == (slot, ("", port))


@given(st.text(max_size=20))
def test_what_is_no_redirect_is_none(text: str) -> None:
    found = read_redirect(text)
    assert found is None or 0 <= found[0] < SLOTS


def test_all_keys_of_a_record_are_in_one_slot() -> None:
    """Whatever stands around the braces."""
    key = entry_key(digest())
    assert slot_of(key) == slot_of(b"quota:" + key + b":more") == slot_of(key[key.index(b"{") + 1 : key.index(b"}")])
