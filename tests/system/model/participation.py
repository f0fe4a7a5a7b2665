"""An explicit-state model of upstreams that take part: every interleaving, within small bounds, of the attempts for one key.

An attempt books a ride and then writes the receipt, each in a transaction of the upstream's. With the ride its recovery point is committed,
with the receipt the operation's answer. Gateways and upstreams die, answers get lost, and an upstream may once work for longer than it
should (`overlong`): then the next attempt begins beside it.

Each attempt is a token, in the order of their claims. `gateway` says what its gateway does: nothing, waiting, over; `upstream` what its
upstream does: nothing, working (with the ride still to be booked, or behind that), over.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import NamedTuple, TypeAlias

from tests.system.model.explorer import Explored, search

ATTEMPTS = 3
NONE, WAITS, OVER = range(3)
IDLE, BEGINS, RIDDEN, WRITTEN, ENDED = range(5)
"""What the upstream of an attempt does. WRITTEN: the receipt is committed, and the answer is not, which only a mutant comes to."""


class Row(NamedTuple):
    """The record. `point`: the ride is booked; `answer`: what it was completed with, by whom."""

    status: str = "in_progress"
    owner: int = 0
    point: bool = False
    answer: str = ""


class State(NamedTuple):
    """All that there is. `told` is what the client of each attempt was answered."""

    row: Row = Row()
    gateway: tuple[int, ...] = (WAITS, *(NONE,) * (ATTEMPTS - 1))
    upstream: tuple[int, ...] = (BEGINS, *(IDLE,) * (ATTEMPTS - 1))
    told: tuple[str, ...] = ("",) * ATTEMPTS
    rides: int = 0
    receipts: int = 0
    overlong: int = 1
    together: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """What gateway and functions keep to. Each mutant breaks one."""

    commits_are_fenced: bool = True
    resume_waits: bool = True
    tells_the_point: bool = True
    commits_together: bool = True
    settle_is_fenced: bool = True
    answers_what_is_stored: bool = True


Step: TypeAlias = tuple[str, State]


def explore(rules: Rules, *, until_broken: bool = False) -> Explored:
    """All states that can be reached, breadth first."""
    return search(State(), partial(_steps, rules=rules), _broken, until_broken=until_broken)


def _broken(state: State, *, ended: bool) -> Iterator[str]:
    """The promises that this state breaks."""
    row = state.row
    if state.rides > 1 or state.receipts > 1:
        yield "at most once"
    if state.receipts and row.status != "completed":
        yield "no doubt after the commit"
    if state.receipts and row.answer not in {"", "committed"}:
        yield "what is committed stays"
    if state.together:
        yield "one attempt after the other"
    if row.status == "completed" and any(told not in {"", "doubt", row.answer} for told in state.told):
        yield "every client gets what is stored"
    if ended and row.status == "in_progress":
        yield "no stuck key"


def _at(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _tell(state: State, token: int, answer: str) -> State:
    told = (*state.told[:token], answer, *state.told[token + 1 :])
    return state._replace(told=told, gateway=_at(state.gateway, token, OVER))


def _steps(state: State, rules: Rules) -> Iterator[Step]:
    for token in range(ATTEMPTS):
        yield from _upstream(state, token, rules)
        yield from _gateway(state, token, rules)
    yield from _retry(state, rules)


# ---- the upstream of an attempt


def _upstream(state: State, token: int, rules: Rules) -> Iterator[Step]:
    does, row = state.upstream[token], state.row
    if does in {IDLE, ENDED}:
        return
    yield f"the upstream of {token} dies", state._replace(upstream=_at(state.upstream, token, ENDED))
    owns = row.owner == token and row.status in {"in_progress", "unknown"}
    if not (owns or not rules.commits_are_fenced):
        yield f"{token} is superseded, and rolls back", state._replace(upstream=_at(state.upstream, token, ENDED))
        return
    if does == BEGINS:
        booked = state._replace(rides=state.rides + 1, row=row._replace(point=True), upstream=_at(state.upstream, token, RIDDEN))
        yield f"{token} commits the ride and its point", booked
    elif does == RIDDEN and rules.commits_together:
        written = state._replace(receipts=state.receipts + 1, upstream=_at(state.upstream, token, ENDED))
        yield f"{token} commits the receipt and the answer", written._replace(row=row._replace(status="completed", answer="committed"))
    elif does == RIDDEN:
        yield f"{token} commits the receipt", state._replace(receipts=state.receipts + 1, upstream=_at(state.upstream, token, WRITTEN))
    elif does == WRITTEN:
        done = state._replace(row=row._replace(status="completed", answer="committed"), upstream=_at(state.upstream, token, ENDED))
        yield f"{token} commits the answer", done


# ---- the gateway of an attempt


def _gateway(state: State, token: int, rules: Rules) -> Iterator[Step]:
    if state.gateway[token] != WAITS:
        return
    row = state.row
    mine = row.owner == token and row.status in {"in_progress", "unknown"}
    doubted = state._replace(row=row._replace(status="unknown")) if mine and row.status == "in_progress" else state
    yield f"the gateway of {token} dies, and its lease lapses", doubted._replace(gateway=_at(state.gateway, token, OVER))
    if row.status == "completed" and rules.answers_what_is_stored:
        yield f"the client of {token} gets what is stored", _tell(state, token, row.answer)
    else:
        yield f"{token} hears nothing, and doubts", _tell(doubted, token, "doubt")
    if state.upstream[token] != ENDED:
        return
    # An upstream that died says nothing; what it says here is what an upstream says that commits nothing itself.
    if mine and not state.rides:
        yield (
            f"{token} settles with what came over HTTP",
            _tell(state._replace(row=row._replace(status="completed", answer="said")), token, "said"),
        )
    elif row.status == "completed" and not rules.settle_is_fenced:
        yield f"{token} settles what is settled", _tell(state._replace(row=row._replace(answer="said")), token, "said")
    elif row.status == "completed" and not rules.answers_what_is_stored:
        yield f"the client of {token} gets what came over HTTP", _tell(state, token, "said")


# ---- a retry


def _retry(state: State, rules: Rules) -> Iterator[Step]:
    free = [token for token in range(ATTEMPTS) if state.gateway[token] == NONE]
    row = state.row
    if row.status != "unknown" or not free:
        return
    works = state.upstream[row.owner] not in {IDLE, ENDED}
    if works and rules.resume_waits and not state.overlong:
        return
    token, point = free[0], row.point and rules.tells_the_point
    resumed = state._replace(
        row=row._replace(status="in_progress", owner=token),
        gateway=_at(state.gateway, token, WAITS),
        upstream=_at(state.upstream, token, RIDDEN if point else BEGINS),
    )
    if works and rules.resume_waits:
        yield f"{token} resumes, since the upstream of {row.owner} is overlong", resumed._replace(overlong=state.overlong - 1)
    else:
        yield f"{token} resumes", resumed._replace(together=works)


def broken(rule: str) -> Rules:
    """The rules without one."""
    assert rule in {each.name for each in fields(Rules)}
    return Rules(**{rule: False})
