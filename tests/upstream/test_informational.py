"""Interim responses: handed on as they come, and never mistaken for the answer."""

from dataclasses import replace

import pytest

from gateway.core.model import Headers
from gateway.ports import DoubtReason, InDoubt
from gateway.upstream import HttpUpstream
from gateway.upstream.parser import MAX_INFORMATIONAL
from tests.upstream.stub import OK, Peer, Stub, allow, call, raw, request, whole

HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nlink: </b\xe9.js>\r\nConnection: X\r\nX: y\r\n\r\n"


async def told_by(upstream: HttpUpstream) -> list[tuple[int, bytes, Headers]]:
    """What one call's `informational` was told."""
    told: list[tuple[int, bytes, Headers]] = []
    asking = replace(request(), informational=lambda status, reason, headers: told.append((status, reason, headers)))
    response = await upstream.send(asking, allow)
    assert (response.status, await whole(response)) == (200, b"ok")
    assert not any(name.lower() == b"link" for name, _ in response.headers)
    return told


async def test_interim_responses_are_handed_on_in_order(stub: Stub, upstream: HttpUpstream) -> None:
    """RFC 9110 section 15.2: each with its fields as received; 100 is an answer to an expectation that is not the client's."""
    stub.script = raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + HINTS + b"HTTP/1.1 110 \r\nA: b\r\n\r\n" + OK)
    assert await told_by(upstream) == [
        (102, b"Processing", ()),
        (103, b"Early Hints", ((b"Link", b"</a.css>; rel=preload"), (b"link", b"</b\xe9.js>"), (b"Connection", b"X"), (b"X", b"y"))),
        (110, b"", ((b"A", b"b"),)),
    ]
    assert upstream.idle == 1


async def test_they_are_handed_on_before_the_answer_comes(stub: Stub, upstream: HttpUpstream) -> None:
    """At once: hints are of no use later."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.answer(HINTS)
        await stub.seen.wait()
        await peer.answer(OK)

    stub.script = script
    response = await upstream.send(replace(request(), informational=lambda *_: stub.seen.set()), allow)
    assert response.status == 200


async def test_their_number_is_bounded(stub: Stub, upstream: HttpUpstream) -> None:
    """What comes beyond is skipped, and the answer is good."""
    stub.script = raw(HINTS * (MAX_INFORMATIONAL + 5) + OK)
    assert len(await told_by(upstream)) == MAX_INFORMATIONAL


async def test_their_size_is_bounded(stub: Stub, upstream: HttpUpstream) -> None:
    """All heads together have the limit of one."""
    stub.script = raw(b"HTTP/1.1 103 Early Hints\r\nLink: %b\r\n\r\n" % (b"a" * 60_000) * 15 + OK)
    with pytest.raises(InDoubt) as caught:
        await told_by(upstream)
    assert caught.value.reason is DoubtReason.INVALID_RESPONSE


@pytest.mark.parametrize("end", [b"HTTP/1.1 103 H\r\nConnection: close\r\n\r\n", b"HTTP/1.0 100 Continue\r\n\r\n"])
async def test_an_interim_response_that_announces_the_end_is_not_the_answer(stub: Stub, upstream: HttpUpstream, end: bytes) -> None:
    """The answer behind it is good, in the same segment or a later one; the connection is not used again."""

    async def script(peer: Peer) -> None:
        await peer.request()
        if stub.connections == 1:
            await peer.answer(end + OK)
        else:
            await peer.answer(end)
            await stub.seen.wait()
            await peer.answer(OK)
        await peer.closed_by_client()

    stub.script = script
    assert await call(upstream) == (200, b"ok")
    assert upstream.open == 0
    stub.seen.set()
    assert await call(upstream) == (200, b"ok")
    assert upstream.open == 0


@pytest.mark.parametrize("field", [b"Content-Length: 5", b"Transfer-Encoding: chunked"])
@pytest.mark.parametrize("status", [100, 102, 103, 110, 199])
async def test_an_interim_response_with_a_body_is_invalid(stub: Stub, upstream: HttpUpstream, status: int, field: bytes) -> None:
    """RFC 9112 section 6.3 rule 1 and RFC 9110 section 8.6: it has none, and who believed the field would glue it to the answer."""
    stub.script = raw(b"HTTP/1.1 %d X\r\n%b\r\n\r\nhello" % (status, field) + OK)
    with pytest.raises(InDoubt) as caught:
        await call(upstream)
    assert caught.value.reason is DoubtReason.INVALID_RESPONSE
    assert upstream.open == 0
