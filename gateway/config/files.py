"""A YAML file as a tree, or what is wrong with the file as a whole."""

from pathlib import Path

from gateway.config.mistakes import Place
from gateway.config.source import Node, SyntaxMistake, compose, position
from gateway.runtime.local_files import LocalFileError, TooLarge, read_local

MAX_FILE = 4 * 1024 * 1024


class Unreadable(Exception):
    """No tree. `place` is where in the file the reason is; None if the file itself cannot be had."""

    def __init__(self, place: Place | None, message: str) -> None:
        super().__init__(message)
        self.place = place
        self.message = message


def read_tree(path: Path) -> Node:
    """The root of a file of UTF-8 text, at most 4MiB. Raises `Unreadable`."""
    return parse_tree(_read(path))


def parse_tree(raw: bytes) -> Node:
    """The root of a file with this content. Raises `Unreadable`, always with a place."""
    try:
        root = compose(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8-sig")
        raise Unreadable(Place(*position(before, len(before))), "the file is not UTF-8 text") from None
    except SyntaxMistake as mistake:
        raise Unreadable(Place(mistake.line, mistake.column), mistake.message) from None
    if root is None:
        raise Unreadable(Place(1, 1), "the file is empty")
    return root


def _read(path: Path) -> bytes:
    try:
        return read_local(path, MAX_FILE)
    except TooLarge:
        raise Unreadable(None, "the file is larger than 4MiB") from None
    except LocalFileError as error:
        raise Unreadable(None, f"cannot read the file: {error}") from None
