"""What every answer of the admin listener looks like: JSON, or a problem document (RFC 9457)."""

import datetime as dt
from collections.abc import Mapping
from email.utils import format_datetime

import orjson
from aiohttp import web

_TITLES: Mapping[int, str] = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    409: "Conflict",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


def answer(document: object, status: int = 200) -> web.Response:
    """`document` as JSON for people and programs alike."""
    body = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    return web.Response(body=body, status=status, content_type="application/json", headers={"Cache-Control": "no-store"})


def problem(status: int, detail: str, **members: object) -> web.Response:
    """A problem with the type about:blank: these mean what their status says, unlike the answers that clients of the API get."""
    document = {"type": "about:blank", "title": _TITLES.get(status, "Error"), "status": status, "detail": detail, **members}
    body = orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)
    return web.Response(body=body, status=status, content_type="application/problem+json", headers={"Cache-Control": "no-store"})


def http_date(at: dt.datetime) -> str:
    """An instant as an IMF-fixdate (RFC 9110 section 5.6.7), a started second counted as whole."""
    utc = at.astimezone(dt.UTC)
    return format_datetime(utc.replace(microsecond=0) + dt.timedelta(seconds=1 if utc.microsecond else 0), usegmt=True)
