"""Talking to a worker's private admin listener."""

from dataclasses import dataclass
from pathlib import Path

import aiohttp
import orjson

READINESS_TIMEOUT = 2.0
CONFIG_TIMEOUT = 5.0
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


async def config(socket: Path) -> dict[str, object]:
    """The configuration that the worker uses. Raises `Unreachable`."""
    answer = await _ask(socket, "GET", "/admin/v1/config", CONFIG_TIMEOUT)
    if answer.status != 200:
        raise Unreachable(f"status {answer.status}")
    return answer.document


async def reload(socket: Path) -> tuple[str, ...]:
    """Have the worker read its configuration again; returns its mistakes. Raises `Unreachable`."""
    answer = await _ask(socket, "POST", "/admin/v1/reload", RELOAD_TIMEOUT)
    if answer.status == 200:
        return ()
    errors = answer.document.get("errors")
    if isinstance(errors, list) and errors:
        return tuple(map(str, errors))
    return (str(answer.document.get("detail", f"status {answer.status}")),)


async def _ask(socket: Path, method: str, path: str, timeout: float) -> _Answer:
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)), timeout=aiohttp.ClientTimeout(timeout)) as session,
            session.request(method, f"http://worker{path}") as response,
        ):
            document = orjson.loads(await response.read())
    except TimeoutError:
        raise Unreachable(f"no answer within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError, orjson.JSONDecodeError) as error:
        raise Unreachable(type(error).__name__) from error
    if not isinstance(document, dict):
        raise Unreachable("the answer is no JSON object")
    return _Answer(response.status, document)
