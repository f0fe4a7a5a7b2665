"""Bodies of multipart/form-data: one digest for the same parts under any boundary, none for what could be read in two ways."""

import hashlib
from typing import Any

import aiohttp
import httpx
import pytest
import requests
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.multipart import MAX_HEAD, PartsReader, parameters, parts_reader, read_parts
from tests.core.vectors import load, octets

VECTORS = load("multipart")
TYPE = b"multipart/form-data; boundary=b"


def encoded(described: list[Any]) -> bytes:
    """The parts of the encoding that is digested, each after its length; `parts` stand there so many times."""
    result = b""
    for part in described:
        if isinstance(part, dict) and "parts" in part:
            result += encoded(part["parts"]) * int(part["times"])
        else:
            result += octets({"prefixed": [part]})
    return result


@pytest.mark.parametrize("case", VECTORS, ids=[case["name"] for case in VECTORS])
def test_vectors(case: dict[str, Any]) -> None:
    """The digest of each golden body is the SHA-256 of its parts' encoding, or there is none."""
    found = read_parts(case["content_type"].encode(), octets(case["body"]))
    assert found == (None if case["parts"] is None else hashlib.sha256(encoded(case["parts"])).digest())


@pytest.mark.parametrize("case", VECTORS, ids=[case["name"] for case in VECTORS])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_pieces_do_not_matter(case: dict[str, Any], size: int) -> None:
    """However a body comes in pieces, its digest is the same, or there is none."""
    body = octets(case["body"])
    reader = parts_reader(((b"Content-Type", case["content_type"].encode()),))
    if reader is None:
        assert read_parts(case["content_type"].encode(), body) is None
        return
    for at in range(0, len(body), size):
        reader.feed(body[at : at + size])
    assert reader.digest() == read_parts(case["content_type"].encode(), body)


Part = tuple[str, str | None, str | None, bytes]
"""Name, file name, type, content."""

letters = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'), max_size=5)
contents = st.binary(max_size=12) | st.text("-b\r\n: ", max_size=12).map(str.encode)
parts = st.tuples(letters, st.none() | letters, st.sampled_from([None, "text/plain", "image/png"]), contents)
bodies = st.lists(parts, min_size=1, max_size=4)
boundaries = st.from_regex(r"[0-9a-zA-Z'()+_,./:=?-]{20,40}", fullmatch=True)


def written(body: list[Part], boundary: str) -> tuple[bytes, bytes]:
    """Content-Type and bytes of these parts."""
    result = b""
    for name, filename, kind, content in body:
        file = "" if filename is None else f'; filename="{filename}"'
        head = f'Content-Disposition: form-data; name="{name}"{file}\r\n' + ("" if kind is None else f"Content-Type: {kind}\r\n")
        result += f"--{boundary}\r\n{head}\r\n".encode() + content + b"\r\n"
    return f'multipart/form-data; boundary="{boundary}"'.encode(), result + f"--{boundary}--\r\n".encode()


@given(bodies, boundaries, boundaries)
def test_the_boundary_does_not_count(body: list[Part], one: str, other: str) -> None:
    """The same parts under another boundary have the same digest."""
    found = read_parts(*written(body, one))
    assert found is not None
    assert read_parts(*written(body, other)) == found


@given(bodies, bodies, boundaries)
@example([("a", None, None, b"1")], [("a", None, None, b"2")], "b" * 20)
@example([("a", None, None, b"")], [("a", "", None, b"")], "b" * 20)
@example([("a", "f", None, b"")], [("a", "f", "text/plain", b"")], "b" * 20)
@example([("a", None, None, b"1"), ("b", None, None, b"2")], [("b", None, None, b"2"), ("a", None, None, b"1")], "b" * 20)
@example([("a", None, None, b"\r\n")], [("a", None, None, b"")], "b" * 20)
def test_everything_else_counts(one: list[Part], other: list[Part], boundary: str) -> None:
    """Two bodies share a digest only if they have the same parts in the same order."""
    assert (read_parts(*written(one, boundary)) == read_parts(*written(other, boundary))) == (one == other)


@given(bodies, boundaries, st.lists(st.integers(0, 600), max_size=6))
def test_any_pieces(body: list[Part], boundary: str, cuts: list[int]) -> None:
    """Wherever a body is cut, its digest is the same."""
    content_type, text = written(body, boundary)
    reader = PartsReader({b"boundary": boundary.encode()})
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(text)], strict=True):
        reader.feed(text[start : max(start, end)])
    assert reader.digest() == read_parts(content_type, text)


