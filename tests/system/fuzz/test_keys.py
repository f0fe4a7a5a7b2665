"""The key parser against an independent reading of the same grammars."""

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.headers import Fields
from gateway.core.key import Key, KeyFound, KeyMissing, find_key, parse_key
from gateway.core.key_policy import KeyMode, KeyPolicy
from tests.system.fuzz.keys import LONGEST, bare_key, lenient_key, raw_key, string_key
from tests.system.fuzz.mutations import BYTES
from tests.system.fuzz.profile import bounded

POLICIES = {mode: KeyPolicy(mode=mode) for mode in KeyMode}
READINGS = {KeyMode.STRICT: string_key, KeyMode.LENIENT: lenient_key, KeyMode.RAW: raw_key}

_pieces = st.sampled_from(
    [
        *(
            b'"',
            b'"k"',
            b"\\",
            b'\\"',
            b"\\\\",
            b";",
            b"; ",
            b";a",
            b";a=1",
            b';b="x"',
            b";c=?1",
            b";d=:YQ==:",
            b";e=@1",
            b';f=%"a%c3%a9"',
            b'%"%ff"',
        ),
        *(
            b"-",
            b"1",
            b"1.5",
            b"1234567890123456",
            b"*",
            b"a",
            b"A-Z_0.~",
            b"8e03978e-40d5-43dd-bc93-6894a57f9324",
            b" ",
            b"\t",
            b",",
            b"'",
            b"`",
        ),
        *(b"?", b"%", b":", b"/", b"@", b"\0", b"\r", b"\n", b"\x7f", b"\x80", b"\xc3\xa9", b"k" * 120, b'"' + b"k" * 254, b"=" * 9),
    ]
)
_values = (
    st.lists(_pieces, max_size=8).map(b"".join)
    | st.lists(_pieces, max_size=5).map(lambda pieces: b'"' + b"".join(pieces) + b'"')
    | st.lists(st.sampled_from(BYTES), max_size=6).map(b"".join)
    | st.binary(max_size=24)
    | st.integers(250, 260).map(lambda length: b"k" * length)
)


def text(found: KeyFound) -> bytes | None:
    """The key, None for any refusal."""
    return found.text.encode() if isinstance(found, Key) else None


def expected(value: bytes, mode: KeyMode) -> bytes | None:
    """What the independent reading makes of a value."""
    key = READINGS[mode](value)
    return key if key is not None and 1 <= len(key) <= LONGEST else None


@bounded(900)
@given(_values)
@example(b'"a";p')
@example(b'"\\\\";*=1')
@example(b'"' + b"\\\\" * 255 + b'"')
def test_every_value_gets_the_independent_verdict(value: bytes) -> None:
    """In each mode a value is the key that the grammar says, or refused; nothing raises."""
    trimmed = value.strip(b" \t")
    for mode, policy in POLICIES.items():
        assert text(parse_key(trimmed, policy)) == expected(trimmed, mode), (mode, trimmed)


@bounded(400)
@given(_values)
def test_quoted_and_bare_are_one_key(value: bytes) -> None:
    """A bare key means what it means in quotes; and what is quoted means what it means bare, where it can be bare."""
    policy = POLICIES[KeyMode.LENIENT]
    if (bare := bare_key(value)) is not None:
        assert parse_key(value, policy) == parse_key(b'"' + bare + b'"', policy)
    quoted = string_key(value)
    if quoted is not None and bare_key(quoted) is not None:
        assert parse_key(value, policy) == parse_key(quoted, policy)


@bounded(400)
@given(
    st.lists(
        st.tuples(st.sampled_from([b"Idempotency-Key", b"idempotency-key", b"IDEMPOTENCY-KEY", b"Idempotency_Key", b"X"]), _values),
        max_size=4,
    ),
    st.sampled_from(list(KeyMode)),
)
def test_a_key_is_one_line(lines: list[tuple[bytes, bytes]], mode: KeyMode) -> None:
    """No line is no key, one line is judged, more are refused; other fields do not matter."""
    found = find_key(Fields(tuple(lines)), POLICIES[mode])
    values = [value.strip(b" \t") for name, value in lines if name.lower() == b"idempotency-key"]
    if not values:
        assert found == KeyMissing()
    else:
        assert text(found) == (expected(values[0], mode) if len(values) == 1 else None)
