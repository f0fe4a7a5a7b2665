"""Fingerprints: golden values that pin each version for ever, and what changes them and what does not."""

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gateway.core.field_names import DROPPABLE, SELECTING
from gateway.core.fingerprint import (
    LARGE_BODY,
    VERSION,
    VERSIONS,
    WRITABLE,
    BodyDigest,
    Content,
    EqualRequests,
    Fingerprinter,
    digest_body,
    make_fingerprinter,
    parse_policy,
    policy_digest,
    policy_text,
)
from gateway.core.fingerprint_head import head_reader
from gateway.core.fingerprint_policy import BodyMode, FingerprintPolicy
from gateway.core.forms import FORM_TYPE, without_named
from gateway.core.model import Headers
from gateway.core.routes import split_target
from gateway.core.scope import length_prefixed
from tests.core.vectors import load, octets

VECTORS = load("fingerprint") + load("fingerprint2") + load("fingerprint3")
IDS = [f"{case.get('version', 1)}-{case['name']}" for case in VECTORS]

JSON: Headers = ((b"Content-Type", b"application/json"),)
AUTO = FingerprintPolicy()
PAYMENT = Content("create-charge", "POST", b"/v1/pay?to=a", JSON, b'{"amount":100,"currency":"EUR"}')


def digest(content: Content, policy: FingerprintPolicy = AUTO, secret: bytes = b"") -> bytes:
    return make_fingerprinter(policy, secret).fingerprint(content).digest


# ---- golden values


def policy_of(case: dict[str, Any]) -> FingerprintPolicy:
    raw = case["policy"]
    return FingerprintPolicy(BodyMode(raw["body"]), **{name: tuple(texts) for name, texts in raw.items() if name != "body"})


def version_of(case: dict[str, Any]) -> int:
    return int(case.get("version", 1))


def fingerprinter_of(case: dict[str, Any]) -> Fingerprinter:
    return make_fingerprinter(policy_of(case), bytes.fromhex(case["secret"]), version_of(case))


def content_of(case: dict[str, Any]) -> Content:
    headers = tuple((name.encode(), value.encode()) for name, value in case["headers"])
    return Content(case["scope"], case["method"], case["target"].encode(), headers, octets(case["body"]), case.get("host", "").encode())


@pytest.mark.parametrize("case", VECTORS, ids=IDS)
def test_golden_fingerprints(case: dict[str, Any]) -> None:
    """A version gives these digests, for ever: they are in databases."""
    found = fingerprinter_of(case).fingerprint(content_of(case))
    assert (found.version, found.policy.hex(), found.digest.hex()) == (version_of(case), case["policy_digest"], case["fingerprint"])


@pytest.mark.parametrize("case", VECTORS, ids=IDS)
def test_golden_policies(case: dict[str, Any]) -> None:
    """A policy's text, from which its digest is made, and back."""
    assert policy_text(policy_of(case)) == case["policy_text"]
    assert policy_digest(case["policy_text"], version_of(case)).hex() == case["policy_digest"]
    assert policy_text(parse_policy(case["policy_text"])) == case["policy_text"]


@pytest.mark.parametrize("case", VECTORS, ids=IDS)
def test_golden_parts(case: dict[str, Any]) -> None:
    """The digest is SHA-256, or HMAC under the secret, of the domain tag and the length-prefixed parts, and of nothing else."""
    message = b"idempotency-gateway/fingerprint/%d\0" % version_of(case) + octets({"prefixed": case["parts"]})
    secret = bytes.fromhex(case["secret"])
    want = hmac.new(secret, message, hashlib.sha256) if secret else hashlib.sha256(message)
    assert want.hexdigest() == case["fingerprint"]


def test_versions_are_pinned() -> None:
    """A new version needs its own vectors beside these; those before it stay readable."""
    assert (VERSION, WRITABLE, VERSIONS) == (3, (2, 3), (1, 2, 3))
    assert {version_of(case) for case in VECTORS} == {1, 2, 3}


