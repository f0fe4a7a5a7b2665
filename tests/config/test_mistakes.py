"""Mistakes inside one value, each with its exact place and words."""

from pathlib import Path

import pytest

from gateway.config import ConfigErrors, load
from tests.config.support import HEAD, ROUTES, mistakes

BASE = HEAD + ROUTES
"""Ten lines: what is appended starts in line 11."""

NO_POINTER = "is not a JSON pointer; it starts with /, and ~ is written ~0, / inside a name ~1 (RFC 6901)"

IN_POLICY = [
    pytest.param("retenton: 24h", "11:7: {}.retenton: unknown key; did you mean `retention`?", id="unknown-key"),
    pytest.param("zzz: 1", "11:7: {}.zzz: unknown key", id="unknown-key-like-no-other"),
    pytest.param("required: false", "11:7: {}.required: unknown key; it stands within `key`", id="key-of-a-section-within"),
    pytest.param('"a b": 1', '11:7: {}."a b": unknown key', id="unknown-key-of-odd-spelling"),
    pytest.param("lease: 30s\n      lease: 31s", "12:7: {}.lease: duplicate key (first in line 11)", id="duplicate-key"),
    pytest.param(
        "<<: {lease: 30s}", "11:7: {}.<<: merge keys are not supported; use an alias for the whole value, or `defaults`", id="merge-key"
    ),
    pytest.param(
        "release_on: 401",
        "11:19: {}.release_on: expected a list, found a whole number; put it in [ ], or begin each item with a dash",
        id="list",
    ),
    pytest.param(
        "limits: [1MiB]",
        "11:15: {}.limits: expected a mapping, found a list; it has keys, such as `request_body` and `response_body`",
        id="mapping",
    ),
    pytest.param("stream: yes", '11:15: {}.stream: expected true or false, found text "yes"', id="flag-as-text"),
    pytest.param("key: {required: 1}", "11:23: {}.key.required: expected true or false, found 1", id="flag-as-number"),
    pytest.param("scope: 12", "11:14: {}.scope: expected a name, found 12; put it in quotes", id="text-as-number"),
    pytest.param("lease:", "11:13: {}.lease: has no value; write one, or remove the line", id="no-value"),
    pytest.param("lease: !d 30s", "11:14: {}.lease: the tag !d is not supported", id="tag"),
    pytest.param("lease: 30", "11:14: {}.lease: 30 has no unit; write 30s for seconds (units: ms, s, m, h, d)", id="no-unit"),
    pytest.param(
        "wait: 1.5", "11:13: {}.wait: 1.5 has no unit; write 1.5s for seconds (units: ms, s, m, h, d)", id="no-unit-with-fraction"
    ),
    pytest.param(
        "lease: 30 sec", '11:14: {}.lease: "30 sec" is not a duration; write for example 250ms, 2s, 5m, 24h or 7d', id="bad-duration-unit"
    ),
    pytest.param("wait: 0.5ms", "11:13: {}.wait: 0.5ms is finer than a millisecond", id="too-fine"),
    pytest.param("lease: [30s]", "11:14: {}.lease: expected a duration such as 30s, found a list", id="duration-as-list"),
    pytest.param(
        "limits: {request_body: 1Mb}",
        '11:30: {}.limits.request_body: "1Mb" is not a size; write for example 512B, 8KiB, 512KB, 1MiB or 10MB',
        id="bad-size-unit",
    ),
    pytest.param("lease: 2h", "11:14: {}.lease: must be from 100ms to 1h, found 2h", id="lease-too-long"),
    pytest.param("lease: 99ms", "11:14: {}.lease: must be from 100ms to 1h, found 99ms", id="lease-too-short"),
    pytest.param("retention: 999ms", "11:18: {}.retention: must be from 1s to 3650d, found 999ms", id="retention-too-short"),
    pytest.param("retention: 3651d", "11:18: {}.retention: must be from 1s to 3650d, found 3651d", id="retention-too-long"),
    pytest.param("wait: 301s", "11:13: {}.wait: must be from 0s to 5m, found 301s", id="wait-too-long"),
    pytest.param(
        "limits: {response_body: 1025MiB}", "11:31: {}.limits.response_body: must be at most 1GiB, found 1025MiB", id="size-too-large"
    ),
    pytest.param("release_on: [600]", "11:20: {}.release_on[0]: must be from 100 to 599, found 600", id="status-too-high"),
    pytest.param("doubt_on: [502, 99]", "11:23: {}.doubt_on[1]: must be from 100 to 599, found 99", id="status-too-low"),
    pytest.param("doubt_on: [x]", '11:18: {}.doubt_on[0]: expected a whole number from 100 to 599, found text "x"', id="status-as-text"),
    pytest.param("doubt_on: [502, 502]", "11:23: {}.doubt_on[1]: `502` is listed twice", id="status-twice"),
    pytest.param(
        "key: {header: Idempotency Key}",
        '11:21: {}.key.header: "Idempotency Key" is not a header name; use letters, digits and -',
        id="key-header-name",
    ),
    pytest.param(
        "fingerprint: {headers: ['X:']}",
        '11:31: {}.fingerprint.headers[0]: "X:" is not a header name; use letters, digits and -',
        id="fingerprint-header-name",
    ),
    pytest.param(
        "fingerprint: {headers: [If-Match, if-match]}", "11:41: {}.fingerprint.headers[1]: `if-match` is listed twice", id="header-twice"
    ),
    pytest.param(
        "fingerprint: {ignore: [a]}",
        f'11:30: {{}}.fingerprint.ignore[0]: "a" {NO_POINTER}',
        id="pointer-without-slash",
    ),
    pytest.param(
        "fingerprint: {ignore: [/b~]}",
        f'11:30: {{}}.fingerprint.ignore[0]: "/b~" {NO_POINTER}',
        id="pointer-with-bare-tilde",
    ),
    pytest.param(
        "fingerprint: {ignore: ['']}",
        "11:30: {}.fingerprint.ignore[0]: the empty pointer means the whole body; write `body: none` instead",
        id="empty-pointer",
    ),
    pytest.param("scope: a b", '11:14: {}.scope: "a b" is not a name; use 1 to 64 characters of A-Z a-z 0-9 _ . -', id="scope-name"),
    pytest.param("key: {max_length: 256}", "11:25: {}.key.max_length: must be from 1 to 255, found 256", id="key-length"),
    pytest.param(
        "in_flight: confict",
        '11:18: {}.in_flight: expected one of conflict, wait, accepted, found "confict"; did you mean `conflict`?',
        id="enum-with-suggestion",
    ),
    pytest.param("in_flight: no", '11:18: {}.in_flight: expected one of conflict, wait, accepted, found "no"', id="enum"),
    pytest.param("on_unknown: retry", '11:19: {}.on_unknown: expected one of reconcile, reexecute, resume, found "retry"', id="on-unknown"),
]


