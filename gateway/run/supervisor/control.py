"""Talking to a worker's private admin listener."""

from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson

READINESS_TIMEOUT = 2.0
METRICS_TIMEOUT = 5.0
RELOAD_TIMEOUT = 30.0


class Unreachable(Exception):
    """The worker does not answer, or not as expected. `str()` says how, for people."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    document: dict[str, object]


async def failing_checks(socket: Path) -> dict[str, str]:
    """The worker's failing readiness checks, by name. Raises `Unreachable`."""
    answer = await _ask(socket, "GET", "/readyz", READINESS_TIMEOUT)
    checks = answer.document.get("checks")
    if answer.status == 200:
        return {}
    failing = {str(name): str(text) for name, text in checks.items() if text != "ok"} if isinstance(checks, dict) else {}
    return failing or {"readyz": f"status {answer.status}"}


async def prepare(socket: Path, packed: bytes) -> tuple[str, ...]:
    """Have the worker make ready for a configuration; returns what speaks against it. Raises `Unreachable`."""
    return _errors(await _ask(socket, "POST", "/worker/prepare", RELOAD_TIMEOUT, packed))


async def adopt(socket: Path) -> tuple[str, ...]:
    """Have the worker put what it prepared into force; returns why it cannot. Raises `Unreachable`."""
    return _errors(await _ask(socket, "POST", "/worker/adopt", RELOAD_TIMEOUT))


async def abandon(socket: Path) -> None:
    """Tell the worker that a configuration was refused. Raises `Unreachable`."""
    await _ask(socket, "POST", "/worker/abandon", RELOAD_TIMEOUT)


async def metrics(socket: Path) -> bytes:
    """What the worker counts, packed. Raises `Unreachable`."""
    status, body = await _exchange(socket, "GET", "/worker/metrics", METRICS_TIMEOUT)
    if status != 200:
        raise Unreachable(f"status {status}")
    return body


def _errors(answer: _Answer) -> tuple[str, ...]:
    errors = answer.document.get("errors")
    if answer.status == 200 or (isinstance(errors, list) and errors):
        return tuple(map(str, errors)) if isinstance(errors, list) else ()
    return (f"status {answer.status}",)


async def _ask(socket: Path, method: str, path: str, timeout: float, body: bytes = b"") -> _Answer:
    status, raw = await _exchange(socket, method, path, timeout, body)
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Unreachable(type(error).__name__) from error
    if not isinstance(document, dict):
        raise Unreachable("the answer is no JSON object")
    return _Answer(status, document)


async def _exchange(socket: Path, method: str, path: str, timeout: float, body: bytes = b"") -> tuple[int, bytes]:
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)), timeout=aiohttp.ClientTimeout(timeout)) as session,
            session.request(method, f"http://worker{path}", data=body) as response,
        ):
            return response.status, await response.read()
    except TimeoutError:
        raise Unreachable(f"no answer within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise Unreachable(type(error).__name__) from error
