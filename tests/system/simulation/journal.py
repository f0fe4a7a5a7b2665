"""The story of one schedule: who did what when. Kept as it happens, put into words only if somebody asks."""

from collections import Counter
from collections.abc import Callable

from gateway.core.model import Lease, Record, RecordKey, Status
from gateway.ports import Settled, Transition
from gateway.ports.accepted import Parked, Taken
from gateway.store.redis.hotpath import Found


class Violation(AssertionError):
    """A promise of the gateway was broken."""


class Journal:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lines: list[tuple[float, str, str, tuple[object, ...]]] = []
        self.seen: Counter[str] = Counter()

    def tell(self, who: str, what: str, *details: object) -> None:
        """`what` is a format string for `details`."""
        self._lines.append((self._now(), who, what, details))

    def count(self, event: str) -> None:
        """Note that a kind of event took place, so that a run can show what it has reached."""
        self.seen[event] += 1

    def story(self) -> str:
        return "\n".join(f"{when:9.4f}  {who:<9} {what.format(*map(_brief, details))}" for when, who, what, details in self._lines)


def _brief(detail: object) -> object:
    """What of a detail is worth reading in a story."""
    match detail:
        case RecordKey():
            return f"{detail.key} of {detail.scope_id.rpartition(':')[2]}"
        case Lease():
            return f"lease for {_name(detail.owner)}, attempt {detail.attempt}"
        case Record():
            lapsed = ", lapsed" if detail.status is Status.IN_PROGRESS and not detail.lease_live else ""
            expired = ", expired" if detail.expired else ""
            return f"{detail.status.value}{lapsed}{expired} of {_name(detail.owner)}, {detail.request_id}, attempt {detail.attempt}"
        case Settled():
            return detail.transition.value
        case Found():
            return f"found {'a lease' if detail.value[1] == 1 else 'a response'} of {_name(detail.value[2:18])}"
        case Parked() | Transition():
            return detail.value
        case list():
            return [_brief(one) for one in detail]
        case Taken():
            return f"{detail.lease.key.key}, {detail.request_id}: {_brief(detail.lease)}"
        case frozenset():
            return f"renewed {sorted(map(_name, detail))}"
        case _:
            return detail


def _name(owner: bytes) -> str:
    return owner.decode("ascii", "replace").rstrip(".")
