"""What is constant for a route, made once when a route map is loaded: requests compute nothing that their route map says already.

Design of a request's way
-------------------------

*Plans.* `make_plans` compiles each `Route` into a `RoutePlan`; that of a guarded route has a `GuardPlan`. A part that a route does not
use is None (or empty), so a feature costs only the routes that use it. A plan is immutable and holds its upstream: a reload makes new
plans, and requests under way keep theirs, so nothing has to remember routes that left the map.

*One object.* The connection makes a `Call` for each head that has come. It carries everything from there to the log line: the head, the
plan, the key, the scope, the body, and at last the answer. The engine knows it as a `GuardedRequest`, the observer as a `FinishedRequest`.

*One flow.*  head → admit → (body) → (recall) → reserve → decide → execute | answer

    head      frame, host, loops; the plan by method and target; preflights and overrides where the plan has them
    admit     key, scope, announced size, body: all that is at hand is judged in one synchronous step. What is not at hand (a principal
              that others must confirm, a body that is still coming, large JSON) is a `Missing` part: fetch it, then admit again
    recall    what this process remembers of the key, if it does: most replays end here, at once and without a task
    reserve   one `Intent` for each statement, each with a fresh owner token
    decide    one loop for requests that enforce, observe and wait; `gateway.core.decision` judges each record that is found
    execute   an `Attempt`, which belongs to the process and not to the client's connection: it writes the request at once where it can,
              is called with the answer, and settles that in a task of its own
    answer    one pass over the fields of the upstream's answer makes those of the client and those of the record

*At once.* Each step is a plain function that gives its result, or something to be awaited. So a request whose parts are all at hand is
answered within the callback that read its last byte; the first step that has to wait makes a task of the rest.

*Slow ways* leave this flow at one place each and come back to it: spooled bodies and large JSON at admit; forward-auth and key sets at
admit; large fingerprints, captured values and sealing before reserve; lost replies after reserve; streams and large answers while an
attempt reads; tunnels and unguarded requests after head. No rule stands on two ways.

*Failures.* Before reserve nothing has happened. A reserve whose reply is lost is confirmed by a write or taken back. After it the attempt
alone settles: whatever it meets ends in complete, release or doubt.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from gateway.core.cors import Cors
from gateway.core.decision import Responded, Settlement, settle
from gateway.core.dialect import replays_alike
from gateway.core.duplicates import Duplicates
from gateway.core.field_names import SELECTING
from gateway.core.fingerprint import VERSION, EqualRequests, Fingerprinter, make_fingerprinter
from gateway.core.headers import Fields, wire_name
from gateway.core.key import KeyFound, find_key_in, find_key_in_body, find_key_in_form, key_finder
from gateway.core.key_location import Parts, carry, changes_body, goes_as_it_came
from gateway.core.key_policy import BodyKey, FormKey, ForwardKey, HeaderKey, QueryKey
from gateway.core.model import Headers, RecordKey, Terms
from gateway.core.overrides import Overrides, make_overrides
from gateway.core.policy import Mode, OnExpired, OnUnknown, Policy, Route
from gateway.core.principal_source import Combine, HeaderPrincipal, needs_waiting, principal_headers
from gateway.core.reach import Beyond, Guards, Servers, one_place, one_server
from gateway.core.reconcile.policy import Resend
from gateway.core.rewrite import Rewriting
from gateway.core.scope import ScopeFound, derived_key, find_scope
from gateway.core.sent_fields import Sending
from gateway.core.splice import JsonText
from gateway.core.status_headers import exposed
from gateway.core.upstream_answer import removed_fields
from gateway.ports import Retention, Upstream
from gateway.ports.accepted import Promise

OBSERVED_BODY = 1024 * 1024 * 1024
"""How large a body may be that an observing route reads: whatever the route's limit, the request goes through."""

OBSERVED_PATIENCE = 0.2
"""Seconds that an observed request waits for its record at most: long enough for its repetition to be seen as one."""

FindKey: TypeAlias = Callable[[Fields, bytes], KeyFound]
"""Finds the key in the field lines or in the target."""

FindKeyInBody: TypeAlias = Callable[[bytes, Fields, JsonText | None], KeyFound]
"""Finds the key in a body, of which the last argument is what is known of it as JSON."""

FindScope: TypeAlias = Callable[[Fields], ScopeFound]
"""Finds the caller's scope in the field lines."""