@given(bodies, boundaries, st.data())
def test_a_body_cut_short_is_not_read(body: list[Part], boundary: str, data: st.DataObject) -> None:
    """What is not the whole body has no digest, except for the line end behind the last boundary."""
    content_type, text = written(body, boundary)
    size = data.draw(st.integers(0, len(text) - 1))
    assert (read_parts(content_type, text[:size]) is not None) == (size == len(text) - 2)


@given(
    st.binary(max_size=60) | st.text('-b\r\n:;="a ', max_size=60).map(str.encode),
    st.sampled_from([TYPE, b'multipart/form-data; boundary="']) | st.binary(max_size=20),
)
def test_any_bytes_at_all(body: bytes, content_type: bytes) -> None:
    """Nothing that a client can send raises."""
    assert read_parts(content_type, body) is None or content_type == TYPE


def test_what_clients_send_is_read() -> None:
    """The bodies of common clients are read, and a retry, which has another boundary, has the same digest."""
    for send in (_httpx, _requests):
        first, again = send(), send()
        assert first != again
        digests = {read_parts(*request) for request in (first, again)}
        assert len(digests) == 1
        assert None not in digests


def _httpx() -> tuple[bytes, bytes]:
    files = {"doc": ('r\u00e9sum\u00e9 "1".txt', b"hello\r\n", "text/plain"), "raw": ("raw", bytes(range(256)), None)}
    request = httpx.Request("POST", "http://a.test", data={"amount": "100", "tags": ["a", "b"]}, files=files)
    return request.headers["content-type"].encode(), request.read()


def _requests() -> tuple[bytes, bytes]:
    files = {"doc": ("r\u00e9sum\u00e9.txt", b"hello\r\n", "text/plain"), "raw": ("raw", bytes(range(256)), "image/png")}
    request = requests.Request("POST", "http://a.test", data={"amount": "100", "tags": ["a", "b"]}, files=files).prepare()
    assert isinstance(request.body, bytes)
    return str(request.headers["content-type"]).encode(), request.body


async def test_what_aiohttp_sends_is_read() -> None:
    """So are those of aiohttp, whose parts have further fields."""
    digests = set()
    for _ in range(2):
        form = aiohttp.FormData({"amount": "100"})
        form.add_field("doc", b"hello", filename="a.txt", content_type="text/plain")
        writer = form()
        assert isinstance(writer, aiohttp.MultipartWriter)
        digests.add(read_parts(writer.content_type.encode(), await writer.as_bytes()))
    assert len(digests) == 1
    assert None not in digests


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"Content-Type", b"text/plain; boundary=b"),),
        ((b"Content-Type", TYPE), (b"content-type", TYPE)),
        ((b"Content-Type", TYPE), (b"Content-Encoding", b"gzip")),
        ((b"Content-Type", b"multipart/form-data"),),
    ],
)
def test_no_reader(headers: tuple[tuple[bytes, bytes], ...]) -> None:
    """Another type, two of them, a content coding, no boundary: the body is not read by parts."""
    assert parts_reader(headers) is None


def test_a_reader() -> None:
    """One Content-Type line of multipart/form-data with a boundary: the body may be read by parts."""
    assert parts_reader(((b"Host", b"a"), (b"CONTENT-type", TYPE))) is not None


def test_what_is_kept_is_bounded() -> None:
    """Fields that do not end, and contents however long, do not pile up; nor does what comes behind a body that is not read."""
    reader = PartsReader({b"boundary": b"b"})
    reader.feed(b"--b\r\nContent-Disposition: form-data; name=a\r\n\r\n")
    for _ in range(100):
        reader.feed(b"\r\n--" * 1000)
        assert len(reader.kept) < 100
    endless = PartsReader({b"boundary": b"b"})
    endless.feed(b"--b\r\n")
    for _ in range(100):
        endless.feed(b"x" * 1000)
        assert len(endless.kept) <= MAX_HEAD + 1000
    assert endless.kept == b""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b"", {}),
        (b' ; A=b;c="d;e=f" ', {b"a": b"b", b"c": b"d;e=f"}),
        (b';a="\xff\t"', {b"a": b"\xff\t"}),
        (b";a=", None),
        (b";a", None),
        (b";=b", None),
        (b"a=b", None),
        (b";a=b c", None),
        (b";a=b;", None),
        (b";a=b;A=c", None),
        (b';a="\\""', None),
        (b';a="\x00"', None),
        (b';a="', None),
    ],
)
def test_parameters(text: bytes, found: dict[bytes, bytes] | None) -> None:
    """Parameters are read strictly; names in lower case, values as they are."""
    assert parameters(text) == found
