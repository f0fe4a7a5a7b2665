"""Handles `/v1/progress`: PUT tells a recovery point, GET asks for the present one. The token of the attempt is all it takes.

What if ...

* the attempt has ended, or another owns its record: 409 `attempt-superseded`; the upstream must stop, and roll back what it has not
  committed;
* the store is away, or its reply is lost: 503; telling the same point again is harmless;
* nobody knows the token's record: 409 as well, so that a stranger learns nothing of which records there are.
"""

import re

import orjson

from gateway.core.attempt_token import AttemptToken, read_token
from gateway.core.framing import judge_framing
from gateway.core.headers import Fields
from gateway.core.model import Headers
from gateway.core.problems import Problem
from gateway.core.recovery_point import LONGEST_BODY, BadPoint, DataTooLarge, read_point
from gateway.core.routes import split_target
from gateway.http.body import BodyTooLarge, ClientGone, ClientSilent, MemoryFull, Pace, expect_continue, read_body
from gateway.http.problem import ProblemWriter
from gateway.http.request import Request, RequestFactory
from gateway.http.response import CLIENT_GONE, WireResponse, reason_of, wire_response
from gateway.ports import Clock, Memory, Observer, Randomness, StoreUnavailable
from gateway.ports.participation import Participation, Progress

PATH = b"/v1/progress"
PATIENCE, LEAST_RATE = 10.0, 240
"""Seconds of silence within a body, and the bytes a second that earn more of them: the upstream has it ready."""

_BEARER = re.compile(rb"bearer +([A-Za-z0-9_-]+)", re.IGNORECASE)
_CHALLENGE = (b'Bearer realm="progress"',)


class Refusal(Exception):
    """Why a request is not carried out. `unread`: its body was not read to its end."""

    def __init__(self, problem: Problem, detail: str | None = None, *, unread: bool = False) -> None:
        super().__init__(problem.value.slug)
        self.problem = problem
        self.detail = detail
        self.unread = unread


class ProgressListener:
    """The handler of the listener. It answers with `WireResponse`s, as the proxy."""

    make_request: RequestFactory[Request] = Request

    def __init__(
        self,
        participation: Participation,
        observer: Observer,
        clock: Clock,
        randomness: Randomness,
        problems: ProblemWriter,
        memory: Memory,
    ) -> None:
        self._participation = participation
        self._observer = observer
        self._clock = clock
        self._randomness = randomness
        self._problems = problems
        self._memory = memory
        self._closing = False

    def close_connections(self) -> None:
        """From now on every answer is the last one on its connection: the process is being drained."""
        self._closing = True

    async def handle(self, request: Request) -> WireResponse:
        """Answer one request. Raises nothing but CancelledError."""
        try:
            progress = await self._carry_out(request)
        except Refusal as refusal:
            return self._refused(request, refusal)
        except StoreUnavailable:
            return self._refused(request, Refusal(Problem.STORE_UNAVAILABLE, "Whether it is kept is not known. Tell it again."))
        except ClientGone:
            return self._gone(request)
        except Exception as error:  # whatever is wrong with us, the upstream is answered
            self._observer.background_failed("progress", error)
            return self._refused(request, Refusal(Problem.INTERNAL_ERROR, unread=True))
        if request.method == "GET":
            return self._answer(200, _document(progress), ((b"Content-Type", b"application/json"),))
        return self._answer(204, b"")

    async def _carry_out(self, request: Request) -> Progress:
        problem = judge_framing(request.version, request.fields)
        if problem is not None:
            raise Refusal(problem, unread=True)
        if split_target(request.target)[0] != PATH:
            raise Refusal(Problem.NO_ROUTE, "Here is nothing but /v1/progress.", unread=True)
        if request.method not in {"GET", "PUT"}:
            raise Refusal(Problem.METHOD_REFUSED, "Tell a point by PUT; ask by GET.", unread=True)
        token = _token(request.fields)
        if request.method == "GET":
            progress = await self._participation.progress(token)
        else:
            progress = await self._advance(token, await self._body(request))
        if progress is None:
            self._observer.stale_write("progress")
            raise Refusal(Problem.ATTEMPT_SUPERSEDED)
        return progress

    async def _advance(self, token: AttemptToken, body: bytes) -> Progress | None:
        try:
            point = read_point(body)
        except DataTooLarge as error:
            raise Refusal(Problem.BODY_TOO_LARGE, str(error)) from error
        except BadPoint as error:
            raise Refusal(Problem.BAD_REQUEST, str(error)) from error
        return await self._participation.advance(token, point)

    async def _body(self, request: Request) -> bytes:
        announced = request.fields.first(b"content-length")
        if announced is not None and int(announced) > LONGEST_BODY:
            raise Refusal(Problem.BODY_TOO_LARGE, unread=True)
        expect_continue(request, expected=request.fields.first(b"expect") is not None)
        try:
            taken = await read_body(request, LONGEST_BODY, Pace(PATIENCE, LEAST_RATE), self._memory)
        except BodyTooLarge as error:
            raise Refusal(Problem.BODY_TOO_LARGE, unread=True) from error
        except ClientSilent as error:
            raise Refusal(Problem.REQUEST_TIMEOUT, unread=True) from error
        except MemoryFull as error:
            raise Refusal(Problem.OVERLOADED, unread=True) from error
        assert isinstance(taken.body, bytes), "so little is never spooled"
        if taken.held is not None:
            taken.held.close()
        return taken.body

    # ---- answers

    def _refused(self, request: Request, refusal: Refusal) -> WireResponse:
        kind = refusal.problem.value
        status, headers, body = self._problems.render(
            refusal.problem,
            request_id=self._randomness.token().hex(),
            retry_after=1 if kind.status == 503 else None,
            detail=refusal.detail,
            challenges=_CHALLENGE,
        )
        if status == 405:
            headers += ((b"Allow", b"GET, PUT"),)
        return self._answer(status, body, headers, close=refusal.unread and not request.body.complete)

    def _answer(self, status: int, body: bytes, headers: Headers = (), *, close: bool = False) -> WireResponse:
        fields = (*headers, (b"Date", self._clock.http_date()))
        if not any(name == b"Cache-Control" for name, _ in headers):
            fields += ((b"Cache-Control", b"no-store"),)
        return wire_response(status, reason_of(status), fields, body, close=close or self._closing)

    def _gone(self, request: Request) -> WireResponse:
        response = WireResponse(CLIENT_GONE, b"")
        response.drop()
        if request.connection.transport is not None:
            request.connection.transport.abort()
        return response


def _token(fields: Fields) -> AttemptToken:
    """Raises `Refusal`."""
    values = fields.values(b"authorization")
    found = _BEARER.fullmatch(values[0].strip()) if len(values) == 1 else None
    token = None if found is None else read_token(found[1].decode())
    if token is None:
        detail = "Send the token of the attempt, Idempotency-Token of its request: Authorization: Bearer <token>."
        raise Refusal(Problem.PRINCIPAL_MISSING, detail, unread=True)
    return token


def _document(progress: Progress) -> bytes:
    point = progress.point
    return orjson.dumps(
        {
            "recovery_point": None if point is None else point.label,
            "data": None if point is None or point.data is None else orjson.Fragment(point.data),
            "attempt": progress.attempt,
            "lease_left": round(progress.lease_left, 3),
        },
        option=orjson.OPT_APPEND_NEWLINE,
    )