def test_what_a_version_does_not_know() -> None:
    """A version of another release, and what older ones did not have, are refused: they must not be taken for something else."""
    for version in (0, 4):
        with pytest.raises(ValueError, match="version"):
            make_fingerprinter(AUTO, b"", version)
    for policy in (FingerprintPolicy(BodyMode.FORM), FingerprintPolicy(BodyMode.MULTIPART), FingerprintPolicy(only=("/a",))):
        with pytest.raises(ValueError, match="version 1"):
            make_fingerprinter(policy, b"", 1)
        assert make_fingerprinter(policy, b"").version == VERSION
    for policy in (
        FingerprintPolicy(ignore_headers=("host",)),
        FingerprintPolicy(ignore_query=("a",)),
        FingerprintPolicy(ignore_form=("a",)),
    ):
        for version in (1, 2):
            with pytest.raises(ValueError, match=f"version {version}"):
                make_fingerprinter(policy, b"", version)


def test_versions_never_meet() -> None:
    """Under one policy text the versions have digests of their own, for the policy and for every request."""
    prints = [make_fingerprinter(AUTO, b"s", version).fingerprint(PAYMENT) for version in VERSIONS]
    assert len({found.policy for found in prints}) == len({found.digest for found in prints}) == len(VERSIONS)
    assert [found.policy for found in prints] == [policy_digest(policy_text(AUTO), version) for version in VERSIONS]


# ---- what changes it


