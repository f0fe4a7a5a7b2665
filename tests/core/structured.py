"""A structured-field Item parser straight from the algorithms of RFC 9651 section 4.2, to compare the gateway's key grammar with."""

LOWER = frozenset(b"abcdefghijklmnopqrstuvwxyz")
DIGITS = frozenset(b"0123456789")
ALPHA = LOWER | frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
TCHAR = ALPHA | DIGITS | frozenset(b"!#$%&'*+-.^_`|~")


class NotAnItem(Exception):
    """The field value does not parse."""


class Cursor:
    """The input that is left, and a step for each algorithm."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    def peek(self) -> int:
        return self.text[0] if self.text else -1

    def take(self) -> int:
        if not self.text:
            raise NotAnItem
        first, self.text = self.text[0], self.text[1:]
        return first

    def expect(self, char: bytes) -> None:
        if self.take() != char[0]:
            raise NotAnItem

    def item(self) -> tuple[str, bytes]:
        """Section 4.2: the whole value as one Item; returns the type and, for Strings, the content."""
        self.text = self.text.strip(b" ")
        bare = self.bare_item()
        self.parameters()
        if self.text:
            raise NotAnItem
        return bare

    def parameters(self) -> None:
        """Section 4.2.3.2."""
        while self.peek() == ord(";"):
            self.take()
            self.text = self.text.lstrip(b" ")
            self.key()
            if self.peek() == ord("="):
                self.take()
                self.bare_item()

    def key(self) -> None:
        """Section 4.2.3.3."""
        if self.peek() not in LOWER | frozenset(b"*"):
            raise NotAnItem
        while self.peek() in LOWER | DIGITS | frozenset(b"_-.*"):
            self.take()

    def bare_item(self) -> tuple[str, bytes]:
        """Section 4.2.3.1."""
        first = self.peek()
        if first == ord("-") or first in DIGITS:
            return self.number()
        if first == ord('"'):
            return self.string()
        if first == ord("*") or first in ALPHA:
            return self.token()
        if first == ord(":"):
            return self.byte_sequence()
        if first == ord("?"):
            return self.boolean()
        if first == ord("@"):
            self.take()
            kind, _ = self.number()
            if kind != "integer":
                raise NotAnItem
            return "date", b""
        if first == ord("%"):
            return self.display_string()
        raise NotAnItem

    def number(self) -> tuple[str, bytes]:
        """Section 4.2.4."""
        if self.peek() == ord("-"):
            self.take()
        if self.peek() not in DIGITS:
            raise NotAnItem
        whole, fraction = 0, -1
        while True:
            if self.peek() in DIGITS:
                self.take()
                if fraction < 0:
                    whole += 1
                else:
                    fraction += 1
            elif self.peek() == ord(".") and fraction < 0:
                if whole > 12:
                    raise NotAnItem
                self.take()
                fraction = 0
            else:
                break
            if whole > 15 or whole + fraction + 1 > 16:
                raise NotAnItem
        if fraction == 0 or fraction > 3:
            raise NotAnItem
        return ("integer" if fraction < 0 else "decimal"), b""

    def string(self) -> tuple[str, bytes]:
        """Section 4.2.5."""
        self.expect(b'"')
        content = bytearray()
        while True:
            char = self.take()
            if char == ord("\\"):
                char = self.take()
                if char not in b'"\\':
                    raise NotAnItem
                content.append(char)
            elif char == ord('"'):
                return "string", bytes(content)
            elif not 0x20 <= char <= 0x7E:
                raise NotAnItem
            else:
                content.append(char)

    def token(self) -> tuple[str, bytes]:
        """Section 4.2.6."""
        while self.peek() in TCHAR | frozenset(b":/"):
            self.take()
        return "token", b""

    def byte_sequence(self) -> tuple[str, bytes]:
        """Section 4.2.7; padding is not judged, as the section allows."""
        self.expect(b":")
        while (char := self.take()) != ord(":"):
            if char not in ALPHA | DIGITS | frozenset(b"+/="):
                raise NotAnItem
        return "bytes", b""

    def boolean(self) -> tuple[str, bytes]:
        """Section 4.2.8."""
        self.expect(b"?")
        if self.take() not in b"01":
            raise NotAnItem
        return "boolean", b""

    def display_string(self) -> tuple[str, bytes]:
        """Section 4.2.10."""
        self.expect(b"%")
        self.expect(b'"')
        content = bytearray()
        while (char := self.take()) != ord('"'):
            if not 0x20 <= char <= 0x7E:
                raise NotAnItem
            if char == ord("%"):
                pair = bytes((self.take(), self.take()))
                if not set(pair) <= frozenset(b"0123456789abcdef"):
                    raise NotAnItem
                content.append(int(pair, 16))
            else:
                content.append(char)
        try:
            content.decode()
        except UnicodeDecodeError:
            raise NotAnItem from None
        return "display", b""


def string_item(value: bytes) -> bytes | None:
    """The content of a String Item, or None if the value is no Item of that type."""
    try:
        kind, content = Cursor(value).item()
    except NotAnItem:
        return None
    return content if kind == "string" else None
