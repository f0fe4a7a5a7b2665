"""For an upstream that takes part: one attempt, as its request tells of it. Needs Python's standard library alone, so it may be copied.

    attempt = Attempt.of(request.headers)            # None: the request did not come through a gateway that tells
    if attempt.point is None:                        # else: go on from there, with attempt.data
        charge = provider.charge(key=attempt.token)
        attempt.advance(PROGRESS, "charge_created", {"charge": charge.id})

Where the upstream's database is the gateway's, domain writes commit together with a point, or with the answer (psycopg and others with %s):

    with connection.transaction():
        connection.execute(*attempt.fenced())
        ...
        connection.execute(*attempt.completed(201, [("Content-Type", "application/json")], body))   # last before the commit

docs/participation.md says what to do when it is superseded.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

Statement = tuple[str, tuple[Any, ...]]
"""A statement with %s in place of its values, and the values."""

TIMEOUT = 5.0
"""Seconds that the gateway may take to hear of a point."""

SUPERSEDED = "IG001"
"""The SQLSTATE of a statement whose attempt owns its record no more."""


class Superseded(Exception):
    """The attempt has ended, or another one has taken over: stop, and roll back what is not committed."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of one operation. `point` and `data` are what an attempt before this one has told last."""

    token: str = field(repr=False)
    number: int
    point: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> "Attempt | None":
        """The attempt that a request belongs to, by its header fields."""
        told = {name.lower(): value for name, value in headers.items()}
        token = told.get("idempotency-token")
        if token is None:
            return None
        data = json.loads(told.get("idempotency-recovery-data", "{}"))
        return cls(token, int(told["idempotency-attempt"]), told.get("idempotency-recovery-point"), data)

    def advance(self, url: str, point: str, data: Mapping[str, Any] | None = None) -> None:
        """Tell the gateway over HTTP. `url` is that of its progress listener, as in http://127.0.0.1:9465.

        Raises `Superseded`, and OSError where it is not known whether the gateway has heard: tell it again.
        """
        body = json.dumps({"recovery_point": point} | ({} if data is None else {"data": dict(data)})).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = Request(f"{url}/v1/progress", body, headers, method="PUT")  # noqa: S310 - the caller's own gateway
        try:
            urlopen(request, timeout=TIMEOUT).close()  # noqa: S310 - as above
        except HTTPError as error:
            error.close()
            if error.code == 409:
                raise Superseded from error
            raise

    def fenced(self) -> Statement:
        """Fails unless the attempt owns its record, which nobody takes over before the transaction ends."""
        return "SELECT gateway_fence(%s)", (self.token,)

    def advanced(self, point: str, data: Mapping[str, Any] | None = None) -> Statement:
        """Commits the point with what it stands for."""
        return "SELECT gateway_advance(%s, %s, %s::jsonb)", (self.token, point, None if data is None else json.dumps(dict(data)))

    def completed(self, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> Statement:
        """Commits the answer: every client gets exactly this one, the first included."""
        return "SELECT gateway_complete(%s, %s, %s::jsonb, %s)", (self.token, status, json.dumps([list(one) for one in headers]), body)


def is_superseded(error: BaseException) -> bool:
    """Whether a database driver's error says that the attempt is superseded."""
    return SUPERSEDED in {getattr(error, "sqlstate", None), getattr(error, "pgcode", None)}
