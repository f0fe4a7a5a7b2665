"""Mistakes that show only when several values are seen together, and many mistakes at once."""

from pathlib import Path

import pytest

from tests.config.support import HEAD, ROUTES, mistakes

BASE = HEAD + ROUTES
UNGUARDED = "{{id: {}, path: {}, upstream: payments}}"


def _routes(*routes: str) -> str:
    return HEAD + "routes:\n" + "".join(f"  - {route}\n" for route in routes)


def test_an_unknown_upstream_is_a_mistake_with_a_suggestion(tmp_path: Path) -> None:
    """A route whose upstream is not configured points at the name that was meant."""
    text = _routes("{id: a, path: /a, upstream: paymets}")
    assert mistakes(tmp_path, text) == ["gateway.yaml:6:33: routes[0].upstream: unknown upstream `paymets`; did you mean `payments`?"]


def test_a_broken_upstream_is_still_a_known_one(tmp_path: Path) -> None:
    """An upstream with a mistake of its own does not make every route that names it wrong too."""
    text = BASE.replace('{url: "http://payments:8000"}', "5")
    assert mistakes(tmp_path, text) == [
        "gateway.yaml:4:13: upstreams.payments: expected a mapping, found a whole number; it has keys, such as `url` and `targets`"
    ]


def test_two_routes_cannot_share_an_id(tmp_path: Path) -> None:
    """The second of two equal ids is the mistake, and names the line of the first."""
    text = _routes(UNGUARDED.format("a", "/a"), UNGUARDED.format("a", "/b"))
    assert mistakes(tmp_path, text) == ["gateway.yaml:7:10: routes[1].id: duplicate route id `a` (first in line 6)"]


def test_a_lease_covers_the_skew_of_the_databases_clocks(tmp_path: Path) -> None:
    """Another node's clock may end it that much earlier, when its holder must have stopped trusting it."""
    text = BASE.replace('gateway"}', 'gateway", clock_skew: 400ms}')
    words = "a tenth of it must cover `postgres.clock_skew`, 400ms: at least 4s"
    assert mistakes(tmp_path, text + "      lease: 3s\n") == [f"gateway.yaml:11:14: routes[0].idempotency.lease: {words}"]
    assert mistakes(tmp_path, text + "      lease: 4s\n") == []


SHADOWED = [
    pytest.param(("path: /**", "path: /a"), "7:39", "`a` (line 6)", id="rest"),
    pytest.param(("path: '/{x}'", "path: /a"), "7:39", "`a` (line 6)", id="parameter"),
    pytest.param(("path: /a/**", "path: '/a/{x}/**'"), "7:39", "`a` (line 6)", id="rest-under-rest"),
    pytest.param(("path: /a", "path: /a, methods: [POST]"), "7:39", "`a` (line 6)", id="methods"),
    pytest.param(
        ("path: /a, methods: [GET]", "path: /**, methods: [POST]", "path: /a, methods: [GET, POST]"),
        "8:39",
        "`a` (line 6), `b` (line 7)",
        id="shared-out",
    ),
]


@pytest.mark.parametrize(("settings", "at", "names"), SHADOWED)
def test_a_route_that_can_never_match_is_a_mistake(tmp_path: Path, settings: tuple[str, ...], at: str, names: str) -> None:
    """The later route is the mistake, and names the routes that take its requests."""
    text = _routes(*(f"{{id: {name}, upstream: payments, {route}}}" for name, route in zip("abc", settings, strict=False)))
    last = len(settings) - 1
    assert mistakes(tmp_path, text) == [
        f"gateway.yaml:{at}: routes[{last}].path: this route can never match: all of its requests go to {names}"
    ]


def test_routes_that_share_only_a_part_are_fine(tmp_path: Path) -> None:
    """A wider route after a narrower one, or one for other methods, is how route maps are written."""
    first = "{id: a, path: /a, upstream: payments, methods: [GET]}"
    assert mistakes(tmp_path, _routes(first, UNGUARDED.format("b", "/a"), UNGUARDED.format("c", "/**"))) == []


def test_a_guarded_route_must_name_its_principal(tmp_path: Path) -> None:
    """No principal is not the same as `none`: it has to be spelled out."""
    text = _routes("{id: a, path: /a, upstream: payments, idempotency: {}}")
    assert mistakes(tmp_path, text) == [
        "gateway.yaml:6:56: routes[0].idempotency.principal: a guarded route names who asks: "
        "write [{header: X-Account-Id}], or none for one scope for all callers"
    ]


def test_what_is_digested_needs_the_digest_secret(tmp_path: Path) -> None:
    """Header principals and derived keys are refused without a secret."""
    text = BASE.replace("digest_secret: 0123456789abcdef\n", "").replace("none", "[{header: X-Account}]") + "      forward_key: derived\n"
    assert mistakes(tmp_path, text) == [
        "gateway.yaml:9:18: routes[0].idempotency.principal: a principal needs `digest_secret`: "
        "what tells callers apart is kept as a keyed digest only",
        "gateway.yaml:10:20: routes[0].idempotency.forward_key: derived keys need `digest_secret`",
    ]


