"""Mistakes about the edges: clients, targets, memory. Each with its exact place and words."""

from pathlib import Path

import pytest

from tests.config.support import HEAD, ROUTES, mistakes, read

BASE = HEAD + ROUTES
"""Ten lines: what is appended starts in line 11."""

NO_HOST = "is not a Host line; write forward, target, or a name such as api.example or api.example:8443"

AT_TOP = [
    pytest.param("name: a b", '11:7: name: "a b" is not a token; use 1 to 64 letters, digits, - _ and . as in edge-1', id="name"),
    pytest.param('name: ""', '11:7: name: "" is not a token; use 1 to 64 letters, digits, - _ and . as in edge-1', id="no-name"),
    pytest.param(
        "forwarded: forwardd",
        '11:12: forwarded: expected one of x-forwarded, forwarded, both, none, found "forwardd"; did you mean `forwarded`?',
        id="forwarded",
    ),
    pytest.param("proxy_status: on", '11:15: proxy_status: expected true or false, found text "on"', id="proxy-status"),
    pytest.param(
        "client: {header_timout: 1s}", "11:10: client.header_timout: unknown key; did you mean `header_timeout`?", id="client-key"
    ),
    pytest.param("client: {header_timeout: 11m}", "11:26: client.header_timeout: must be from 10ms to 10m, found 11m", id="header"),
    pytest.param("client: {body_timeout: 1ms}", "11:24: client.body_timeout: must be from 10ms to 1h, found 1ms", id="body"),
    pytest.param("client: {send_timeout: 2h}", "11:24: client.send_timeout: must be from 10ms to 1h, found 2h", id="send"),
    pytest.param("client: {min_rate: 2MiB}", "11:20: client.min_rate: must be at most 1MiB, found 2MiB", id="rate"),
    pytest.param(
        "client: {half_close_timeout: 0s}", "11:30: client.half_close_timeout: must be from 10ms to 1h, found 0s", id="half-close"
    ),
    pytest.param("client: {idle_timeout: 0s}", "11:24: client.idle_timeout: must be from 10ms to 1h, found 0s", id="idle"),
    pytest.param("client: {max_connections: 0}", "11:27: client.max_connections: must be from 1 to 1000000, found 0", id="connections"),
    pytest.param(
        "client: {max_header_size: 1023}", "11:27: client.max_header_size: must be from 1KiB to 1MiB, found 1023", id="header-size-small"
    ),
    pytest.param(
        "client: {max_header_size: 2MiB}", "11:27: client.max_header_size: must be from 1KiB to 1MiB, found 2MiB", id="header-size-large"
    ),
    pytest.param("client: {max_headers: 0}", "11:23: client.max_headers: must be from 1 to 10000, found 0", id="headers"),
    pytest.param("memory: {total: 15MiB}", "11:17: memory.total: must be from 16MiB to 1024GiB, found 15MiB", id="memory"),
    pytest.param(
        "memory: {spill_directory: nowhere}",
        "11:27: memory.spill_directory: {folder}/nowhere does not exist; make it (mkdir -p), "
        "or leave this out for the system's temporary directory",
        id="no-folder",
    ),
    pytest.param(
        "memory: {spill_directory: gateway.yaml}",
        "11:27: memory.spill_directory: {folder}/gateway.yaml is not a folder; make it (mkdir -p), "
        "or leave this out for the system's temporary directory",
        id="file-for-folder",
    ),
    pytest.param('memory: {spill_directory: "a\\0"}', "11:27: memory.spill_directory: a path cannot hold a NUL character", id="nul"),
    pytest.param(
        "memory: {spill_directory: 5}", "11:27: memory.spill_directory: expected a folder path, found 5; put it in quotes", id="number"
    ),
    pytest.param(
        "memory: {spill_directory: /proc}",
        "11:27: memory.spill_directory: no file can be made in /proc by this user (No such file or directory); "
        "give it the folder (chown), or name another",
        id="no-folder-for-files",
    ),
    pytest.param(
        "listen: unix:/missing/folder/x",
        "11:9: listen: /missing/folder does not exist; make it (mkdir -p) for the user of the gateway, or name another",
        id="listen-without-folder",
    ),
    pytest.param(
        "admin: {listen: unix:/etc/hostname/x}",
        "11:17: admin.listen: /etc/hostname is not a folder; make it (mkdir -p) for the user of the gateway, or name another",
        id="listen-below-a-file",
    ),
    pytest.param(
        "listen: unix:/run", "11:9: listen: /run is a folder; name a socket in it, as in unix:/run/gateway.sock", id="listen-folder"
    ),
    pytest.param("tls: {}", "11:6: tls.cert_file: is required", id="tls-empty"),
    pytest.param("tls: no", "11:6: tls: expected a mapping, found text; it has keys, such as `cert_file` and `key_file`", id="tls-text"),
    pytest.param('admin: {tls: {cert_file: ""}}', "11:26: admin.tls.cert_file: is required", id="tls-empty-file"),
]


