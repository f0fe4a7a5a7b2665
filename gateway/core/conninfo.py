"""What a Postgres DSN says, in each spelling that libpq reads: a URI or keywords and values, one host or several, completed by a service
and by the environment. Pure. No message repeats a value: any part of a DSN that was misread may be of its password.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import quote, unquote, urlencode

Parameters: TypeAlias = Mapping[str, str]
"""Values by libpq's names for them."""

Wanted: TypeAlias = Literal["any", "primary", "read-write"]

PORT = 5432
SHAPE = "a Postgres DSN looks like postgresql://user:password@host:5432/database, or with several hosts host1:5432,host2:5432"

ENVIRONMENT: Mapping[str, str] = {
    "PGHOST": "host",
    "PGHOSTADDR": "hostaddr",
    "PGPORT": "port",
    "PGDATABASE": "dbname",
    "PGUSER": "user",
    "PGPASSWORD": "password",
    "PGPASSFILE": "passfile",
    "PGSERVICE": "service",
    "PGOPTIONS": "options",
    "PGTARGETSESSIONATTRS": "target_session_attrs",
    "PGLOADBALANCEHOSTS": "load_balance_hosts",
    "PGCONNECT_TIMEOUT": "connect_timeout",
    "PGCHANNELBINDING": "channel_binding",
    "PGGSSENCMODE": "gssencmode",
    "PGREQUIREAUTH": "require_auth",
    "PGREQUIREPEER": "requirepeer",
}
"""Variables that the driver does not read itself as libpq does. It reads those about TLS."""

_URI = re.compile(
    r"postgres(?:ql)?://(?:(?P<login>(?:[^/?]|\?(?![^/?@]*=))*)@)?(?P<hosts>[^/?]*)(?:/(?P<dbname>[^?]*))?(?:\?(?P<query>.*))?", re.DOTALL
)
_HOST = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|(?P<name>[^:\[\]]*))(?::(?P<port>[0-9]*))?", re.ASCII)
_WORD = re.compile(
    r"\s*(?P<name>[A-Za-z_][\w.]*)\s*=\s*(?:'(?P<quoted>(?:[^'\\]|\\.)*)'(?=\s|\Z)|(?P<bare>(?:(?:[^\s'\\]|\\.)(?:[^\s\\]|\\.)*)?))",
    re.ASCII | re.DOTALL,
)
_IGNORED = frozenset(
    {
        "client_encoding",
        "fallback_application_name",
        "gssdelegation",
        "gssencmode",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
        "max_protocol_version",
        "min_protocol_version",
        "sslcertmode",
        "sslcompression",
        "sslsni",
        "service",
        "servicefile",
        "tcp_user_timeout",
    }
)
"""What the driver would send to the server as a setting, and is of no use here. Each call of ours has a deadline of its own."""

_DEMANDS: Mapping[str, frozenset[str]] = {
    "channel_binding": frozenset({"", "prefer", "disable"}),
    "gssencmode": frozenset({"", "prefer", "disable"}),
    "sslcertmode": frozenset({"", "allow", "disable"}),
    "hostaddr": frozenset({""}),
    "replication": frozenset({"", "false", "off", "no", "0"}),
    "require_auth": frozenset({""}),
    "requirepeer": frozenset({""}),
    "sslcrldir": frozenset({""}),
}
"""What asks for something that the driver cannot do, unless it has one of these values."""


class DsnError(ValueError):
    """A DSN that cannot be used. The message is for people, and holds no part of it."""


@dataclass(frozen=True, slots=True)
class Target:
    """One place where a server may be. `host` None: the driver's own choice, the sockets of this machine."""

    host: str | None
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.host is not None and ":" in self.host else f"{self.host or 'localhost'}:{self.port}"

    @property
    def is_name(self) -> bool:
        """Whether a resolver has to say which address that is."""
        return self.host is not None and not self.host.startswith("/") and ":" not in self.host and not re.fullmatch(r"[0-9.]+", self.host)


@dataclass(frozen=True, slots=True)
class Conninfo:
    """`targets` in order. `wanted` is what a server must be to count, None if the DSN leaves that to us; `balanced`: any order will do.
    `parameters` are the others, for the driver.
    """

    targets: tuple[Target, ...]
    wanted: Wanted | None
    balanced: bool
    connect_timeout: float | None
    passfile: str
    parameters: Parameters

    def dsn(self, target: Target, wanted: Wanted, password: str | None) -> str:
        """What the driver is told, for one host. `password` counts where the DSN holds none."""
        told = {"target_session_attrs": wanted, "port": str(target.port), **({} if password is None else {"password": password})}
        told |= {name: value for name, value in self.parameters.items() if value}
        if target.host is not None:
            told["host"] = f"[{target.host}]" if ":" in target.host else target.host
        return f"postgresql://?{urlencode(told, quote_via=quote, safe='')}"


