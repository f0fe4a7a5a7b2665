"""What a form of the console says."""

from collections.abc import Mapping

from aiohttp import web

from gateway.operate.operations import Wrong

_TYPE = "application/x-www-form-urlencoded"


class Form:
    """The fields of a posted form. Of a name that comes more than once the last counts; `every` gives all."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs
        self.values: Mapping[str, str] = dict(pairs)

    def text(self, name: str) -> str:
        """The field, with the line ends of a text area as LF; empty if it is missing."""
        return self.values.get(name, "").replace("\r\n", "\n")

    def every(self, name: str) -> list[str]:
        return [value for given, value in self._pairs if given == name]

    def number(self, name: str, low: int, high: int) -> int:
        """A whole number. Raises `Wrong`."""
        value = self.values.get(name, "").strip()
        if not (value.isascii() and value.isdigit()) or len(value) > 20 or not low <= int(value) <= high:
            raise Wrong(name, f"a whole number from {low} to {high}")
        return int(value)


async def read_form(request: web.Request) -> Form:
    """The posted form. Raises 415 for another type and 413 for one that is too large."""
    if request.content_type != _TYPE:
        raise web.HTTPUnsupportedMediaType
    posted = await request.post()
    return Form([(name, value) for name, value in posted.items() if isinstance(value, str)])
