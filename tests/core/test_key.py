"""The key: every row of the published table in all three modes, and `strict` against the structured-field algorithms of RFC 9651."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.headers import Fields
from gateway.core.key import Key, KeyFound, KeyInvalid, KeyMissing, find_key, key_finder, parse_key
from gateway.core.key_policy import HeaderKey, KeyMode, KeyPolicy
from gateway.core.model import Headers
from tests.core.structured import string_item

UUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"
LENIENT, STRICT, RAW = (KeyPolicy(mode=mode) for mode in (KeyMode.LENIENT, KeyMode.STRICT, KeyMode.RAW))


def find(value: bytes, policy: KeyPolicy = LENIENT) -> KeyFound:
    return find_key(Fields(((b"Idempotency-Key", value),)), policy)


def text(value: bytes, policy: KeyPolicy) -> str | None:
    """The key's text, or None for a 400."""
    found = find(value, policy)
    return found.text if isinstance(found, Key) else None


TABLE: list[tuple[bytes, str | None, str | None, str | None]] = [
    # value                        strict       lenient      raw
    (f'"{UUID}"'.encode(), UUID, UUID, f'"{UUID}"'),
    (UUID.encode(), None, UUID, UUID),
    (b"ce03978e-40d5-43dd", None, "ce03978e-40d5-43dd", "ce03978e-40d5-43dd"),
    (b"abc_def", None, "abc_def", "abc_def"),
    (b"order-1/2:3", None, "order-1/2:3", "order-1/2:3"),
    (b"12345", None, "12345", "12345"),
    (b"007", None, "007", "007"),
    (b"1.5", None, "1.5", "1.5"),
    (b"?1", None, None, "?1"),
    (b":YWJj:", None, None, ":YWJj:"),
    (b"@1659578233", None, None, "@1659578233"),
    (b'%"f%c3%bc"', None, None, '%"f%c3%bc"'),
    (b"a@b.com", None, "a@b.com", "a@b.com"),
    (b"aGVsbG8/d29ybGQ+==", None, "aGVsbG8/d29ybGQ+==", "aGVsbG8/d29ybGQ+=="),
    (b"+/=", None, "+/=", "+/="),
    (b'"a b";p=1', "a b", "a b", '"a b";p=1'),
    (
        b'"a";p;q="x;y";r=:YQ==:;s=?0;t=@1;u=%"%c3%bc";v=*t/1:2;w=-1.25',
        "a",
        "a",
        '"a";p;q="x;y";r=:YQ==:;s=?0;t=@1;u=%"%c3%bc";v=*t/1:2;w=-1.25',
    ),
    (b'"a";P=1', None, None, '"a";P=1'),
    (b'"a" ;p', None, None, '"a" ;p'),
    (b'"a";u=%"%C3%BC"', None, None, '"a";u=%"%C3%BC"'),
    (b'"a";u=%"%c3"', None, None, '"a";u=%"%c3"'),
    (b'"a";p=1234567890123456', None, None, '"a";p=1234567890123456'),
    (b'"say \\"hi\\" \\\\"', 'say "hi" \\', 'say "hi" \\', '"say \\"hi\\" \\\\"'),
    (b'"abc', None, None, '"abc'),
    (b'abc"', None, None, 'abc"'),
    (b'"a\\nb"', None, None, '"a\\nb"'),
    (b"'abc'", None, None, "'abc'"),
    (b"a'b", None, None, "a'b"),
    (b'"a", "b"', None, None, None),
    (b"k13, k13", None, None, None),
    (b"k13,k13", None, None, None),
    (b"abc def", None, None, "abc def"),
    (b'""', None, None, '""'),
    (b"", None, None, None),
    (b"caf\xc3\xa9", None, None, None),
    (b"caf\xe9", None, None, None),
    (b"a\tb", None, None, None),
    (b'"a\tb"', None, None, None),
    (b"a\x7fb", None, None, None),
    (b"a\0b", None, None, None),
    (b"a\r\nX: 1", None, None, None),
    (b"\xf0\x9f\x92\xa9", None, None, None),
    (b"%00", None, None, "%00"),
    (b"a%b", None, None, "a%b"),
    (b"a;b", None, None, "a;b"),
    (b"a`b", None, None, "a`b"),
    (b"a\\b", None, None, "a\\b"),
    (b"a?b", None, None, "a?b"),
    (b"..", None, "..", ".."),
    (b"*", None, "*", "*"),
    (b"{a}", None, None, "{a}"),
    (b"x{a}[b](c)", None, "x{a}[b](c)", "x{a}[b](c)"),
    (b"_", None, "_", "_"),
    (b"~", None, "~", "~"),
    (b"-1", None, "-1", "-1"),
]


