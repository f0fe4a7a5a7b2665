"""Why an upstream gave no whole answer, and what each reason becomes: one table, for guarded, observed, forwarded and
unguarded requests.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.core.problems import Problem


class NotSentReason(enum.StrEnum):
    """Why nothing of a request reached the upstream. Each reason is proof: the engine may release the attempt."""

    DNS = "dns_error"
    CONNECT_REFUSED = "connection_refused"
    CONNECT_TIMEOUT = "connection_timeout"
    TLS = "tls_error"
    NO_SLOT = "no_connection_slot"
    CIRCUIT_OPEN = "circuit_open"
    LEASE_LAPSED = "lease_lapsed"
    SHUTTING_DOWN = "shutting_down"
    SCOPE_UNCONFIRMED = "scope_unconfirmed"
    POINT_UNKNOWN = "recovery_point_unknown"


class DoubtReason(enum.StrEnum):
    """Why the gateway does not know whether the upstream executed."""

    FIRST_BYTE_TIMEOUT = "upstream_timeout"
    READ_TIMEOUT = "upstream_read_timeout"
    TOTAL_TIMEOUT = "upstream_total_timeout"
    DISCONNECTED = "upstream_disconnected"
    INVALID_RESPONSE = "upstream_invalid_response"
    TRUNCATED_RESPONSE = "upstream_truncated_response"
    STATUS = "upstream_status"
    LEASE_LOST = "lease_lost"
    GATEWAY_STOPPED = "gateway_stopped"
    GATEWAY_ERROR = "gateway_error"


@dataclass(frozen=True, slots=True)
class Failure:
    """What one reason becomes. Its own word is the label of metrics and the reason in logs and records.

    `status` is that of our answer: 504, the upstream was too slow; 503, a moment later may do; 502, the upstream is not
    there, or not right (RFC 9110 sections 15.6.3 to 15.6.5). `error` is the error type of `Proxy-Status` (RFC 9209
    section 2.3). `problem` is what the client of a request without a record is told. `ours`: this gateway decided it by
    itself, which is no news of the upstream.
    """

    status: int
    error: str
    problem: Problem
    ours: bool = False


def _not_sent(status: int, error: str, *, ours: bool = False) -> Failure:
    return Failure(status, error, Problem.UPSTREAM_UNREACHABLE, ours)


def _in_doubt(status: int, error: str, *, ours: bool = False) -> Failure:
    return Failure(status, error, Problem.UPSTREAM_FAILED, ours)


FAILURES: Mapping[str, Failure] = {
    NotSentReason.DNS: _not_sent(502, "dns_error"),
    NotSentReason.CONNECT_REFUSED: _not_sent(502, "connection_refused"),
    NotSentReason.CONNECT_TIMEOUT: _not_sent(504, "connection_timeout"),
    NotSentReason.TLS: _not_sent(502, "tls_protocol_error"),
    NotSentReason.NO_SLOT: _not_sent(503, "connection_limit_reached"),
    NotSentReason.CIRCUIT_OPEN: _not_sent(503, "destination_unavailable", ours=True),
    NotSentReason.LEASE_LAPSED: _not_sent(503, "proxy_internal_error", ours=True),
    NotSentReason.SCOPE_UNCONFIRMED: _not_sent(503, "proxy_internal_error", ours=True),
    NotSentReason.POINT_UNKNOWN: _not_sent(503, "proxy_internal_error", ours=True),
    NotSentReason.SHUTTING_DOWN: _not_sent(503, "proxy_internal_response", ours=True),
    DoubtReason.FIRST_BYTE_TIMEOUT: _in_doubt(504, "http_response_timeout"),
    DoubtReason.READ_TIMEOUT: _in_doubt(504, "connection_read_timeout"),
    DoubtReason.TOTAL_TIMEOUT: _in_doubt(504, "http_response_timeout"),
    DoubtReason.DISCONNECTED: _in_doubt(502, "connection_terminated"),
    DoubtReason.INVALID_RESPONSE: _in_doubt(502, "http_protocol_error"),
    DoubtReason.TRUNCATED_RESPONSE: _in_doubt(502, "http_response_incomplete"),
    DoubtReason.STATUS: _in_doubt(502, "http_protocol_error"),
    DoubtReason.LEASE_LOST: _in_doubt(502, "proxy_internal_error", ours=True),
    DoubtReason.GATEWAY_STOPPED: _in_doubt(502, "proxy_internal_error", ours=True),
    DoubtReason.GATEWAY_ERROR: _in_doubt(502, "proxy_internal_error", ours=True),
}
"""By the reason, or its word."""
