"""Who may do what, tokens of users, and sessions of browsers."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.roles import NEEDED, Action, Role, allowed, highest
from gateway.core.sessions import (
    MAX_COOKIE,
    Session,
    alive,
    csrf_token,
    is_csrf_token,
    local_target,
    read_session,
    sign,
    unsign,
    write_session,
)
from gateway.core.user_token import ENTROPY, digest_of, is_token, make_token, read_digest, write_digest

KEYS = st.binary(min_size=32, max_size=32)
NAMES = st.text(max_size=40)
SESSIONS = st.builds(
    Session,
    st.binary(min_size=16, max_size=16),
    NAMES,
    NAMES,
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    st.sampled_from([None, *Role]),
    NAMES,
    NAMES,
)
ROLES = {
    Role.VIEWER: {Action.SEE},
    Role.OPERATOR: {Action.SEE_BODY, Action.EXPORT, Action.RESOLVE, Action.RELEASE, Action.REQUEUE, Action.LOOK},
    Role.APPROVER: {Action.APPROVE},
    Role.ADMIN: {Action.EXPORT_BODIES, Action.DELETE, Action.ERASE, Action.RELOAD},
}


def test_every_action_needs_the_role_that_is_written_here() -> None:
    """The table, once more: a change of it is meant."""
    assert {role: {action for action, needed in NEEDED.items() if needed is role} for role in Role} == ROLES
    assert set(NEEDED) == set(Action)


@given(st.sampled_from(Role), st.sampled_from(Action))
def test_each_role_includes_those_before_it(role: Role, action: Action) -> None:
    """Who may do something may do it with every higher role, too."""
    roles = list(Role)
    higher = roles[roles.index(role) :]
    assert not allowed(role, action) or all(allowed(one, action) for one in higher)
    assert highest(tuple(higher)) is Role.ADMIN


def test_of_no_roles_none_is_highest() -> None:
    """Whoever has no role may not come in."""
    assert highest(()) is None


@given(st.binary(min_size=ENTROPY, max_size=ENTROPY))
def test_a_token_is_known_by_its_form_and_by_its_digest(random: bytes) -> None:
    """One character more, less, or another, and it is none."""
    token = make_token(random)
    assert is_token(token)
    assert not is_token(token[:-1])
    assert not is_token(token + "A")
    assert not is_token(token.swapcase())
    assert read_digest(write_digest(digest_of(token))) == digest_of(token)


@given(st.text())
def test_what_somebody_thought_of_is_no_token(text: str) -> None:
    """Whatever the digest in the configuration: nobody can choose a token."""
    assert not is_token(text)
    assert not is_token(f"igw_{text}")


@pytest.mark.parametrize("text", ["", "hunter2", "igw_", "sha256:", "sha256:" + "0" * 63, "sha256:" + "G" * 64, "SHA256:" + "0" * 64])
def test_a_digest_is_a_digest(text: str) -> None:
    """A token in its place is told, and not repeated."""
    with pytest.raises(ValueError, match="users token") as caught:
        read_digest(text)
    assert not text or text not in str(caught.value).replace("sha256:…", "")


@given(SESSIONS, KEYS, KEYS)
def test_a_cookie_says_what_was_written(session: Session, key: bytes, other: bytes) -> None:
    """Under its key alone."""
    try:
        cookie = write_session(session, key)
    except ValueError:
        return  # too long
    assert len(cookie) <= MAX_COOKIE
    assert read_session(cookie, key) == session
    assert key == other or read_session(cookie, other) is None


@given(SESSIONS, KEYS, st.integers(0, 400), st.characters())
def test_no_altered_cookie_is_read(session: Session, key: bytes, at: int, character: str) -> None:
    """Not with one character altered, wherever; cookies are compared as they are written."""
    cookie = write_session(replace(session, name="ana", subject="", provider_session="", stamp="s"), key)
    altered = cookie[: at % len(cookie)] + character + cookie[at % len(cookie) + 1 :]
    assert altered == cookie or read_session(altered, key) is None


@given(st.text() | st.text("abc.=-_"), KEYS)
def test_no_made_up_cookie_is_read(text: str, key: bytes) -> None:
    """Nor does any text raise."""
    assert unsign(text, key) is None
    assert read_session(text, key) is None


@given(st.binary(max_size=50), KEYS)
def test_a_signed_text_that_is_no_session_is_none(payload: bytes, key: bytes) -> None:
    """Another release's, say."""
    assert unsign(sign(payload, key), key) == payload
    assert read_session(sign(payload, key), key) is None


def test_a_session_ends_by_disuse_and_by_age() -> None:
    """And does not begin in the future."""
    session = Session(bytes(16), "ana", "", began=1000, seen=5000)
    assert alive(session, 5000, idle=900, absolute=10_000)
    assert alive(session, 5899, idle=900, absolute=10_000)
    assert not alive(session, 5900, idle=900, absolute=10_000)
    assert not alive(session, 5000, idle=900, absolute=4000)
    assert not alive(session, 4000, idle=900, absolute=10_000)


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16), KEYS)
def test_a_forms_token_is_its_sessions(one: bytes, other: bytes, key: bytes) -> None:
    """And of no other's, and no cookie."""
    token = csrf_token(one, key)
    assert is_csrf_token(token, one, key)
    assert one == other or not is_csrf_token(token, other, key)
    assert not is_csrf_token(token, one, hashlib.sha256(key).digest())
    assert unsign(token, key) is None


@pytest.mark.parametrize("text", ["/console", "/console/", "/console?x=//a", "/console/records/rec_a?b=c%0a"])
def test_after_a_login_it_goes_on_where_it_was(text: str) -> None:
    """Where that is a page of the console."""
    assert local_target(text, "/console") == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "/", "//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "console", "/admin/v1/records"),
        *("/console//evil.example", "/console\\x", "/consolex", "/console/\ta", "/console/é", "/console/ a"),
    ],
)
def test_after_a_login_it_goes_nowhere_else(text: str) -> None:
    """No page of another host gets somebody who has just logged in."""
    assert local_target(text, "/console") == "/console"
