"""Chunked bodies (RFC 9112 section 7.1): where one ends, and what is in it."""

import httptools

LINES = 1024
"""As many chunks at most are taken at a time, so that a body that nobody reads is held back."""

LINE = 256
"""Bytes of a line that are kept, or a few more, while its end is still to come: a size stands in its first ones."""

_HEAD = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"


class MalformedChunks(Exception):
    """The body breaks its own framing."""


class TooMuchFraming(Exception):
    """Trailers, or extensions of chunks, go on without end."""


class Chunks:
    """Follows one chunked body through its pieces. It validates nothing: the parser, which is fed what this cuts, does."""

    __slots__ = ("_last", "_left", "_line", "done")

    def __init__(self) -> None:
        self._left = 0  # bytes of a chunk, and of the line end behind it
        self._line = b""  # the beginning of a line
        self._last = False  # what follows are trailers
        self.done = False

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
            elif not line:
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


class ChunkedBody:
    """The content of one chunked body. Its trailers are validated and dropped: no parser of fields ever sees them.

    `limit` bounds the bytes between two pieces of content. `done`: it has ended by its own framing.
    """

    __slots__ = ("_chunks", "_content", "_ended", "_framing", "_limit", "_llhttp")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._framing = 0
        self._content: list[bytes] = []
        self._ended = False
        self._chunks = Chunks()
        self._llhttp: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._llhttp.feed_data(_HEAD)

    @property
    def done(self) -> bool:
        return self._ended

    def feed(self, data: bytes) -> tuple[bytes, int]:
        """Take in bytes (not empty): the content among them, and how many of them were taken, at least one.

        Raises `MalformedChunks` or `TooMuchFraming`, after which no more may be fed.
        """
        llhttp, cut = self._llhttp, self._chunks.cut(data)
        assert llhttp is not None
        try:
            llhttp.feed_data(data[:cut])
        except httptools.HttpParserError as error:
            raise MalformedChunks(str(error)) from None
        if self._ended != self._chunks.done:  # nothing is safe where the two do not agree
            raise MalformedChunks("the body ended before its end, or not at it")
        content, self._content = b"".join(self._content), []
        self._framing = 0 if content else self._framing + cut
        if self._framing > self._limit and not self._ended:
            raise TooMuchFraming
        return content, cut

    def close(self) -> None:
        """Nothing more is fed."""
        self._llhttp = None  # breaks the reference cycle between the two parsers

    # Callbacks of httptools.

    def on_body(self, data: bytes) -> None:
        self._content.append(data)

    def on_message_complete(self) -> None:
        self._ended = True