def test_principal_none_works_without_a_digest_secret(tmp_path: Path) -> None:
    """Nothing is digested where no caller is told from another."""
    assert mistakes(tmp_path, BASE.replace("digest_secret: 0123456789abcdef\n", "")) == []


ADMIN = [
    pytest.param(
        "0.0.0.0:9464",
        "11:8: admin.token: is required, or `admin.users`, since 0.0.0.0:9464 can be reached from other machines",
        id="every-interface",
    ),
    pytest.param(
        "'[::]:9464'",
        "11:8: admin.token: is required, or `admin.users`, since [::]:9464 can be reached from other machines",
        id="every-ipv6-interface",
    ),
    pytest.param(
        "gateway:9464",
        "11:8: admin.token: is required, or `admin.users`, since gateway:9464 can be reached from other machines",
        id="a-name",
    ),
    pytest.param("0.0.0.0:8080, token: t", "11:17: admin.listen: 0.0.0.0:8080 is the address of `listen` too", id="the-address-of-listen"),
    pytest.param(
        "127.0.0.1:8080",
        "11:17: admin.listen: 127.0.0.1:8080 is one of the addresses of `listen`, 0.0.0.0:8080",
        id="one-of-all-addresses",
    ),
    pytest.param("127.0.0.2:9464", None, id="loopback"),
    pytest.param("'[::1]:9464'", None, id="ipv6-loopback"),
    pytest.param("localhost:9464", None, id="localhost"),
    pytest.param("unix:/run/admin.sock", None, id="unix"),
    pytest.param("0.0.0.0:9464, token: t", None, id="with-a-token"),
]


@pytest.mark.parametrize(("listen", "expected"), ADMIN)
def test_the_admin_listener_is_closed_to_strangers(tmp_path: Path, listen: str, expected: str | None) -> None:
    """Off loopback the admin listener needs a token, and it never shares the address of the public one."""
    assert mistakes(tmp_path, f"{BASE}admin: {{listen: {listen}}}\n") == ([f"gateway.yaml:{expected}"] if expected else [])


LENGTHS = [
    pytest.param("{min_length: 20, max_length: 10}", "11:25: {}.min_length: min_length 20 is greater than max_length 10", id="both"),
    pytest.param("{min_length: 255, max_length: 1}", "11:25: {}.min_length: min_length 255 is greater than max_length 1", id="extremes"),
]


@pytest.mark.parametrize(("key", "expected"), LENGTHS)
def test_no_key_could_be_good(tmp_path: Path, key: str, expected: str) -> None:
    """A least length above the greatest one is a mistake."""
    assert mistakes(tmp_path, f"{BASE}      key: {key}\n") == ["gateway.yaml:" + expected.format("routes[0].idempotency.key")]


DRAIN = [
    pytest.param(
        "drain: {timeout: 61s}\n",
        "11:18: drain.timeout: 61s is too short for the total timeout of upstream `payments`, 1m, "
        "and the settle_timeout of route `charge`, 2s; "
        "make it at least 62s",
        id="written",
    ),
    pytest.param("drain: {timeout: 62s}\n", None, id="long-enough"),
    pytest.param(
        "drain: {delay: 0s}\n",
        "11:8: drain.timeout: 75s is too short for the total timeout of upstream `payments`, 80s, "
        "and the settle_timeout of route `charge`, 2s; "
        "make it at least 82s",
        id="default",
    ),
]


@pytest.mark.parametrize(("drain", "expected"), DRAIN)
def test_draining_covers_the_longest_request(tmp_path: Path, drain: str, expected: str | None) -> None:
    """`drain.timeout` is at least the longest total timeout plus the settle timeout of a route."""
    text = BASE + drain
    if expected and "80s" in expected:
        text = text.replace(':8000"}', ':8000", timeouts: {total: 80s}}')
    assert mistakes(tmp_path, text) == ([f"gateway.yaml:{expected}"] if expected else [])


OVERLAP = [
    pytest.param(
        "release_on: [503, 429]", "11:19: {}.release_on: 503 in both release_on and doubt_on; an outcome settles one way", id="default"
    ),
    pytest.param(
        "release_on: [504, 503]\n      doubt_on: [503, 504, 505]",
        "12:17: {}.doubt_on: 503, 504 in both release_on and doubt_on; an outcome settles one way",
        id="both-written",
    ),
    pytest.param("release_on: [503]\n      doubt_on: [502]", None, id="moved"),
]


