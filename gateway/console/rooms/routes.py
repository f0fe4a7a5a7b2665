"""The route map in force, as it was understood."""

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from gateway.config import redact
from gateway.config.mistakes import Mistake
from gateway.console.rooms.now import read_figures
from gateway.console.visits import Visit

_BRIEF = ("id", "path", "methods", "hosts", "upstream", "policy")


async def show_routes(visit: Visit) -> web.Response:
    """Each route with its resolved settings, what `check` warns of, and what requests came to since the start."""
    plain: Mapping[str, Any] = redact(visit.console.config())
    figures = await read_figures(visit)
    found = visit.console.config().warnings
    routes = [
        _told(route, figures.decisions(route["id"]), [warning for warning in found if place(warning).startswith(f"routes[{index}].")])
        for index, route in enumerate(plain["routes"])
    ]
    general = [warning for warning in found if not place(warning).startswith("routes[")]
    return await visit.page("routes.html", routes=routes, warnings=general, place=place)


def place(warning: Mistake) -> str:
    """Which setting it is about."""
    return "" if warning.place is None else str(warning.place.path)


def _told(route: Mapping[str, Any], decisions: Mapping[str, int], warnings: Sequence[Mistake]) -> dict[str, object]:
    policy = route["policy"]
    settings = flat(policy or {})
    settings += flat({name: value for name, value in route.items() if name not in _BRIEF and value is not None})
    return {**route, "decisions": decisions, "warnings": warnings, "settings": settings}


def flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as lines: the name with dots, and the value as a text. What is not set is left out."""
    lines: list[tuple[str, str]] = []
    for name, value in settings.items():
        match value:
            case None | "" | []:
                continue
            case dict():
                lines += flat(value, f"{prefix}{name}.")
            case list() if all(not isinstance(item, dict | list) for item in value):
                lines.append((prefix + name, ", ".join(map(_text, value))))
            case list():
                lines += flat({f"{name}[{index}]": item for index, item in enumerate(value)}, prefix)
            case _:
                lines.append((prefix + name, _text(value)))
    return lines


def _text(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case float() if value.is_integer():
            return str(int(value))
        case _:
            return str(value)
