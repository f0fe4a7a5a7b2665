"""What a Redis URL names: one server, the primary that Sentinels know by a name, or a cluster. Pure.

    redis://user:password@host:6379/0                    rediss:// for TLS, unix:///path for a socket
    redis+sentinel://user:password@host1,host2:26380/0?master=name      rediss+sentinel://
    redis+cluster://user:password@host1,host2:6380                      rediss+cluster://

User, password, database and options are those of the servers that hold entries. Sentinels have their own login
(`sentinel_username`, `sentinel_password`), and TLS where the servers have it. No message repeats a text of the URL.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import parse_qsl, quote, urlencode

from gateway.core.texts import parse_url

FORMS = (
    "a Redis URL looks like redis://host:6379/0, rediss://host:6379/0, unix:///run/redis.sock, "
    "redis+sentinel://host1,host2/0?master=name or redis+cluster://host1,host2"
)

Host: TypeAlias = tuple[str, int]
"""A name or an address without brackets, and a port."""

_SINGLE = frozenset({"redis", "rediss", "unix"})
_SENTINEL_PORT = 26379
_PORT = 6379
_PARTS = re.compile(
    r"(?P<tls>rediss?)\+(?P<kind>sentinel|cluster)://(?:(?P<login>[^/?#]*)@)?(?P<hosts>[^@/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?"
)
_PATH = re.compile(r"/?(?P<database>\d{0,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class OneServer:
    """`url` as drivers read it."""

    url: str


@dataclass(frozen=True, slots=True)
class Server:
    """A URL without the host. `at` fills it in."""

    scheme: str
    login: str
    path: str
    query: str

    def at(self, host: Host) -> str:
        """The URL of one server, as drivers read it."""
        login = f"{self.login}@" if self.login else ""
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{login}{spelled(host)}{self.path}{query}"


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """`hosts` are those of the Sentinels; `sentinel` and `primary` are how one of each is reached."""

    hosts: tuple[Host, ...]
    master: str
    sentinel: Server
    primary: Server


@dataclass(frozen=True, slots=True)
class ClusterUrl:
    """`hosts` are nodes that are asked for the others; `node` is how one is reached."""

    hosts: tuple[Host, ...]
    node: Server


RedisUrl: TypeAlias = OneServer | SentinelUrl | ClusterUrl


def parse_redis_url(text: str) -> RedisUrl:
    """What a URL names. Raises ValueError with the remedy."""
    found = _PARTS.fullmatch(text)
    if found is None:
        url = parse_url(text)
        if url is None or url.scheme not in _SINGLE:
            raise ValueError(FORMS)
        return OneServer(text)
    options = dict(parse_qsl(found["query"] or "", keep_blank_values=True))
    login, tls = found["login"] or "", found["tls"]
    path = _PATH.fullmatch(found["path"] or "")
    if path is None:
        raise ValueError("the path of a Redis URL is the number of a database, as in /0")
    if found["kind"] == "cluster":
        if (options.pop("db", None) or path["database"] or "0").strip("0"):
            raise ValueError("a Redis Cluster has no database but 0")
        return ClusterUrl(_hosts(found["hosts"], _PORT), Server(tls, login, "", urlencode(options)))
    master = options.pop("master", "")
    if not master:
        raise ValueError("Sentinels know several primaries: name yours, as in redis+sentinel://host1,host2/0?master=name")
    user, password = options.pop("sentinel_username", ""), options.pop("sentinel_password", "")
    own = f"{quote(user, safe='')}:{quote(password, safe='')}" if user or password else ""
    sentinel = Server(tls, own, "", urlencode(_of_the_connection(options)))
    return SentinelUrl(
        _hosts(found["hosts"], _SENTINEL_PORT), master, sentinel, Server(tls, login, f"/{path['database']}", urlencode(options))
    )


def spelled(host: Host) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host[0]}]:{host[1]}" if ":" in host[0] else f"{host[0]}:{host[1]}"


def _hosts(text: str, port: int) -> tuple[Host, ...]:
    hosts: list[Host] = []
    for one in text.split(","):
        url = parse_url(f"redis://{one}")
        if url is None or not url.hostname or url.username is not None:
            raise ValueError(FORMS)
        hosts.append((url.hostname, url.port or port))
    return tuple(hosts)


def _of_the_connection(options: Mapping[str, str]) -> dict[str, str]:
    """Those that are about TCP and TLS, and not about what is stored."""
    return {name: value for name, value in options.items() if name.startswith(("ssl_", "socket_")) or name == "client_name"}
