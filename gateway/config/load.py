"""The way from a file to a `Config`. Nothing else reads YAML or the environment."""

from collections.abc import Mapping
from pathlib import Path

from gateway.config.checks import check
from gateway.config.fields import CONFIG, ConfigFields
from gateway.config.kinds import Reader
from gateway.config.mistakes import ConfigErrors, Mistake, Place
from gateway.config.model import Config
from gateway.config.resolve import resolve_config, resolve_routes
from gateway.config.resolve_edges import resolve_upstream
from gateway.config.shapes import Section
from gateway.config.source import Node, SyntaxMistake, compose, position
from gateway.config.warnings import find_warnings

MAX_FILE = 4 * 1024 * 1024


def load(path: Path, env: Mapping[str, str]) -> Config:
    """Read a configuration file with the variables of `env`. Relative `*_file` paths start at the file's folder.

    Raises `ConfigErrors` with every mistake that can be told at once, and nothing else.
    """
    file = str(path)
    root = _compose(file, _read(path))
    reader = Reader(env, path.parent)
    found = CONFIG.read(reader, root, Place(root.line, root.column))
    config = None if found is None else _resolve(reader, file, found.value)
    if config is None or reader.mistakes:
        ordered = sorted(dict.fromkeys(reader.mistakes), key=lambda mistake: (mistake[0].line, mistake[0].column))
        raise ConfigErrors(tuple(Mistake(file, place, message) for place, message in ordered))
    return config


def _resolve(reader: Reader, file: str, root: Section) -> Config | None:
    sections = root.get(ConfigFields.UPSTREAMS) or {}
    upstreams = {name: resolve_upstream(name, section) for name, section in sections.items()}
    routes = resolve_routes(root, upstreams)
    check(reader, root, upstreams, routes)
    if reader.mistakes:
        return None
    warnings = tuple(Mistake(file, place, message) for place, message in find_warnings(routes, root))
    return resolve_config(root, upstreams, tuple(one.route for one in routes), warnings)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE + 1)
    except OSError as error:
        raise ConfigErrors((Mistake(str(path), None, f"cannot read the file: {error.strerror}"),)) from None
    if len(raw) > MAX_FILE:
        raise ConfigErrors((Mistake(str(path), None, "the file is larger than 4MiB"),))
    return raw


def _compose(file: str, raw: bytes) -> Node:
    try:
        text = raw.decode("utf-8-sig")
        root = compose(text)
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig")
        place = Place(*position(before, len(before)))
        raise ConfigErrors((Mistake(file, place, "the file is not UTF-8 text"),)) from None
    except SyntaxMistake as mistake:
        raise ConfigErrors((Mistake(file, Place(mistake.line, mistake.column), mistake.message),)) from None
    if root is None:
        raise ConfigErrors((Mistake(file, Place(1, 1), "the file is empty"),))
    return root
