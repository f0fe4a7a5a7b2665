"""Every step that a stranger's bytes pass costs time that is at most linear in them.

Each step is run on an input and on one four times as long. A linear step takes four times as long, a quadratic one sixteen times: the bound
is in the middle. What is measured is the CPU time of this thread, the least of several runs, and a step on the wrong side of the bound is
measured anew before it fails, so that a busy machine decides nothing.
"""

import contextlib
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from gateway.core.accepted import parse_operation_id, preference_of
from gateway.core.attempt_token import read_token as read_attempt
from gateway.core.canonical import canonicalise
from gateway.core.client_address import client_address
from gateway.core.field_names import VARY
from gateway.core.fingerprint import Content, make_fingerprinter
from gateway.core.fingerprint_head import counted_parameters
from gateway.core.fingerprint_policy import FingerprintPolicy
from gateway.core.forms import read_form, without_named
from gateway.core.forwarded import closes_quotes, read_for
from gateway.core.head_shapes import HeadShapes
from gateway.core.headers import Fields, Forwarding, Hop, to_upstream
from gateway.core.host import asked_for
from gateway.core.key import find_key, find_key_in, find_key_in_body, find_key_in_form
from gateway.core.key_policy import BodyKey, FormKey, HeaderKey, KeyMode, KeyPolicy, QueryKey
from gateway.core.model import Headers
from gateway.core.multipart import PartsReader, parameters, read_parts
from gateway.core.overrides import make_overrides, methods_asked, methods_asked_in
from gateway.core.pointers import compile_pointer
from gateway.core.policy import Policy, Route
from gateway.core.reconcile.capture import capture
from gateway.core.reconcile.found import document_of
from gateway.core.recovery_point import read_point
from gateway.core.rewrite import Rewriting
from gateway.core.routes import RouteTable, normal_segments, split_target
from gateway.core.splice import splice
from gateway.core.strict_json import read
from gateway.core.via import forwarders
from gateway.http.chunks import Chunks
from gateway.principal.token import read_token
from tests.core.tables import PAY, REFUND, REST, guarded

FACTOR = 4
BOUND = 8.0
FLOOR = 20_000
"""Nanoseconds."""
RUNS, ATTEMPTS = 3, 6

Make = Callable[[int], object]
"""An input of about this many bytes."""

TABLE = RouteTable((PAY, REFUND, guarded("/a/**"), Route("deep", "/" + "/".join(["{x}"] * 8), "up"), REST))
OVERRIDES = make_overrides([Policy("pay", ())])
REWRITING = Rewriting(None)
HOP = Hop(b"127.0.0.1", b"http", b"h", trusted=True, request_id=b"r", forwarding=Forwarding.BOTH)
PRINT = make_fingerprinter(FingerprintPolicy(headers=("x-a",)), b"secret")
SHAPES = HeadShapes[None](VARY)
IGNORING = make_fingerprinter(FingerprintPolicy(ignore=("/a/*/b", "/*/*"), only=("/*/c", "/a/*")), b"secret")


