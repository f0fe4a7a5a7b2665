"""The texts of libpq's files: services (`pg_service.conf`) and passwords (`.pgpass`). Pure."""

import re
from collections.abc import Iterator

from gateway.core.conninfo import DsnError, Target, named

_FIELDS = re.compile(r"((?:[^:\\]|\\.)*):((?:[^:\\]|\\.)*):((?:[^:\\]|\\.)*):((?:[^:\\]|\\.)*):((?:[^\\:]|\\.)*).*")


def service_of(text: str, name: str) -> dict[str, str] | None:
    """The parameters of a service in the text of a service file; None if it has no such service. Raises `DsnError`."""
    section, found = None, None
    for line in _lines(text):
        if line.startswith("["):
            section = line[1:].partition("]")[0]
            if section == name and found is None:
                found = dict[str, str]()
        elif section == name and found is not None:
            key, equals, value = line.partition("=")
            if not equals or key.strip() == "service":
                raise DsnError("the service file has a line that is no name=value")
            found = {**named(key.strip(), value.strip()), **found}
    return found


def password_of(text: str, target: Target, database: str, user: str) -> str | None:
    """The password that the text of a password file has for a host: the first line that fits decides."""
    hosts = {"localhost"} if target.host is None else {target.host, *({"localhost"} if target.host.startswith("/") else ())}
    wanted = (hosts, {str(target.port)}, {database}, {user})
    for line in _lines(text):
        found = _FIELDS.fullmatch(line)
        if found is None:
            continue
        *fields, password = (re.sub(r"\\(.)", r"\1", field) for field in found.groups())
        if all(field == "*" or field in values for field, values in zip(fields, wanted, strict=True)):
            return password or None
    return None


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.strip() and not line.strip().startswith("#"):
            yield line.strip()
