"""Keys in a query and in a JSON body, and what is asked of a key wherever it stands."""

import json
import re
from urllib.parse import parse_qsl, quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.fingerprint import LARGE_BODY
from gateway.core.headers import Fields
from gateway.core.key import Key, KeyFound, KeyInvalid, KeyMissing, field_value, find_key, find_key_in, find_key_in_body, find_key_in_form
from gateway.core.key_policy import BodyKey, FormKey, HeaderKey, KeyMode, KeyPolicy, QueryKey
from gateway.core.model import Headers
from tests.core.jsons import texts, values

QUERY, BODY = KeyPolicy(QueryKey("request_id")), KeyPolicy(BodyKey("/idempotency_key"))
UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"
printable = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=20)
modes = st.sampled_from(KeyMode)


def in_body(text: str | bytes, policy: KeyPolicy = BODY) -> KeyFound:
    return find_key_in_body(text if isinstance(text, bytes) else text.encode(), policy)


@pytest.mark.parametrize(
    ("query", "want"),
    [
        (b"", KeyMissing),
        (b"?", KeyMissing),
        (b"?other=k", KeyMissing),
        (b"?Request_Id=k", KeyInvalid),
        (b"?request.id=k", KeyInvalid),
        (b"?request_id=k&request.id=j", KeyInvalid),
        (b"?request_id[]=k", KeyInvalid),
        (b"?a=request_id=k", KeyMissing),
        (b"?xrequest_id=k", KeyMissing),
        (b"?request_id", KeyInvalid),
        (b"?request_id=", KeyInvalid),
        (b"?request_id=k", Key("k")),
        (b"?a=1&&request_id=k&", Key("k")),
        (b"?request_id=" + UUID.encode(), Key(UUID)),
        (b"?request%5Fid=k", Key("k")),
        (b"?request_id=a%2Db", Key("a-b")),
        (b"?request_id=a+b", Key("a b")),
        (b"?request_id=a%2Bb", Key("a+b")),
        (b"?request_id=a%252Db", Key("a%2Db")),
        (b"?request_id=a=b", Key("a=b")),
        (b"?request_id=a?b/c:d@e", Key("a?b/c:d@e")),
        (b'?request_id="a,b"', Key('"a,b"')),
        (b"?request_id=k&request_id=k", KeyInvalid),
        (b"?request_id=k&request_id", KeyInvalid),
        (b"?request_id=k&request%5fid=j", KeyInvalid),
        (b"?request_id=a%zz", KeyInvalid),
        (b"?request_id=a%", KeyInvalid),
        (b"?request_id=a%2", KeyInvalid),
        (b"?request_id=%00", KeyInvalid),
        (b"?request_id=a%0a", KeyInvalid),
        (b"?request_id=%c3%a9", KeyInvalid),
        (b"?request_id=caf\xc3\xa9", KeyInvalid),
        (b"?request_id=" + b"k" * 255, Key("k" * 255)),
        (b"?request_id=" + b"k" * 256, KeyInvalid),
    ],
    ids=repr,
)
def test_query(query: bytes, want: Key | type) -> None:
    """The one parameter of the name counts, decoded once; two, a broken escape or what is not printable are errors, not "no key"."""
    for target in (b"/v1/x" + query, b"http://api.example" + query, b"http://api.example/v1/x" + query):
        found = find_key_in(target, QUERY)
        assert found == want if isinstance(want, Key) else isinstance(found, want)


@given(pairs=st.lists(st.tuples(st.sampled_from(["request_id", "a", "r%", ""]), printable), max_size=4), mode=modes)
def test_query_reads_as_forms_do(pairs: list[tuple[str, str]], mode: KeyMode) -> None:
    """Whatever a form encoder writes is found as the standard library reads it, in every mode."""
    query = urlencode(pairs)
    sent = [value for name, value in parse_qsl(query, keep_blank_values=True) if name == "request_id"]
    found = find_key_in(f"/x?{query}".encode(), KeyPolicy(QueryKey("request_id"), mode=mode))
    assert found == Key(sent[0]) if len(sent) == 1 else isinstance(found, KeyInvalid if sent else KeyMissing)


