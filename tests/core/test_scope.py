"""The scope: who asks decides where a key lives; no two callers share one, and no credential shows in it."""

import hashlib
import hmac
import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gateway.core.headers import Fields
from gateway.core.model import Headers, RecordKey
from gateway.core.scope import (
    KINDS,
    PrincipalMissing,
    Scope,
    derived_key,
    find_scope,
    key_digest,
    length_prefixed,
    scope_of,
    secret_check_value,
)

SECRET = b"digest secret"
AUTH = ("Authorization",)


def found_in(headers: Headers, scope: str = "charges", principal: tuple[str, ...] = AUTH, secret: bytes = SECRET) -> str:
    found = find_scope(Fields(headers), scope, principal, secret)
    assert isinstance(found, Scope)
    return found.id


def bearer(token: bytes) -> Headers:
    return ((b"Authorization", b"Bearer " + token),)


parts = st.lists(st.binary(max_size=5) | st.sampled_from([b"", b"1:", b"1:a,", b",", b"0:,"]), max_size=4)


@given(parts, parts)
@example([b"", b""], [b""])
@example([b"a,1:b"], [b"a", b"b"])
def test_length_prefixed_is_injective(one: list[bytes], other: list[bytes]) -> None:
    """No two lists share an encoding; it can be read back."""
    assert (length_prefixed(one) == length_prefixed(other)) == (one == other)
    rest, back = length_prefixed(one), []
    while rest:
        size, _, rest = rest.partition(b":")
        back.append(rest[: int(size)])
        assert rest[int(size) :][:1] == b","
        rest = rest[int(size) + 1 :]
    assert back == one


values = st.binary(min_size=1, max_size=6).map(lambda value: b"x" + value + b"x")
names = st.sampled_from(["charges", "refunds", "a", "ab"])


@given(names, values, values, names, values, values)
@example("a", b"x:y", b"z", "a", b"x", b"y:z")
def test_scopes_are_injective(one: str, tenant: bytes, token: bytes, other: str, other_tenant: bytes, other_token: bytes) -> None:
    """Two callers share a scope only if the scope's name and every header of the principal are equal."""
    principal = ("X-Tenant", "Authorization")
    first = found_in(((b"X-Tenant", tenant), (b"Authorization", token)), one, principal)
    second = found_in(((b"X-Tenant", other_tenant), (b"Authorization", other_token)), other, principal)
    assert (first == second) == ((one, tenant, token) == (other, other_tenant, other_token))


def test_one_header_is_not_two() -> None:
    """The number and the names of the principal's headers are part of the scope."""
    headers: Headers = ((b"A", b"1"), (b"B", b"1"))
    ids = [found_in(headers, principal=principal) for principal in (("A",), ("B",), ("A", "B"), ("B", "A"))]
    assert len({*ids, found_in(headers, principal=())}) == 5


def test_shape_of_the_id() -> None:
    """An operator reads the scope's name and the kind of principal; the digest has a fixed length and no credential shows."""
    found = found_in(bearer(b"tenant-a"))
    assert re.fullmatch(r"charges:header\.[A-Za-z0-9_-]{43}", found)
    assert "tenant" not in found
    assert found_in(bearer(b"tenant-a"), principal=()) == "charges:none"


def test_scope_ids_are_pinned() -> None:
    """The encoding is stored with every record: a change would move all retries into another namespace."""
    assert found_in(((b"Authorization", b"Bearer t"),), "charges", AUTH, b"secret") == PINNED


PINNED = "charges:header.kAkoOi-6WO_K1uVnod8Tf5YHvlQj709XoWrwZXEZqNI"


def test_secret_keys_the_digest() -> None:
    """Under another secret every caller has another scope, and a leaked table cannot be searched without it."""
    assert len({found_in(bearer(b"t"), secret=secret) for secret in (b"", b"one", b"two")}) == 3


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ((b"Authorization", b""),),
        ((b"Authorization", b" \t"),),
        ((b"X-Authorization", b"Bearer t"),),
        (*bearer(b"a"), *bearer(b"b")),
        (*bearer(b"a"), *bearer(b"a")),
        (*bearer(b"a"), (b"authorization", b"")),
    ],
)
def test_no_principal_no_scope(headers: Headers) -> None:
    """An absent, empty or repeated header gives no scope: never one shared by all who lack it."""
    assert find_scope(Fields(headers), "charges", AUTH, SECRET) == PrincipalMissing("Authorization")


def test_every_header_of_the_principal_is_needed() -> None:
    """With several headers, the first that is missing is named."""
    assert find_scope(Fields(bearer(b"t")), "charges", ("Authorization", "X-Tenant"), SECRET) == PrincipalMissing("X-Tenant")


def test_spelling_of_the_field() -> None:
    """Field name case, blanks around the value and other fields do not change the scope; the value's case does."""
    plain = found_in(bearer(b"t"))
    assert found_in(((b"AUTHORIZATION", b"\tBearer t "), (b"X", b"1"))) == plain
    assert found_in(bearer(b"t"), principal=("authorization",)) == plain
    assert found_in(bearer(b"T")) != plain


@given(st.binary(min_size=1, max_size=20))
def test_any_bytes_are_a_credential(value: bytes) -> None:
    """Credentials that are not UTF-8 are bytes like any other."""
    assume(value.strip(b" \t"))
    found = found_in(((b"Authorization", value),))
    assert found.isascii()
    assert len(RecordKey(found, "k").lookup_digest()) == 32


