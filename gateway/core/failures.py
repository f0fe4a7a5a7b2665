"""The status of an answer of our own where the upstream gave none: one table for guarded, observed, forwarded and
unguarded requests.

The keys are the values of `gateway.ports.NotSentReason` and `DoubtReason`. 504: the upstream was too slow. 503: a retry
a moment later may succeed. 502: the upstream is away, or answered wrongly (RFC 9110 sections 15.6.3 to 15.6.5).
"""

from collections.abc import Mapping

STATUSES: Mapping[str, int] = {
    "dns_error": 502,
    "connection_refused": 502,
    "connection_timeout": 504,
    "tls_error": 502,
    "no_connection_slot": 503,
    "circuit_open": 503,
    "lease_lapsed": 503,
    "shutting_down": 503,
    "scope_unconfirmed": 503,
    "upstream_timeout": 504,
    "upstream_read_timeout": 504,
    "upstream_total_timeout": 504,
    "upstream_disconnected": 502,
    "upstream_invalid_response": 502,
    "upstream_truncated_response": 502,
    "upstream_status": 502,
    "lease_lost": 502,
    "gateway_stopped": 502,
    "gateway_error": 502,
}
