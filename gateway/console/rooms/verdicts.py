"""The rooms in which a person changes a record. Each says first what its change means, and tells the record's version: a change by
somebody who was faster is never overwritten.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from aiohttp import web

from gateway.background.probe import Finding
from gateway.console import concealing
from gateway.console.answers import Answer, Given, Preview, preview, read_answer
from gateway.console.forms import Form
from gateway.console.rooms.records import key_of
from gateway.console.searching import told
from gateway.console.timeline import Moment, timeline
from gateway.console.visits import Visit, to
from gateway.console.words import BUTTONS, NEEDS, PATHS, TITLES, consequence
from gateway.core.model import RecordKey
from gateway.core.roles import Action
from gateway.core.second_approval import needs_second
from gateway.operate.operations import Changed, Conflict, Done, Grounds, NotFound, Proposed, TooEarly, Wrong, record_id_text
from gateway.operate.operations.rules import Change, obstacle
from gateway.ports.reconciliation import Shown

VERSION_MAX = 2**31 - 1
_JUDGES = frozenset({Change.EXECUTED, Change.NOT_EXECUTED, Change.RELEASE})
"""The changes that may need a second person."""


@dataclass(slots=True)
class _Draft:
    """What stands in the form."""

    version: int
    reason: str = ""
    actor: str = ""
    answer: Given = field(default_factory=Given)
    preview: Preview | None = None
    asked: Finding | None = None
    mistakes: dict[str, str] = field(default_factory=dict)
    changed: bool = False
    seen: bool = False


async def show_verdict(visit: Visit) -> web.Response:
    """The form of a change, empty."""
    change = _change(visit)
    visit.desk.caller.check(NEEDS[change])
    shown = await _shown(visit, await key_of(visit))
    return await _form(visit, change, shown, _Draft(shown.listed.version))


async def ask_upstream(visit: Visit) -> web.Response:
    """The form of the verdict *executed*, filled in with what the upstream says now, if that is what it says."""
    visit.desk.caller.check(Action.LOOK)
    shown = await _shown(visit, await key_of(visit))
    grounds = Grounds("asked the upstream, to see what it says", None if visit.named else "console")
    draft = _Draft(shown.listed.version, asked=await visit.desk.ask(shown, grounds))
    built = None if draft.asked is None else draft.asked.answer
    given = None if built is None else Given.from_response(built)
    if given is not None:
        draft = replace(draft, answer=given, preview=_preview(visit, read_answer(given), shown))
    return await _form(visit, Change.EXECUTED, shown, draft)


async def give_verdict(visit: Visit) -> web.Response:
    """Make the change, or say why it was not made. An answer is recorded only as it was previewed."""
    visit.desk.caller.check(NEEDS[_change(visit)])
    change, form, key = _change(visit), await visit.form(), await key_of(visit)
    draft = _Draft(form.number("version", 1, VERSION_MAX), form.text("reason"), form.text("actor"), Given.of(form))
    answer = _answer(draft, form) if change is Change.EXECUTED else None
    if answer is not None:
        draft.preview = _preview(visit, answer, await _shown(visit, key))
    unseen = change is Change.EXECUTED and (draft.changed or "preview" in form.values)
    grounds = None if unseen and "preview" in form.values else _grounds(visit, form, draft)
    if draft.mistakes or grounds is None or unseen:
        return await _form(visit, change, await _shown(visit, key), draft, 400 if draft.mistakes else 200)
    changed = await _make(visit, change, key, grounds, draft.version, answer)
    return await _told(visit, change, key, draft, changed)


def _grounds(visit: Visit, form: Form, draft: _Draft) -> Grounds | None:
    try:
        return visit.grounds(form)
    except Wrong as wrong:
        draft.mistakes |= told(wrong)
        return None


def _answer(draft: _Draft, form: Form) -> Answer | None:
    """The answer of the form; whether it is the one that the person has seen a preview of stands in the draft."""
    try:
        answer = read_answer(draft.answer)
    except Wrong as wrong:
        draft.mistakes |= told(wrong)
        return None
    previewed = form.text("previewed")
    draft.changed, draft.seen = previewed != draft.answer.digest, bool(previewed)
    return answer


def _preview(visit: Visit, answer: Answer, shown: Shown) -> Preview:
    return preview(answer, shown.listed, visit.console.policy(shown.listed.route_id))


async def _make(visit: Visit, change: Change, key: RecordKey, grounds: Grounds, version: int, answer: Answer | None) -> Changed:
    desk = visit.desk
    if change is Change.EXECUTED:
        assert answer is not None, "it was read before"
        return await desk.resolve_completed(key, grounds, status=answer.status, headers=answer.headers, body=answer.body, version=version)
    make: dict[Change, Callable[..., Awaitable[Changed]]] = {
        Change.NOT_EXECUTED: desk.resolve_not_executed,
        Change.RELEASE: desk.release,
        Change.DELETE: desk.delete,
        Change.REQUEUE: desk.requeue,
        Change.LOOK_NOW: desk.look_now,
    }
    return await make[change](key, grounds, version=version)


async def _told(visit: Visit, change: Change, key: RecordKey, draft: _Draft, changed: Changed) -> web.Response:
    match changed:
        case Done(now) if now is None:
            return to("/console/dead-letters", done=change.value)
        case Done():
            return to(f"/console/records/{record_id_text(key)}", done=change.value)
        case Proposed():
            return to(f"/console/records/{record_id_text(key)}", done="proposed")
        case NotFound():
            raise web.HTTPNotFound
        case Conflict(_, why):
            return await _refused(visit, change, key, draft, why)
        case TooEarly(until):
            return await _refused(visit, change, key, draft, None, until=until)


async def _refused(visit: Visit, change: Change, key: RecordKey, draft: _Draft, why: str | None, **values: object) -> web.Response:
    """The record as it is now, and what was typed. If it has changed since the form was made, the next try needs a new look at it."""
    shown = await _shown(visit, key)
    return await _form(visit, change, shown, draft, 409, why=why, **values)


async def _form(visit: Visit, change: Change, shown: Shown, draft: _Draft, status: int = 200, **values: object) -> web.Response:
    against = obstacle(change, shown)
    second = change in _JUDGES and needs_second(
        visit.console.config().admin.second_approval, shown.captured, too_early=isinstance(against, TooEarly)
    )
    if isinstance(against, TooEarly) and second:
        against = None
    if isinstance(against, TooEarly):
        values.setdefault("until", against.until)
    elif against is not None:
        values.setdefault("why", against.why)
    known: dict[str, object] = {"why": None, "until": None}
    asked = draft.asked
    return await visit.page(
        "verdict.html",
        status,
        **{**known, **values},
        change=change,
        path_of=next(path for path, one in PATHS.items() if one is change),
        title=TITLES[change],
        button="Propose it to a second person" if second else BUTTONS[change],
        second=second,
        consequence=consequence(change, shown.listed),
        shown=shown,
        listed=shown.listed,
        now=shown.at,
        draft=draft,
        stale=shown.listed.version != draft.version,
        faster=_faster(shown),
        may=against is None,
        asks=visit.console.asks(shown.listed.route_id),
        found=None if asked is None or asked.found is None else concealing.body(asked.found.body),
    )


def _faster(shown: Shown) -> Moment | None:
    """What happened last: that is what was faster."""
    past = [moment for moment in timeline(shown) if moment.kind != "coming"]
    return past[-1] if past else None


async def _shown(visit: Visit, key: RecordKey) -> Shown:
    shown = await visit.desk.show(key)
    if isinstance(shown, NotFound):
        raise web.HTTPNotFound
    return shown


def _change(visit: Visit) -> Change:
    return PATHS[visit.request.match_info["change"]]