CHANGES: dict[str, Content] = {
    "scope": replace(PAYMENT, scope="create-refund"),
    "host": replace(PAYMENT, host=b"shop.test"),
    "media type parameter": replace(PAYMENT, headers=((b"Content-Type", b"application/json; version=2"),)),
    "selecting field": replace(PAYMENT, headers=(*JSON, (b"If-Match", b"1"))),
    "selecting field, empty": replace(PAYMENT, headers=(*JSON, (b"If-Match", b""))),
    "selecting field, twice": replace(PAYMENT, headers=(*JSON, (b"If-Match", b"1"), (b"if-match", b"1"))),
    "selecting field in another spelling": replace(PAYMENT, headers=(*JSON, (b"If_Match", b"1"))),
    "another selecting field": replace(PAYMENT, headers=(*JSON, (b"If-None-Match", b"1"))),
    "names in two letter cases": replace(PAYMENT, body=b'{"amount":1,"Amount":2}'),
    "names in two letter cases, reordered": replace(PAYMENT, body=b'{"Amount":2,"amount":1}'),
    "method": replace(PAYMENT, method="PATCH"),
    "path": replace(PAYMENT, target=b"/v1/pay2?to=a"),
    "path parameter": replace(PAYMENT, target=b"/v1/pay/7?to=a"),
    "path spelling": replace(PAYMENT, target=b"/v1/p%61y?to=a"),
    "two trailing slashes": replace(PAYMENT, target=b"/v1/pay//?to=a"),
    "query value": replace(PAYMENT, target=b"/v1/pay?to=b"),
    "query left out": replace(PAYMENT, target=b"/v1/pay"),
    "query order": replace(PAYMENT, target=b"/v1/pay?b=1&to=a"),
    "query moved into path": replace(PAYMENT, target=b"/v1/payto=a"),
    "fragment": replace(PAYMENT, target=b"/v1/pay#x?to=a"),
    "media type": replace(PAYMENT, headers=((b"Content-Type", b"text/plain"),)),
    "no media type": replace(PAYMENT, headers=()),
    "second media type": replace(PAYMENT, headers=(*JSON, (b"content-type", b"text/plain"))),
    "first media type": replace(PAYMENT, headers=((b"content-type", b"text/plain"), *JSON)),
    "content coding": replace(PAYMENT, headers=(*JSON, (b"Content-Encoding", b"gzip"))),
    "amount": replace(PAYMENT, body=b'{"amount":101,"currency":"EUR"}'),
    "amount as text": replace(PAYMENT, body=b'{"amount":"100","currency":"EUR"}'),
    "a member more": replace(PAYMENT, body=b'{"amount":100,"currency":"EUR","x":null}'),
    "duplicate name": replace(PAYMENT, body=b'{"amount":999,"amount":100,"currency":"EUR"}'),
    "no body": replace(PAYMENT, body=b""),
    "not JSON": replace(PAYMENT, body=b'{"amount":100,"currency":"EUR"'),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("secret", [b"", b"secret"])
def test_what_changes_it(change: str, secret: bytes) -> None:
    """Every part of what a request means changes its fingerprint."""
    assert digest(CHANGES[change], secret=secret) != digest(PAYMENT, secret=secret)


def test_all_changes_differ() -> None:
    """No two of these different requests share a fingerprint."""
    every = [PAYMENT, *CHANGES.values()]
    assert len({digest(content) for content in every}) == len(every)


SAME: dict[str, Content] = {
    "blanks": replace(PAYMENT, body=b' {"amount": 100,\n"currency": "EUR"} '),
    "member order": replace(PAYMENT, body=b'{"currency":"EUR","amount":100}'),
    "number spelling": replace(PAYMENT, body=b'{"amount":1e2,"currency":"EUR"}'),
    "escapes": replace(PAYMENT, body=b'{"amount":100,"currenc\\u0079":"\\u0045UR"}'),
    "charset": replace(PAYMENT, headers=((b"content-type", b" Application/JSON ; charset=utf-8"),)),
    "absolute form": replace(PAYMENT, target=b"https://user@api.test:8443/v1/pay?to=a"),
    "volatile fields": replace(
        PAYMENT,
        headers=(
            (b"Date", b"Fri, 27 Nov 2026 22:00:00 GMT"),
            (b"Authorization", b"Bearer other"),
            (b"Idempotency-Key", b"k"),
            *JSON,
            (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            (b"Signature", b"sig1=:YQ==:"),
            (b"X-Request-Id", b"r2"),
            (b"User-Agent", b"retrying/2"),
            (b"Content-Length", b"31"),
            (b"Repeatability-First-Sent", b"now"),
            (b"Host", b"other"),
        ),
    ),
}


@pytest.mark.parametrize("same", SAME)
def test_what_does_not_change_it(same: str) -> None:
    """Another spelling of the same request, and fields that change with each attempt, leave the fingerprint alone."""
    assert digest(SAME[same]) == digest(PAYMENT)


@pytest.mark.parametrize("name", sorted(SELECTING))
@pytest.mark.parametrize("spelling", [bytes.upper, bytes.title, lambda name: name.replace(b"-", b"_")])
def test_every_selecting_field_counts_once_it_is_there(name: bytes, spelling: Callable[[bytes], bytes]) -> None:
    """Its presence, value and number of lines, in any spelling; unless the route leaves it out."""
    values = [(), (b"1",), (b"2",), (b"",), (b"1", b"2"), (b"2", b"1")]
    contents = [replace(PAYMENT, headers=(*JSON, *((spelling(name), value) for value in lines))) for lines in values]
    assert len({digest(content) for content in contents}) == len(contents)
    assert len({digest(content, FingerprintPolicy(ignore_headers=(name.decode(),))) for content in contents}) == 1


@given(st.permutations([(b"If-Match", b"1"), (b"Range", b"2"), (b"SOAPAction", b"3"), (b"X-Other", b"4")]))
def test_the_order_of_different_fields_does_not_count(lines: list[tuple[bytes, bytes]]) -> None:
    """Only lines of one name have an order (RFC 9110 section 5.3)."""
    assert digest(replace(PAYMENT, headers=(*lines, *JSON))) == digest(replace(PAYMENT, headers=(*JSON, *sorted(lines))))


@pytest.mark.parametrize(
    ("one", "two", "alike"),
    [
        (b"a/b", b"A/B ;charset=utf-8", True),
        (b"a/b;x=1;y=2", b'a/b; Y="2" ; x=1;', True),
        (b"a/b;x=1", b'a/b;x="\\1"', True),
        (b'a/b;x="1;y=2"', b"a/b;x=1;y=2", False),
        (b"a/b;x=1", b"a/b;x=2", False),
        (b"a/b;x=a", b"a/b;x=A", False),
        (b"a/b;x", b"a/b;x=", False),
        (b"a/b;x=1;x=2", b"a/b;x=2;x=1", False),
        (b"a/b;boundary=----=_1 2;x=1", b"a/b;x=1;boundary=3", True),
        (b'a/b;boundary="1;x=1', b"a/b", True),
        (b"a/b;charset=a;charset=b", b"a/b", True),
    ],
)
def test_parameters_of_the_media_type(one: bytes, two: bytes, alike: bool) -> None:
    """All but charset and boundary count: names without letter case and in any order, values without quotes."""
    first, second = (digest(replace(PAYMENT, headers=((b"Content-Type", text),), body=b"x")) for text in (one, two))
    assert (first == second) == alike


def test_configured_headers_are_covered() -> None:
    """A configured header's presence, value, number of lines and their order count; its letter case and blanks around it do not."""
    policy = FingerprintPolicy(headers=("if-match", "stripe-version"))
    assert len({digest(PAYMENT, FingerprintPolicy(headers=names)) for names in ((), ("if-match",), ("range",))}) == 3

    def with_fields(*fields: tuple[bytes, bytes]) -> bytes:
        return digest(replace(PAYMENT, headers=JSON + fields), policy)

    variants = [
        with_fields(),
        with_fields((b"Stripe-Version", b"1")),
        with_fields((b"Stripe-Version", b"2")),
        with_fields((b"Stripe-Version", b"")),
        with_fields((b"If-Match", b"1")),
        with_fields((b"Stripe-Version", b"1"), (b"Stripe-Version", b"2")),
        with_fields((b"Stripe-Version", b"2"), (b"Stripe-Version", b"1")),
        with_fields((b"Stripe-Version", b"1, 2")),
        with_fields((b"If-Match", b"1"), (b"Stripe-Version", b"2")),
    ]
    assert len(set(variants)) == len(variants)
    assert with_fields((b"STRIPE-version", b" 1\t")) == variants[1]
    assert with_fields((b"Stripe-Version", b"2"), (b"If-Match", b"1")) == variants[-1]


def test_secret_changes_it() -> None:
    """Under another secret, or none, all digests are others; the policy's digest is the same."""
    policy = FingerprintPolicy()
    prints = [make_fingerprinter(policy, secret).fingerprint(PAYMENT) for secret in (b"", b"one", b"two")]
    assert len({found.digest for found in prints}) == 3
    assert len({found.policy for found in prints}) == 1


# ---- body modes


@pytest.mark.parametrize("media_type", [b"application/json", b"application/merge-patch+json", b"APPLICATION/Vnd.Api+JSON;v=1"])
def test_auto_reads_json_types(media_type: bytes) -> None:
    """In `auto`, bodies of JSON media types are compared by meaning."""
    bodies = [b'{"a":1,"b":2}', b'{"b":2,"a":1}']
    one, other = (digest(replace(PAYMENT, headers=((b"Content-Type", media_type),), body=body)) for body in bodies)
    assert one == other


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"Content-Type", b""),),
        ((b"Content-Type", b"text/json"),),
        ((b"Content-Type", b"application/jsonx"),),
        ((b"Content-Type", b"text/plain;application/json"),),
        (*JSON, (b"Content-Encoding", b"identity")),
        (*JSON, (b"Content-Encoding", b"gzip")),
        (*JSON, *JSON),
        ((b"Content-Type", b"text/plain"), (b"Content-Type", b"application/x+json")),
        ((b"Content-Type", b"text/plain, application/x+json"),),
    ],
)
def test_auto_reads_other_types_as_bytes(headers: Headers) -> None:
    """In `auto`, a body of any other type, of two types at once, or under a content coding is its bytes."""
    one, other = (digest(replace(PAYMENT, headers=headers, body=body)) for body in (b'{"a":1,"b":2}', b'{"b":2,"a":1}'))
    assert one != other