@pytest.mark.parametrize(("line", "expected"), IN_POLICY)
def test_a_mistake_in_a_policy_is_found_where_it_stands(tmp_path: Path, line: str, expected: str) -> None:
    """One wrong line in a route's `idempotency` gives one message, at the key or value to change."""
    assert mistakes(tmp_path, f"{BASE}      {line}\n") == ["gateway.yaml:" + expected.replace("{}", "routes[0].idempotency")]


AT_TOP = [
    pytest.param("listn: x", "11:1: listn: unknown key; did you mean `listen`?", id="unknown-key"),
    pytest.param("workers: many", '11:10: workers: expected a whole number from 1 to 256, found text "many"', id="number-as-text"),
    pytest.param("workers: 1.5", "11:10: workers: expected a whole number from 1 to 256, found 1.5", id="fraction"),
    pytest.param("workers: 0", "11:10: workers: must be from 1 to 256, found 0", id="number-too-small"),
    pytest.param(
        "listen: 8080", "11:9: listen: expected an address such as 127.0.0.1:8080 or unix:/run/gateway.sock, found 8080", id="listen-number"
    ),
    pytest.param(
        "listen: a", '11:9: listen: "a" is not a listen address; write host:port, [::1]:port or unix:/path', id="listen-without-port"
    ),
    pytest.param("listen: a:99999", "11:9: listen: 99999 is not a port; ports go up to 65535", id="listen-port"),
    pytest.param(
        "listen: :8080",
        "11:9: listen: the host is missing; write 0.0.0.0:8080 for every interface or 127.0.0.1:8080 for this machine",
        id="listen-without-host",
    ),
    pytest.param("listen: ::1:8080", "11:9: listen: an IPv6 address stands in brackets, as in [::1]:8080", id="listen-bare-ipv6"),
    pytest.param("listen: '[::g]:80'", "11:9: listen: [::g] is not an IPv6 address", id="listen-bad-ipv6"),
    pytest.param("listen: 1.2.3:80", "11:9: listen: 1.2.3 is not an IPv4 address", id="listen-bad-ipv4"),
    pytest.param("listen: a b:80", '11:9: listen: "a b" is not a host name', id="listen-bad-name"),
    pytest.param(
        "listen: unix:run/x",
        "11:9: listen: a Unix socket needs an absolute path of at most 107 bytes, as in unix:/run/gateway.sock",
        id="listen-relative-socket",
    ),
    pytest.param(
        "trusted_proxies: [10.0.0.1/8]",
        "11:19: trusted_proxies[0]: 10.0.0.1/8 has host bits set; the network is 10.0.0.0/8",
        id="host-bits",
    ),
    pytest.param(
        "trusted_proxies: [any]",
        '11:19: trusted_proxies[0]: "any" is not a network; write for example 10.0.0.0/8 or 2001:db8::/32',
        id="network",
    ),
    pytest.param(
        "problem_base: /problems",
        "11:15: problem_base: must be an absolute URI that ends in / : # or =, such as https://docs.example.com/problems/",
        id="problem-base",
    ),
    pytest.param(
        "admin: {token: a b}",
        "11:16: admin.token: holds characters that an Authorization header cannot carry; use visible ASCII",
        id="token",
    ),
    pytest.param(
        "redis: {url: 'http://cache'}",
        "11:14: redis.url: a Redis URL looks like redis://host:6379/0, rediss://host:6379/0, unix:///run/redis.sock, "
        "redis+sentinel://host1,host2/0?master=name or redis+cluster://host1,host2",
        id="redis-url",
    ),
    pytest.param(
        "redis: {url: 'redis+sentinel://one,two/0'}",
        "11:14: redis.url: Sentinels know several primaries: name yours, as in redis+sentinel://host1,host2/0?master=name",
        id="sentinels-without-a-name",
    ),
    pytest.param("redis: &a {timeout: *a}", "11:8: redis.timeout: this alias contains itself", id="circular-alias"),
    pytest.param("? [a]\n: b", '11:3: "?": a key must be text', id="key-that-is-a-list"),
]


