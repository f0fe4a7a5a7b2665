"""What a provider's tokens say."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.oidc import LEEWAY, ended_at

INSTANTS = st.integers(0, 2**33)


@given(INSTANTS, INSTANTS, st.integers(0, 10**6))
def test_a_logout_ends_the_same_sessions_whenever_it_comes(issued: int, now: int, later: int) -> None:
    """None that begins in the future, and with each repetition no later one than two clocks may differ by."""
    first, again = ended_at({"iat": issued}, now), ended_at({"iat": issued}, now + later)
    assert first <= now
    assert first <= again <= issued + LEEWAY
    assert ended_at({}, now) == ended_at({"iat": True}, now) == now