def parse_dsn(text: str) -> dict[str, str]:
    """The parameters that a DSN itself names. Raises `DsnError`."""
    if "\0" in text:
        raise DsnError(SHAPE)
    found = _URI.fullmatch(text)
    parameters = _of_uri(found) if found is not None else _of_words(text)
    if any("\0" in value for value in parameters.values()):
        raise DsnError(SHAPE)
    return parameters


def complete(dsn: Parameters, service: Parameters, environment: Mapping[str, str]) -> Conninfo:
    """What a DSN means together with the service that it or the environment names. Raises `DsnError`."""
    outer = {name: environment[variable] for variable, name in ENVIRONMENT.items() if environment.get(variable)}
    parameters = {**outer, **service, **dsn}
    for name, harmless in _DEMANDS.items():
        if parameters.pop(name, "") not in harmless:
            raise DsnError(f"{name}: the gateway's Postgres driver cannot do that; leave it out")
    targets = tuple(_targets(parameters.pop("host", ""), parameters.pop("port", "")))
    wanted = _wanted(parameters.pop("target_session_attrs", ""))
    balance = parameters.pop("load_balance_hosts", "") or "disable"
    if balance not in {"disable", "random"}:
        raise DsnError("load_balance_hosts is disable or random")
    limit = parameters.pop("connect_timeout", "") or "0"
    if not re.fullmatch(r"-?[0-9]{1,6}", limit):
        raise DsnError("connect_timeout is a whole number of seconds")
    passfile = parameters.pop("passfile", "")
    kept = {name: value for name, value in parameters.items() if name not in _IGNORED}
    return Conninfo(targets, wanted, balance == "random", float(limit) if int(limit) > 0 else None, passfile, kept)


def _of_uri(found: re.Match[str]) -> dict[str, str]:
    user, _, password = (found["login"] or "").partition(":")
    hosts = [_HOST.fullmatch(text) for text in found["hosts"].split(",")]
    if not all(hosts):
        raise DsnError(SHAPE)
    parts = [(unquote(host["v6"] or host["name"] or ""), host["port"] or "") for host in hosts if host is not None]
    named_first = {
        "user": unquote(user),
        "password": unquote(password),
        "host": _listed(host for host, _ in parts),
        "port": _listed(port for _, port in parts),
        "dbname": unquote(found["dbname"] or ""),
    }
    parameters = {name: value for name, value in named_first.items() if value}
    for pair in filter(None, (found["query"] or "").split("&")):
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise DsnError(SHAPE)
        parameters |= named(unquote(name), unquote(value))
    return parameters


def _listed(values: Iterable[str]) -> str:
    """With commas between them; empty if all are."""
    listed = ",".join(values)
    return listed if listed.strip(",") else ""


def _of_words(text: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    at = 0
    while at < len(text.rstrip()):
        found = _WORD.match(text, at)
        if found is None:
            raise DsnError(SHAPE)
        value = found["quoted"] if found["quoted"] is not None else found["bare"] or ""
        parameters |= named(found["name"], re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL))
        at = found.end()
    if not parameters:
        raise DsnError(SHAPE)
    return parameters


def named(name: str, value: str) -> dict[str, str]:
    """`ssl=true` is JDBC's, and libpq's in URIs; `database` is the driver's."""
    if name == "ssl" and value == "true":
        return {"sslmode": "require"}
    return {"dbname" if name == "database" else name: value}


def _targets(hosts: str, ports: str) -> Iterator[Target]:
    """Ports are as many as hosts, or one for all."""
    names = hosts.split(",")
    numbers = ports.split(",")
    if len(numbers) == 1:
        numbers *= len(names)
    if len(numbers) != len(names):
        raise DsnError("there are as many ports as hosts, or one port for all hosts")
    for name, number in zip(names, numbers, strict=True):
        if not re.fullmatch(r"[0-9]{0,5}", number, re.ASCII) or not 0 < int(number or PORT) <= 65535:
            raise DsnError(SHAPE)
        if name.startswith("@"):
            raise DsnError("the gateway's Postgres driver cannot use an abstract socket; name its folder")
        yield Target(name.strip() or None, int(number or PORT))


def _wanted(text: str) -> Wanted | None:
    match text:
        case "":
            return None
        case "any" | "primary" | "read-write":
            return text
        case "standby" | "read-only" | "prefer-standby":
            raise DsnError("target_session_attrs asks for a server that cannot be written; the gateway needs read-write")
        case _:
            raise DsnError("target_session_attrs is any, primary or read-write")