CarryKey: TypeAlias = Callable[[Parts, RecordKey], Parts | None]
"""Puts the key where the upstream expects it; None if the body cannot take it."""


@dataclass(frozen=True, slots=True)
class GuardPlan:
    """The constants of a guarded route.

    `find_key` None: the key is in the body, and `find_key_in_body` finds it. `find_scope` None: the caller must be verified; `asks`: by
    another server. `kept` are the lower-case fields that a client's `Connection` cannot strip. `carry_key` None: the request goes on with
    the key as it came. `changes_body`: the upstream gets the key in the body, where the client did not put it so. `forwards_lines`: the
    upstream gets the target as it came, and the field lines that `to_upstream` makes. `uncoded`: the upstream is asked for answers without
    a content coding, since they are looked into. `longest_body`: so many bytes of a body are read at most. `pointers` are where a key
    stands in a JSON body, or will. `captures`: values of the request are kept with its record; `seals`: the request itself is. `promise`: a
    request may be answered before it is executed. `duplicates` is what this process has seen of equal requests under other keys. `removed`
    are the lower-case fields of an answer that are between the upstream and the gateway. `settlements`: what the status of a first
    attempt's answer means where the upstream says no more of it. `patience`: so many seconds an answer waits for its commit at most.
    `terms` and `retention` are what a store is told. `marks`: answers say what became of their key; `exposed` are the fields that a page's
    script needs to see. `replays_alike`: what a replay says of itself does not depend on the request that asks for it. `takes_part`: the
    upstream is told which attempt it executes; `co_commits`: it may complete the record itself. `rewriting` and `sent` are as for
    `RoutePlan`.
    """

    route_id: str
    upstream_name: str
    upstream: Upstream
    policy: Policy
    observes: bool
    find_key: FindKey | None
    find_key_in_body: FindKeyInBody | None
    find_scope: FindScope | None
    asks: bool
    kept: frozenset[bytes]
    carry_key: CarryKey | None
    changes_body: bool
    forwards_lines: bool
    uncoded: bool
    longest_body: int
    pointers: tuple[str, ...]
    fingerprinter: Fingerprinter
    captures: bool
    seals: bool
    promise: Promise | None
    duplicates: Duplicates | None
    removed: frozenset[bytes]
    settlements: "Settlements"
    patience: float
    terms: Terms
    retention: Retention
    marks: bool
    exposed: tuple[bytes, ...]
    replays_alike: bool
    takes_part: bool
    co_commits: bool
    added: Headers = ()
    rewriting: Rewriting | None = None
    sent: Sending | None = None


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """The constants of a route. `mode` is as logs and metrics call it. `guard` is None where the route passes straight through, `cors`
    where it says nothing to pages of other origins, `overrides` where no guarded route leads to the same server, `rewriting` where the
    upstream gets the path as it came, `sent` where it gets the fields so. Of answers the fields in `removed` go, and `added` come. `beside`
    are the upstreams where equal paths lead to the same place, `beyond` the guards that its paths may reach in another spelling of theirs.
    """

    id: str
    mode: str
    route: Route
    upstream: Upstream
    cors: Cors | None
    overrides: Overrides | None
    guard: GuardPlan | None
    rewriting: Rewriting | None = None
    sent: Sending | None = None
    removed: frozenset[bytes] = frozenset()
    added: Headers = ()
    beside: frozenset[str] = frozenset()
    beyond: Beyond | None = None


