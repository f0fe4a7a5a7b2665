"""Which node of a cluster has which slots. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from redis.cluster import parse_cluster_slots
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from gateway.core.redis_url import Host
from gateway.store.redis.server import Answer, fields

SLOTS = REDIS_CLUSTER_HASH_SLOTS

slot_of = key_slot
"""The slot of a key: that of what stands between its first braces, so that all keys of one record share theirs."""


@dataclass(frozen=True, slots=True)
class SlotMap:
    """`ranges` are (first, last, primary), in order; `ok` and `epoch` are what the node that drew it says of the cluster."""

    ok: bool
    epoch: int
    ranges: tuple[tuple[int, int, Host], ...]

    def owners(self) -> list[Host | None]:
        """The primary of each slot."""
        owners: list[Host | None] = [None] * SLOTS
        for first, last, host in self.ranges:
            owners[first : last + 1] = [host] * (last + 1 - first)
        return owners


def read_map(about: Answer, slots: Answer, asked: Host) -> SlotMap | None:
    """What `CLUSTER INFO` and `CLUSTER SLOTS` of the node `asked` say; None if that is no map. A node without a name is
    where it was asked.
    """
    told = fields(about)
    try:
        ranges = [
            (first, last, (str(node["primary"][0]), int(node["primary"][1])))
            for (first, last), node in parse_cluster_slots(slots, current_host=asked[0]).items()
        ]
        if not all(0 <= first <= last < SLOTS for first, last, _ in ranges):
            return None
        return SlotMap(told.get(b"cluster_state") == b"ok", int(told.get(b"cluster_current_epoch", b"0")), tuple(sorted(ranges)))
    except (TypeError, ValueError, IndexError, KeyError):
        return None


def latest(maps: Iterable[SlotMap]) -> SlotMap | None:
    """The map of a node that sees the cluster as whole, before one that does not; of those, that of the latest change."""
    return max((one for one in maps if one.ranges), key=lambda one: (one.ok, one.epoch), default=None)


def read_redirect(text: str) -> tuple[int, Host] | None:
    """The slot and the node of `MOVED slot host:port` or `ASK slot host:port`; an empty host is that of the node which said it."""
    words = text.split()
    if len(words) != 3:
        return None
    host, _, port = words[2].rpartition(":")
    if not (words[1].isdecimal() and port.isdecimal() and int(words[1]) < SLOTS):
        return None
    return int(words[1]), (host.strip("[]"), int(port))
