"""Our own answers: a closed set of stable words, each told apart from an upstream's by its type."""

import re

import pytest

from gateway.core.problems import Problem
from gateway.http.response import reason_of

every_problem = pytest.mark.parametrize("problem", Problem, ids=lambda problem: problem.value.slug)

PUBLISHED = {
    "key-missing": 400,
    "key-invalid": 400,
    "key-reused": 422,
    "request-in-progress": 409,
    "response-not-stored": 409,
    "outcome-unknown": 409,
    "key-expired": 410,
    "principal-missing": 401,
    "store-unavailable": 503,
    "upstream-unreachable": 502,
}


def test_published_words_and_statuses() -> None:
    """The contract's words have the contract's statuses; nothing renames them."""
    found = {problem.value.slug: problem.value.status for problem in Problem}
    assert found | PUBLISHED == found


def test_words_are_unique() -> None:
    """No two meanings share a word or a title."""
    assert len({problem.value.slug for problem in Problem}) == len({problem.value.title for problem in Problem}) == len(Problem)


@every_problem
def test_words_follow_the_names(problem: Problem) -> None:
    """The word in the type URI is the name in the code, in a form that needs no escaping."""
    assert problem.value.slug == problem.name.lower().replace("_", "-")
    assert re.fullmatch(r"[a-z]+(?:-[a-z]+)*", problem.value.slug)


@every_problem
def test_every_status_has_a_reason_phrase(problem: Problem) -> None:
    """Each is an error status that the wire can write."""
    assert 400 <= problem.value.status < 600
    assert reason_of(problem.value.status)


@every_problem
def test_texts_are_sentences(problem: Problem) -> None:
    """Titles name the meaning, details help a client to go on."""
    assert problem.value.title[0].isupper()
    assert not problem.value.title.endswith(".")
    assert problem.value.detail.endswith(".")
