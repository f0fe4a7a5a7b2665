"""A configuration as plain data for people, without its secrets."""

import dataclasses
import enum
import re
from collections.abc import Mapping
from typing import Any

from gateway.config.addresses import Network, TcpListener, UnixListener
from gateway.config.mistakes import Mistake
from gateway.config.model import Config
from gateway.core.reconcile.policy import Probe
from gateway.core.redaction import redact_text

HIDDEN = "***"
_URL = re.compile(r"(?P<scheme>[a-z]+)://(?:(?P<user>[^@/?#]*)@)?(?P<host>[^@/?#]*)(?P<path>[^@?#]*)(?:[?#][^@]*)?")


def redact(config: Config) -> dict[str, object]:
    """What JSON can carry: durations in seconds, sizes in bytes, sets sorted.

    What is kept out of a `repr` is a secret, and `***`; of a URL that holds one, scheme, host and path stay if they can
    be told from the secret without doubt. So is the value of a query's parameter that opens doors, by its name.
    """
    return _members(config)


def _field(owner: object, field: "dataclasses.Field[Any]") -> object:
    value = getattr(owner, field.name)
    return _plain(value) if field.repr or value is None else _hide(value)


def _members(owner: Any) -> dict[str, object]:
    return {field.name: _field(owner, field) for field in dataclasses.fields(owner)}


def _hide(value: object) -> object:
    """Of several secrets each, and of named ones (header fields) not the names."""
    if isinstance(value, tuple):
        return [[item[0], HIDDEN] if isinstance(item, tuple) else HIDDEN for item in value]
    return _hide_one(value)


def _hide_one(value: object) -> str:
    """User, password, query and fragment may all hold a credential. A password may hold a bare `/`, `?`, `#` or `@`:
    then all is hidden.
    """
    found = _URL.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return HIDDEN
    user = f"{HIDDEN}@" if found["user"] is not None else ""
    return f"{found['scheme']}://{user}{found['host']}{found['path']}"


def _plain(value: object) -> object:
    match value:
        case TcpListener() | UnixListener() | Mistake():
            return str(value)
        case enum.Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return redact_text(value) if isinstance(value, str) else value
        case frozenset():
            return sorted(value)
        case tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case _ if dataclasses.is_dataclass(value):
            kind = {"kind": type(value).__name__.lower()} if isinstance(value, Probe) else {}
            return {**kind, **_members(value)}
        case _:
            assert isinstance(value, Network)
            return str(value)