def test_mode_none_leaves_the_body_out() -> None:
    """`none` covers everything but the body."""
    policy = FingerprintPolicy(BodyMode.NONE)
    assert digest(PAYMENT, policy) == digest(replace(PAYMENT, body=b"other"), policy) != digest(replace(PAYMENT, target=b"/x"), policy)


@given(st.binary(max_size=20), st.binary(max_size=20), st.sampled_from([BodyMode.BYTES, BodyMode.AUTO, BodyMode.JSON]))
@example(b"null", b" null", BodyMode.BYTES)
def test_bytes_count_each(one: bytes, other: bytes, mode: BodyMode) -> None:
    """Bodies without a JSON reading share a fingerprint only if they are equal."""
    policy = FingerprintPolicy(mode)
    plain = replace(PAYMENT, headers=((b"Content-Type", b"application/octet-stream"),))
    prefix = b"\xff" if mode is BodyMode.JSON else b""
    one, other = prefix + one, prefix + other
    assert (digest(replace(plain, body=one), policy) == digest(replace(plain, body=other), policy)) == (one == other)


@pytest.mark.parametrize("body", [b'{"a":1}', b"1", b"null", b'""', b"[]"])
def test_json_and_bytes_never_meet(body: bytes) -> None:
    """A canonical form and the same bytes read as bytes have different fingerprints: the tag says how the body was read."""
    modes = [BodyMode.JSON, BodyMode.BYTES, BodyMode.NONE]
    prints = [digest(replace(PAYMENT, body=body), FingerprintPolicy(mode)) for mode in modes]
    assert len(set(prints)) == 3