@given(key=printable, encode=st.sampled_from([quote, quote_plus]))
def test_query_spellings_are_one_key(key: str, encode: object) -> None:
    """However its characters are escaped, a key is the same key."""
    assert callable(encode)
    bare = re.sub(r"[%&+#]", lambda found: quote(found[0], safe=""), key)
    assert find_key_in(f"/x?request_id={encode(key)}".encode(), QUERY) == find_key_in(f"/x?request_id={bare}".encode(), QUERY) == Key(key)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("", KeyMissing),
        (" \r\n\t", KeyMissing),
        ("{}", KeyMissing),
        ("[]", KeyMissing),
        ('"idempotency_key"', KeyMissing),
        ("1", KeyMissing),
        ('{"other": "k"}', KeyMissing),
        ('{"deep": {"idempotency_key": "k"}}', KeyMissing),
        ('{"idempotency_key": null}', KeyMissing),
        ('{"idempotency_key": "k"}', Key("k")),
        (' {"a": [1, {}], "idempotency_key" : "k" } ', Key("k")),
        ('{"idempotency\\u005fkey": "\\u006b"}', Key("k")),
        ('{"idempotency_key": " a, \\"b\\" "}', Key(' a, "b" ')),
        ('{"idempotency_key": "k", "amount": 12345678901234567890.12345678901234567890e999}', Key("k")),
        ('{"idempotency_key": "k", "n": ' + "9" * 5000 + "}", Key("k")),
        ('{"idempotency_key": ""}', KeyInvalid),
        ('{"idempotency_key": 1}', Key("1")),
        ('{"idempotency_key": 0}', Key("0")),
        ('{"idempotency_key": -12}', Key("-12")),
        ('{"idempotency_key": 9007199254740993}', Key("9007199254740993")),
        ('{"idempotency_key": ' + "9" * 255 + "}", Key("9" * 255)),
        ('{"idempotency_key": ' + "9" * 256 + "}", KeyInvalid),
        ('{"idempotency_key": ' + "9" * 5000 + "}", KeyInvalid),
        ('{"idempotency_key": -0}', KeyInvalid),
        ('{"idempotency_key": 01}', KeyInvalid),
        ('{"idempotency_key": +1}', KeyInvalid),
        ('{"idempotency_key": 1.0}', KeyInvalid),
        ('{"idempotency_key": 1e2}', KeyInvalid),
        ('{"idempotency_key": true}', KeyInvalid),
        ('{"idempotency_key": ["k"]}', KeyInvalid),
        ('{"idempotency_key": {"k": 1}}', KeyInvalid),
        ('{"idempotency_key": "\\u00e9"}', KeyInvalid),
        ('{"idempotency_key": "\\ud83d"}', KeyInvalid),
        ('{"idempotency_key": "a\\nb"}', KeyInvalid),
        ('{"idempotency_key": "' + "k" * 256 + '"}', KeyInvalid),
        ('{"idempotency_key": "k", "idempotency_key": "k"}', KeyInvalid),
        ('{"idempotency_key": "k", "idempotency\\u005fkey": "j"}', KeyInvalid),
        ('{"idempotency_key": "k", "x": {"a": 1, "a": 1}}', KeyInvalid),
        ('{"idempotency_key": "k",}', KeyInvalid),
        ("{'idempotency_key': 'k'}", KeyInvalid),
        ('{"idempotency_key": "k", "n": NaN}', KeyInvalid),
        ('{"idempotency_key": "k", "n": -Infinity}', KeyInvalid),
        ('{"idempotency_key": "k"} {}', KeyInvalid),
        ('\ufeff{"idempotency_key": "k"}', KeyInvalid),
        ("idempotency_key=k", KeyInvalid),
        ('{"idempotency_key": "k', KeyInvalid),
        ('{"idempotency_key": "k", "a": "\xe9"}'.encode("latin-1"), KeyInvalid),
        ('{"idempotency_key": "k"}'.encode("utf-16"), KeyInvalid),
        (b"\x1f\x8b\x08\x00", KeyInvalid),
    ],
)
def test_body(body: str | bytes, want: Key | type) -> None:
    """A string or whole number at the pointer is the key; what holds none is "no key"; a body that can be read in two ways is an error."""
    found = in_body(body)
    assert found == want if isinstance(want, Key) else isinstance(found, want)


