"""Problem documents on the wire (RFC 9457)."""

import json

import pytest

from gateway.core.model import Headers
from gateway.core.problems import Problem, Retry
from gateway.http.problem import DEFAULT_BASE, ProblemWriter

URN = ProblemWriter()
WEB = ProblemWriter("https://docs.example/problems/")


def value(headers: Headers, name: bytes) -> bytes | None:
    found = [text for field, text in headers if field == name]
    assert len(found) < 2
    return found[0] if found else None


@pytest.mark.parametrize("problem", Problem, ids=lambda problem: problem.value.slug)
@pytest.mark.parametrize("status", [None, 503])
def test_document(problem: Problem, status: int | None) -> None:
    """Each document has an absolute type, a constant title, the real status, a detail and the request's own URN."""
    final, headers, body = URN.render(problem, request_id="r-1", status=status)
    assert final == (problem.value.status if status is None else status)
    assert json.loads(body) == {
        "type": DEFAULT_BASE + problem.value.slug,
        "title": problem.value.title,
        "status": final,
        "detail": problem.value.detail,
        "instance": "urn:request:r-1",
        "retry": problem.value.retry.value,
    }
    assert value(headers, b"Content-Type") == b"application/problem+json"
    assert value(headers, b"Cache-Control") == b"no-store"


def test_a_body_ends_its_line() -> None:
    """As in a terminal: the prompt after it begins a line of its own."""
    _, _, body = URN.render(Problem.KEY_REUSED, request_id="r-1")
    assert body.endswith(b"}\n")


def test_retry_after_only_where_there_is_one() -> None:
    """`Retry-After` is there exactly when the answer says when to come back."""
    assert value(URN.render(Problem.OUTCOME_UNKNOWN, request_id="r")[1], b"Retry-After") is None
    assert value(URN.render(Problem.OUTCOME_UNKNOWN, request_id="r", retry_after=7)[1], b"Retry-After") == b"7"


def test_what_a_program_may_do() -> None:
    """The member `retry` depends on `Retry-After`, and on what is known of the request."""

    answers = [
        URN.render(Problem.OUTCOME_UNKNOWN, request_id="r"),
        URN.render(Problem.OUTCOME_UNKNOWN, request_id="r", retry_after=7),
        URN.render(Problem.OUTCOME_UNKNOWN, request_id="r", retry=Retry.NEVER),
    ]
    assert [json.loads(body)["retry"] for _, _, body in answers] == ["ask-upstream", "same-key", "never"]


def test_detail_and_members() -> None:
    """A more exact detail replaces the usual one; extension members stand beside the standard ones."""
    body = URN.render(Problem.UPSTREAM_UNREACHABLE, request_id="r", detail="Später.", members={"reason": "dns_error"})[2]
    document = json.loads(body)
    assert (document["detail"], document["reason"]) == ("Später.", "dns_error")
    assert document["type"].endswith(":upstream-unreachable")


def test_web_types_are_linked_to() -> None:
    """An http(s) type is also linked to as documentation; a URN is not."""
    _, headers, body = WEB.render(Problem.KEY_REUSED, request_id="r")
    assert json.loads(body)["type"] == "https://docs.example/problems/key-reused"
    assert value(headers, b"Link") == b'<https://docs.example/problems/key-reused>; rel="describedby"'
    assert value(URN.render(Problem.KEY_REUSED, request_id="r")[1], b"Link") is None


def test_a_401_names_a_challenge() -> None:
    """A 401 of ours carries the challenge that RFC 9110 section 11.6.1 demands, and no other answer does."""
    for problem in Problem:
        challenge = value(URN.render(problem, request_id="r")[1], b"WWW-Authenticate")
        assert (challenge is not None) == (problem.value.status == 401)