def make_plans(
    routes: tuple[Route, ...],
    upstreams: Mapping[str, Upstream],
    secret: bytes,
    *,
    version: int = VERSION,
    forwards_overrides: Collection[str] = (),
    prefixed: Collection[str] = (),
    servers: Servers | None = None,
    before: Mapping[str, RoutePlan] | None = None,
) -> dict[str, RoutePlan]:
    """The plans of a route map, by route id. `forwards_overrides` names the upstreams of which the operator says that they know none;
    `prefixed` those that put a prefix in front of every path; `servers` None: each has a server of its own. `version` is the fingerprint
    version that is written.
    `before` are the plans of the last map: what this process has seen of equal requests stays known.
    """
    if servers is None:
        servers = {name: frozenset({(name, "")}) for name in upstreams}
    guards = [route for route in routes if route.policy is not None]
    reached = Guards([guard for guard in guards if guard.policy is not None and guard.policy.mode is Mode.ENFORCE], servers)
    used = {route.upstream for route in routes}
    overrides = {name: _overrides(name, guards, servers, refuse=name not in forwards_overrides) for name in used}
    beside = {name: frozenset([other for other in used if one_place(name, other, servers)]) for name in used}
    plans: dict[str, RoutePlan] = {}
    equal = EqualRequests()
    for route in routes:
        upstream, earlier = upstreams[route.upstream], (before or {}).get(route.id)
        rewriting = Rewriting(route.rewrite) if route.rewrite is not None or route.upstream in prefixed else None
        guard = (
            None
            if route.policy is None
            else make_guard_plan(
                route,
                route.policy,
                upstream,
                secret,
                version=version,
                before=None if earlier is None else earlier.guard,
                equal=equal,
                rewriting=rewriting,
            )
        )
        mode = "off" if route.policy is None else route.policy.mode.value
        plans[route.id] = RoutePlan(
            *(route.id, mode, route, upstream, route.cors, overrides[route.upstream], guard, rewriting),
            *(_sending(route), _gone(route), _added(route), beside[route.upstream]),
            None if route.upstream in forwards_overrides else Beyond(route, reached),
        )
    return plans


def _overrides(name: str, guards: Sequence[Route], servers: Servers, *, refuse: bool) -> Overrides | None:
    """For an upstream at whose servers there are guards."""
    policies = [guard.policy for guard in guards if guard.policy is not None and one_server(name, guard.upstream, servers)]
    return make_overrides(policies, refuse=refuse) if policies else None


def make_guard_plan(
    route: Route,
    policy: Policy,
    upstream: Upstream,
    secret: bytes,
    *,
    version: int = VERSION,
    before: GuardPlan | None = None,
    equal: EqualRequests | None = None,
    rewriting: Rewriting | None = None,
) -> GuardPlan:
    """The plan of one guarded route; the arguments as for `make_plans` and `make_fingerprinter`."""
    in_head = isinstance(policy.key.place, HeaderKey | QueryKey)
    return GuardPlan(
        route_id=route.id,
        upstream_name=route.upstream,
        upstream=upstream,
        policy=policy,
        observes=policy.mode is Mode.OBSERVE,
        find_key=_key_finder(policy) if in_head else None,
        find_key_in_body=None if in_head else _body_key_finder(policy),
        find_scope=_scope_finder(policy, secret) if _told_by_fields(policy) else None,
        asks=needs_waiting(policy.principal),
        kept=frozenset(map(_lower, (*policy.key.headers, *principal_headers(policy.principal), *policy.fingerprint.headers))) | SELECTING,
        carry_key=None if goes_as_it_came(policy) else _key_carrier(policy, secret),
        changes_body=changes_body(policy),
        forwards_lines=goes_as_it_came(policy) and not _writes_fields(route, policy) and rewriting is None,
        uncoded=policy.reads_answers,
        longest_body=max(OBSERVED_BODY, policy.limits.request_body) if policy.mode is Mode.OBSERVE else policy.limits.request_body,
        pointers=tuple(place.pointer for place in dict.fromkeys((policy.key.place, policy.key_goes_to)) if isinstance(place, BodyKey)),
        fingerprinter=make_fingerprinter(policy.fingerprint, secret, version, equal=equal),
        captures=(policy.reconcilable or policy.accepts or bool(policy.reconcile.capture)) and policy.mode is Mode.ENFORCE,
        seals=isinstance(policy.reconcile.probe, Resend) or policy.accepts,
        promise=_promise(policy) if policy.accepts else None,
        duplicates=_duplicates(policy, before),
        removed=removed_fields(policy) | _gone(route),
        added=_added(route),
        settlements=Settlements(policy),
        patience=min(policy.settle_timeout, OBSERVED_PATIENCE) if policy.mode is Mode.OBSERVE else policy.settle_timeout,
        terms=_terms(route.id, policy),
        retention=Retention.of(policy),
        marks=policy.status_fields or policy.mark_duplicates or policy.expose_headers,
        exposed=exposed(policy),
        replays_alike=replays_alike(policy.dialect),
        takes_part=policy.takes_part,
        co_commits=policy.takes_part and policy.participate.co_commit,
        rewriting=rewriting,
        sent=_sending(route),
    )


def _writes_fields(route: Route, policy: Policy) -> bool:
    """Whether requests on their way to the upstream get or lose fields for the route's sake."""
    sent = route.request_headers is not None or policy.takes_part or policy.on_unknown is OnUnknown.REEXECUTE
    return sent or policy.reads_answers or changes_body(policy)


