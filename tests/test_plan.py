"""Plans: what a route does not use is not there, and a reload keeps what must be kept."""

import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import plan
from gateway.core.decision import Responded, settle
from gateway.core.headers import Fields
from gateway.core.hints import Hint
from gateway.core.key_policy import BodyKey, FormKey, ForwardKey, HeaderKey, KeyPolicy, QueryKey
from gateway.core.policy import Mode, OnUnknown, Participate, Policy, Route
from gateway.core.principal_source import BasicPrincipal, HeaderPrincipal
from gateway.core.reconcile.policy import Reconcile
from gateway.core.scope import find_scope
from gateway.plan import GuardPlan, RoutePlan, make_plans
from tests.support.requests import NoUpstream, plan_of

POLICY = Policy("payments", (HeaderPrincipal("Authorization"),))
UPSTREAMS = {"payments": NoUpstream()}


def plans_of(policy: Policy, before: dict[str, RoutePlan] | None = None) -> dict[str, RoutePlan]:
    return make_plans((Route("charge", "/v1/charges", "payments", policy=policy),), UPSTREAMS, b"", before=before)


TELLS, COMMITS, CAPTURES = Participate(progress=True), Participate(co_commit=True), Reconcile(capture=(("amount", "/amount"),))


def guard_of(plans: dict[str, RoutePlan]) -> GuardPlan:
    guard = plans["charge"].guard
    assert guard is not None
    return guard


def test_a_plain_route_uses_nothing() -> None:
    """A feature that a route does not use has no part in its plan: it cannot cost anything."""
    plain = plan_of(POLICY)
    assert plain.find_key is not None
    assert plain.find_scope is not None
    assert (plain.find_key_in_body, plain.carry_key, plain.duplicates) == (None, None, None)
    assert (plain.changes_body, plain.captures, plain.seals, plain.marks, plain.observes) == (False,) * 5
    assert (plain.pointers, plain.removed) == ((), frozenset())
    assert (plain.takes_part, plain.co_commits, plain.terms.co_commits) == (False,) * 3


@pytest.mark.parametrize(
    ("change", "uses"),
    [
        ({"key": KeyPolicy(BodyKey("/id"))}, lambda plan: plan.find_key is None and plan.find_key_in_body and plan.pointers == ("/id",)),
        ({"key": KeyPolicy(FormKey("id"))}, lambda plan: plan.find_key is None and plan.find_key_in_body and not plan.pointers),
        ({"key": KeyPolicy(QueryKey("id"))}, lambda plan: plan.find_key and plan.find_key_in_body is None),
        ({"principal": (BasicPrincipal(),)}, lambda plan: plan.find_scope is None),
        ({"forward_key": ForwardKey.DERIVED}, lambda plan: plan.carry_key and not plan.changes_body),
        ({"forward_key_in": BodyKey("/id")}, lambda plan: plan.carry_key and plan.changes_body and plan.pointers == ("/id",)),
        ({"forward_key_in": HeaderKey("Other")}, lambda plan: plan.carry_key and not plan.changes_body),
        ({"reconcile": CAPTURES}, lambda plan: plan.captures and not plan.terms.reconcilable),
        ({"on_unknown": OnUnknown.REEXECUTE}, lambda plan: plan.captures and plan.terms.reexecute),
        ({"on_unknown": OnUnknown.RESUME, "participate": TELLS}, lambda plan: plan.takes_part and plan.terms.reexecute),
        ({"participate": TELLS}, lambda plan: plan.takes_part and not (plan.co_commits or plan.terms.co_commits)),
        ({"participate": COMMITS}, lambda plan: plan.takes_part and plan.co_commits and plan.terms.co_commits),
        ({"participate": COMMITS, "mode": Mode.OBSERVE}, lambda plan: not (plan.takes_part or plan.co_commits or plan.terms.co_commits)),
        ({"duplicates": 5.0}, lambda plan: plan.duplicates is not None),
        ({"hints": (Hint("X-Bank", remove=True),)}, lambda plan: plan.removed == {b"x-bank"}),
        ({"trust_retention": True}, lambda plan: plan.removed == {b"idempotency-retention"}),
        ({"status_fields": True}, lambda plan: plan.marks),
        ({"mark_duplicates": True}, lambda plan: plan.marks),
        ({"expose_headers": True}, lambda plan: plan.marks),
        ({"mode": Mode.OBSERVE}, lambda plan: plan.observes and not plan.captures),
    ],
)
def test_what_is_used_is_there(change: dict[str, object], uses: object) -> None:
    """Each setting brings the part that carries it out."""
    assert callable(uses)
    assert uses(plan_of(replace(POLICY, **change)))  # type: ignore[arg-type]  # settings by name


def test_a_reload_keeps_what_was_seen_of_equal_requests() -> None:
    """As long as the window is the same; a plan of another window begins anew."""

    watching = replace(POLICY, duplicates=5.0)
    first = plans_of(watching)
    assert guard_of(first).duplicates is not None
    assert guard_of(plans_of(replace(watching, lease=7.0), first)).duplicates is guard_of(first).duplicates
    assert guard_of(plans_of(replace(watching, duplicates=6.0), first)).duplicates is not guard_of(first).duplicates
    assert guard_of(plans_of(POLICY, first)).duplicates is None


@given(st.lists(st.binary(max_size=3), max_size=300))
def test_a_caller_that_is_remembered_has_its_own_scope(values: list[bytes]) -> None:
    """Whoever came meanwhile, and however few are remembered: what is found is what the pure rule says."""
    find = guard_of(plans_of(POLICY)).find_scope
    assert find is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_ROOM", 2000)
        for value in values:
            fields = Fields(((b"Authorization", value),))
            assert find(fields) == find_scope(fields, "payments", ("Authorization",), b"")


def test_callers_that_are_remembered_take_little_room() -> None:
    """However many there are, and however long their credentials."""
    find = guard_of(plans_of(POLICY)).find_scope
    assert find is not None
    tracemalloc.start()
    try:
        for number in range(20_000):
            find(Fields(((b"Authorization", b"%0*d" % (1 + number % 2500, number)),)))
        assert tracemalloc.get_traced_memory()[0] < 2 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_route_beside_a_guarded_one_has_its_judge() -> None:
    """Overrides are judged on every route to an upstream that has guarded ones, and on no other."""
    routes = (
        Route("charge", "/v1/charges", "payments", policy=POLICY),
        Route("rest", "/**", "payments"),
        Route("docs", "/docs", "docs"),
    )
    plans = make_plans(routes, {**UPSTREAMS, "docs": NoUpstream()}, b"")
    assert plans["charge"].overrides is plans["rest"].overrides is not None
    assert (plans["docs"].overrides, plans["docs"].guard, plans["docs"].cors) == (None, None, None)
    assert (plans["rest"].mode, plans["charge"].mode) == ("off", "enforce")


@given(st.frozensets(st.integers(200, 599)), st.frozensets(st.integers(200, 599)), st.integers(200, 599))
def test_a_plan_remembers_what_the_rules_say_of_a_status(released: frozenset[int], doubted: frozenset[int], status: int) -> None:
    """The first time and the second."""
    policy = replace(POLICY, release_on=released, doubt_on=doubted)
    settlements = plan_of(policy).settlements
    assert settlements[status] == settlements[status] == settle(Responded(status), policy)