@pytest.mark.parametrize(("value", "strict", "lenient", "raw"), TABLE, ids=[repr(row[0]) for row in TABLE])
def test_table(value: bytes, strict: str | None, lenient: str | None, raw: str | None) -> None:
    """Each kind of value is taken, or refused as invalid, exactly as its mode says; it is never treated as absent."""
    for policy, want in ((STRICT, strict), (LENIENT, lenient), (RAW, raw)):
        found = find(value, policy)
        assert found == Key(want) if want is not None else isinstance(found, KeyInvalid), policy.mode


FRAGMENTS = [
    *(b'"', b"\\", b'\\"', b"\\\\", b"a", b"Z", b"9", b" ", b"\t", b";", b"; ", b"p", b"*", b"=", b"-", b".", b"?1", b"?2", b":", b"YWI="),
    *(
        b'%"',
        b"%c3%bc",
        b"%C3",
        b"%ff",
        b"%",
        b"@",
        b"@-1",
        b"1.25",
        b"1.",
        b",",
        b"'",
        b"\x7f",
        b"\xe9",
        b"\0",
        b"123456789012",
        b"_",
        b"!",
    ),
]
noise = st.lists(st.sampled_from(FRAGMENTS), max_size=10).map(b"".join)
items = st.builds(lambda inner, rest: b'"' + inner + b'"' + rest, noise, noise)
parameters = st.lists(noise.map(lambda value: b";p=" + value), max_size=3).map(b"".join)


@given(noise | items | st.builds(lambda tail: b'"k"' + tail, parameters) | st.binary(max_size=12))
@example(b'"k";p=123456789012.123')
@example(b'"k";p=1234567890123.1')
@example(b'"k";p="%\\"";q=%"%e2%82%ac"')
@example(b'"k";p=%"%ed%a0%80"')
@example(b'"100%";q="x"')
def test_strict_is_the_structured_field_string(value: bytes) -> None:
    """`strict` takes exactly the values that RFC 9651's algorithms parse as an Item of type String, and finds the same text in them."""
    trimmed = value.strip(b" \t")
    want = string_item(trimmed)
    found = parse_key(trimmed, STRICT)
    if want:
        assert found == Key(want.decode())
    else:
        assert isinstance(found, KeyInvalid)


bare_texts = st.from_regex(r"[A-Za-z0-9_.~/+=*-][A-Za-z0-9!#$&*+./:<=>@^_|~()\[\]{}-]{0,40}", fullmatch=True)


@given(bare_texts)
def test_quoted_and_bare_are_one_key(key: str) -> None:
    """In `lenient`, a text means the same key quoted, quoted with parameters, and bare, whatever its letter case or blanks around it."""
    spellings = [key, f'"{key}"', f'"{key}"; p=1', f"  {key}\t", f' "{key}" ']
    assert {text(spelling.encode(), LENIENT) for spelling in spellings} == {key}


@given(noise | items | st.binary(max_size=12))
def test_modes_only_widen(value: bytes) -> None:
    """Every `strict` key is the same `lenient` key; what `lenient` takes bare, `raw` takes as the same key."""
    strict, lenient = text(value, STRICT), text(value, LENIENT)
    assert strict is None or lenient == strict
    if lenient is not None and b'"' not in value:
        assert text(value, RAW) == lenient


@given(noise | items | st.binary(max_size=40), st.sampled_from([STRICT, LENIENT, RAW]))
def test_keys_are_storable(value: bytes, policy: KeyPolicy) -> None:
    """Whatever is taken is 1 to 255 characters of printable ASCII: no NUL, no lone surrogate, nothing that a store refuses."""
    found = text(value, policy)
    assert found is None or (1 <= len(found) <= 255 and all(" " <= char <= "~" for char in found))


@given(st.binary(max_size=30))
def test_refusals_do_not_echo(secret: bytes) -> None:
    """The explanation of a refusal holds nothing of the key."""
    found = find(b"needle" + secret + b"\xff", LENIENT)
    assert isinstance(found, KeyInvalid)
    assert "needle" not in found.detail