@pytest.mark.parametrize(("line", "expected"), AT_TOP)
def test_a_mistake_at_the_top_is_found_where_it_stands(tmp_path: Path, line: str, expected: str) -> None:
    """One wrong line at the top level gives one message, at the key or value to change."""
    assert mistakes(tmp_path, f"{BASE}{line}\n") == [f"gateway.yaml:{expected}"]


REPLACED = [
    pytest.param(
        "0123456789abcdef",
        "hunter2",
        "1:16: digest_secret: has 7 characters and needs 16 or more; make one with: openssl rand -hex 32",
        id="short-secret",
    ),
    pytest.param(
        "0123456789abcdef",
        "1234567890123456",
        "1:16: digest_secret: expected text of 16 characters or more, found a whole number; put it in quotes",
        id="secret-as-number",
    ),
    pytest.param(
        "postgresql://db",
        "mysql://db",
        "2:17: postgres.dsn: a Postgres DSN looks like postgresql://user:password@host:5432/database, "
        "or with several hosts host1:5432,host2:5432",
        id="dsn",
    ),
    pytest.param("postgresql://db/gateway", "", "2:17: postgres.dsn: is required (or `dsn_file`)", id="empty-dsn"),
    pytest.param('dsn: "postgresql://db/gateway"', "", "2:11: postgres.dsn: is required (or `dsn_file`)", id="no-dsn"),
    pytest.param(
        'gateway"}',
        'gateway", allow_unsafe: [fsync_of]}',
        "2:59: postgres.allow_unsafe[0]: expected one of fsync_off, synchronous_commit_off, "
        'synchronous_commit_remote_write, in_recovery, found "fsync_of"; did you mean `fsync_off`?',
        id="allow-unsafe",
    ),
    pytest.param(
        "http://p",
        "ftp://p",
        "4:19: upstreams.payments.url: an upstream is http://host:port, https://host:port or unix:/path",
        id="url-scheme",
    ),
    pytest.param(
        ":8000",
        ":8000/v1?a",
        "4:19: upstreams.payments.url: an upstream URL ends after the path: the request's query is forwarded as it came",
        id="url-query",
    ),
    pytest.param(
        ":8000",
        ":8000/v1//x",
        "4:19: upstreams.payments.url: empty and dot segments never match, since requests are compared in their normal form; remove them",
        id="url-path",
    ),
    pytest.param("http://p", "http://u:p@p", "4:19: upstreams.payments.url: an upstream URL holds no credentials", id="url-credentials"),
    pytest.param(
        "  payments: {",
        "  a b: {url: http://a}\n  payments: {",
        '4:3: upstreams."a b": "a b" is not a name; use 1 to 64 characters of A-Z a-z 0-9 _ . -',
        id="upstream-name",
    ),
    pytest.param(
        "  payments: {",
        "  a: 5\n  payments: {",
        "4:6: upstreams.a: expected a mapping, found a whole number; it has keys, such as `url` and `targets`",
        id="upstream-as-number",
    ),
    pytest.param(
        "id: charge", "id: a/b", '6:9: routes[0].id: "a/b" is not a name; use 1 to 64 characters of A-Z a-z 0-9 _ . -', id="route-id"
    ),
    pytest.param(
        "id: charge",
        "id: unmatched",
        "6:9: routes[0].id: `unmatched` is how metrics and logs call requests that no route takes; choose another id",
        id="reserved-route-id",
    ),
    pytest.param("    path: /v1/charges\n", "", "6:5: routes[0].path: is required", id="no-path"),
    pytest.param("path: /v1", "path: v1", "7:11: routes[0].path: a path starts with a slash: /v1/charges", id="relative-path"),
    pytest.param(
        "path: /v1",
        "path: ^/v1",
        "7:11: routes[0].path: a path is no regular expression; a parameter is written {id}, and what is left of a path /**",
        id="regular-expression",
    ),
    pytest.param(
        "/v1/charges",
        "/v1/**/x",
        "7:11: routes[0].path: '**': a parameter fills a whole segment, as in /{name}, and ** stands only at the end",
        id="rest-in-the-middle",
    ),
    pytest.param(
        "    upstream: p",
        "    methods: [post]\n    upstream: p",
        '8:15: routes[0].methods[0]: "post" is not a method in capitals; write POST',
        id="method-in-small-letters",
    ),
    pytest.param(
        "    upstream: p",
        "    methods: []\n    upstream: p",
        "8:14: routes[0].methods: the list is empty; name at least one",
        id="no-methods",
    ),
    pytest.param(
        "\n      principal: none", "", "9:17: routes[0].idempotency: has no value; write one, or remove the line", id="empty-idempotency"
    ),
    pytest.param(
        "principal: none",
        "principal: Authorization",
        '10:18: {}.principal: expected a list of sources such as [{header: X-Account-Id}], or none; found text "Authorization"',
        id="principal-as-text",
    ),
    pytest.param(
        "principal: none",
        "principal: []",
        "10:18: {}.principal: the list is empty; name a source such as {header: X-Account-Id}, or write none",
        id="principal-empty",
    ),
    pytest.param(
        "principal: none",
        "principal: [{header: A}, {header: a}]",
        "10:41: {}.principal[1].header: `a` is listed twice",
        id="principal-twice",
    ),
    pytest.param(
        "principal: none",
        "principal: [{header: 'A '}]",
        '10:28: {}.principal[0].header: "A " is not a header name; use letters, digits and -',
        id="principal-header-name",
    ),
    pytest.param(
        "principal: none",
        "principal: [none]",
        "10:19: {}.principal[0]: expected a mapping, found text; it has keys, such as `header` and `jwt`",
        id="principal-none-in-list",
    ),
]


