"""The facts in a request about its caller, and the results: parts of a principal, or a refusal."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from gateway.core.headers import Fields


class Facts(NamedTuple):  # made for every request, and a frozen dataclass of this size takes three times as long to make
    """One request as the sources of a principal see it.

    `host` is the host that the upstream is told, `target` the origin-form. `trusted`: the peer is a trusted proxy,
    whose word on the client counts. `certificate_subject` is what `certificate_subject` made of the client's
    certificate in our own TLS, if it has one.
    """

    fields: Fields
    method: str
    target: bytes
    host: bytes = b""
    scheme: bytes = b"http"
    trusted: bool = False
    certificate_subject: bytes | None = None


Part: TypeAlias = tuple[bytes, bytes]
"""One source's word on the caller: (`<kind>:<name>`, value). See `gateway.core.scope`."""


@dataclass(frozen=True, slots=True)
class Unidentified:
    """The caller is not known: nothing may be looked up, replayed or executed for it.

    `detail` is a sentence for the client, without any value it sent. `header` is the request field that would identify
    it, empty if it is none. `challenges` are values of `WWW-Authenticate` for a 401 (RFC 9110 section 11.6.1).
    `unavailable`: the gateway cannot tell now, through no fault of the caller, so the answer is a 503. `absent`: it
    sent nothing that its source could judge.
    """

    detail: str
    header: str = ""
    challenges: tuple[bytes, ...] = ()
    unavailable: bool = False
    absent: bool = False


Found: TypeAlias = Part | Unidentified


class PrincipalError(Exception):
    """A source cannot work as it is configured. `str()` is a sentence that names the cause and the remedy."""
