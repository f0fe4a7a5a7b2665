"""Where a chunked body ends (RFC 9112 section 7.1)."""

LINES = 1024
"""As many chunks at most are in one piece, so that the parser's pauses take effect: it counts its chunks."""

LINE = 256
"""Bytes of a line that are kept, or a few more, while its end is still to come: a size stands in its first ones."""


class Chunks:
    """Follows one chunked body through its pieces. It validates nothing: the parser, which is fed what this cuts, does."""

    __slots__ = ("_last", "_left", "_line", "done", "trailers")

    def __init__(self) -> None:
        self._left = 0  # bytes of a chunk, and of the line end behind it
        self._line = b""  # the beginning of a line
        self._last = False  # what follows are trailers
        self.done = False
        self.trailers = False  # whether there were any

    def cut(self, data: bytes) -> int:
        """How many bytes of `data` certainly belong to the body: at least one. `done` is set when they are its last."""
        at = 0
        for _ in range(LINES):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
            if at == len(data):
                break
            end = data.find(b"\n", at)
            if end < 0:
                if len(self._line) < LINE:
                    self._line += data[at:]
                return len(data)
            line, self._line = (self._line + data[at : min(end, at + LINE)]).rstrip(b"\r"), b""
            at = end + 1
            if not self._last:
                self._open(line)
            elif line:
                self.trailers = True
            else:
                self.done = True
                break
        return at

    def _open(self, line: bytes) -> None:
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:  # the parser is about to say so
            return
        if size > 0:
            self._left = size + 2
        else:
            self._last = True
