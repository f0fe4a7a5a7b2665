"""Findings about the edges that do not stop anything."""

from pathlib import Path

import pytest

from tests.config.support import HEAD, ROUTES, read

BASE = HEAD + ROUTES
HTTPS = BASE.replace("http://", "https://")

UPSTREAM = [
    pytest.param(", host: foward", "4:50: {}.host: the upstream gets `Host: foward`; did you mean `forward`?", id="host-like-a-word"),
    pytest.param(
        ", slot_wait: 60s",
        "4:55: {}.slot_wait: 1m is not shorter than the total timeout (1m), which counts the wait too",
        id="slot-wait",
    ),
    pytest.param(", health: {failures: 0, cooldown: 1s}", "4:76: {}.health.cooldown: has no effect with `failures: 0`", id="cooldown"),
    pytest.param(", health: {failures: 0, circuit: true}", "4:75: {}.health.circuit: has no effect with `failures: 0`", id="circuit"),
    pytest.param(
        ", tls: {verify: false}",
        "4:58: {}.tls.verify: false: whoever sits between gateway and upstream can read and change everything; "
        "name the authority in `ca_file` instead",
        id="verify",
    ),
    pytest.param(", host: api.example, health: {failures: 0}, slot_wait: 0s, tls: {}", None, id="nothing"),
]


@pytest.mark.parametrize(("more", "expected"), UPSTREAM)
def test_a_doubtful_setting_of_an_upstream_is_a_warning(tmp_path: Path, more: str, expected: str | None) -> None:
    """The file loads, and the warning stands where the setting does."""
    found = [str(one) for one in read(tmp_path, HTTPS.replace('8000"}', f'8000"{more}}}')).warnings]
    assert found == ([f"{tmp_path}/gateway.yaml:" + expected.replace("{}", "upstreams.payments")] if expected else [])


LINES = [
    pytest.param(
        "forwarded: none\ntrusted_proxies: [10.0.0.0/8]",
        "11:12: forwarded: none: upstreams learn nothing about the client, although `trusted_proxies` are believed about it",
        id="forwarded",
    ),
    pytest.param(
        "client: {max_connections: 10, max_connections_per_address: 11}",
        "11:60: client.max_connections_per_address: 11 is greater than max_connections (10), and so never counts",
        id="per-address",
    ),
    pytest.param(
        "memory: {total: 16MiB}",
        "11:17: memory.total: 16MiB is less than 4 times the response_body of route `charge`, 8MiB: "
        "a few such bodies fill it, then work gets 503; 32MiB or more would do",
        id="memory",
    ),
    pytest.param(
        "      limits: {request_body: 128MiB}",
        "11:30: routes[0].idempotency.limits.request_body: memory.total, 256MiB, is less than 4 times the request_body of route `charge`, "
        "128MiB: a few such bodies fill it, then work gets 503; 512MiB or more would do",
        id="limit",
    ),
    pytest.param(
        "trusted_proxies: [10.0.0.0/8, 0.0.0.0/0]",
        "11:18: trusted_proxies: 0.0.0.0/0 is everybody: each client is believed about who it is, whatever it writes; "
        "name the networks of the proxies in front",
        id="everybody",
    ),
    pytest.param(
        "trusted_proxies: ['::/0']",
        "11:18: trusted_proxies: ::/0 is everybody: each client is believed about who it is, whatever it writes; "
        "name the networks of the proxies in front",
        id="everybody-ipv6",
    ),
    pytest.param("trusted_proxies: [0.0.0.0/1]", None, id="half-of-everybody"),
    pytest.param("forwarded: none", None, id="forwarded-none-alone"),
    pytest.param("memory: {total: 32MiB}", None, id="memory-enough"),
    pytest.param("      stream: true", None, id="stream"),
]


@pytest.mark.parametrize(("lines", "expected"), LINES)
def test_a_doubtful_setting_of_an_edge_is_a_warning(tmp_path: Path, lines: str, expected: str | None) -> None:
    """The message names both values that do not go together."""
    found = [str(one) for one in read(tmp_path, f"{BASE}{lines}\n").warnings]
    assert found == ([f"{tmp_path}/gateway.yaml:{expected}"] if expected else [])


def test_a_stream_with_little_time_is_a_warning(tmp_path: Path) -> None:
    """A total timeout below a minute cuts most streams; the route that streams is where it matters."""
    text = BASE.replace('8000"}', '8000", timeouts: {total: 59s}}') + "      stream: true\n"
    assert [str(one) for one in read(tmp_path, text).warnings] == [
        f"{tmp_path}/gateway.yaml:11:15: routes[0].idempotency.stream: a stream is cut at the total timeout of upstream `payments`, 59s; "
        "most take a minute or more"
    ]


def test_a_socket_that_is_the_listener_is_a_warning(tmp_path: Path) -> None:
    """Requests would go round in a circle, also as one of several targets."""
    text = BASE.replace('{url: "http://payments:8000"}', "{targets: ['unix:/run/a.sock', 'unix:/run/b.sock']}")
    found = read(tmp_path, text + "listen: unix:/run/b.sock\n").warnings
    assert [str(one).partition("upstreams.")[2] for one in found] == [
        "payments.targets: is the gateway's own listener, unix:/run/b.sock: requests would go round in a circle"
    ]
