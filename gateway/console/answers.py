"""The answer that a person gives by hand, as a form holds it and as a client gets it."""

import hashlib
from dataclasses import dataclass

from gateway.console.forms import Form
from gateway.core.model import Headers, StoredResponse
from gateway.core.policy import Policy
from gateway.operate.operations import Wrong, bodies
from gateway.ports.reconciliation import Listed


@dataclass(frozen=True, slots=True)
class Given:
    """The fields of the form, as texts."""

    status: str = "200"
    headers: str = "Content-Type: application/json"
    body: str = ""

    @classmethod
    def of(cls, form: Form) -> "Given":
        return cls(form.text("status").strip(), form.text("headers"), form.text("body"))

    @classmethod
    def from_response(cls, response: StoredResponse) -> "Given | None":
        """An answer that rules have built; None if its body is unknown, or such that a form would change it."""
        try:
            body = None if response.body is None else response.body.decode()
        except UnicodeDecodeError:
            return None
        if body is None or "\r" in body or "\0" in body:  # a text area has its own line ends, and no NUL
            return None
        lines = [f"{name.decode('latin-1')}: {value.decode('latin-1')}" for name, value in response.headers]
        return cls(str(response.status), "\n".join(lines), body)

    @property
    def digest(self) -> str:
        """By which a preview is known to be of these very fields."""
        return hashlib.sha256("\0".join((self.status, self.headers, self.body)).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Answer:
    """A checked answer."""

    status: int
    headers: Headers
    body: bytes


def read_answer(given: Given) -> Answer:
    """The answer that the fields mean. Raises `Wrong`, which names the field."""
    if not (given.status.isascii() and given.status.isdigit() and len(given.status) == 3):
        raise Wrong("status", "three digits, such as 201")
    answer = Answer(int(given.status), _fields(given.headers), given.body.encode())
    bodies.check_answer(answer.status, answer.headers, answer.body)
    return answer


def _fields(text: str) -> Headers:
    found: list[tuple[bytes, bytes]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon:
            raise Wrong("headers", f"line {number} is no field: write Name: value")
        try:
            found.append((name.strip().encode("latin-1"), value.strip().encode("latin-1")))
        except UnicodeEncodeError:
            raise Wrong("headers", f"line {number} has characters beyond ISO-8859-1") from None
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a client's retry gets; in a body that is no text, what is none stands as U+FFFD. `left_out`: the names of fields that no
    stored answer has.
    """

    head: str
    body: str
    left_out: tuple[str, ...]


def preview(answer: Answer, listed: Listed, policy: Policy | None) -> Preview:
    """As `bodies.preview` has it, for a page."""
    message = bodies.preview(listed, policy, answer.status, answer.headers, answer.body)
    head = b"\n".join(message.head).decode("latin-1")
    return Preview(head, message.body.decode(errors="replace"), tuple(bodies.never_stored(answer.headers)))