@pytest.mark.parametrize("policy", [STRICT, LENIENT, RAW], ids=lambda policy: policy.mode)
@pytest.mark.parametrize(("length", "valid"), [(1, True), (255, True), (256, False), (5300, False), (9000, False)])
def test_length_counts_the_key_itself(policy: KeyPolicy, length: int, valid: bool) -> None:
    """1 to 255 characters, quotes not counted."""
    value = b"k" * length
    quoted = b'"' + value + b'"'
    assert isinstance(find(value if policy is RAW else quoted, policy), Key) is valid


def test_escapes_count_once() -> None:
    """A quoted key's length is that of its text, not of its escapes."""
    assert text(b'"' + rb"\"" * 255 + b'"', STRICT) == '"' * 255
    assert text(b'"' + rb"\"" * 256 + b'"', STRICT) is None


def test_route_narrows_the_length() -> None:
    """A route may demand longer or shorter keys; the refusal names the bounds."""
    policy = KeyPolicy(min_length=16, max_length=64)
    for length in (15, 65):
        found = find(b"k" * length, policy)
        assert isinstance(found, KeyInvalid)
        assert "16 to 64" in found.detail
    assert find(b"k" * 16, policy) == Key("k" * 16)
    assert find(b"k" * 64, policy) == Key("k" * 64)


@pytest.mark.parametrize("policy", [STRICT, LENIENT, RAW], ids=lambda policy: policy.mode)
@pytest.mark.parametrize("second", [b'"k"', b'"other"', b""])
def test_two_lines_are_refused(policy: KeyPolicy, second: bytes) -> None:
    """Two field lines are an error even when they are equal or one is empty: an Item cannot repeat."""
    assert isinstance(find_key(Fields(((b"Idempotency-Key", b'"k"'), (b"X", b"1"), (b"idempotency-key", second))), policy), KeyInvalid)


@pytest.mark.parametrize("name", [b"idempotency-key", b"IDEMPOTENCY-KEY", b"IdEmPoTeNcY-kEy"])
def test_field_name_case_does_not_matter(name: bytes) -> None:
    """Field names compare without case; values with case."""
    assert find_key(Fields(((name, b"K13"),)), LENIENT) == Key("K13") != find_key(Fields(((name, b"k13"),)), LENIENT)


def test_only_the_configured_field_counts() -> None:
    """Other fields, also of the same length, are no key; without the field the key is missing."""
    policy = KeyPolicy(HeaderKey("X-Payout-Idempotency"))
    assert find_key(Fields(((b"Idempotency-Key", b"k"), (b"X-Payout-Idempotencz", b"k"))), policy) == KeyMissing()
    assert find_key(Fields(()), LENIENT) == KeyMissing()
    assert find_key(Fields(((b"X-Payout-Idempotency", b"k"),)), policy) == Key("k")


def test_connection_does_not_hide_the_key() -> None:
    """Naming the key's field in `Connection` does not switch protection off."""
    assert find_key(Fields(((b"Connection", b"Idempotency-Key"), (b"Idempotency-Key", b"k13"))), LENIENT) == Key("k13")


spelled = st.binary(max_size=6) | st.text('"\\\\a-_ ,;=\t', max_size=6).map(str.encode) | st.sampled_from([row[0] for row in TABLE])
key_policies = st.builds(
    KeyPolicy,
    place=st.sampled_from([HeaderKey("Idempotency-Key"), HeaderKey("X-Key"), HeaderKey("Idempotency-Key", ("X-Key",))]),
    mode=st.sampled_from(KeyMode),
    min_length=st.integers(1, 3),
    max_length=st.sampled_from([3, 255]),
    pattern=st.sampled_from([None, "[a-z-]+"]),
    fold_case=st.booleans(),
)


@given(st.lists(st.tuples(st.sampled_from([b"Idempotency-Key", b"x-key", b"Host"]), spelled), max_size=3).map(tuple), key_policies)
@example(((b"Idempotency-Key", b'"a"'),), STRICT)
@example(((b"Idempotency-Key", b'"a;p=1"'),), LENIENT)
def test_a_finder_finds_what_is_there(lines: Headers, policy: KeyPolicy) -> None:
    """The quick way to a key that is plainly good changes nothing."""
    fields = Fields(lines)
    assert key_finder(policy)(fields, b"") == find_key(fields, policy)