@pytest.mark.parametrize(("line", "expected"), AT_TOP)
def test_a_mistake_about_an_edge_is_found_where_it_stands(tmp_path: Path, line: str, expected: str) -> None:
    """One wrong line gives one message, at the key or value to change."""
    found = mistakes(tmp_path, f"{BASE}{line}\n")
    assert found == ["gateway.yaml:" + expected.replace("{folder}/", "")]


IN_UPSTREAM = [
    pytest.param("{}", "4:13: {}.url: is required (or `targets`, a list)", id="neither"),
    pytest.param("{url: 'http://a', targets: ['http://b']}", "4:40: {}.targets: `url` is given too; keep one of them", id="both"),
    pytest.param("{url: 'http://a:0'}", "4:19: {}.url: 0 is not a port; ports go from 1 to 65535", id="port-zero"),
    pytest.param("{url: 'http://a:99999'}", "4:19: {}.url: 99999 is not a port; ports go from 1 to 65535", id="port-99999"),
    pytest.param(
        "{url: 'unix://run/app.sock'}",
        "4:19: {}.url: a Unix socket is on no host; write unix:/run/app.sock, or unix:/ and the absolute path",
        id="socket-on-a-host",
    ),
    pytest.param(
        "{url: 'https://a', tls: {client_ca_file: k}}", "4:38: {}.tls.client_ca_file: unknown key; did you mean `ca_file`?", id="ca-file"
    ),
    pytest.param("{targets: []}", "4:23: {}.targets: the list is empty; name at least one", id="no-targets"),
    pytest.param(
        "{targets: 'http://a'}",
        "4:23: {}.targets: expected a list, found text; put it in [ ], or begin each item with a dash",
        id="targets-as-text",
    ),
    pytest.param("{targets: ['http://a', 'http://a/']}", "4:36: {}.targets[1]: `http://a` is listed twice", id="twice"),
    pytest.param(
        "{targets: ['http://a:80', 'http://A']}",
        "4:23: {}.targets: http://a:80 and http://A are one target; keep one of them",
        id="twice-in-other-words",
    ),
    pytest.param(
        "{targets: ['https://a', 'http://b', 'unix:/c']}",
        "4:23: {}.targets: http://b is not https:// while others are; the targets of one upstream are all https:// or none",
        id="mixed",
    ),
    pytest.param("{url: 'http://a', tls: {}}", "4:36: {}.tls: needs https:// targets, and http://a is none", id="tls-over-http"),
    pytest.param("{url: 'unix:/a', tls: {}}", "4:35: {}.tls: needs https:// targets, and unix:/a is none", id="tls-over-socket"),
    pytest.param(
        "{url: 'unix:a'}", "4:19: {}.url: a Unix socket needs an absolute path of at most 107 bytes, as in unix:/run/api.sock", id="socket"
    ),
    pytest.param(
        "{url: 'unix:/a', host: target}",
        "4:36: {}.host: unix:/a has no host of its own; write forward, or a name such as api.example",
        id="host-of-a-socket",
    ),
    pytest.param("{url: 'http://a', host: Target}", "4:37: {}.host: write target, in small letters", id="host-case"),
    pytest.param("{url: 'http://a', host: 'http://b'}", f'4:37: {{}}.host: "http://b" {NO_HOST}', id="host-url"),
    pytest.param("{url: 'http://a', host: 'b:0'}", f'4:37: {{}}.host: "b:0" {NO_HOST}', id="host-port"),
    pytest.param("{url: 'http://a', host: '[::g]'}", f'4:37: {{}}.host: "[::g]" {NO_HOST}', id="host-ipv6"),
    pytest.param("{url: 'http://a', host: 1.2.3:80}", f'4:37: {{}}.host: "1.2.3:80" {NO_HOST}', id="host-ipv4"),
    pytest.param("{url: 'http://a', slot_wait: 6m}", "4:42: {}.slot_wait: must be from 0s to 5m, found 6m", id="slot-wait"),
    pytest.param("{url: 'http://a', health: {failures: -1}}", "4:50: {}.health.failures: must be from 0 to 1000, found -1", id="failures"),
    pytest.param("{url: 'http://a', health: {cooldown: 0s}}", "4:50: {}.health.cooldown: must be from 10ms to 1h, found 0s", id="cooldown"),
    pytest.param(
        "{url: 'http://a', timeouts: {stream_idle: 8d}}", "4:55: {}.timeouts.stream_idle: must be from 1ms to 7d, found 8d", id="stream"
    ),
    pytest.param(
        "{url: 'https://a', tls: {min_version: 1.1}}",
        '4:51: {}.tls.min_version: "1.1" is not spoken here; 1.2 and 1.3 are',
        id="version",
    ),
    pytest.param("{url: 'https://a', tls: {min_version: 2}}", "4:51: {}.tls.min_version: expected one of 1.2, 1.3, found 2", id="whole"),
    pytest.param(
        "{url: 'https://a', tls: {server_name: 'a:1'}}",
        '4:51: {}.tls.server_name: "a:1" is not a name that a certificate could have; write for example api.example',
        id="server-name",
    ),
    pytest.param(
        "{url: 'https://a', tls: {key_file: k}}",
        "4:48: {}.tls.key_file: a key without a certificate does nothing; name it in `cert_file`, or remove this",
        id="key-alone",
    ),
]


