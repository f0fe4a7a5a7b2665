"""What of a request's framing the server's parser lets through and HTTP/1.1 does not (RFC 9112; RFC 9110 section 10.1.1). Pure."""

from gateway.core.headers import Fields
from gateway.core.host import is_host
from gateway.core.problems import Problem

_SPOKEN = frozenset({(1, 0), (1, 1)})


def judge_framing(version: tuple[int, int], fields: Fields) -> Problem | None:
    """Why a request with this head is not taken, or None. After any such refusal the connection has to be closed.

    Versions other than 1.0 and 1.1 (RFC 9110 section 15.6.6); Transfer-Encoding in HTTP/1.0, whose framing cannot be trusted, or beside
    a Content-Length (RFC 9112 section 6.1); codings other than exactly `chunked` (section 6.1: 501); a Host that is missing in
    HTTP/1.1, repeated or no `host[:port]` (section 3.2: 400); expectations other than `100-continue` (RFC 9110 section 10.1.1: 417).
    """
    if version not in _SPOKEN:
        return Problem.VERSION_UNSUPPORTED
    codings = fields.values(b"transfer-encoding")
    if codings:
        if version == (1, 0) or fields.first(b"content-length") is not None:
            return Problem.BAD_REQUEST
        if len(codings) != 1 or codings[0].strip(b" \t").lower() != b"chunked":
            return Problem.CODING_UNSUPPORTED
    hosts = fields.values(b"host")
    if len(hosts) > 1 or (not hosts and version == (1, 1)):
        return Problem.BAD_REQUEST
    if hosts and not is_host(hosts[0].strip(b" \t")):
        return Problem.BAD_REQUEST
    expectations = fields.values(b"expect")
    if expectations and not all(map(_met, expectations)):
        return Problem.EXPECTATION_FAILED
    return None


def says_close(fields: Fields) -> bool:
    """Whether any `Connection` line has the option `close`, which wins over `keep-alive` (RFC 9112 section 9.3)."""
    return any(token.strip(b" \t").lower() == b"close" for line in fields.values(b"connection") for token in line.split(b","))


def _met(line: bytes) -> bool:
    """Whether every member of an Expect line is `100-continue`; an empty list expects nothing (RFC 9110 section 5.6.1.2)."""
    return all(member.strip(b" \t").lower() in {b"", b"100-continue"} for member in line.split(b","))