def test_tag_cannot_be_forged() -> None:
    """A body that spells the end of one part and the start of another stays one body."""
    inside = length_prefixed([b"json", b"1"])
    assert digest(replace(PAYMENT, body=inside)) != digest(replace(PAYMENT, body=b"1"))
    assert digest(replace(PAYMENT, scope="s1:x,4:POST", method="")) != digest(replace(PAYMENT, scope="s", method="x"))


small = st.text("ab,:1", max_size=3)


@given(st.tuples(small, small, small, small), st.tuples(small, small, small, small))
@example(("a", "b", "", ""), ("ab", "", "", ""))
def test_parts_never_run_together(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    """Moving characters from one part to its neighbour changes the fingerprint."""
    prints = [digest(Content(scope, method, f"/{path}?{query}".encode(), (), b"")) for scope, method, path, query in (one, other)]
    assert (prints[0] == prints[1]) == (one == other)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | small, lambda inner: st.lists(inner, max_size=3), max_leaves=5
)


@given(st.dictionaries(small, json_values, max_size=3), json_values, json_values)
def test_ignored_pointers_apply(members: dict[str, Any], one: Any, other: Any) -> None:
    """Bodies that differ only under an ignored pointer share a fingerprint under that policy, and no other bodies do."""
    policy = FingerprintPolicy(ignore=("/at",))
    assume(one != other)
    bodies = [json.dumps(members | {"at": value}).encode() for value in (one, other)]
    assert digest(replace(PAYMENT, body=bodies[0]), policy) == digest(replace(PAYMENT, body=bodies[1]), policy)
    assert digest(replace(PAYMENT, body=bodies[0])) != digest(replace(PAYMENT, body=bodies[1]))
    changed = json.dumps(members | {"amount": "changed"}).encode()
    assert digest(replace(PAYMENT, body=bodies[0]), policy) != digest(replace(PAYMENT, body=changed), policy)


@given(st.binary(max_size=30), st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=4), st.binary(max_size=12))
def test_never_raises(body: bytes, headers: list[tuple[bytes, bytes]], target: bytes) -> None:
    """Whatever a client sends has a fingerprint of 32 bytes."""
    for mode in BodyMode:
        for media_type in (b"application/json", FORM_TYPE, b"multipart/form-data; boundary=b"):
            content = Content("s", "POST", target, ((b"Content-Type", media_type), *headers), body)
            assert len(digest(content, FingerprintPolicy(mode, ("x",), ("/a",), ("/*",)))) == 32


