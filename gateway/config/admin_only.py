"""Where the admin listener is, and nothing else of a configuration: for whoever asks after the health of a gateway that runs, which a file
that was changed since must not make look ill.
"""

from collections.abc import Mapping
from pathlib import Path

from gateway.config.fields import AdminFields, ConfigFields
from gateway.config.files import Unreadable, read_tree
from gateway.config.kinds import Reader
from gateway.config.mistakes import ConfigErrors, Mistake, Place, in_order
from gateway.config.model import Listener
from gateway.config.shapes import Section
from gateway.config.source import MapNode


def load_admin(path: Path, env: Mapping[str, str]) -> tuple[Listener, bool]:
    """The admin listener of a file, and whether it speaks TLS. Raises `ConfigErrors`."""
    file = str(path)
    try:
        root = read_tree(path)
    except Unreadable as error:
        raise ConfigErrors((Mistake(file, error.place, error.message),)) from None
    entries = root.entries if isinstance(root, MapNode) else ()
    entry = next((entry for entry in entries if entry.key == ConfigFields.ADMIN.name), None)
    reader = Reader(env, path.parent)
    section: Section | None = Section(Place(1, 1))
    if entry is not None:
        found = ConfigFields.ADMIN.kind.read(reader, entry.value, Place(entry.line, entry.column))
        section = None if found is None else found.value
    if section is None or reader.mistakes:
        raise ConfigErrors(in_order(file, reader.mistakes))
    listener = section.get(AdminFields.LISTEN)
    assert listener is not None, "it has a default"
    return listener, section.get(AdminFields.TLS) is not None
