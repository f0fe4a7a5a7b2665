"""A configuration as plain data for people, without its secrets."""

import dataclasses
import enum
import re
from collections.abc import Mapping
from typing import Any

from gateway.config.mistakes import Mistake
from gateway.config.model import Config, Network, TcpListener, UnixListener
from gateway.core.policy import JwksUrl, JwtSecret

HIDDEN = "***"
_SECRETS = frozenset({(JwtSecret, "secret"), (JwksUrl, "url")})
"""Fields of the core, which marks none itself."""
_URL = re.compile(r"(?P<scheme>[a-z]+)://(?:(?P<user>[^@/?#]*)@)?(?P<host>[^@/?#]*)(?P<path>[^@?#]*)(?:[?#][^@]*)?")


def redact(config: Config) -> dict[str, object]:
    """What JSON can carry: durations in seconds, sizes in bytes, sets sorted.

    A secret is `***`; of a URL that holds one, scheme, host and path stay if they can be told from the secret without doubt.
    """
    return {field.name: _field(config, field) for field in dataclasses.fields(config)}


def _field(owner: object, field: "dataclasses.Field[Any]") -> object:
    value = getattr(owner, field.name)
    if value is not None and (field.metadata.get("secret") or (type(owner), field.name) in _SECRETS):
        return _hide(value)
    return _plain(value)


def _hide(value: str | bytes) -> str:
    """User, password, query and fragment may all hold a credential. A password may hold a bare `/`, `?`, `#` or `@`: then all is hidden."""
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
            return value
        case frozenset():
            return sorted(value)
        case tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case _ if dataclasses.is_dataclass(value):
            return {field.name: _field(value, field) for field in dataclasses.fields(value)}
        case _:
            assert isinstance(value, Network)
            return str(value)