# ---- large bodies


@pytest.mark.parametrize("mode", BodyMode)
@pytest.mark.parametrize("secret", [b"", b"secret"])
def test_a_large_body_and_its_digest_mean_the_same(mode: BodyMode, secret: bytes) -> None:
    """Whether a process kept a body or spilled it while hashing, its fingerprint is one, in every mode."""
    body = b'{"amount":100}' + b" " * LARGE_BODY
    policy = FingerprintPolicy(mode, ignore=("/amount",))
    kept, spilled = replace(PAYMENT, body=body), replace(PAYMENT, body=BodyDigest(len(body), hashlib.sha256(body).digest()))
    assert digest(kept, policy, secret) == digest(spilled, policy, secret)


def test_every_byte_of_a_large_body_counts() -> None:
    """Beyond the limit another spelling is another body, and so is one byte changed or one more."""
    body = b'{"amount":100}' + b" " * LARGE_BODY
    others = [body + b" ", b" " + body[:-1], body[:-1] + b"\n", body.replace(b"100", b"1e2"), body.replace(b"100", b"101")]
    assert len({digest(replace(PAYMENT, body=each)) for each in [body, *others]}) == 1 + len(others)
    assert len({digest(replace(PAYMENT, body=digest_body(each))) for each in [body, *others]}) == 1 + len(others)


def test_a_large_body_is_not_taken_for_the_bytes_of_its_digest() -> None:
    """A short body that spells the digest of a long one is another body: the tag says so."""
    body = bytes(LARGE_BODY + 1)
    spelt = replace(PAYMENT, body=hashlib.sha256(body).digest())
    assert digest(spelt, FingerprintPolicy(BodyMode.BYTES)) != digest(replace(PAYMENT, body=body), FingerprintPolicy(BodyMode.BYTES))


def test_a_digest_stands_for_a_large_body_only() -> None:
    """The digest of a body that must count by its bytes is a mistake of ours, and so is one that is no SHA-256."""
    assert LARGE_BODY == 1024 * 1024
    assert digest_body(bytes(LARGE_BODY + 1)) == BodyDigest(LARGE_BODY + 1, hashlib.sha256(bytes(LARGE_BODY + 1)).digest())
    with pytest.raises(ValueError, match="counts by its bytes"):
        digest_body(bytes(LARGE_BODY))
    with pytest.raises(ValueError, match="counts by its bytes"):
        BodyDigest(0, hashlib.sha256().digest())
    with pytest.raises(ValueError, match="32 bytes"):
        BodyDigest(LARGE_BODY + 1, b"short")


# ---- policies


pointers = st.lists(st.from_regex(r"(/([abÄ*]|~[01])*)*", fullmatch=True), max_size=3, unique=True).map(tuple)
policies = st.builds(
    FingerprintPolicy,
    st.sampled_from(BodyMode),
    st.lists(st.from_regex(r"[a-z-]{1,8}", fullmatch=True), max_size=3, unique=True).map(tuple),
    pointers,
    pointers,
    st.lists(st.sampled_from(sorted(DROPPABLE)), max_size=3, unique=True).map(tuple),
    st.lists(st.text(max_size=4), max_size=3, unique=True).map(tuple),
    st.lists(st.text(max_size=4), max_size=3, unique=True).map(tuple),
)


def lists_of(policy: FingerprintPolicy) -> list[tuple[str, ...]]:
    others = policy.ignore_headers, policy.ignore_query, policy.ignore_form
    return [tuple(sorted(names)) for names in (policy.headers, policy.ignore, policy.only, *others)]


@given(policies)
def test_policies_round_trip(policy: FingerprintPolicy) -> None:
    """A policy read back from its text is the same policy, its lists in order."""
    text = policy_text(policy)
    assert parse_policy(text) == FingerprintPolicy(policy.body, *lists_of(policy))
    assert policy_text(parse_policy(text)) == text