@pytest.mark.parametrize(("upstream", "expected"), IN_UPSTREAM)
def test_a_mistake_about_a_target_is_found_where_it_stands(tmp_path: Path, upstream: str, expected: str) -> None:
    """One wrong value of an upstream gives one message, at the value to change."""
    text = BASE.replace('{url: "http://payments:8000"}', upstream)
    assert mistakes(tmp_path, text) == ["gateway.yaml:" + expected.replace("{}", "upstreams.payments")]


VERSIONS = {"1.2": "1.2", "1.3": "1.3", '"1.2"': "1.2", "'1.3'": "1.3", '"${VERSION:-1.3}"': "1.3"}


@pytest.mark.parametrize(("written", "version"), VERSIONS.items())
def test_a_tls_version_may_be_quoted_or_not(tmp_path: Path, written: str, version: str) -> None:
    """A number of YAML is the version that it looks like."""
    tls = read(tmp_path, BASE.replace('"http://payments:8000"', f'"https://a", tls: {{min_version: {written}}}')).upstreams["payments"].tls
    assert tls is not None
    assert tls.min_version == version


@pytest.mark.parametrize("host", ["forward", "target", "api.example", "api.example:8443", "10.0.0.1:80", "'[::1]:80'", "payments"])
def test_a_host_line_may_be_a_word_or_a_literal(tmp_path: Path, host: str) -> None:
    """What it says is kept letter by letter."""
    text = BASE.replace('8000"}', f'8000", host: {host}}}')
    assert read(tmp_path, text).upstreams["payments"].host == host.strip("'")


def test_a_folder_without_permission_is_a_mistake(as_a_user: Path) -> None:
    """Large bodies could not be kept there."""
    (as_a_user / "spill").mkdir(mode=0o500)
    assert mistakes(as_a_user, BASE + "memory: {spill_directory: spill}\n") == [
        "gateway.yaml:11:27: memory.spill_directory: no file can be made in spill by this user (Permission denied); "
        "give it the folder (chown), or name another"
    ]


def test_a_listener_names_its_authorities_in_another_word(tmp_path: Path) -> None:
    """`ca_file` is what an upstream calls them."""
    found = mistakes(tmp_path, BASE + "tls: {cert_file: '', ca_file: ca.pem}\n")
    assert "gateway.yaml:11:22: tls.ca_file: unknown key; did you mean `client_ca_file`?" in found


def test_the_writing_of_a_trial_file_leaves_nothing_behind(tmp_path: Path) -> None:
    """A folder for large bodies is as empty after `check` as it was before."""
    (tmp_path / "spill").mkdir()
    assert mistakes(tmp_path, BASE + "memory: {spill_directory: spill}\n") == []
    assert list((tmp_path / "spill").iterdir()) == []


def test_an_answer_must_fit_into_memory(tmp_path: Path) -> None:
    """A limit above all memory could never be reached: the message names both, at the one that the file gives."""
    limits = "      limits: {response_body: 64MiB}\n"
    words = "is less than the response_body of route `charge`, 64MiB: such an answer could never be kept; make memory.total at least 256MiB"
    assert mistakes(tmp_path, BASE + limits + "memory: {total: 32MiB}\n") == [
        f"gateway.yaml:12:17: memory.total: 32MiB {words}, or the limit smaller"
    ]
    assert mistakes(tmp_path, BASE + limits.replace("64MiB", "512MiB")) == [
        "gateway.yaml:11:31: routes[0].idempotency.limits.response_body: memory.total, 256MiB, is less than the response_body of route "
        "`charge`, 512MiB: such an answer could never be kept; make memory.total at least 2GiB, or the limit smaller"
    ]


def test_a_large_request_body_needs_no_memory(tmp_path: Path) -> None:
    """It spills to disk while it is read; only a warning says that few fit."""
    assert mistakes(tmp_path, BASE + "      limits: {request_body: 1GiB}\n") == []


def test_what_a_variable_leaves_empty_is_not_given(tmp_path: Path) -> None:
    """Optional paths and names may come from variables that are not set."""
    tls = "{ca_file: '${A:-}', cert_file: '${A:-}', key_file: '${A:-}', server_name: '${A:-}'}"
    text = BASE.replace('{url: "http://payments:8000"}', f'{{url: "https://a", tls: {tls}}}') + "memory: {spill_directory: '${A:-}'}\n"
    config = read(tmp_path, text)
    found = config.upstreams["payments"].tls
    assert found is not None
    assert (found.ca_file, found.cert_file, found.key_file, found.server_name) == (None, None, None, None)
    assert config.memory.spill_directory is None