def test_two_tenants_never_meet() -> None:
    """One key under two credentials is two records, two log digests and two keys at the next hop."""
    one, other = found_in(bearer(b"a")), found_in(bearer(b"b"))
    assert RecordKey(one, "k").lookup_digest() != RecordKey(other, "k").lookup_digest()
    assert key_digest(SECRET, one, "k") != key_digest(SECRET, other, "k")
    assert derived_key(SECRET, one, "k") != derived_key(SECRET, other, "k")


texts = st.text("ab:,1", max_size=5)


@given(texts, texts, texts, texts)
@example("a:b", "c", "a", "b:c")
def test_digests_of_keys_are_injective(scope: str, key: str, other_scope: str, other_key: str) -> None:
    """Log digests and derived keys are equal only for the same scope and key."""
    same = (scope, key) == (other_scope, other_key)
    assert (key_digest(SECRET, scope, key) == key_digest(SECRET, other_scope, other_key)) == same
    assert (derived_key(SECRET, scope, key) == derived_key(SECRET, other_scope, other_key)) == same


@given(texts, texts, st.sampled_from([SECRET, b"other"]))
def test_log_digests_are_made_of_scope_and_key_at_once(scope: str, key: str, secret: bytes) -> None:
    """What is prepared for a scope changes nothing: logs of other releases show the same digest."""
    message = length_prefixed([scope.encode(), key.encode()])
    subkey = hmac.digest(secret, b"idempotency-gateway/log/1", "sha256")
    assert key_digest(secret, scope, key) == hashlib.blake2b(message, key=subkey, digest_size=8).hexdigest()


def test_forms_of_digests() -> None:
    """A log digest is 16 hex digits, a derived key is itself a good key, and neither shows the key or works without the secret."""
    assert re.fullmatch(r"[0-9a-f]{16}", key_digest(SECRET, "s:none", "needle"))
    assert re.fullmatch(rb"idg_[0-9a-f]{48}", derived_key(SECRET, "s:none", "needle"))
    assert key_digest(b"other", "s:none", "needle") != key_digest(SECRET, "s:none", "needle")
    assert derived_key(b"other", "s:none", "needle") != derived_key(SECRET, "s:none", "needle")


def test_check_value_tells_secrets_apart() -> None:
    """The check value changes with the secret, is stable, and is none of the other digests under it."""
    values = {secret_check_value(secret) for secret in (b"", b"a", b"b", SECRET)}
    assert len(values) == 4
    assert secret_check_value(SECRET) == secret_check_value(SECRET)
    assert secret_check_value(SECRET)[:16] != key_digest(SECRET, "", "")


any_parts = st.lists(
    st.tuples(st.builds(lambda kind, name: kind + b":" + name, st.sampled_from(KINDS), st.binary(max_size=3)), st.binary(max_size=3)),
    max_size=3,
)


@given(any_parts, any_parts)
@example([(b"header:a", b"b")], [(b"jwt:a", b"b")])
@example([(b"header:a", b"b"), (b"jwt:", b"")], [(b"header:a", b"b")])
@example([(b"jwt:a", b"b"), (b"header:", b"")], [(b"header:", b""), (b"jwt:a", b"b")])
def test_parts_are_injective(one: list[tuple[bytes, bytes]], other: list[tuple[bytes, bytes]]) -> None:
    """Two callers share a scope only if all their sources, in order, say the same of them."""
    assert (scope_of("a", one, SECRET) == scope_of("a", other, SECRET)) == (one == other)


@given(st.lists(st.tuples(st.sampled_from(["Authorization", "X-Tenant", "A"]), values), max_size=3, unique_by=lambda field: field[0]))
def test_header_parts_are_the_named_headers(lines: list[tuple[str, bytes]]) -> None:
    """Parts of header sources alone give the ids that headers have always had, by either way."""
    headers = tuple((name.encode(), value) for name, value in lines)
    parts = [(b"header:" + name.lower().encode(), value) for name, value in lines]
    assert scope_of("charges", parts, SECRET).id == found_in(headers, principal=tuple(name for name, _ in lines))


def test_scope_ids_of_sources_are_pinned() -> None:
    """The ids of all kinds of sources are stored with every record, too."""
    assert scope_of("charges", [(b"header:authorization", b"Bearer t")], b"secret") == Scope(PINNED)
    assert scope_of("charges", [(b"jwt:3:sub,", b"6:text:a,")], b"secret") == Scope(f"charges:jwt.{PINNED_TOKEN}")
    both = [(b"basic:user", b"u"), (b"header:x", b"y"), (b"basic:user", b"v")]
    assert scope_of("charges", both, b"secret") == Scope(f"charges:basic+header.{PINNED_BOTH}")
    assert scope_of("charges", [], b"secret") == Scope("charges:none")


PINNED_TOKEN = "eu4G83dGZRchIuV0vxehiZglbIlk2iTfkS-0Aa2s9xs"
PINNED_BOTH = "P8nu2O8yyCtd06-r9mrhU4TgVdJdw6GGA3jMLp1JhGc"


@pytest.mark.parametrize("name", [b"", b"none:x", b"headers:x", b"Header:x", b":header"])
def test_unknown_kinds_are_a_mistake(name: bytes) -> None:
    """Kinds are fixed words: nothing else ever shows in an id."""
    with pytest.raises(ValueError, match="unknown kind"):
        scope_of("charges", [(name, b"x")], SECRET)
