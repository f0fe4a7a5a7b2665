"""Who may use the API of a listener without a token: programs of this machine, and not what pages of others have its browsers send.

A browser reaches loopback for any page. If a name of the page's own resolves to 127.0.0.1 (DNS rebinding), the page may even read the
answers: only `Host` tells. And a plain POST goes out to every origin unasked: only `Origin` tells.
"""

import re

from aiohttp import web

from gateway.config import TcpListener
from gateway.operate.admin.responses import problem

_READS = frozenset({"GET", "HEAD"})
_AUTHORITY = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:]+))(?::[0-9]*)?")
_DEFAULT_PORT = {"http": ":80", "https": ":443"}


def refused(request: web.Request, *, page: bool = False) -> web.Response | None:
    """The answer to a request that no program of this machine makes by itself; None for all others. `page`: it is for a page of ours, to
    which one of another port of this machine may link.

    Over TCP `Host` must name loopback, which is all that such a listener listens on. No page reaches a Unix socket, whose clients write
    what they like there.
    """
    if not _over_unix(request) and not _names_loopback(request.headers.getall("Host", [])):
        return problem(421, "Without a token this API is for this machine alone: use localhost or 127.0.0.1, or set admin.token.")
    if _of_others(request, page=page) or (request.method not in _READS and _foreign(request)):
        return problem(403, "Pages of other origins have no business here. Send this without Origin, or set admin.token.")
    return None


def _over_unix(request: web.Request) -> bool:
    return isinstance(request.get_extra_info("sockname"), str | bytes)


def _names_loopback(hosts: list[str]) -> bool:
    found = _AUTHORITY.fullmatch(hosts[0]) if len(hosts) == 1 else None
    return found is not None and TcpListener((found[1] or found[2]).lower(), 0).loopback


def _foreign(request: web.Request) -> bool:
    """Programs send no Origin; a browser always does with a POST or DELETE."""
    own = _origin(f"{request.scheme}://{request.headers.get('Host', '')}")
    origins = request.headers.getall("Origin", [])
    return any(_origin(origin) != own for origin in origins)


def _of_others(request: web.Request, *, page: bool) -> bool:
    """What a browser says of every request that another page than ours makes or links to. A read of the API may write a line of the audit.
    All ports of a host are one site.
    """
    said = request.headers.get("Sec-Fetch-Site")
    return said == "cross-site" or (said == "same-site" and not page)


def _origin(text: str) -> str:
    """One spelling of an origin: a browser leaves the scheme's own port out."""
    text = text.lower()
    return text.removesuffix(_DEFAULT_PORT.get(text.partition("://")[0], ""))
