"""The way from a file to a `Config`. Nothing else reads YAML or the environment."""

from collections.abc import Mapping
from pathlib import Path

from gateway.config.checks import check
from gateway.config.dialect_files import read_dialects
from gateway.config.fields import CONFIG, ConfigFields
from gateway.config.files import Unreadable, read_tree
from gateway.config.kinds import Reader
from gateway.config.mistakes import ConfigErrors, Mistake, Place, in_order
from gateway.config.model import Config
from gateway.config.resolve import resolve_config, resolve_routes
from gateway.config.resolve_edges import resolve_upstream
from gateway.config.shapes import Section
from gateway.config.source import Node
from gateway.config.warnings import find_warnings


def load(path: Path, env: Mapping[str, str]) -> Config:
    """Read a configuration file with the variables of `env`, and the files that it names. Relative paths start at the file's folder.

    Raises `ConfigErrors` with every mistake that can be told at once, and nothing else.
    """
    file = str(path)
    root = _read(file, path)
    reader = Reader(env, path.parent)
    found = CONFIG.read(reader, root, Place(root.line, root.column))
    config = None if found is None else _resolve(reader, file, found.value)
    if config is None or reader.mistakes:
        raise ConfigErrors(in_order(file, reader.mistakes))
    return config


def _resolve(reader: Reader, file: str, root: Section) -> Config | None:
    sections = root.get(ConfigFields.UPSTREAMS) or {}
    upstreams = {name: resolve_upstream(name, section) for name, section in sections.items()}
    routes = resolve_routes(root, upstreams, read_dialects(reader, root))
    check(reader, root, upstreams, routes)
    if reader.mistakes:
        return None
    warnings = tuple(Mistake(place.file or file, place, message) for place, message in find_warnings(routes, root))
    return resolve_config(root, upstreams, tuple(one.route for one in routes), warnings)


def _read(file: str, path: Path) -> Node:
    try:
        return read_tree(path)
    except Unreadable as error:
        raise ConfigErrors((Mistake(file, error.place, error.message),)) from None
