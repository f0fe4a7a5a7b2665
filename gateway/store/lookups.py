"""What a DSN refers to, as it is now: the environment, a service, a password file, the addresses of a name."""

import asyncio
import getpass
import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path

from gateway.core.conninfo import Conninfo, DsnError, Target, complete, parse_dsn
from gateway.core.conninfo_files import password_of, service_of


def looked_up(dsn: str) -> Conninfo:
    """Raises `DsnError`, also for a service that no file has."""
    parameters = parse_dsn(dsn)
    environment = dict(os.environ)
    name = parameters.get("service") or environment.get("PGSERVICE")
    return complete(parameters, _service(name, parameters, environment) if name else {}, environment)


async def resolved(info: Conninfo) -> list[Target]:
    """The places to try. Where a name has several addresses, and the DSN says what the right server is, each address is a place, too:
    the driver would take the first that listens. The name comes first, since certificates and proxies may ask for it.
    """
    found: list[Target] = []
    for target in info.targets:
        found.append(target)
        if info.wanted in {"primary", "read-write"} and target.is_name and target.host != "localhost":
            found += await _addresses(target)
    return found


async def _addresses(target: Target) -> list[Target]:
    """None for a name that has only one, or that cannot be looked up: the driver says what is wrong with it."""
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    addresses = [Target(str(address[0]), target.port) for *_, address in infos]
    return list(dict.fromkeys(addresses)) if len(set(addresses)) > 1 else []


def password_for(info: Conninfo, target: Target) -> str | None:
    """What the password file has for a host; None where the DSN has the password, or nothing has. A file that others may read is left
    alone, as libpq leaves it.
    """
    if info.parameters.get("password"):
        return None
    path = Path(info.passfile) if info.passfile else _home(".pgpass")
    user = info.parameters.get("user") or getpass.getuser()
    try:
        if path is None or path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return None
        text = path.read_text("utf-8")
    except OSError:
        return None
    return password_of(text, target, info.parameters.get("dbname") or user, user)


def _service(name: str, parameters: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    own = parameters.get("servicefile") or environment.get("PGSERVICEFILE")
    files = [Path(own) if own else _home(".pg_service.conf")]
    if folder := environment.get("PGSYSCONFDIR"):
        files.append(Path(folder) / "pg_service.conf")
    for file in files:
        try:
            text = "" if file is None else file.read_text("utf-8")
        except OSError:
            continue
        if (found := service_of(text, name)) is not None:
            return found
    raise DsnError("the service that the DSN or PGSERVICE names is in no service file")


def _home(name: str) -> Path | None:
    try:
        return Path.home() / name
    except RuntimeError:
        return None
