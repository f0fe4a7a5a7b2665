"""Our own answers: a closed set of stable words, each told apart from an upstream's by its type."""

import re

import pytest

from gateway.core.problems import SAFE_METHODS, Problem, Retry, retry_of
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

RETRIES = {
    Retry.SAME_KEY: {
        "request-in-progress",
        "store-unavailable",
        "principal-unavailable",
        "overloaded",
        "shutting-down",
        "too-many-connections",
        "request-timeout",
        "too-early",
        "upstream-unreachable",
        "too-many-pending",
        "quota-exceeded",
        "not-completed",
    },
    Retry.FIX_REQUEST: {
        "key-missing",
        "key-invalid",
        "principal-missing",
        "target-refused",
        "bad-request",
        "body-too-large",
        "header-too-large",
        "method-refused",
        "no-route",
        "coding-unsupported",
        "version-unsupported",
        "expectation-failed",
        "no-operation",
    },
    Retry.NEW_KEY: {"key-reused", "key-expired", "abandoned", "cancelled"},
    Retry.ASK_UPSTREAM: {"outcome-unknown", "response-not-stored", "upstream-failed", "internal-error"},
    Retry.NEVER: {"proxy-loop", "not-pending", "attempt-superseded"},
}
"""What a program may do about a refusal of an unsafe request that has no `Retry-After`."""


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


@every_problem
def test_what_a_program_may_do(problem: Problem) -> None:
    """Every meaning has its one word, as published."""
    assert [retry for retry, slugs in RETRIES.items() if problem.value.slug in slugs] == [retry_of(problem, method="POST")]


@every_problem
@pytest.mark.parametrize("method", ["", "GET", "HEAD", "POST", "DELETE"])
def test_what_else_counts(problem: Problem, method: str) -> None:
    """A `Retry-After` makes an unknown outcome one that comes to light; a safe method may always be repeated; no other meaning changes."""
    usual, later = (retry_of(problem, retry_after=after, method=method) for after in (None, 7))
    safe = method in SAFE_METHODS and problem in {Problem.UPSTREAM_FAILED, Problem.INTERNAL_ERROR}
    assert usual is (Retry.SAME_KEY if safe else problem.value.retry)
    assert later is (Retry.SAME_KEY if problem is Problem.OUTCOME_UNKNOWN else usual)
