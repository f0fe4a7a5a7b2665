"""Findings that do not stop anything."""

from pathlib import Path

import pytest

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
        "a token refresh is a new scope, see the documentation on principals"
    ]


def test_a_warning_about_defaults_is_given_once(tmp_path: Path) -> None:
    """Two routes that take a doubtful default do not repeat the warning."""
    text = HEAD + ROUTES + "  - {id: b, path: /b, upstream: payments, idempotency: {principal: none}}\ndefaults: {lease: 1s}\n"
    assert [str(warning.place) for warning in read(tmp_path, text).warnings] == ["Place(line=12, column=19, path='defaults.lease')"]
