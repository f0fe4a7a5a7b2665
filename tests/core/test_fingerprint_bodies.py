"""How fingerprints read bodies: forms by pairs, multipart by parts, JSON by what a policy covers, and everything else as bytes."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.fingerprint import LARGE_BODY, VERSION, BodyDigest, Content, digest_body, make_fingerprinter
from gateway.core.fingerprint_policy import BodyMode, FingerprintPolicy
from gateway.core.forms import FORM_TYPE, read_form
from gateway.core.model import Headers
from tests.core.jsons import json_texts, scrambled, values

AUTO = FingerprintPolicy()
FORM: Headers = ((b"Content-Type", FORM_TYPE),)
JSON: Headers = ((b"Content-Type", b"application/json"),)
GZIP = (b"Content-Encoding", b"gzip")


def digest(headers: Headers, body: bytes | BodyDigest, policy: FingerprintPolicy = AUTO, version: int = VERSION) -> bytes:
    content = Content("upload", "POST", b"/v1/files", headers, body)
    return make_fingerprinter(policy, b"secret", version).fingerprint(content).digest


def parts_type(boundary: bytes) -> Headers:
    return ((b"Content-Type", b"multipart/form-data; boundary=" + boundary),)


def upload(boundary: bytes, content: bytes = b"hello", name: bytes = b"doc") -> bytes:
    head = b'Content-Disposition: form-data; name="%b"; filename="a"\r\n\r\n' % name
    return b"--" + boundary + b"\r\n" + head + content + b"\r\n--" + boundary + b"--\r\n"


# ---- JSON


@given(values, st.randoms(use_true_random=False))
def test_the_spelling_of_json_does_not_count(value: Any, rnd: random.Random) -> None:
    """Member order, blanks and escapes leave the fingerprint alone, in every version."""
    plain = json.dumps(value).encode()
    for version in (1, 2):
        assert digest(JSON, scrambled(value, rnd).encode(), version=version) == digest(JSON, plain, version=version)


LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "1", "true", "null", 0.5, 2**53, 10**16])


def _typed(value: Any) -> Any:
    return (type(value) is bool, value)


@given(st.dictionaries(st.sampled_from("abc"), LEAVES | st.lists(LEAVES, min_size=1, max_size=3), min_size=1), st.data())
@example({"a": 1}, None)
@example({"a": [True]}, None)
def test_any_change_of_a_value_counts(body: dict[str, Any], data: st.DataObject | None) -> None:
    """One leaf changed anywhere is another fingerprint: a number into the text of it, true into 1, null into nothing."""
    name = next(iter(body)) if data is None else data.draw(st.sampled_from(sorted(body)))
    others = ["1", 1, True, None] if data is None else [data.draw(LEAVES)]
    before = digest(JSON, json.dumps(body).encode())
    for leaf in others:
        old = body[name]
        changed = body | {name: [leaf, *old[1:]] if isinstance(old, list) else leaf}
        same = _typed(leaf) == _typed(old[0] if isinstance(old, list) else old)
        assert (digest(JSON, json.dumps(changed).encode()) == before) == same
    assert digest(JSON, json.dumps({key: item for key, item in body.items() if key != name}).encode()) != before


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b"9007199254740993", b"9007199254740992", False),
        (b'{"a":1,"a":2}', b'{"a":2}', False),
        (b'{"a":2,"a":2}', b'{"a":2}', False),
        (b'"1"', b"1", False),
        (b"0.1", b"0.1000000000000000055511151231257827", False),
        (b"1e400", b"1e500", False),
        (b'"\\ud800"', b'"\\ud801"', False),
        (b"[" * 70 + b"]" * 70, b"[" * 70 + b" " + b"]" * 70, False),
        (b"1e2", b"100", True),
        (b"100.10", b"100.1", True),
        (b"1.0", b"1", True),
        (b"-0", b"0", True),
    ],
)
def test_pairs(one: bytes, other: bytes, same: bool) -> None:
    """Numbers count by their exact value; what has two readings counts by its bytes."""
    bodies = [b'{"amount":%b}' % body for body in (one, other)]
    for version in (1, 2):
        assert (digest(JSON, bodies[0], version=version) == digest(JSON, bodies[1], version=version)) == same


@given(json_texts, st.sampled_from([AUTO, FingerprintPolicy(ignore=("/*", "/a/*")), FingerprintPolicy(only=("/a", "/*/b"))]))
def test_every_json_text_has_a_fingerprint(text: str, policy: FingerprintPolicy) -> None:
    """Whether a text has a canonical form or none, it has a fingerprint and no error."""
    assert len(digest(JSON, text.encode(), policy)) == 32


def test_wildcards_are_new_in_version_2() -> None:
    """Version 1 reads a star in a pointer as the name that it was when its records were written."""
    policy = FingerprintPolicy(ignore=("/items/*/at",))
    bodies = [b'{"items":[{"at":1}]}', b'{"items":[{"at":2}]}', b'{"items":{"*":{"at":1}}}', b'{"items":{"*":{"at":2}}}']
    first = [digest(JSON, body, policy, version=1) for body in bodies]
    second = [digest(JSON, body, policy) for body in bodies]
    assert (first[0] == first[1], first[2] == first[3]) == (False, True)
    assert (second[0] == second[1], second[2] == second[3]) == (True, True)


def test_only_covers_what_it_selects() -> None:
    """With `only`, other members do not count; JSON without a canonical form counts as a whole."""
    policy = FingerprintPolicy(only=("/amount",))
    same = {digest(JSON, body, policy) for body in (b'{"amount":1}', b'{"at":5,"amount":1.0}', b'{"amount":1,"x":{"amount":2}}')}
    others = {
        digest(JSON, body, policy) for body in (b'{"amount":2}', b'{"amount":"1"}', b"{}", b'{"amount":1,"amount":1}', b'{"amount":1')
    }
    assert len(same) == 1
    assert len(same | others) == 6


# ---- forms


@pytest.mark.parametrize("mode", [BodyMode.AUTO, BodyMode.FORM])
def test_forms_count_by_their_pairs(mode: BodyMode) -> None:
    """The spelling of pairs and the order of different names do not count in version 2; values, names and the order of equal names do."""
    policy = FingerprintPolicy(mode)
    same = [b"to=a+b&amount=100", b"amount=100&to=a%20b", b"%61mount=100&&to=a+b&"]
    others = [
        b"amount=101&to=a+b",
        b"amount=100",
        b"Amount=100&to=a+b",
        b"amount=100&to=a%2Bb",
        b"amount=100&amount=100&to=a+b",
        b"to&amount=100",
    ]
    assert len({digest(FORM, body, policy) for body in same}) == 1
    assert len({digest(FORM, body, policy) for body in same + others}) == 1 + len(others)
    assert digest(FORM, b"a=1&a=2", policy) != digest(FORM, b"a=2&a=1", policy)


def test_version_1_reads_forms_and_parts_as_bytes() -> None:
    """Records of version 1 are compared as they were written: every byte counts, the boundary too."""
    bodies = [(FORM, b"a=1&b=2"), (FORM, b"b=2&a=1"), (parts_type(b"x"), upload(b"x")), (parts_type(b"y"), upload(b"y"))]
    assert len({digest(headers, body, version=1) for headers, body in bodies}) == 4
    assert len({digest(headers, body) for headers, body in bodies}) == 2


@pytest.mark.parametrize(
    "headers",
    [(), JSON, (*FORM, GZIP), (*FORM, *FORM), ((b"Content-Type", b"text/plain"),), ((b"Content-Type", FORM_TYPE + b", text/plain"),)],
)
def test_auto_reads_forms_by_their_type_alone(headers: Headers) -> None:
    """In `auto`, a form under another type, two types or a content coding is its bytes."""
    assert digest(headers, b"a=1&b=2") != digest(headers, b"b=2&a=1")


@pytest.mark.parametrize("body", [b"", b"a=1", b"a=1&b=2"])
def test_no_two_readings_meet(body: bytes) -> None:
    """The pairs of a form, and the bytes in which they are encoded, are different bodies: the tag says how each was read."""
    encoded = read_form(body)
    assert encoded is not None
    readings = [(FORM, body, BodyMode.FORM), (FORM, body, BodyMode.BYTES), (FORM, body, BodyMode.NONE)]
    if encoded != body:
        readings += [(FORM, encoded, BodyMode.BYTES), (FORM, encoded, BodyMode.FORM)]
    prints = {digest(headers, text, FingerprintPolicy(mode)) for headers, text, mode in readings}
    assert len(prints) == 3 + (encoded != body)


# ---- parts


def test_parts_count_and_the_boundary_does_not() -> None:
    """A retry with another boundary is the same request; with another content, name or number of parts it is not."""
    assert digest(parts_type(b"x"), upload(b"x")) == digest(parts_type(b"y"), upload(b"y"))
    others = [upload(b"x", b"hello!"), upload(b"x", name=b"doc2"), upload(b"x").replace(b'="a"', b'="b"'), upload(b"x")[:-4]]
    assert len({digest(parts_type(b"x"), body) for body in [upload(b"x"), *others]}) == 1 + len(others)


@pytest.mark.parametrize("headers", [(GZIP,), ((b"Content-Type", b"text/plain"),)])
@pytest.mark.parametrize("mode", [BodyMode.AUTO, BodyMode.MULTIPART])
@pytest.mark.parametrize("first", [True, False])
def test_parts_are_read_by_their_type_alone(headers: Headers, mode: BodyMode, first: bool) -> None:
    """Under a content coding or beside another type, a body is its bytes, short or long, kept or spilled."""
    policy = FingerprintPolicy(mode)
    for size in (5, LARGE_BODY):
        prints = set()
        for boundary in (b"x", b"y"):
            typed = (*headers, *parts_type(boundary)) if first else (*parts_type(boundary), *headers)
            body = upload(boundary, b"a" * size)
            prints.add(digest(typed, body, policy))
            if size == LARGE_BODY:
                assert digest(typed, digest_body(body, typed), policy) in prints
        assert len(prints) == 2


@pytest.mark.parametrize("mode", BodyMode)
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("body", [upload(b"x", b"a" * LARGE_BODY), b"--x" + b"a" * LARGE_BODY], ids=["parts", "no parts"])
def test_long_parts_kept_or_spilled_mean_the_same(mode: BodyMode, version: int, body: bytes) -> None:
    """Whether a process kept a body or read it in passing, its fingerprint is one, in every mode and version."""
    policy = FingerprintPolicy(mode)
    if version == 1 and mode in {BodyMode.FORM, BodyMode.MULTIPART}:
        return
    spilled = digest_body(body, parts_type(b"x"))
    assert (spilled.parts is not None) == (body == upload(b"x", b"a" * LARGE_BODY))
    assert digest(parts_type(b"x"), body, policy, version) == digest(parts_type(b"x"), spilled, policy, version)


def test_long_parts_count_by_their_parts() -> None:
    """Beyond the limit too the boundary does not count, and each byte of a part does."""
    content = b"a" * LARGE_BODY
    digests = [digest(parts_type(boundary), digest_body(upload(boundary, content), parts_type(boundary))) for boundary in (b"x", b"y")]
    assert digests[0] == digests[1]
    assert digest(parts_type(b"x"), upload(b"x", content + b"b")) != digests[0]
    assert digest(parts_type(b"x"), upload(b"x", content), FingerprintPolicy(BodyMode.BYTES)) != digests[0]


def test_a_digest_of_parts_is_a_digest() -> None:
    """What stands for the parts of a long body has 32 bytes, like what stands for all of it."""
    whole = digest_body(upload(b"x", bytes(LARGE_BODY)), parts_type(b"x"))
    with pytest.raises(ValueError, match="32 bytes"):
        replace(whole, parts=b"short")
