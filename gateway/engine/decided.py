"""The answer to a decision, where the gateway does nothing more for it."""

from typing import assert_never

from gateway.core.decision import (
    Accepted,
    Claim,
    Decision,
    Gone,
    InProgress,
    KeyMisuse,
    Label,
    Lapse,
    Replay,
    ReplayWithoutBody,
    Unknown,
    Unreadable,
    decide,
)
from gateway.core.model import Terms
from gateway.core.problems import Problem
from gateway.core.quota import Exceeded, rate_limit_fields
from gateway.engine.answers import LOOK_AGAIN, Promised, Refused, Replayed, Reply
from gateway.engine.request import GuardedRequest
from gateway.engine.response_packing import body_at_hand
from gateway.ports import Body, Remembered


def label_of(decision: Decision) -> Label:
    """The label of a request about which this is decided. A claim would have been executed again."""
    match decision:
        case Replay():
            return Label.REPLAY
        case Claim():
            return Label.REEXECUTE
        case _:
            return answer_to(decision).label


def answer_to(decision: Decision) -> Reply:
    """The answer to a decision after which nothing remains to be done."""
    match decision:
        case ReplayWithoutBody(_, response):
            members: dict[str, object] = {}
            if response.body_digest:  # else it was erased
                members = {
                    "original_status": response.status,
                    "body_length": response.body_length,
                    "body_sha256": response.body_digest.hex(),
                }
            return Reply(Label.REPLAY_WITHOUT_BODY, Refused(Problem.RESPONSE_NOT_STORED, members=members))
        case InProgress(_, retry_after):
            return Reply(Label.IN_PROGRESS, Refused(Problem.REQUEST_IN_PROGRESS, retry_after=retry_after))
        case Accepted(found, retry_after):
            return Reply(Label.ACCEPTED, Promised(found.key, found.status, retry_after))
        case KeyMisuse():
            return Reply(Label.KEY_MISUSE, Refused(Problem.KEY_REUSED))
        case Unknown(_, retry_after):
            detail = None if retry_after is None else LOOK_AGAIN
            return Reply(Label.UNKNOWN, Refused(Problem.OUTCOME_UNKNOWN, retry_after=retry_after, detail=detail))
        case Gone():
            return Reply(Label.GONE, Refused(Problem.KEY_EXPIRED))
        case Unreadable():
            detail = "This record was written by a newer version of the gateway, which alone can compare requests with it."
            return Reply(Label.STORE_UNAVAILABLE, Refused(Problem.STORE_UNAVAILABLE, retry_after=1, detail=detail))
        case Replay() | Claim() | Lapse():
            raise AssertionError("replays, claims and lapses are carried out")
        case _:
            assert_never(decision)


def replay_of(decision: Replay, body: bytes | Body, remembered: Remembered | None = None) -> Reply:
    """The stored answer, with its body as a client gets it."""
    response, found = decision.response, decision.found
    answer = Replayed(response.status, response.reason, response.headers, body, found.request_id, found.expires_at_us, remembered)
    return Reply(Label.REPLAY, answer, expires_at_us=found.expires_at_us)


def over_quota(terms: Terms, exceeded: Exceeded) -> Reply:
    """The answer to a request that would have executed, had its caller not used up its quota."""
    members = {"violated-policies": [exceeded.limit.value]}
    assert terms.quota is not None, "it was counted"
    fields = rate_limit_fields(terms.quota, exceeded)
    refused = Refused(Problem.QUOTA_EXCEEDED, retry_after=exceeded.retry_after, members=members, fields=fields)
    return Reply(Label.QUOTA_EXCEEDED, refused, reason=exceeded.limit.value)


def told_at_once(remembered: Remembered, request: GuardedRequest) -> Reply | None:
    """The answer to a request whose meaning a remembered record has. None: something has to be done for it."""
    decision = decide(remembered.record, request.meaning, request.guard.policy)
    if not isinstance(decision, Replay) or (body := body_at_hand(decision.response)) is None:
        return None
    return replay_of(decision, body, remembered)