@pytest.mark.parametrize(("lines", "expected"), OVERLAP)
def test_one_status_settles_one_way(tmp_path: Path, lines: str, expected: str | None) -> None:
    """`release_on` and `doubt_on` have no status in common, defaults included."""
    found = mistakes(tmp_path, f"{BASE}      {lines}\n")
    assert found == (["gateway.yaml:" + expected.format("routes[0].idempotency")] if expected else [])


OTHER_SCOPES = ["principal: [{header: X}]", "principal: none, key: {mode: strict}", "principal: none, key: {header: X-Key}"]


@pytest.mark.parametrize("other", OTHER_SCOPES)
def test_a_scope_means_one_thing(tmp_path: Path, other: str) -> None:
    """Two routes that share a scope share its principal and its key settings."""
    first = "{id: a, path: /a, upstream: payments, idempotency: {principal: none}}"
    text = _routes(first, f"{{id: b, path: /b, upstream: payments, idempotency: {{scope: a, {other}}}}}")
    assert mistakes(tmp_path, text) == [
        "gateway.yaml:7:64: routes[1].idempotency.scope: the scope `a` has another principal or other key settings in route `a` (line 6); "
        "a scope means one thing"
    ]


def test_routes_may_share_a_scope(tmp_path: Path) -> None:
    """Equal principals and key settings may share a scope; the case of a header name makes no difference."""
    first = "{id: a, path: /a, upstream: payments, idempotency: {principal: [{header: X-Account}]}}"
    second = (
        "{id: b, path: /b, upstream: payments, idempotency: {scope: a, principal: [{header: x-account}], key: {header: idempotency-key}}}"
    )
    assert mistakes(tmp_path, _routes(first, second)) == []


def test_a_mistake_in_defaults_is_reported_once(tmp_path: Path) -> None:
    """Several routes that take a wrong value from `defaults` do not repeat it."""
    guarded = "{{id: {0}, path: /{0}, upstream: payments, idempotency: {{principal: none}}}}"
    text = _routes(guarded.format("a"), guarded.format("b")) + "defaults: {release_on: [408], lease: 1}\n"
    assert mistakes(tmp_path, text) == [
        "gateway.yaml:8:24: defaults.release_on: 408 in both release_on and doubt_on; an outcome settles one way",
        "gateway.yaml:8:38: defaults.lease: 1 has no unit; write 1s for seconds (units: ms, s, m, h, d)",
    ]


def test_all_mistakes_are_reported_at_once_in_file_order(tmp_path: Path) -> None:
    """Mistakes of every kind, in one file, come together, and none hides another or is reported twice."""
    text = """\
listen: 8080
digest_secret: short
postgres: {dns: "postgresql://db/gateway"}
upstreams:
  payments: {url: payments}
  payments: {url: "http://other"}
drain: {timeout: 5s}
routes:
  - {id: all, path: /**, upstream: payment}
  - id: charge
    path: /v1/charges
    upstream: payments
    idempotency:
      principal: [{header: X-Account}]
      lease: 30
      in_flight: later
      key: {min_length: 9, max_length: 8}
  - id: all
    path: ${CHARGES}
    upstream: payments
"""
    prefix = "gateway.yaml:"
    assert mistakes(tmp_path, text) == [
        f"{prefix}1:9: listen: expected an address such as 127.0.0.1:8080 or unix:/run/gateway.sock, found 8080",
        f"{prefix}2:16: digest_secret: has 5 characters and needs 16 or more; make one with: openssl rand -hex 32",
        f"{prefix}3:11: postgres.dsn: is required (or `dsn_file`)",
        f"{prefix}3:12: postgres.dns: unknown key; did you mean `dsn`?",
        f"{prefix}5:19: upstreams.payments.url: an upstream is http://host:port, https://host:port or unix:/path",
        f"{prefix}6:3: upstreams.payments: duplicate key (first in line 5)",
        f"{prefix}7:18: drain.timeout: 5s is too short for the total timeout of upstream `payments`, 1m, and the settle_timeout of "
        "route `charge`, 2s; make it at least 62s",
        f"{prefix}9:36: routes[0].upstream: unknown upstream `payment`; did you mean `payments`?",
        f"{prefix}11:11: routes[1].path: this route can never match: all of its requests go to `all` (line 9)",
        f"{prefix}15:14: routes[1].idempotency.lease: 30 has no unit; write 30s for seconds (units: ms, s, m, h, d)",
        f'{prefix}16:18: routes[1].idempotency.in_flight: expected one of conflict, wait, accepted, found "later"',
        f"{prefix}17:25: routes[1].idempotency.key.min_length: min_length 9 is greater than max_length 8",
        f"{prefix}18:9: routes[2].id: duplicate route id `all` (first in line 9)",
        f"{prefix}19:11: routes[2].path: the environment variable CHARGES is not set; ${{CHARGES:-default}} would give it a default",
    ]
