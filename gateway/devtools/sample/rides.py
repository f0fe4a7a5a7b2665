"""`python -m gateway.devtools.sample.rides`: the sample's second face, an API that takes part.

`POST /v1/rides` books a ride in its own tables, charges it at a provider (the sample payments API), and writes the receipt. Its worker
process may be killed at any step (`X-Sample-Die`), and a new one takes over. What it is told to do for its recovery:

    --progress URL   tells a recovery point after each step, over HTTP, and resumes at the one that it is told
    --co-commit      commits points and the answer in its own transactions: its tables are in the gateway's database
"""

import argparse
import asyncio
import enum
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import asyncpg
from aiohttp import web

from gateway.devtools.sample.responses import answer, error
from gateway.devtools.sample.workers import supervise
from gateway.participant import Attempt, Superseded, is_superseded

TABLES = """
CREATE TABLE IF NOT EXISTS sample_rides (
    id serial PRIMARY KEY, booked_for text UNIQUE NOT NULL, rider text NOT NULL, amount bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS sample_receipts (ride integer PRIMARY KEY REFERENCES sample_rides, charge text NOT NULL);
CREATE TABLE IF NOT EXISTS sample_ride_attempts (booked_for text NOT NULL, number integer NOT NULL, resumed_at text);
"""
DIE = "X-Sample-Die"


class Die(enum.StrEnum):
    """Where the worker is killed, once: in the first attempt of an operation."""

    AT_ONCE = "at-once"
    BEFORE_RIDE_COMMITS = "before-ride-commits"
    AFTER_RIDE = "after-ride"
    AFTER_CHARGE = "after-charge"
    AFTER_CHARGE_POINT = "after-charge-point"
    BEFORE_RECEIPT_COMMITS = "before-receipt-commits"
    AFTER_COMMIT = "after-commit"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the worker needs. `progress` None: points are not told over HTTP."""

    dsn: str
    provider: str
    progress: str | None
    co_commit: bool


class Ride:
    """One request to book a ride, from wherever the attempts before have stopped."""

    def __init__(self, request: web.Request, body: Mapping[str, Any], attempt: Attempt | None) -> None:
        self.settings = request.app[SETTINGS]
        self.database = request.app[DATABASE]
        self.provider = request.app[PROVIDER]
        self.key = request.headers["Idempotency-Key"]
        self.body = body
        self.attempt = attempt
        self.point = None if attempt is None else attempt.point
        self.known: dict[str, Any] = {} if attempt is None else dict(attempt.data)
        self._dies_at = request.headers.get(DIE) if attempt is None or attempt.number == 1 else None

    async def book(self) -> bytes:
        """The body of the answer. Raises `Superseded`, and asyncpg's errors."""
        await self._note()
        self._die(Die.AT_ONCE)
        if self.point is None:
            await self._create()
        if self.point in {None, "ride_created"}:
            await self._charge()
        return await self._receipt()

    async def _note(self) -> None:
        if self.attempt is not None:
            sql = "INSERT INTO sample_ride_attempts VALUES ($1, $2, $3)"
            await self.database.execute(sql, self.key, self.attempt.number, self.attempt.point)

    async def _create(self) -> None:
        """A ride of the same key is the same ride: without co-commit the point may be lost after the ride is there."""
        async with self.database.acquire() as connection, connection.transaction():
            sql = """
                INSERT INTO sample_rides (booked_for, rider, amount) VALUES ($1, $2, $3)
                ON CONFLICT (booked_for) DO UPDATE SET booked_for = excluded.booked_for RETURNING id
            """
            self.known = {"ride": await connection.fetchval(sql, self.key, self.body["rider"], self.body["amount"])}
            await self._commit_point(connection, "ride_created")
            self._die(Die.BEFORE_RIDE_COMMITS)
        self._die(Die.AFTER_RIDE)
        if not self.settings.co_commit:  # else it is committed with the ride
            await self._tell_point("ride_created")

    async def _charge(self) -> None:
        """The provider deduplicates by the key that both attempts have: this step may be repeated."""
        order = {"account": self.body["rider"], "amount": self.body["amount"], "currency": "EUR"}
        headers = {"Idempotency-Key": self.key, "X-Sample-Deduplicate": "yes"}
        async with self.provider.post(f"{self.settings.provider}/v1/charges", json=order, headers=headers) as response:
            response.raise_for_status()
            self.known["charge"] = (await response.json())["id"]
        self._die(Die.AFTER_CHARGE)
        if not self.settings.progress:
            async with self.database.acquire() as connection:
                await self._commit_point(connection, "charge_created")
        await self._tell_point("charge_created")
        self._die(Die.AFTER_CHARGE_POINT)

    async def _receipt(self) -> bytes:
        body = json.dumps({"id": f"ride_{self.known['ride']:06}", "rider": self.body["rider"], "charge": self.known["charge"]}).encode()
        async with self.database.acquire() as connection, connection.transaction():
            sql = "INSERT INTO sample_receipts VALUES ($1, $2) ON CONFLICT DO NOTHING"
            await connection.execute(sql, self.known["ride"], self.known["charge"])
            if self.settings.co_commit and self.attempt is not None:
                headers = json.dumps([["Content-Type", "application/json"]])
                await connection.execute("SELECT gateway_complete($1, 201, $2, $3)", self.attempt.token, headers, body)
            self._die(Die.BEFORE_RECEIPT_COMMITS)
        self._die(Die.AFTER_COMMIT)
        return body

    async def _commit_point(self, connection: Any, point: str) -> None:
        if self.settings.co_commit and self.attempt is not None:
            await connection.execute("SELECT gateway_advance($1, $2, $3)", self.attempt.token, point, json.dumps(self.known))

    async def _tell_point(self, point: str) -> None:
        if self.settings.progress and self.attempt is not None:
            await asyncio.to_thread(self.attempt.advance, self.settings.progress, point, self.known)

    def _die(self, here: Die) -> None:
        if self._dies_at == here:
            os.kill(os.getpid(), signal.SIGKILL)


