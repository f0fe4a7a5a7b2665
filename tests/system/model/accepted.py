"""An explicit-state model of accepted work: every interleaving, within small bounds, of the processes that deal with one key.

Two requests with the key arrive at processes of their own; workers of any process take what is pending; leases lapse whenever they like;
a process may die at any point. A command to the authority is atomic. That its reply is lost is a budget: it has landed then, or lands at
any later moment, or never does.

The row is (status, owner, accepted, live). Each owner is a token: 0 and 1 of the two requests, from 2 on of workers' claims. `tokens` says
what the process of a token does: nothing, holding its lease (nothing is sent), sent, over; and `upstream` what became of its request: not
sent, on its way, executed, lost on its way.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import NamedTuple, TypeAlias

from tests.system.model.explorer import Explored, search

WORKERS = 2
REQUESTS = 2
TOKENS = REQUESTS + WORKERS
NONE, HOLDS, SENT, OVER = range(4)
NOT_SENT, ON_ITS_WAY, EXECUTED, LOST = range(4)


class Row(NamedTuple):
    """The record. `answer`: what it was completed with: the upstream's, or one of ours that says that nothing was executed."""

    status: str
    owner: int
    accepted: bool = False
    live: bool = True
    answer: str = ""


class State(NamedTuple):
    """All that there is. `told` is what each request was answered; `late` are commands that have not landed yet; `read` is what a worker
    or an operator has read and not acted on, where a rule lets it; `budget` says how many deaths and lost replies are left.
    """

    row: Row | None = None
    told: tuple[str, ...] = ("",) * REQUESTS
    asked: tuple[bool, ...] = (False,) * REQUESTS
    tokens: tuple[int, ...] = (NONE,) * TOKENS
    upstream: tuple[int, ...] = (NOT_SENT,) * TOKENS
    trusted: tuple[bool, ...] = (False,) * TOKENS
    late: frozenset[tuple[str, int]] = frozenset()
    read: frozenset[str] = frozenset()
    crashes: int = 1
    losses: int = 1


@dataclass(frozen=True, slots=True)
class Rules:
    """What the gateway keeps to. Each mutant breaks one."""

    claim_is_fenced: bool = True
    park_is_fenced: bool = True
    parks_only_unsent: bool = True
    ends_only_pending: bool = True
    fence_before_send: bool = True
    confirms_lost_reserve: bool = True
    tells_after_accept: bool = True
    duplicate_needs_accepted: bool = True
    withdraws_lost_reserve: bool = True
    verdict_returns_accepted: bool = True


Step: TypeAlias = tuple[str, State]


def explore(rules: Rules, *, until_broken: bool = False) -> Explored:
    """All states that can be reached, breadth first."""
    return search(State(), partial(_steps, rules=rules), _broken, until_broken=until_broken)


def _broken(state: State, *, ended: bool) -> Iterator[str]:
    """The promises that this state breaks."""
    row, sent = state.row, sum(went != NOT_SENT for went in state.upstream)
    executed = sum(went == EXECUTED for went in state.upstream)
    if executed > 1:
        yield "at most once"
    if row is not None and row.answer == "nothing was sent" and sent > sum(went == LOST for went in state.upstream):
        yield "408 and 410 say the truth"
    if row is not None and row.status == "pending" and any(went in {ON_ITS_WAY, EXECUTED} for went in state.upstream):
        yield "pending means that nothing was sent"
    if "202" in state.told and (row is None or row.status == "failed_retryable"):
        yield "a 202 is kept"
    if state.told[0] == "503" and not state.asked[1] and sent:
        yield "what was answered 503 runs only if it is repeated"
    if ended and "202" in state.told and row is not None and row.status in {"pending", "in_progress"}:
        yield "nothing is left pending"


