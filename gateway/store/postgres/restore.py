"""Putting back a record that the database has lost, with what its attempt came to."""

from typing import Any

from gateway.core.model import Earlier, Intent, Lease
from gateway.ports import OBSERVED_DOUBT_KEPT, Answered, Doubted, Settled, Transition
from gateway.store.postgres.calls import Calls
from gateway.store.postgres.lane import DataRefused, unavailable
from gateway.store.postgres.queries import QUERIES
from gateway.store.postgres.rows import encode_captured, storable
from gateway.store.postgres.statements import Completion, completion


async def put_back(calls: Calls, lease: Lease, intent: Intent, end: Answered | Doubted) -> Settled | None:
    """DONE, or None if there is a record. An answer that is refused is put back without its body, then without its headers."""
    answer = completion(lease, end.response) if isinstance(end, Answered) else None
    while True:
        arguments = (*_of_the_attempt(lease, intent), *_of_the_end(intent, answer, end))
        try:
            rows = await calls.attempt("restore", lambda lane: lane.fetch(QUERIES["restore"], *arguments))  # noqa: B023 (awaited here)
        except DataRefused as error:
            answer = None if answer is None else answer.smaller()
            if answer is None:
                raise unavailable("error", may_have_landed=False, asked=True) from error
        else:
            return Settled(Transition.DONE, rows[0]["expires_at_us"] if answer else None) if rows else None


def _of_the_attempt(lease: Lease, intent: Intent) -> tuple[Any, ...]:
    fingerprint = intent.fingerprint
    return (
        lease.key.scope_id,
        lease.key.key,
        lease.record_id,
        lease.owner,
        lease.attempt,
        fingerprint.digest,
        fingerprint.version,
        fingerprint.policy,
        intent.terms.route_id,
        intent.request_id,
        intent.method,
        intent.target,
        intent.terms.max_execution,
        intent.terms.reconcilable,
        intent.terms.observed,
        encode_captured(intent.captured),
        storable(intent.correlation),
        lease.earlier is not Earlier.NOTHING,
        lease.duration,
    )


def _of_the_end(intent: Intent, answer: Completion | None, end: Answered | Doubted) -> tuple[Any, ...]:
    reason = end.reason if isinstance(end, Doubted) else None
    if answer is None or isinstance(end, Doubted):
        return (*[None] * 10, intent.sealed, reason, OBSERVED_DOUBT_KEPT if intent.terms.observed else None)
    return (
        answer.status,
        answer.reason,
        answer.headers,
        answer.body,
        answer.body_encoding,
        answer.body_length,
        answer.body_digest,
        answer.schema_version,
        end.retention.gone_for,
        end.retention.keep_for,
        intent.sealed,
        reason,
        end.retention.seconds,
    )
