"""The defaults of a guarded route are a contract: operators rely on what they did not write."""

from gateway.core.fingerprint_policy import BodyMode, FingerprintPolicy
from gateway.core.key_policy import ForwardKey, HeaderKey, KeyMode, KeyPolicy
from gateway.core.policy import InFlight, Limits, OnExpired, OnStoreOutage, Policy, Route


def test_defaults() -> None:
    """Every default is the published one."""
    assert Policy("s", ()) == Policy(
        "s",
        (),
        KeyPolicy(HeaderKey("Idempotency-Key"), required=True, mode=KeyMode.LENIENT, min_length=1, max_length=255),
        FingerprintPolicy(BodyMode.AUTO, (), ()),
        in_flight=InFlight.CONFLICT,
        wait=10.0,
        lease=30.0,
        retention=24 * 3600.0,
        on_expired=OnExpired.EXECUTE,
        release_on=frozenset({307, 308, 401, 407, 421, 425, 429}),
        doubt_on=frozenset({408, 502, 503, 504, 520, 521, 522, 523, 524, 525, 526, 527, 530}),
        on_store_outage=OnStoreOutage.REJECT,
        limits=Limits(2**20, 8 * 2**20),
        settle_timeout=2.0,
        stream=False,
        forward_key=ForwardKey.AS_RECEIVED,
        max_execution=120.0,
    )


def test_the_safe_side_is_the_default() -> None:
    """No status releases and is in doubt at once, none that may follow an execution releases, and nothing fails open."""
    policy = Policy("s", ())
    assert not policy.release_on & policy.doubt_on
    assert not policy.release_on & {*range(200, 307), *range(309, 400), 400, 402, 403, 404, 409, 422, *range(500, 600)}
    assert policy.on_store_outage is OnStoreOutage.REJECT


def test_a_route_passes_through_unless_it_is_guarded() -> None:
    """A route without a policy takes any method and guards nothing."""
    route = Route("rest", "/**", "payments")
    assert (route.policy, route.methods) == (None, frozenset())
