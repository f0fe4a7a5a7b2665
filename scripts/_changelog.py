"""The changelog by version: what is unreleased becomes a version's. Needs the standard library alone."""

import datetime as dt
import re

UNRELEASED = "## Unreleased\n"
_VERSION = re.compile(r"(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*)){2}", re.ASCII)
_RELEASED = re.compile(r"^## (\d+\.\d+\.\d+) - \d{4}-\d{2}-\d{2}$", re.MULTILINE)


class Refused(Exception):
    """Why there is no such release; `str()` is for whoever wants one."""


def released(text: str) -> list[str]:
    """The versions that the changelog has, the newest first."""
    return _RELEASED.findall(text)


def cut(text: str, version: str, day: dt.date) -> str:
    """The changelog with what was unreleased under this version and day, and an empty *Unreleased* above it. Raises `Refused`."""
    if not _VERSION.fullmatch(version):
        raise Refused(f"{version!r} is no version such as 1.2.3")
    if text.count(f"\n{UNRELEASED}") != 1:
        raise Refused("CHANGELOG.md has not one section *Unreleased*")
    before, _, rest = text.partition(f"\n{UNRELEASED}")
    newest = max((_parts(one) for one in released(text)), default=None)
    if newest is not None and _parts(version) <= newest:
        raise Refused(f"{version} does not come after {'.'.join(map(str, newest))}")
    if not re.search(r"^- ", rest.partition("\n## ")[0], re.MULTILINE):
        raise Refused("nothing is unreleased")
    return f"{before}\n{UNRELEASED}\n## {version} - {day.isoformat()}\n{rest}"


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
