"""From templates to answers. Templates escape by themselves; pages carry the security headers and are never kept by caches."""

import asyncio
import datetime as dt
import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path

import jinja2
from aiohttp import web

from gateway.console import concealing, words
from gateway.console.security import LASTING, PRIVATE
from gateway.core.visible import visible
from gateway.operate.operations import record_id_text, short_id_text

_HERE = Path(__file__).parent
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class _Static:
    """The files of static/, each with a digest that is a part of its address: a new release is a new address."""

    def __init__(self) -> None:
        files = sorted((_HERE / "static").iterdir())
        self.content = {path.name: path.read_bytes() for path in files if path.suffix in _TYPES}
        self.digest = {name: urlsafe_b64encode(hashlib.sha256(content).digest())[:12].decode() for name, content in self.content.items()}


_STATIC = _Static()


def _address(name: str) -> str:
    return f"/console/static/{_STATIC.digest[name]}/{name}"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_seen,
    )
    environment.filters.update(
        instant=_instant,
        machine=_machine,
        state=words.state_of,
        state_words=lambda state: words.STATE_WORDS.get(state, state),
        reason_words=words.reason_words,
        next_step=words.next_step,
        ago=words.ago,
        duration=words.duration,
        record_id=record_id_text,
        short_id=short_id_text,
        fields=concealing.fields,
        target=concealing.target,
        typed=_Typed,
    )
    environment.globals.update(static=_address, STATES=words.STATE_WORDS)
    return environment


class _Typed(str):
    """What stands in a field of a form, to be sent again: as it was typed, or found."""

    __slots__ = ()


def _seen(value: object) -> object:
    """Of what a page says, each text with nothing unseen in it. Lines of bodies stay lines."""
    return visible(value, "\n\t") if type(value) is str else value


def _instant(at: dt.datetime) -> str:
    """For people: in UTC, to the second."""
    return at.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _machine(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_ENVIRONMENT = _environment()


def static_file(request: web.Request) -> web.Response:
    """A file of static/. Raises 404 for any other name and any other digest."""
    name, digest = request.match_info["name"], request.match_info["digest"]
    if _STATIC.digest.get(name) != digest:
        raise web.HTTPNotFound
    return web.Response(body=_STATIC.content[name], content_type=_TYPES[Path(name).suffix], charset="utf-8", headers=LASTING)


async def page(template: str, status: int = 200, **values: object) -> web.Response:
    """A page. It is made in a thread: a long one takes milliseconds, and the loop has clients of the proxy waiting."""
    text = await asyncio.to_thread(_ENVIRONMENT.get_template(template).render, values)
    return web.Response(text=text, status=status, content_type="text/html", charset="utf-8", headers=PRIVATE)


def leave(address: str) -> web.Response:
    """On to a page of another origin, after a form. A redirect would be the form's, and `form-action` lets no form lead there."""
    return web.Response(text="One moment.\n", headers={**PRIVATE, "Refresh": f"0; url={address}"})


def go(address: str, status: int = 303, headers: Mapping[str, str] | None = None) -> web.Response:
    """On to another page (Post/Redirect/Get). `address` is a path of ours."""
    return web.Response(status=status, headers={**PRIVATE, **(headers or {}), "Location": address})
