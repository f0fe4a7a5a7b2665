"""The parser edge of a running gateway: whatever comes in, only what is a request by a strict reading goes on, and as it was."""

import pytest
from hypothesis import given

from tests.system.fuzz.bench import Bench
from tests.system.fuzz.cases import EARLY, RESET, Batch, Case, batches
from tests.system.fuzz.messages import FRESH, TEMPLATES
from tests.system.fuzz.mutations import KINDS
from tests.system.fuzz.profile import bounded

BATCH = 48
"""How many connections there are at a time, at most."""

GET = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"
TRAILING = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n%b\r\n\r\n"
PAY = b"POST /v1/pay HTTP/1.1\r\nHost: a\r\nAuthorization: t-%b\r\nIdempotency-Key: k\r\n%b" % (FRESH, b"%b")

FOUND = {
    "a trailer of one request among the fields of the next": Case(TRAILING % b"Idempotency-Key: k" + GET),
    "a trailer as the principal of the next request": Case(
        TRAILING % b"Authorization: x" + PAY.replace(b"Authorization: t-" + FRESH + b"\r\n", b"") % b"\r\n"
    ),
    "another protocol's name": Case(b"OPTIONS /x RTSP/1.0\r\nHost: a\r\n\r\n"),
    "yet another protocol's name": Case(b"SOURCE /x ICE/1.0\r\nHost: a\r\n\r\n"),
    "an old client that says both": Case(b"GET /x HTTP/1.0\r\nConnection: close, keep-alive\r\n\r\n" + GET),
    "garbage behind a request": Case(GET + b"nonsense\r\n\r\n"),
    "a request behind one that asks for h2c": Case(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + GET),
    "garbage behind one that asks for h2c": Case(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nx\r\n\r\n"),
    "a Host that is none": Case(b"GET /x HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    "a Host beyond ASCII": Case(b"GET /x HTTP/1.1\r\nHost: \xa0a\r\n\r\n"),
    "a broken chunk of a guarded request": Case(PAY % b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n", (110,)),
    "a client that is gone within its body": Case(
        b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", (60,), EARLY
    ),
    "a field whose name begins like a framing field's": Case(b"GET /x HTTP/1.1\r\nHost: a\r\nContent-Length-X: 5\r\n\r\n" + GET),
    "such a field in a guarded request": Case(PAY % b"Transfer-Encodings: x\r\n\r\n" + GET),
    "a client that is gone at once": Case(GET, (), RESET),
    "a second key, as CGI spells it, before the first": Case(
        PAY.replace(b"Idempotency-Key: k\r\n", b"Idempotency_Key: u\r\nIdempotency-Key: k\r\n") % b"\r\n"
    ),
    "a second key, as CGI spells it, behind the first": Case(PAY % b"IDEMPOTENCY_KEY: u\r\nIdempotency_Key: v\r\n\r\n" + GET),
    "a key that only CGI would take for one": Case(PAY.replace(b"Idempotency-Key", b"Idempotency_Key") % b"\r\n" + GET),
    "such a key where nothing is guarded": Case(b"POST /x HTTP/1.1\r\nHost: a\r\nIdempotency_Key: u\r\nIdempotency-Key: k\r\n\r\n" + GET),
}
"""The smallest cases of what fuzzing has found."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(edge: Bench, name: str) -> None:
    """Each case that was once handled wrongly is handled right."""
    edge.check([FOUND[name]])


def test_every_way_to_spoil_a_request(edge: Bench) -> None:
    """Each single fault, in a request with a body and another one behind it, in a guarded one, and in the simplest of all."""
    cases: list[Case] = []
    for template in (TEMPLATES[2], TEMPLATES[1], TEMPLATES[0]):
        for mutation in (mutation for kind in KINDS for mutation in kind):
            message = template(0)
            mutation(message, len(cases))
            cases.append(Case(message.render() + GET))
    for start in range(0, len(cases), BATCH):
        edge.check(cases[start : start + BATCH])


@bounded(150, shrink=False)
@given(batches(BATCH))
def test_generated_connections(edge: Bench, batch: Batch) -> None:
    """Requests of all kinds, spoilt in several ways, in pipelines, in pieces, broken off, and noise."""
    edge.check(batch.cases)
