"""The wire form that a dialect gives to our own answers and marks. Pure. Decisions are never a dialect's: see `gateway.core.decision`."""

from collections.abc import Iterable, Mapping

from gateway.core.dialect_file import DialectError, DialectMistake, parse_dialect
from gateway.core.dialect_model import Dialect, Replay, Situation, Template
from gateway.core.dialect_template import OF_RECORD, STORED, named_in, placeholders, render, render_headers
from gateway.core.model import Headers
from gateway.core.pointers import Json, compile_pointer, matches
from gateway.core.problems import Problem
from gateway.core.strict_json import AS_PYTHON, read

__all__ = [
    "DialectError",
    "DialectMistake",
    "answer_to",
    "conflict_answer",
    "mark_first",
    "mark_replay",
    "parse_dialect",
    "render",
    "replays_alike",
]

LARGE_STORED = 1024 * 1024
"""Stored answers with more bytes are not searched for `{stored:…}`: it happens on the event loop."""

_SITUATIONS: Mapping[Problem, Situation] = {
    Problem.KEY_MISSING: Situation.MISSING,
    Problem.KEY_INVALID: Situation.INVALID,
    Problem.KEY_REUSED: Situation.MISMATCH,
    Problem.REQUEST_IN_PROGRESS: Situation.IN_FLIGHT,
    Problem.OUTCOME_UNKNOWN: Situation.UNKNOWN,
    Problem.KEY_EXPIRED: Situation.EXPIRED,
    Problem.RESPONSE_NOT_STORED: Situation.NOT_STORED,
    Problem.STORE_UNAVAILABLE: Situation.STORE_UNAVAILABLE,
}
_DEFAULT_MARKS = (("Idempotent-Replayed", "true"), ("Original-Request", "{original_request}"))


def answer_to(dialect: Dialect, problem: Problem) -> Template | None:
    """The dialect's own answer to a refusal; None: it is a problem document."""
    situation = _SITUATIONS.get(problem)
    return None if situation is None else dialect.answers.get(situation)


def conflict_answer(dialect: Dialect, status: int, body: bytes | None) -> tuple[Template, dict[str, str]] | None:
    """What a retry of a completed operation gets under `replay: conflict`: a template and the values of its `{stored:…}` placeholders.

    None: the stored answer is replayed. So it is under `replay: verbatim`, and where nothing was created (a status other than 2xx), and
    where a `{stored:…}` is not found in the stored body: an answer that fails to name what exists would leave a client with nothing.
    `body` is None if it is not in memory.
    """
    if dialect.replay is not Replay.CONFLICT:
        return None
    template = dialect.answers.get(Situation.REPLAYED)
    if template is None or not 200 <= status <= 299:
        return None
    pointers = [name for name in placeholders(template) if name.startswith(STORED)]
    values = _stored(pointers, body) if pointers else {}
    return (template, values) if len(values) == len(pointers) else None


def mark_first(headers: Headers, dialect: Dialect, values: Mapping[str, str]) -> Headers:
    """The fields of an answer that comes from the upstream, with the dialect's marks. What the upstream sends itself stays as it is."""
    if not dialect.first_headers:
        return headers
    there = {name.lower() for name, _ in headers}
    return headers + tuple([mark for mark in render_headers(dialect.first_headers, values) if mark[0].lower() not in there])


def mark_replay(headers: Headers, dialect: Dialect, values: Mapping[str, str]) -> Headers:
    """The fields of a replay, with the dialect's marks or the default ones. Stored fields of the same names are replaced."""
    wanted = _DEFAULT_MARKS if dialect.replay_headers is None else dialect.replay_headers
    marks = render_headers(wanted, values)
    ours = {name.lower() for name, _ in marks}
    return tuple([field for field in headers if field[0].lower() not in ours]) + marks


def replays_alike(dialect: Dialect) -> bool:
    """Whether all replays of one record get the same answer, field by field, whatever their requests are like."""
    wanted = _DEFAULT_MARKS if dialect.replay_headers is None else dialect.replay_headers
    return dialect.replay is not Replay.CONFLICT and named_in(wanted) <= OF_RECORD


def _stored(names: Iterable[str], body: bytes | None) -> dict[str, str]:
    """The values of `{stored:…}` placeholders that a stored JSON body has."""
    if body is None or len(body) > LARGE_STORED:
        return {}
    try:
        document = read(body, AS_PYTHON)
    except ValueError:
        return {}
    found = {name: _first_text(matches(document, compile_pointer(name.removeprefix(STORED)))) for name in names}
    return {name: text for name, text in found.items() if text}


def _first_text(values: Iterable[Json]) -> str | None:
    """The first text or whole number."""
    return next((str(value) for value in values if isinstance(value, str | int) and not isinstance(value, bool)), None)
