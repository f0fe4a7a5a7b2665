"""Which dialects there are: those that come with the gateway, by name, and a user's own, by file."""

from dataclasses import dataclass

from gateway.config.kinds import INTERPOLATED, Found, Reader, ScalarKind, Schema, did_you_mean, shorten
from gateway.config.mistakes import Place
from gateway.config.source import Node
from gateway.dialects import names

_PATH_PATTERN = r"/|\.ya?ml$"


@dataclass(frozen=True, slots=True)
class DialectKind(ScalarKind[str]):
    """The name of a dialect that comes with the gateway, or the absolute path of a file. Whether that is good is judged when it is read."""

    def wants(self) -> str:
        return "the name of a dialect, or a file such as ./house.yaml"

    def parse(self, text: str) -> str:
        if "\0" in text:
            raise ValueError("a path cannot hold a NUL character")
        if "/" not in text and not text.endswith((".yaml", ".yml")) and text not in names():
            remedy = "`idempotency-gateway dialects` lists them, and a file of your own is named by its path, as in ./house.yaml"
            raise ValueError(f'unknown dialect "{shorten(text)}"{did_you_mean(text, frozenset(names()))}; {remedy}')
        return text

    def read(self, reader: Reader, node: Node, place: Place) -> Found[str] | None:
        found = ScalarKind.read(self, reader, node, place)
        if found is None or found.value in names():
            return found
        return Found(str((reader.directory / found.value).absolute()), found.place)

    def schema(self) -> Schema:
        return {"anyOf": [{"enum": list(names())}, {"type": "string", "pattern": _PATH_PATTERN}, INTERPOLATED]}

    def write(self, value: str) -> object:
        return value