FORM = KeyPolicy(FormKey("request_id"))
FORM_FIELDS = Fields(((b"Content-Type", b"application/x-www-form-urlencoded; charset=utf-8"),))


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (b"", KeyMissing()),
        (b"a=1&b=request_id", KeyMissing()),
        (b"request_id=k", Key("k")),
        (b"a=1&request%5Fid=a%2Db+c&b=2", Key("a-b c")),
        (b"request_id=", KeyInvalid),
        (b"request_id=k&request_id=k", KeyInvalid),
        (b"request_id=k&request.id=k", KeyInvalid),
        (b"REQUEST_ID=k", KeyInvalid),
        (b"request_id[]=k", KeyInvalid),
        (b"request_id=%c3%a9", KeyInvalid),
        (b"request_id=a;request_id=b", KeyInvalid),
        (b"request_id=%zz", KeyInvalid),
        (b"request_id=k&%", KeyInvalid),
        (b'{"request_id":"k"}', KeyInvalid),
        (b"request_id", KeyInvalid),
        (b"request_id=" + b"k" * 256, KeyInvalid),
        (b"request_id=k&x=" + b"x" * LARGE_BODY, KeyInvalid),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_form(body: bytes, want: Key | KeyMissing | type) -> None:
    """The one field of the name counts; what is no strict form is an error, not "no key"."""
    found = find_key_in_form(body, FORM_FIELDS, FORM)
    assert isinstance(found, want) if isinstance(want, type) else found == want


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ((b"Content-Type", b"application/json"),),
        ((b"Content-Type", b"multipart/form-data; boundary=x"),),
        ((b"Content-Type", b"application/x-www-form-urlencoded"), (b"Content-Encoding", b"gzip")),
        ((b"Content-Type", b"application/x-www-form-urlencoded"), (b"content-type", b"text/plain")),
    ],
)
def test_a_form_says_that_it_is_one(fields: Headers) -> None:
    """A body of another type is an error, since an upstream may read it as a form all the same; without a body there is no key."""
    assert isinstance(find_key_in_form(b"request_id=k", Fields(fields), FORM), KeyInvalid)
    assert find_key_in_form(b"", Fields(fields), FORM) == KeyMissing()


SEVERAL = KeyPolicy(HeaderKey("Idempotency-Key", ("X-Request-Token", "X-Old")))


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        ((), KeyMissing()),
        (((b"idempotency-key", b"k"),), Key("k")),
        (((b"X-Old", b"k"),), Key("k")),
        (((b"X-Old", b"k"), (b"X-Request-Token", b'"k"')), Key("k")),
        (((b"X-Old", b"k"), (b"Idempotency-Key", b"j")), KeyInvalid),
        (((b"X-Old", b"k"), (b"Idempotency-Key", b"")), KeyInvalid),
        (((b"X-Old", b"k"), (b"Idempotency-Key", b"a b")), KeyInvalid),
        (((b"X-Old", b"k"), (b"x-old", b"k")), KeyInvalid),
        (((b"X-Other", b"k"),), KeyMissing()),
    ],
)
def test_several_fields(lines: Headers, want: Key | KeyMissing | type) -> None:
    """One of them, or several that hold one key; any that is bad makes the key bad."""
    found = find_key(Fields(lines), SEVERAL)
    assert isinstance(found, want) if isinstance(want, type) else found == want


@pytest.mark.parametrize(
    ("pointer", "want"),
    [
        ("/a/b", Key("1")),
        ("/list/1/key", Key("2")),
        ("/list/01/key", KeyMissing()),
        ("/list/-/key", KeyMissing()),
        ("/x~1y~0z", Key("3")),
        ("/", Key("4")),
        ("/a/b/c", KeyMissing()),
    ],
)
def test_body_pointers(pointer: str, want: KeyFound) -> None:
    """The pointer steps through objects and arrays, with its escapes; what it does not name is no key."""
    assert in_body('{"a": {"b": "1"}, "list": [0, {"key": "2"}], "x/y~z": "3", "": "4"}', KeyPolicy(BodyKey(pointer))) == want


@pytest.mark.parametrize("opening", ["[", '{"x":'])
def test_deep_bodies(opening: str) -> None:
    """How deep a body may be does not depend on the interpreter: at the fixed limit the key is found, beyond it the body is refused."""
    closing = "]" if opening == "[" else "}"

    def body(depth: int) -> str:
        return '{"idempotency_key": "k", "v": ' + opening * depth + "1" + closing * depth + "}"

    assert in_body(body(63)) == Key("k")
    for depth in (64, 500, 5000, 200_000):
        assert isinstance(in_body(body(depth)), KeyInvalid)


