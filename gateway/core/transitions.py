"""Every change of a record's state, as data. The stores carry them out, one fenced statement each; docs/concepts.md shows the
diagram that is made of them.
"""

from dataclasses import dataclass

from gateway.core.model import Status


@dataclass(frozen=True, slots=True)
class Change:
    """From a state (None: there is no record) to a state (None: it is deleted). `accepted`: of accepted work alone."""

    source: Status | None
    target: Status | None
    why: str
    accepted: bool = False


CHANGES: tuple[Change, ...] = (
    Change(None, Status.IN_PROGRESS, "reserve"),
    Change(Status.IN_PROGRESS, Status.COMPLETED, "complete"),
    Change(Status.IN_PROGRESS, Status.FAILED_RETRYABLE, "release"),
    Change(Status.IN_PROGRESS, Status.UNKNOWN, "doubt, or the lease lapsed"),
    Change(Status.IN_PROGRESS, Status.PENDING, "no free slot; nothing was sent; release_on", accepted=True),
    Change(Status.PENDING, Status.IN_PROGRESS, "claim", accepted=True),
    Change(Status.PENDING, Status.COMPLETED, "408 abandoned; 410 cancelled", accepted=True),
    Change(Status.UNKNOWN, Status.COMPLETED, "executed"),
    Change(Status.UNKNOWN, Status.FAILED_RETRYABLE, "not executed"),
    Change(Status.UNKNOWN, Status.PENDING, "not executed", accepted=True),
    Change(Status.UNKNOWN, Status.IN_PROGRESS, "reexecute, resume"),
    Change(Status.FAILED_RETRYABLE, Status.IN_PROGRESS, "claim"),
    Change(Status.FAILED_RETRYABLE, Status.COMPLETED, "its last owner's late answer"),
    Change(Status.COMPLETED, None, "expired"),
    Change(Status.FAILED_RETRYABLE, None, "expired"),
)

CAN_EXPIRE = frozenset({change.source for change in CHANGES if change.target is None})
"""The states that end by themselves."""


def diagram() -> str:
    """The changes as a state diagram (Mermaid). Changes between the same two states share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for change in CHANGES:
        arrows.setdefault((_name(change.source), _name(change.target)), []).append(change.why)
    lines = [f"    {source} --> {target}: {' · '.join(dict.fromkeys(whys))}" for (source, target), whys in arrows.items()]
    return "\n".join(["stateDiagram-v2", *(line.replace(";", ",") for line in lines)])


def _name(status: Status | None) -> str:
    return "[*]" if status is None else status.value