SETTINGS = web.AppKey("settings", Settings)
DATABASE: web.AppKey[Any] = web.AppKey("database")
PROVIDER = web.AppKey("provider", aiohttp.ClientSession)


async def create_ride(request: web.Request) -> web.Response:
    try:
        body = json.loads(await request.read())
        if not isinstance(body["rider"], str) or not isinstance(body["amount"], int) or "Idempotency-Key" not in request.headers:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        return error(422, "invalid_field", 'send {"rider": "alice", "amount": 100} and an Idempotency-Key')
    try:
        booked = await Ride(request, body, Attempt.of(request.headers)).book()
    except Superseded:
        return error(409, "superseded", "another attempt has taken over")
    except asyncpg.PostgresError as failure:
        if not is_superseded(failure):
            raise
        return error(409, "superseded", "another attempt has taken over")
    return web.Response(body=booked, status=201, content_type="application/json")


async def list_rides(request: web.Request) -> web.Response:
    """What there is, by key: rides, receipts, and where each attempt began."""
    key = request.query.get("idempotency_key", "")
    database = request.app[DATABASE]
    rides = await database.fetch("SELECT id, rider, amount FROM sample_rides WHERE booked_for = $1", key)
    receipts = await database.fetch(
        "SELECT ride, charge FROM sample_receipts WHERE ride = ANY ($1::integer[])", [ride["id"] for ride in rides]
    )
    sql = "SELECT number, resumed_at FROM sample_ride_attempts WHERE booked_for = $1 ORDER BY number"
    attempts = await database.fetch(sql, key)
    return answer({"rides": [*map(dict, rides)], "receipts": [*map(dict, receipts)], "attempts": [*map(dict, attempts)]})


def build(settings: Settings) -> web.Application:
    app = web.Application()
    app[SETTINGS] = settings
    app.cleanup_ctx.append(_connected)
    app.router.add_post("/v1/rides", create_ride)
    app.router.add_get("/v1/rides", list_rides)
    return app


async def _connected(app: web.Application) -> AsyncIterator[None]:
    async with asyncpg.create_pool(app[SETTINGS].dsn, min_size=1, max_size=4) as pool, aiohttp.ClientSession() as session:
        await pool.execute(TABLES)
        app[DATABASE], app[PROVIDER] = pool, session
        yield


async def _work(settings: Settings, listening: socket.socket) -> None:
    runner = web.AppRunner(build(settings), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()
    finally:
        await runner.cleanup()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m gateway.devtools.sample.rides", description="A sample API that takes part.")
    parser.add_argument("--port", type=int, default=8001, help="port to listen on (default: %(default)s)")
    parser.add_argument("--provider", required=True, help="URL of the sample payments API")
    parser.add_argument("--progress", help="URL of the gateway's progress listener")
    parser.add_argument("--co-commit", action="store_true", help="complete records in transactions of its own")
    options = parser.parse_args()
    settings = Settings(os.environ["GATEWAY_POSTGRES_DSN"], options.provider, options.progress, options.co_commit)
    try:
        return supervise(options.port, lambda listening: asyncio.run(_work(settings, listening)))
    except OSError as failure:
        print(f"sample rides API: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