def test_large_bodies() -> None:
    """A key is looked for up to the size at which bodies may be out of memory, and refused beyond it, with the limit named."""
    head = b'{"idempotency_key": "k", "x": "'
    assert in_body(head + b"x" * (LARGE_BODY - len(head) - 2) + b'"}') == Key("k")
    found = in_body(head + b"x" * (LARGE_BODY - len(head) - 1) + b'"}')
    assert isinstance(found, KeyInvalid)
    assert str(LARGE_BODY) in found.detail


@given(members=st.dictionaries(texts, values, max_size=4), key=printable, mode=modes)
def test_body_finds_what_was_written(members: dict[str, object], key: str, mode: KeyMode) -> None:
    """Whatever stands beside it, a printable string at the pointer is the key, in every mode."""
    body = json.dumps({**members, "idempotency_key": key})
    assert in_body(body, KeyPolicy(BodyKey("/idempotency_key"), mode=mode)) == Key(key)


@given(body=st.binary(max_size=40) | values.map(lambda value: json.dumps(value).encode()))
def test_no_body_is_an_error(body: bytes) -> None:
    """Any bytes have a verdict."""
    assert isinstance(in_body(body), Key | KeyMissing | KeyInvalid)


def header(value: bytes, policy: KeyPolicy) -> KeyFound:
    return find_key(Fields(((b"Idempotency-Key", value),)), policy)


def everywhere(key: str, **settings: object) -> list[KeyFound]:
    """What is found if this key stands in each of the places."""
    place, query, body = (KeyPolicy(at, **settings) for at in (HeaderKey("Idempotency-Key"), QUERY.place, BODY.place))  # type: ignore[arg-type]  # by name
    return [
        header(json.dumps(key).encode(), place),  # for printable ASCII a String is written as JSON writes it
        find_key_in(f"/x?request_id={quote(key)}".encode(), query),
        in_body(json.dumps({"idempotency_key": key}), body),
    ]


@pytest.mark.parametrize(
    ("pattern", "key", "fits"),
    [
        ("[0-9a-f-]{36}", UUID, True),
        ("[0-9a-f-]{36}", UUID.upper(), False),
        ("[0-9a-f-]{36}", UUID + "0", False),
        ("[0-9a-f-]{36}", "x" + UUID, False),
        ("a|b", "ab", False),
        ("a.*z", "a z", True),
        (r"\w+", "a_9", True),
    ],
)
def test_pattern(pattern: str, key: str, fits: bool) -> None:
    """The whole key must match the route's pattern, in each place; the refusal names the pattern and not the key."""
    for found in everywhere(key, pattern=pattern):
        assert found == (Key(key) if fits else KeyInvalid(f"The key must match {pattern}."))


def test_letter_case() -> None:
    """With `fold_case` keys in either case are one, in lower case, and the pattern does not look at case; without it they are two."""
    for key in (UUID, UUID.upper(), UUID.title()):
        for pattern in (None, "[0-9a-f-]{36}", "[0-9A-F-]{36}"):
            assert everywhere(key, fold_case=True, pattern=pattern) == [Key(UUID)] * 3
        assert everywhere(key) == [Key(key)] * 3


def test_lengths() -> None:
    """The route's limits count characters of the key itself, in each place."""
    for length in (3, 4, 6, 7):
        for found in everywhere("k" * length, min_length=4, max_length=6):
            assert isinstance(found, Key) == (4 <= length <= 6)


@given(printable)
def test_field_value(key: str) -> None:
    """A key's text as a field value is read back as this key, by the lenient grammar, and by the raw one if it is bare."""
    value = field_value(key)
    lenient, raw = KeyPolicy(), KeyPolicy(mode=KeyMode.RAW)
    assert value == value.strip()
    if value.startswith(b'"'):
        assert header(value, lenient) == header(value, KeyPolicy(mode=KeyMode.STRICT)) == Key(key)
    else:
        assert header(value, raw) == Key(key)
        assert isinstance(header(value, lenient), KeyInvalid) or header(value, lenient) == Key(key)


@given(printable, printable)
def test_field_values_differ(one: str, other: str) -> None:
    """Two keys never have one field value."""
    assert (field_value(one) == field_value(other)) == (one == other)


@pytest.mark.parametrize(("one", "other"), [('" a"', " a"), ('"a,b"', "a,b"), ('"', "\\"), ("\\", "\\\\"), ('"a"', "a")])
def test_field_values_of_lookalikes_differ(one: str, other: str) -> None:
    """Not even a key that looks like another one's quoted form shares its field value."""
    assert field_value(one) != field_value(other)
