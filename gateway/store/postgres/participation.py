"""`gateway.ports.participation.Participation` over Postgres: each method is one statement of `participation.sql`."""

from collections.abc import Sequence

from gateway.core.attempt_token import AttemptToken
from gateway.core.recovery_point import RecoveryPoint
from gateway.ports.participation import Participant, Progress
from gateway.store.postgres.calls import Calls
from gateway.store.postgres.rows import columns

PROGRESS = "progress"
"""The operation that these calls are counted under."""


class PostgresParticipation:
    """Made by `PostgresStore`, whose connections it shares."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def advance(self, token: AttemptToken, point: RecoveryPoint) -> Progress | None:
        key = token.key
        rows = await self._calls.fetch(PROGRESS, "advance", key.scope_id, key.key, token.owner, point.label, point.data)
        return Progress(rows[0]["attempt"], point, rows[0]["lease_left"]) if rows else None

    async def progress(self, token: AttemptToken) -> Progress | None:
        rows = await self._calls.fetch(PROGRESS, "progress", token.key.scope_id, token.key.key, token.owner)
        if not rows:
            return None
        (row,) = rows
        label = row["recovery_point"]
        point = None if label is None else RecoveryPoint(label, row["recovery_data"])
        return Progress(row["attempt"], point, row["lease_left"])

    async def register(self, participants: Sequence[Participant]) -> None:
        if not participants:
            return
        rows = (
            (
                one.route_id,
                one.lease,
                one.retention.seconds,
                one.retention.gone_for,
                one.retention.keep_for,
                one.longest_answer,
                one.co_commit,
            )
            for one in participants
        )
        await self._calls.fetch(PROGRESS, "register_participants", *columns(rows))