def times(unit: bytes, head: bytes = b"", tail: bytes = b"") -> Callable[[int], bytes]:
    return lambda size: head + unit * (size // len(unit)) + tail


def lines(name: bytes, value: bytes) -> Callable[[int], Headers]:
    return lambda size: ((name, value),) * (size // (len(name) + len(value) + 4))


def one(name: bytes, unit: bytes, head: bytes = b"", tail: bytes = b"") -> Callable[[int], Headers]:
    text = times(unit, head, tail)
    return lambda size: ((name, text(size)),)


def distinct(name: bytes) -> Callable[[int], Headers]:
    return lambda size: tuple([(name + b"%d" % number, b"v") for number in range(size // 10)])


def target(name: str, make: Callable[[int], bytes]) -> list[object]:
    """A target passes all of these."""
    steps: dict[str, Callable[[bytes], object]] = {
        "match": lambda text: TABLE._match("POST", text, -1),
        "normal": lambda text: normal_segments(split_target(text)[0]),
        "key": lambda text: find_key_in(text, KeyPolicy(QueryKey("key"))),
        "methods": lambda text: methods_asked("POST", Fields(()), text),
        "ignored": lambda text: without_named(split_target(text)[2], frozenset({b"a"})),
        "rewrite": REWRITING.takes,
    }
    return [pytest.param(make, step, 4000, id=f"target, {name}: {step_name}") for step_name, step in steps.items()]


def head(name: str, make: Callable[[int], Headers]) -> list[object]:
    """Field lines pass all of these."""
    steps: dict[str, Callable[[Headers], object]] = {
        "forward": lambda fields: to_upstream(fields, HOP, hops=3),
        "clean": lambda fields: OVERRIDES.clean(Fields(fields)),
        "methods": lambda fields: methods_asked("POST", Fields(fields), b"/"),
        "via": lambda fields: forwarders(Fields(fields).values(b"via")),
        "address": lambda fields: client_address(Fields(fields), "127.0.0.1", lambda _: True, Forwarding.X_FORWARDED),
        "forwarded": lambda fields: client_address(Fields(fields), "127.0.0.1", lambda _: True, Forwarding.FORWARDED),
        "host": lambda fields: asked_for(b"h", Fields(fields)),
        "lenient": lambda fields: find_key(Fields(fields), KeyPolicy()),
        "several": lambda fields: find_key(Fields(fields), KeyPolicy(HeaderKey("Idempotency-Key", ("via", "x-a")))),
        "raw": lambda fields: find_key(Fields(fields), KeyPolicy(mode=KeyMode.RAW)),
        "fingerprint": lambda fields: PRINT.fingerprint(Content("s", "POST", b"/", fields, b"")),
    }
    return [pytest.param(make, step, 8000, id=f"head, {name}: {step_name}") for step_name, step in steps.items()]


def body(name: str, make: Callable[[int], bytes]) -> list[object]:
    """A body passes all of these, whatever its type."""

    def content(kind: bytes, text: bytes) -> Content:
        return Content("s", "POST", b"/", ((b"Content-Type", kind),), text)

    steps: dict[str, Callable[[bytes], object]] = {
        "json": lambda text: PRINT.fingerprint(content(b"application/json", text)),
        "json, ignoring": lambda text: IGNORING.fingerprint(content(b"application/json", text)),
        "form": lambda text: PRINT.fingerprint(content(b"application/x-www-form-urlencoded", text)),
        "form alone": read_form,
        "multipart": lambda text: read_parts(b"multipart/form-data; boundary=b", text),
        "key": lambda text: find_key_in_body(text, KeyPolicy(BodyKey("/a/0"))),
        "form key": lambda text: find_key_in_form(
            text, Fields(((b"Content-Type", b"application/x-www-form-urlencoded"),)), KeyPolicy(FormKey("a"))
        ),
        "splice": lambda text: splice(text, "/a/b", "key"),
        "method": methods_asked_in,
        "capture": lambda text: capture(text, b"application/json", (("a", "/a/0"), ("b", "/z"))),
        "strict": lambda text: _quietly(read, text),
        "point": lambda text: _quietly(read_point, text),
        "hint": document_of,
        "canonical": lambda text: canonicalise(text, (compile_pointer("/a"),)),
    }
    return [pytest.param(make, step, 8_000, id=f"body, {name}: {step_name}") for step_name, step in steps.items()]


def _quietly(step: Callable[[bytes], object], text: bytes) -> None:
    with contextlib.suppress(ValueError):
        step(text)


def preference(name: str, make: Callable[[int], bytes], size: int = 8000) -> object:
    return pytest.param(make, lambda text: preference_of([text]), size, id=f"preference, {name}")


def parts_in_pieces(text: bytes) -> None:
    reader = PartsReader({b"boundary": b"b"})
    for at in range(0, len(text), 16):
        reader.feed(text[at : at + 16])
    reader.digest()


def chunks_in_pieces(text: bytes) -> None:
    chunks = Chunks()
    for at in range(0, len(text), 8):
        chunks.cut(text[at : at + 8])


CASES = [
    *target("many segments", times(b"/a")),
    *target("doubtful segments", lambda size: b"/a%5Cb" * 20 + b"/a" * min(size // 2, 480)),
    *target("escapes", times(b"%61", b"/")),
    *target("escapes of escapes", times(b"%25", b"/")),
    *target("slashes", times(b"%2F", b"/")),
    *target("dots", times(b".", b"/")),
    *target("no UTF-8", times(b"%ff", b"/")),
    *target("dots and letters", times(b".a", b"/", b" ")),
    *target("query", times(b"key=a&", b"/?")),
    *target("query of escapes", times(b"%5Fmethod=p%61tch;", b"/?")),
    *target("query of one name", times(b"%6", b"/?")),
    *head("one name", lines(b"Via", b"1.1 a")),
    *head("other names", distinct(b"X-")),
    *head("doubles", distinct(b"X_")),
    *head("connection", one(b"Connection", b"a,")),
    *head(
        "connection, all named",
        lambda size: (*distinct(b"X")(size // 2), (b"Connection", b",".join([b"X%d" % n for n in range(size // 10)]))),
    ),
    *head("via", one(b"Via", b"(")),
    *head("via, nested", one(b"Via", b"()")),
    *head("forwarded for", one(b"X-Forwarded-For", b"1.2.3.4,")),
    *head("forwarded", one(b"Forwarded", b'for="1.2.3.4";')),
    *head("forwarded, open quotes", one(b"Forwarded", b'for="\\"')),
    *head("forwarded, hosts", one(b"Forwarded", b'host="')),
    *head("forwarded, blanks", one(b"Forwarded", b" ", b"for=a", b"x")),
    *head("key, quotes", one(b"Idempotency-Key", b"\\\\", b'"')),
    *head("key, parameters", one(b"Idempotency-Key", b";a=1", b'"a"', b"!")),
    *head("key, blanks", one(b"Idempotency-Key", b" ", b"a", b",")),
    *head("media type", one(b"Content-Type", b';a="', b"a/b")),
    *head("media type, parameters", one(b"Content-Type", b";a=b", b"a/b")),
    *body("zeros", times(b"0,", b"[", b"0]")),
    *body("members", lambda size: b"{" + b",".join([b'"%d":{"b":1,"c":2}' % number for number in range(size // 24)]) + b"}"),
    *body("elements", times(b'{"b":1},', b'{"a":[', b"{}]}")),
    *body("depth", times(b"[")),
    *body("depth, closed", lambda size: b"[" * (size // 2) + b"]" * (size // 2)),
    *body("quotes", times(b'"')),
    *body("escapes", times(b"\\", b'["', b'"]')),
    *body("surrogates", times(b"\\ud83d\\ude00", b'{"a":"', b'"}')),
    *body("names", lambda size: b"{" + b",".join([b'"\xf0\x9f\x98\x80%d":1' % number for number in range(size // 16)]) + b"}"),
    *body("digits", times(b"1", b"[", b"]")),
    *body("blanks", times(b" ", b"[", b"]")),
    *body("a long text", times(b"a", b'{"a":"', b'"}')),
    *body("pairs", times(b"a=1&")),
    *body("pairs of many names", lambda size: b"&".join([b"a%d=1" % number for number in range(size // 8)])),
    *body("brackets", times(b"[]", b"a", b"=1")),
    *body("escapes in pairs", times(b"%61", b"a=")),
    *body("parts", times(b'--b\r\nContent-Disposition: form-data; name="_method"\r\n\r\nx\r\n', b"", b"--b--\r\n")),
    *body("nearly boundaries", times(b"\r\n--a", b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n')),
    *body("names of parts", times(b'name="_method"\r\n')),
    *body("names of parts in long lines", times(b"name=_method;" * 78 + b"\n")),
    *body("names of parts, blank lines", times(b"name=_method\n\n")),
    *body("members that no JSON has", times(b'"_method" ', b'{"_method"', b"NaN")),
    *body("fields of a part", times(b"A: b\r\n", b"--b\r\n")),
    pytest.param(
        times(b"x", b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n'), parts_in_pieces, 16_000, id="multipart in pieces"
    ),
    *[
        pytest.param(times(unit, b"\r\nCookie: ", tail + b"\r\n\r\n"), SHAPES._split, 8_000, id=f"shape, {name}")
        for name, unit, tail in (
            ("a value that ends in no plain text", b"a", b"\x80"),
            ("blanks behind a value", b" ", b""),
            ("blanks in a value", b"a ", b"\x80"),
            ("a blank at the end", b"a", b" "),
            ("many fields", b"1\r\ndate: ", b"2"),
            ("beginnings of fields", b"\r\ncookie", b""),
        )
    ],
    pytest.param(times(b"A", b"--b\r\n"), parts_in_pieces, 64_000, id="multipart head in pieces"),
    pytest.param(times(b"0", b"1;a="), chunks_in_pieces, 32_000, id="a chunk's extension in pieces"),
    pytest.param(times(b"1\r\na\r\n"), chunks_in_pieces, 16_000, id="small chunks"),
    pytest.param(times(b';a="', b"a"), parameters, 16_000, id="parameters"),
    pytest.param(times(b';a="b', b"a/b"), counted_parameters.__wrapped__, 16_000, id="media type's parameters"),
    pytest.param(times(b'for="', b""), read_for, 16_000, id="an element of Forwarded"),
    pytest.param(times(b'"\\', b""), closes_quotes, 16_000, id="quotes"),
    pytest.param(times(b"a", b"a.", b".a"), read_token, 4_000, id="a token"),
    pytest.param(lambda size: "AQ" + "A" * size, read_attempt, 2_000, id="an attempt's token"),
    pytest.param(lambda size: "AAFh" + "A" * size, parse_operation_id, 500, id="an operation's name"),
    preference("blanks", times(b" ", b"a", b"x"), 200),
    preference("blanks around a value", times(b" ", b"a=", b"=")),
    preference("texts that do not end", times(b'a;\\",')),
    preference("values that do not end", times(b'a="\\",')),
    preference("quotes", times(b'"')),
    preference("parameters", times(b';a="b"', b"a")),
    preference("members", times(b"a,")),
]


def least(step: Callable[[Any], object], given: object) -> int:
    """Nanoseconds."""
    found: list[int] = []
    for _ in range(RUNS):
        started = time.thread_time_ns()
        step(given)
        found.append(time.thread_time_ns() - started)
    return min(found)


def ratio(make: Make, step: Callable[[Any], object], size: int) -> float:
    """How many times longer an input of `FACTOR` times the size takes. The small times of small inputs are mostly overhead, which speaks
    for a step; below `FLOOR` they count as that, since a search takes another algorithm from some size on.
    """
    return least(step, make(FACTOR * size)) / max(FLOOR, least(step, make(size)))


@pytest.mark.parametrize(("make", "step", "size"), CASES)
def test_four_times_the_input_takes_no_more_than_twice_that_time_each(make: Make, step: Callable[[Any], object], size: int) -> None:
    """No step is quadratic."""
    assert any(ratio(make, step, size) < BOUND for _ in range(ATTEMPTS))


def quadratic(text: bytes) -> int:
    """In Python."""
    return sum(1 for at in range(len(text)) for _ in range(at))


def test_a_quadratic_step_is_seen() -> None:
    """The bound tells the two apart, in Python and in C alike."""
    assert any(ratio(times(b"a"), quadratic, 500) > BOUND for _ in range(ATTEMPTS))
    assert any(ratio(times(b"a", b"", b"b"), re.compile(rb"a*c").search, 2_000) > BOUND for _ in range(ATTEMPTS))
