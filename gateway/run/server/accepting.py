"""What accepted work is run by, and ended with."""

from hashlib import sha256

from orjson import dumps, loads

from gateway.config import Config
from gateway.core.model import StoredResponse
from gateway.core.problems import Problem
from gateway.http.problem import ProblemWriter
from gateway.http.response import reason_of
from gateway.plan import GuardPlan
from gateway.proxy.routing import Routing


def guards_of(routing: Routing) -> list[GuardPlan]:
    """The plans of a map's guarded routes."""
    return [plan.guard for plan in routing.plans.values() if plan.guard is not None]


def stored_refusal(config: Config, problem: Problem) -> StoredResponse:
    """A problem document as a record keeps it: it is about the record, and not about one request."""
    status, headers, body = ProblemWriter(config.problem_base).render(problem, request_id="")
    document = loads(body)
    del document["instance"]
    body = dumps(document)
    return StoredResponse(status, reason_of(status), headers, body, len(body), sha256(body).digest())
