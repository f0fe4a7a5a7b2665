"""`Proxy-Status` (RFC 9209): each reason and problem has a registered error type, and every member is a well-formed structured field."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.failures import FAILURES
from gateway.core.problems import Problem
from gateway.core.proxy_status import PROBLEMS, error_of, proxy_status
from gateway.ports import DoubtReason, NotSentReason

REGISTERED = frozenset(
    {
        "dns_timeout",
        "dns_error",
        "destination_not_found",
        "destination_unavailable",
        "destination_ip_prohibited",
        "destination_ip_unroutable",
        "connection_refused",
        "connection_terminated",
        "connection_timeout",
        "connection_read_timeout",
        "connection_write_timeout",
        "connection_limit_reached",
        "tls_protocol_error",
        "tls_certificate_error",
        "tls_alert_received",
        "http_request_error",
        "http_request_denied",
        "http_response_incomplete",
        "http_response_header_section_size",
        "http_response_header_size",
        "http_response_body_size",
        "http_response_trailer_section_size",
        "http_response_trailer_size",
        "http_response_transfer_coding",
        "http_response_content_coding",
        "http_response_timeout",
        "http_upgrade_failed",
        "http_protocol_error",
        "proxy_internal_response",
        "proxy_internal_error",
        "proxy_configuration_error",
        "proxy_loop_detected",
    }
)
"""The error types of section 2.3."""

_TOKEN = r"[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*"
_STRING = r'"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"'
_INTEGER = r"-?[0-9]{1,15}"
_BARE = re.compile(rf"({_TOKEN})|({_STRING})|({_INTEGER})")
_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")


def bare(text: str, position: int) -> tuple[str | int, str, int]:
    """A Token, String or Integer at this place (RFC 9651 section 4.2.3.1): its value, type and end."""
    found = _BARE.match(text, position)
    assert found is not None, text[position:]
    token, string, integer = found.groups()
    if token is not None:
        return token, "token", found.end()
    if string is not None:
        return re.sub(r"\\(.)", r"\1", string[1:-1]), "string", found.end()
    return int(integer), "integer", found.end()


def parse(member: bytes) -> tuple[tuple[str | int, str], dict[str, tuple[str | int, str]]]:
    """One List member as strictly as it must be serialised (RFC 9651 section 4.1.1.2): no space anywhere, every key once."""
    text = member.decode("ascii")
    value, kind, position = bare(text, 0)
    parameters: dict[str, tuple[str | int, str]] = {}
    while position < len(text):
        assert text[position] == ";"
        key = _KEY.match(text, position + 1)
        assert key is not None
        assert text[key.end()] == "="
        assert key[0] not in parameters
        parsed, parsed_kind, position = bare(text, key.end() + 1)
        parameters[key[0]] = parsed, parsed_kind
    return (value, kind), parameters


@pytest.mark.parametrize(
    ("member", "want"),
    [
        (proxy_status("idempotency-gateway"), b"idempotency-gateway"),
        (proxy_status("gw", error="dns_error"), b"gw;error=dns_error"),
        (proxy_status("gw", received_status=503), b"gw;received-status=503"),
        (
            proxy_status("gw", error="a", received_status=200, details='a "b" \\'),
            b'gw;error=a;received-status=200;details="a \\"b\\" \\\\"',
        ),
        (proxy_status("gw.example:8443/eu"), b"gw.example:8443/eu"),
        (proxy_status("1st gate"), b'"1st gate"'),
        (proxy_status(""), b'""'),
        (proxy_status("gw", details="caf\u00e9\r\nX: y"), b'gw;details="caf???X: y"'),
    ],
)
def test_members(member: bytes, want: bytes) -> None:
    """The name is a Token if it can be one, parameters come in a fixed order, and a String holds what it can."""
    assert member == want


@given(
    st.text(max_size=20),
    st.none() | st.sampled_from(sorted(REGISTERED)),
    st.none() | st.integers(min_value=100, max_value=999),
    st.none() | st.text(max_size=40) | st.text(alphabet='"\\;=,?\x7f ', max_size=20),
)
def test_every_member_parses(name: str, error: str | None, received_status: int | None, details: str | None) -> None:
    """Whatever the texts are, the member is one well-formed Item that says what was put in, as far as ASCII can."""
    (found_name, kind), parameters = parse(proxy_status(name, error=error, received_status=received_status, details=details))
    assert found_name == re.sub(r"[^ -~]", "?", name)
    assert kind in {"token", "string"}
    want: dict[str, tuple[str | int, str]] = {}
    if error is not None:
        want["error"] = error, "token"
    if received_status is not None:
        want["received-status"] = received_status, "integer"
    if details is not None:
        want["details"] = re.sub(r"[^ -~]", "?", details), "string"
    assert parameters == want


def test_every_reason_and_problem_has_a_registered_error() -> None:
    """The tables cover all that can go wrong, and use no word that is not in the registry."""
    assert FAILURES.keys() == {*NotSentReason, *DoubtReason}
    assert set(PROBLEMS) == set(Problem)
    assert {failure.error for failure in FAILURES.values()} | set(PROBLEMS.values()) <= REGISTERED


def test_every_reason_has_a_status() -> None:
    """One table says what clients get where the upstream gave no answer."""
    assert FAILURES.keys() == {reason.value for reasons in (NotSentReason, DoubtReason) for reason in reasons}
    assert {failure.status for failure in FAILURES.values()} == {502, 503, 504}


@pytest.mark.parametrize("reason", [*NotSentReason, *DoubtReason])
def test_a_reason_tells_more_than_its_problem(reason: NotSentReason | DoubtReason) -> None:
    """Whether the request has a record or not: the same failure has one error type."""
    assert {error_of(problem, reason.value) for problem in Problem} == {FAILURES[reason].error}
    assert error_of(Problem.OUTCOME_UNKNOWN, None) == "proxy_internal_response"


def test_only_client_errors_are_request_errors() -> None:
    """`http_request_error` means that a 4xx was generated (section 2.3.16)."""
    assert all(400 <= problem.value.status < 500 for problem, error in PROBLEMS.items() if error == "http_request_error")
