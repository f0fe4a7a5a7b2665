"""Findings that do not stop anything."""

from pathlib import Path

import pytest

from gateway.config.checks import find_warnings
from gateway.config.checks.routes import METHODS
from gateway.config.mistakes import Place
from gateway.config.model import Config
from gateway.config.reader import Reader
from gateway.config.source import compose
from gateway.core.kinds import SectionOf
from tests.config.support import HEAD, ROUTES, read

PREFIX = "gateway.yaml:11:"

WARNINGS = [
    pytest.param(
        "retention: 59m", "18: {}.retention: 59m is short: a retry after it executes again; most APIs keep keys for 24h", id="retention"
    ),
    pytest.param(
        "retention: 119s",
        "18: {}.retention: 119s is shorter than the upstream's max_execution (2m): a slow retry would execute again",
        id="retention-below-recovery",
    ),
    pytest.param(
        "in_flight: wait\n      retention: 129s",
        "18: {}.retention: 129s is shorter than wait + max_execution (130s): a slow retry would execute again",
        id="retention-below-recovery-and-wait",
    ),
    pytest.param("lease: 2999ms", "14: {}.lease: 2999ms is short: a pause of a third of it can lapse a running attempt", id="lease"),
    pytest.param(
        "fingerprint: {body: bytes, ignore: [/a]}",
        "42: {}.fingerprint.ignore: has no effect with `body: bytes`",
        id="pointers-without-json",
    ),
    pytest.param("retention: 1h", None, id="retention-long-enough"),
    pytest.param("lease: 3s", None, id="lease-long-enough"),
]


@pytest.mark.parametrize(("lines", "expected"), WARNINGS)
def test_a_doubtful_setting_is_a_warning(tmp_path: Path, lines: str, expected: str | None) -> None:
    """The file loads, and the warning stands where the setting does."""
    found = read(tmp_path, f"{HEAD}{ROUTES}      {lines}\n").warnings
    line = 11 + lines.count("\n")
    expected_lines = [f"{tmp_path}/gateway.yaml:{line}:" + expected.replace("{}", "routes[0].idempotency")] if expected else []
    assert [str(warning) for warning in found] == expected_lines


def test_a_raw_credential_is_a_warning(tmp_path: Path) -> None:
    """A principal from Authorization changes with every token."""
    text = HEAD + ROUTES.replace("none", "[{header: X-Tenant}, {header: authorization}]")
    assert [str(warning) for warning in read(tmp_path, text).warnings] == [
        f"{tmp_path}/gateway.yaml:10:18: routes[0].idempotency.principal: Authorization is a raw credential: "
        "a token refresh is a new scope, in which a retry executes again; name what stays the same, such as {jwt: {claim: sub, ...}} "
        "or {basic: true}"
    ]


def test_a_warning_about_defaults_is_given_once(tmp_path: Path) -> None:
    """Two routes that take a doubtful default do not repeat the warning."""
    text = HEAD + ROUTES + "  - {id: b, path: /b, upstream: payments, idempotency: {principal: none}}\ndefaults: {lease: 1s}\n"
    assert [str(warning.place) for warning in read(tmp_path, text).warnings] == [
        "Place(line=12, column=19, path='defaults.lease', file='')"
    ]


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        ("[POST, PSOT]", ["`PSOT` is not a registered HTTP method; did you mean `POST`?"]),
        ("[POST, PURGE, XX-YZ]", ["`PURGE` is not a registered HTTP method", "`XX-YZ` is not a registered HTTP method"]),
        (f"[{', '.join(sorted(METHODS))}]", []),
    ],
)
@pytest.mark.parametrize("guard", ["", ", idempotency: {principal: none}"])
def test_an_unknown_method_is_a_warning(tmp_path: Path, methods: str, expected: list[str], guard: str) -> None:
    """A misspelt method would never match; one of HTTP, QUERY or WebDAV is fine, guarded or not."""
    text = f"{HEAD}routes:\n  - {{id: a, path: /a, upstream: payments, methods: {methods}{guard}}}\n"
    found = read(tmp_path, text).warnings
    assert [str(one).partition(": routes[0].methods: ")[2].partition(";")[0] for one in found] == [
        one.partition(";")[0] for one in expected
    ]
    assert ("did you mean `POST`?" in str(found)) == ("PSOT" in methods)


def upstream_warnings(text: str) -> list[tuple[Place, str]]:
    """What is found about upstreams in a file without a mistake."""
    root = compose(text)
    assert root is not None
    reader = Reader({}, Path())
    found = reader.read(SectionOf(Config), root, Place(1, 1))
    assert found is not None
    assert not reader.mistakes
    return list(find_warnings((), found.value))


@pytest.mark.parametrize(
    ("listen", "url", "own"),
    [
        ("0.0.0.0:8080", "http://127.0.0.1:8080", True),
        ("0.0.0.0:8080", "http://LOCALHOST:8080", True),
        ("127.0.0.1:8080", "http://localhost:8080", True),
        ("127.0.0.1:8080", "http://0.0.0.0:8080", True),
        ("127.0.0.1:80", "http://127.0.0.1", True),
        ("'[::]:443'", "https://[::1]", True),
        ("gateway.example:8080", "http://gateway.example:8080", True),
        ("10.0.0.5:8080", "http://10.0.0.5:8080", True),
        ("0.0.0.0:8080", "http://127.0.0.1:8081", False),
        ("0.0.0.0:8080", "http://payments:8080", False),
        ("10.0.0.5:8080", "http://127.0.0.1:8080", False),
        ("127.0.0.1:8080", "http://127.0.0.2:8080", False),
        ("unix:/run/gateway.sock", "http://localhost:8080", False),
    ],
)
def test_an_upstream_that_is_the_gateway_is_a_warning(listen: str, url: str, own: bool) -> None:
    """The listener's own port on this machine would send every request round in a circle."""
    found = upstream_warnings(f"listen: {listen}\n{HEAD.replace('http://payments:8000', url)}{ROUTES}")
    message = f"is the gateway's own listener, {listen.strip(chr(39))}: requests would go round in a circle"
    assert found == ([(Place(5, 19, "upstreams.payments.url"), message)] if own else [])


@pytest.mark.parametrize(
    ("timeouts", "field", "words"),
    [
        ("{total: 10s}", "total", "total (10s) is shorter than first_byte (30s)"),
        ("{first_byte: 90s, total: 89s}", "total", "total (89s) is shorter than first_byte (90s)"),
        ("{first_byte: 2m}", "first_byte", "total (1m) is shorter than first_byte (2m)"),
        ("{first_byte: 60s}", None, ""),
        ("{total: 30s}", None, ""),
    ],
)
def test_a_total_below_first_byte_is_a_warning(timeouts: str, field: str | None, words: str) -> None:
    """The warning stands at what the file says, since the other may be a default."""
    found = upstream_warnings(HEAD.replace('8000"}', f'8000", timeouts: {timeouts}}}') + ROUTES)
    expected = [] if field is None else [(f"upstreams.payments.timeouts.{field}", f"{words}, which then never counts")]
    assert [(place.path, message) for place, message in found] == expected
