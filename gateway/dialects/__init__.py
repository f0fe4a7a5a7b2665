"""The dialects that come with the gateway: one commented YAML file each, named as the dialect is. `gateway.core.dialect` reads them.

A file of a user's own, beside the configuration, has the same form.
"""

from functools import cache
from importlib import resources

SUFFIX = ".yaml"


@cache
def names() -> tuple[str, ...]:
    """The names of all dialects, in order."""
    files = (entry.name for entry in resources.files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in files if name.endswith(SUFFIX)))


def text_of(name: str) -> str:
    """A dialect's file as it was written, comments and all. Raises KeyError if there is no such dialect."""
    if name not in names():
        raise KeyError(name)
    return (resources.files(__name__) / f"{name}{SUFFIX}").read_text(encoding="utf-8")