def _sending(route: Route) -> Sending | None:
    return None if route.request_headers is None else Sending(route.request_headers)


def _gone(route: Route) -> frozenset[bytes]:
    return frozenset() if route.answer_headers is None else route.answer_headers.gone


def _added(route: Route) -> Headers:
    return () if route.answer_headers is None else route.answer_headers.lines


class Settlements(dict[int, Settlement]):
    """What the status of a first attempt's answer means, by the rules of `gateway.core.decision`, where the answer has no hint. A redirect
    counts as one that is located. Each status is judged once.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self._policy = policy

    def __missing__(self, status: int) -> Settlement:
        settlement = self[status] = settle(Responded(status), self._policy)
        return settlement


def _promise(policy: Policy) -> Promise:
    return Promise(policy.pending_for, Retention.of(policy), policy.max_pending.route, policy.max_pending.principal)


def _terms(route_id: str, policy: Policy) -> Terms:
    return Terms(
        route_id,
        policy.lease,
        policy.max_execution,
        policy.reconcilable,
        policy.tombstone if policy.on_expired is OnExpired.GONE else None,
        policy.mode is Mode.OBSERVE,
        policy.repeats,
        policy.accepts,
        policy.takes_part and policy.participate.co_commit,
        policy.quota if policy.mode is Mode.ENFORCE else None,
    )


def _lower(name: str) -> bytes:
    return name.lower().encode()


def _told_by_fields(policy: Policy) -> bool:
    """Whether fields alone tell the caller."""
    return all(isinstance(source, HeaderPrincipal) for source in policy.principal) and (
        policy.combine is Combine.ALL or len(policy.principal) < 2
    )


def _key_finder(policy: Policy) -> FindKey:
    if isinstance(policy.key.place, QueryKey):
        return lambda _, target: find_key_in(target, policy.key)
    return key_finder(policy.key)


def _body_key_finder(policy: Policy) -> FindKeyInBody:
    if isinstance(policy.key.place, FormKey):
        return lambda body, fields, _: find_key_in_form(body, fields, policy.key)
    return lambda body, _, text: find_key_in_body(body, policy.key, text)


def _scope_finder(policy: Policy, secret: bytes) -> FindScope:
    names = principal_headers(policy.principal)
    find = partial(find_scope, scope=policy.scope, principal=names, secret=secret)
    if not names:
        scope = find(Fields(()))
        return lambda _: scope
    return _RememberedScopes(find, wire_name(names[0])) if len(names) == 1 else find


class _RememberedScopes:
    """Finds scopes by the one field that tells the caller, and remembers those of the last callers: at least those whose values and scopes
    fit into `_ROOM` bytes, at most twice as many. Lasts as long as its plan, so that a reload forgets all. A credential is held in memory
    for it.
    """

    __slots__ = ("_before", "_find", "_held", "_known", "_name")

    def __init__(self, find: FindScope, name: bytes) -> None:
        self._find = find
        self._name = name
        self._known: dict[bytes, ScopeFound] = {}
        self._before: dict[bytes, ScopeFound] = {}
        self._held = 0  # bytes of what is known, without those before

    def __call__(self, fields: Fields) -> ScopeFound:
        value = fields.single(self._name)
        if value is None:
            return self._find(fields)
        return self._known.get(value) or self._keep(value, self._before.get(value) or self._find(fields))

    def _keep(self, value: bytes, scope: ScopeFound) -> ScopeFound:
        if len(value) <= _LONGEST:
            if self._held > _ROOM:
                self._known, self._before, self._held = {}, self._known, 0
            self._known[value] = scope
            self._held += len(value) + _SCOPE_COST
        return scope


_ROOM = 512 * 1024
_LONGEST = 2048
_SCOPE_COST = 300
"""Bytes of a scope and of its places in both."""


def _key_carrier(policy: Policy, secret: bytes) -> CarryKey:
    if policy.forward_key is ForwardKey.DERIVED:
        return lambda parts, key: carry(parts, policy, key.key, derived_key(secret, key.scope_id, key.key).decode())
    return lambda parts, key: carry(parts, policy, key.key, "")


def _duplicates(policy: Policy, before: GuardPlan | None) -> Duplicates | None:
    if not policy.duplicates:
        return None
    earlier = None if before is None else before.duplicates
    return earlier if earlier is not None and earlier.window == policy.duplicates else Duplicates(policy.duplicates)