@given(policies, policies)
def test_different_policies_have_different_digests(one: FingerprintPolicy, other: FingerprintPolicy) -> None:
    """The digest names the policy: the order of its lists aside, no two share one, and each fingerprint carries its own."""
    same = (one.body, lists_of(one)) == (other.body, lists_of(other))
    first, second = (make_fingerprinter(policy, b"").fingerprint(PAYMENT) for policy in (one, other))
    assert (first.policy == second.policy) == same
    assert first.policy == policy_digest(policy_text(one))
    if same:
        assert first == second


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"body":"auto","headers":[]}',
        '{"body":"auto","headers":[],"ignore":[],"more":1}',
        '{"body":"auto","headers":[],"only":["/a"]}',
        '{"body":"auto","headers":[],"ignore":[],"only":[]}',
        '{"body":"auto","headers":[],"ignore":[],"only":[5]}',
        '{"body":"auto","headers":[],"ignore":[],"only":"/a"}',
        '{"body":"auto","headers":[],"ignore":[],"ignore_headers":["authorization"]}',
        '{"body":"auto","headers":[],"ignore":[],"ignore_query":[]}',
        '{"body":"auto","headers":[],"ignore":[],"ignore_form":["a",5]}',
        '{"body":"xml","headers":[],"ignore":[]}',
        '{"body":null,"headers":[],"ignore":[]}',
        '{"body":"auto","headers":"abc","ignore":[]}',
        '{"body":"auto","headers":5,"ignore":[]}',
        '{"body":"auto","headers":[5],"ignore":[]}',
        '{"body":"auto","headers":[],"ignore":[null]}',
        '{"body":"auto","headers":null,"ignore":[]}',
    ],
)
def test_foreign_policy_texts_are_refused(text: str) -> None:
    """A text that is not fully understood is a ValueError, never another policy."""
    with pytest.raises(ValueError):  # noqa: PT011 - three parsers, one contract: whatever its words, a ValueError
        parse_policy(text)


@pytest.mark.parametrize("query", [b"", b"?a=/"])
def test_a_closing_slash_is_no_other_operation(query: bytes) -> None:
    """From version 3 on: frameworks redirect one spelling of a path to the other. One slash, and not that of the root."""
    make = make_fingerprinter(FingerprintPolicy(), b"", 3)
    spelt = [
        make.fingerprint(Content("s", "POST", path + query, (), b"")).digest for path in (b"/v1/a", b"/v1/a/", b"/v1/a//", b"/", b"//")
    ]
    assert spelt[0] == spelt[1]
    assert spelt[3] == spelt[4]  # of `//` the root is the same spelling less one slash
    assert len(set(spelt)) == 3


# ---- by the book


def _read(content: Content, policy: FingerprintPolicy, version: int) -> tuple[tuple[bytes, bytes], list[bytes]]:
    make = make_fingerprinter(policy, b"", version)
    head = head_reader(policy, version).read(tuple(field for field in content.headers if make.head_reader.counts(field[0])))
    return make._body(head.content_type, make._mode(head.media_type, head.coding), content.body), head.parts


def by_the_book(content: Content, policy: FingerprintPolicy, secret: bytes, version: int) -> bytes:
    """A fingerprint made in one go, without anything prepared or remembered."""
    path, query, _ = split_target(content.target)
    if version > 2 and path.endswith(b"/") and len(path) > 1:
        path = path[:-1]
    if query and policy.ignore_query:
        query = without_named(query, frozenset(name.encode() for name in policy.ignore_query))
    (tag, body), head = _read(content, policy, version)
    parts = [content.scope.encode(), content.method.encode(), path, query, *head, tag, body]
    if version > 2:
        parts.append(b"" if "host" in policy.ignore_headers else content.host)
    message = b"idempotency-gateway/fingerprint/%d\0" % version + length_prefixed(parts)
    return hmac.digest(secret, message, "sha256") if secret else hashlib.sha256(message).digest()