def _set(values: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _told(state: State, request: int, answer: str) -> State:
    return state._replace(told=(*state.told[:request], answer, *state.told[request + 1 :]))


def _hold(state: State, token: int) -> State:
    trusted = (*state.trusted[:token], True, *state.trusted[token + 1 :])
    return state._replace(tokens=_set(state.tokens, token, HOLDS), trusted=trusted)


def _steps(state: State, rules: Rules) -> Iterator[Step]:
    for request in range(REQUESTS):
        yield from _request(state, request, rules)
    for token in range(TOKENS):
        yield from _process(state, token, rules)
    yield from _workers(state, rules)
    yield from _time(state, rules)
    yield from _ends(state, rules)
    for command in state.late:
        landed = _land(state._replace(late=state.late - {command}), command, rules)
        yield f"late {command[0]} of {command[1]} lands", landed
        yield f"late {command[0]} of {command[1]} never lands", state._replace(late=state.late - {command})


# ---- a request


def _request(state: State, request: int, rules: Rules) -> Iterator[Step]:
    row = state.row
    if state.told[request]:
        return
    if not state.asked[request]:
        if request and not state.asked[request - 1]:
            return
        asked = state._replace(asked=(*state.asked[:request], True, *state.asked[request + 1 :]))
        if row is None or row.status == "failed_retryable":
            won = asked._replace(row=Row("in_progress", request))
            yield f"{request} reserves", _hold(won, request)
            if state.losses:
                less = state.losses - 1
                yield f"{request} reserves, the reply is lost", won._replace(losses=less, late=state.late | {("lost", request)})
                late = state.late | {("reserve", request), ("lost", request)}
                yield f"{request} reserves, on its way", asked._replace(losses=less, late=late)
            return
        yield from _duplicate(asked, row, request, rules)
    elif ("lost", request) in state.late:
        yield from _lost(state, request, rules)
    elif state.tokens[request] in {HOLDS, SENT, OVER}:
        mine = row is not None and row.owner == request
        accepted = row is not None and row.accepted
        if accepted or not rules.tells_after_accept:
            yield f"{request} is told 202", _told(state, request, "202")
        if mine and row is not None and row.status in {"in_progress", "unknown"} and not row.accepted:
            yield f"{request} accepts", state._replace(row=row._replace(accepted=True))
        elif row is not None and not accepted:
            yield f"{request} is told what there is", _told(state, request, "else")


def _duplicate(state: State, row: Row, request: int, rules: Rules) -> Iterator[Step]:
    if row.status in {"pending", "in_progress", "unknown"} and (row.accepted or not rules.duplicate_needs_accepted):
        yield f"{request} is told 202 as well", _told(state, request, "202")
    else:
        yield f"{request} is told 409, or the answer", _told(state, request, "else")


def _lost(state: State, request: int, rules: Rules) -> Iterator[Step]:
    """Whose reserve lost its reply: confirmed by a write, or answered 503 and taken back."""
    row, rest = state.row, state.late - {("lost", request)}
    mine = row is not None and row.owner == request and row.status == "in_progress" and row.live
    if mine:
        yield f"{request} confirms its reserve by a write", _hold(state._replace(late=rest), request)
    if not rules.confirms_lost_reserve:
        yield f"{request} is told 202 without a confirmation", _told(_hold(state._replace(late=rest), request), request, "202")
    back = {("release", request)} if rules.withdraws_lost_reserve else {("park", request)}
    yield f"{request} is told 503", _told(state._replace(late=rest | back), request, "503")


# ---- a process that holds a token


def _process(state: State, token: int, rules: Rules) -> Iterator[Step]:
    phase, went = state.tokens[token], state.upstream[token]
    over = _set(state.tokens, token, OVER)
    if phase in {HOLDS, SENT} and state.crashes:
        yield f"the process of {token} dies", state._replace(tokens=over, crashes=state.crashes - 1)
    if phase == HOLDS:
        if state.trusted[token] or not rules.fence_before_send:
            yield f"{token} sends", state._replace(tokens=_set(state.tokens, token, SENT), upstream=_set(state.upstream, token, ON_ITS_WAY))
        yield from _parks(state, token, rules)
    if phase == SENT:
        if went == EXECUTED:
            yield f"{token} completes", _land(state._replace(tokens=over), ("complete", token), rules)
        yield f"{token} is in doubt", _land(state._replace(tokens=over), ("doubt", token), rules)
        if not rules.parks_only_unsent:
            yield f"{token} parks after it has sent", _land(state._replace(tokens=over), ("park", token), rules)
    if went == ON_ITS_WAY:
        yield f"the upstream executes {token}", state._replace(upstream=_set(state.upstream, token, EXECUTED))
        yield f"the request of {token} is lost", state._replace(upstream=_set(state.upstream, token, LOST))


def _parks(state: State, token: int, rules: Rules) -> Iterator[Step]:
    """Nothing was sent: there is no slot, the upstream cannot be reached, or the process is going away."""
    if token < REQUESTS and state.told[token] == "503":
        return
    over = state._replace(tokens=_set(state.tokens, token, OVER))
    yield f"{token} parks", _land(over, ("park", token), rules)
    if state.losses:
        lost = over._replace(losses=state.losses - 1, late=state.late | {("park", token)})
        yield f"{token} parks, and repeats it later", _land(lost, ("park", token), rules)


def _land(state: State, command: tuple[str, int], rules: Rules) -> State:
    """What a command does when it reaches the authority."""
    what, token = command
    row = state.row
    if what == "reserve":
        return state._replace(row=Row("in_progress", token)) if row is None else state
    if row is None:
        return state
    mine = row.owner == token
    match what:
        case "park" if (mine or not rules.park_is_fenced) and row.status in {"in_progress", "unknown"}:
            return state._replace(row=Row("pending", row.owner, accepted=True))
        case "release" if mine and row.status in {"in_progress", "unknown"}:
            return state._replace(row=Row("failed_retryable", token))
        case "complete" if mine and row.status in {"in_progress", "unknown"}:
            return state._replace(row=Row("completed", token, row.accepted, answer="the upstream's"))
        case "doubt" if mine and row.status == "in_progress":
            return state._replace(row=row._replace(status="unknown"))
        case "take" if row.status == "pending":
            return state._replace(row=Row("in_progress", token, row.accepted))
        case _:
            return state


# ---- workers, time, ends


def _workers(state: State, rules: Rules) -> Iterator[Step]:
    free = [token for token in range(REQUESTS, TOKENS) if state.tokens[token] == NONE]
    row = state.row
    if row is None or not free:
        return
    token = free[0]
    if row.status == "pending" and rules.claim_is_fenced:
        yield f"a worker takes it as {token}", _hold(_land(state, ("take", token), rules), token)
        if state.losses:
            gone = state._replace(losses=state.losses - 1, tokens=_set(state.tokens, token, OVER))
            back = state.late | {("park", token)}
            yield f"a worker takes it as {token}, the reply is lost", _land(gone._replace(late=back), ("take", token), rules)
    if not rules.claim_is_fenced:
        for each in free:
            if row.status == "pending" and f"claim {each}" not in state.read:
                yield f"{each} reads that it is pending", state._replace(read=state.read | {f"claim {each}"})
            if f"claim {each}" in state.read:
                taken = state._replace(row=Row("in_progress", each, row.accepted), read=state.read - {f"claim {each}"})
                yield f"{each} takes what it has read", _hold(taken, each)


def _time(state: State, rules: Rules) -> Iterator[Step]:
    row = state.row
    if row is None:
        return
    if row.status == "in_progress" and row.live:
        trusted = (*state.trusted[: row.owner], False, *state.trusted[row.owner + 1 :])
        yield "the lease lapses", state._replace(row=row._replace(live=False), trusted=trusted)
    if row.status == "in_progress" and not row.live:
        yield "the sweeper comes", state._replace(row=row._replace(status="unknown"))
    if row.status == "unknown":
        if EXECUTED in state.upstream:
            yield "a look says executed", state._replace(row=Row("completed", row.owner, row.accepted, answer="the upstream's"))
        elif ON_ITS_WAY not in state.upstream and not (state.tokens[row.owner] == HOLDS and state.trusted[row.owner]):
            back = "pending" if row.accepted and rules.verdict_returns_accepted else "failed_retryable"
            yield "a look says not executed", state._replace(row=Row(back, row.owner, row.accepted))


def _ends(state: State, rules: Rules) -> Iterator[Step]:
    """`pending_for` is over, or the client cancels."""
    row = state.row
    if row is None:
        return
    ended = state._replace(row=Row("completed", row.owner, row.accepted, answer="nothing was sent"), read=state.read - {"end"})
    if rules.ends_only_pending:
        if row.status == "pending":
            yield "it is abandoned, or cancelled", ended
        return
    if row.status == "pending" and "end" not in state.read:
        yield "who ends it reads that it is pending", state._replace(read=state.read | {"end"})
    if "end" in state.read and row.status != "completed":
        yield "it is ended by what was read", ended


def broken(rule: str) -> Rules:
    """The rules without one."""
    assert rule in {each.name for each in fields(Rules)}
    return Rules(**{rule: False})