@pytest.mark.parametrize(("old", "new", "expected"), REPLACED)
def test_a_mistake_in_what_every_file_needs_is_found_where_it_stands(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """One wrong value among the required ones gives one message, at the value to change, without echoing a secret."""
    assert old in BASE
    assert mistakes(tmp_path, BASE.replace(old, new)) == ["gateway.yaml:" + expected.replace("{}", "routes[0].idempotency")]


SYNTAX = [
    pytest.param("a: [b\n", "2:1: expected ',' or ']', but got '<stream end>' (while parsing a flow sequence)", id="unclosed"),
    pytest.param(
        "a: {b: ${C}}\n",
        "1:9: expected ',' or '}', but got '{' (while parsing a flow mapping); "
        "inside { } and [ ] put a value that contains braces in quotes",
        id="variable-in-flow",
    ),
    pytest.param(
        "a: b: c\n",
        "1:5: mapping values are not allowed here; each `:` and each `-` needs a space after it, here and in the line before",
        id="two-colons",
    ),
    pytest.param(
        "listen:0.0.0.0:8080\nadmin: {}\n",
        "2:6: mapping values are not allowed here; each `:` and each `-` needs a space after it, here and in the line before",
        id="no-space",
    ),
    pytest.param(
        "a:\n  b: 1\n c: 2\n",
        "3:2: expected <block end>, but found '<block mapping start>' (while parsing a block mapping)"
        "; indent this line as those that it belongs to",
        id="indentation",
    ),
    pytest.param(
        "a:\n\tb: 1\n",
        "2:1: found character '\\t' that cannot start any token (while scanning for the next token)"
        "; quote this value, and indent by spaces",
        id="tab",
    ),
    pytest.param("a: *b\n", "1:4: found undefined alias 'b'", id="alias"),
    pytest.param("a: 1\n---\nb: 1\n", "2:1: expected a single document in the stream, but found another document", id="documents"),
    pytest.param("a: 1\nb\x07: 1\n", "2:2: this character is not allowed in YAML", id="control-character"),
    pytest.param("[" * 20_000, "1:1: the document is nested too deeply", id="depth"),
    pytest.param("", "1:1: the file is empty", id="empty"),
    pytest.param("# nothing\n", "1:1: the file is empty", id="comment-only"),
    pytest.param("hello\n", "1:1: expected a mapping, found text", id="text"),
]


@pytest.mark.parametrize(("text", "expected"), SYNTAX)
def test_text_that_is_no_usable_yaml_is_one_mistake_without_a_path(tmp_path: Path, text: str, expected: str) -> None:
    """A syntax mistake names file, line and column, and what the parser met."""
    assert mistakes(tmp_path, text) == [f"gateway.yaml:{expected}"]


def test_bytes_that_are_not_utf8_are_a_mistake_at_the_first_of_them(tmp_path: Path) -> None:
    """The column counts characters, also after ones of several bytes."""
    path = tmp_path / "gateway.yaml"
    path.write_bytes("listen: x\n# ü ".encode() + b"\xff\n")
    assert _load(path) == [f"{path}:2:5: the file is not UTF-8 text"]


def test_a_file_that_cannot_be_read_is_a_mistake_without_a_place(tmp_path: Path) -> None:
    """A missing file and a folder say why they cannot be read."""
    assert _load(tmp_path / "none.yaml") == [f"{tmp_path}/none.yaml: cannot read the file: No such file or directory"]
    assert _load(tmp_path) == [f"{tmp_path}: cannot read the file: Is a directory"]


def test_a_file_without_bounds_is_refused(tmp_path: Path) -> None:
    """A file over 4 MiB is not parsed at all."""
    path = tmp_path / "gateway.yaml"
    path.write_text("#" * (4 * 1024 * 1024 + 1))
    assert _load(path) == [f"{path}: the file is larger than 4MiB"]


def _load(path: Path) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        load(path, {})
    return [str(mistake) for mistake in caught.value.mistakes]