field_lines = st.tuples(
    st.sampled_from(
        [b"Content-Type", b"content-type", b"Content_Type", b"Content-Encoding", b"If-Match", b"if_match", b"X-A", b"x-b", b"Host"]
    ),
    st.sampled_from([b"", b"application/json", b"application/json; v=2", b"multipart/form-data; boundary=b", FORM_TYPE, b"gzip", b" 1"]),
)
contents = st.builds(
    Content,
    st.sampled_from(["s", "t"]),
    st.sampled_from(["POST", "PATCH"]),
    st.sampled_from([b"/", b"//", b"/a", b"/a/", b"/a?x=1&y=2", b"/a?y=2", b"http://h/a", b""]),
    st.lists(field_lines, max_size=4).map(tuple),
    st.sampled_from([b"", b"1", b"1.50", b" 1.5", b'{"a":1,"b":2}', b'{"b":2,"a":1}', b"a=1&b=2", b"b=2&a=1", b"\xff", b"--b--"]),
    st.sampled_from([b"", b"h"]),
)
some_policies = st.sampled_from(
    [
        FingerprintPolicy(),
        FingerprintPolicy(BodyMode.FORM),
        FingerprintPolicy(BodyMode.JSON, ("x-a",), ("/a",)),
        FingerprintPolicy(BodyMode.BYTES),
    ]
)


@given(st.lists(contents, min_size=1, max_size=6), some_policies, st.sampled_from([b"", b"secret", b"s" * 65]), st.sampled_from(VERSIONS))
def test_what_is_prepared_or_remembered_changes_nothing(
    given_contents: list[Content], policy: FingerprintPolicy, secret: bytes, version: int
) -> None:
    """A fingerprinter that has seen other requests, and these, gives what one that computes each anew does, always."""
    assume(version > 1 or policy.body not in {BodyMode.FORM, BodyMode.MULTIPART})
    used = make_fingerprinter(policy, secret, version, equal=EqualRequests())
    for content in given_contents * 4:
        assert used.fingerprint(content).digest == by_the_book(content, policy, secret, version)


@given(st.lists(contents, min_size=2, max_size=4))
def test_fingerprinters_that_remember_together_do_not_meet(given_contents: list[Content]) -> None:
    """What one policy remembers is not told under another, nor under another secret or version."""
    equal = EqualRequests()
    ignoring = FingerprintPolicy(ignore=("/a",), ignore_query=("x",))
    ways = [(AUTO, b"", 3), (AUTO, b"s", 3), (AUTO, b"s", 2), (FingerprintPolicy(BodyMode.JSON), b"s", 3), (ignoring, b"s", 3)]
    used = [make_fingerprinter(*way, equal=equal) for way in ways]
    for content in given_contents * 3:
        for way, fingerprinter in zip(ways, used, strict=True):
            assert fingerprinter.fingerprint(content).digest == by_the_book(content, *way)


def test_what_is_remembered_is_bounded_and_holds_no_body() -> None:
    """However many requests come, and come again: a bounded number is remembered, and of a body no more than digests."""
    equal = EqualRequests()
    make = make_fingerprinter(AUTO, b"secret", equal=equal)
    for number in range(20_000):
        request = replace(PAYMENT, target=b"/%d" % number, headers=(*JSON, (b"X-%d" % number, b"")), body=b'{"card":"4242 %d"}' % number)
        assert make.fingerprint(request) == make.fingerprint(request)
    assert len(equal.seen) <= 16 * 1024
    assert len(equal.known) <= 4 * 1024
    assert max(len(make.targets), len(make.heads), len(make.passed_over)) <= 256
    assert all(len(name) == 32 for name in equal.known)
    long = replace(
        PAYMENT, target=b"/" + b"a" * 2000, headers=((b"If-Match", b"1" * 2000), (b"X" * 2000, b"")), body=b"[" + b"1," * 10_000 + b"1]"
    )
    before = len(equal.known), len(make.targets), len(make.heads), len(make.passed_over)
    assert len({make.fingerprint(long).digest for _ in range(3)}) == 1
    assert (len(equal.known), len(make.targets), len(make.heads), len(make.passed_over)) == before
