"""What a valid file means."""

import ipaddress
from pathlib import Path

import pytest

from gateway.config import (
    Admin,
    ClientSettings,
    Config,
    DrainSettings,
    MemorySettings,
    PostgresSettings,
    RedisSettings,
    TcpListener,
    UnixListener,
    UpstreamConfig,
    UpstreamHealth,
    UpstreamTimeouts,
    load,
)
from gateway.core.fingerprint_policy import BodyMode, FingerprintPolicy
from gateway.core.headers import Forwarding
from gateway.core.key_policy import ForwardKey, HeaderKey, KeyMode, KeyPolicy
from gateway.core.policy import InFlight, Limits, OnStoreOutage, Policy, Route
from gateway.core.principal_source import HeaderPrincipal
from tests.config.support import HEAD, ROUTES, mistakes, read, write

LEAST = """\
postgres: {dsn: "postgresql://db/gateway"}
upstreams: {payments: {url: "http://payments:8000/"}}
routes:
  - {id: charge, path: /v1/charges, upstream: payments, idempotency: {principal: none}}
  - {id: rest, path: /**, methods: [GET, HEAD, OPTIONS], upstream: payments}
"""

FULL = """\
name: edge-1
listen: unix:/run/gateway.sock
admin: {listen: "[::]:9000", token: s3cret}
workers: 4
trusted_proxies: [10.0.0.0/8, "2001:db8::/32", 192.0.2.1]
forwarded: both
proxy_status: true
client:
  header_timeout: 5s
  body_timeout: 20s
  send_timeout: 40s
  min_rate: 1KiB
  half_close_timeout: 10s
  idle_timeout: 30s
  max_connections: 500
  max_connections_per_address: 50
  max_header_size: 16KiB
  max_headers: 100
memory: {total: 64MiB, spill_directory: ., replay_cache: 2MiB, replay_cache_ttl: 1s}
postgres:
  dsn: postgresql://gateway@db/gateway
  pool_size: 16
  timeout: 1s
  prepared_statements: false
  allow_unsafe: [fsync_off, in_recovery]
redis: {url: "rediss://cache:6380/1", timeout: 50ms, lease: 3s, replay_ttl: 5m, max_value: 8KiB}
digest_secret: 0123456789abcdef
problem_base: https://docs.example.com/problems/
access_log: false
drain: {delay: 1s, timeout: 2m}
upstreams:
  payments:
    targets: ["https://payments.example", "https://other.example:8443/"]
    host: api.example:8443
    overrides: forward
    health: {failures: 3, cooldown: 1500ms, circuit: false}
    timeouts: {connect: 1s, first_byte: 10s, read_idle: 5s, stream_idle: 10m, total: 90s}
    max_execution: 3m
    keepalive: 10s
    max_connections: 32
    slot_wait: 500ms
routes:
  - id: charge
    methods: [POST, PUT]
    path: /v1/{account}/charges/**
    upstream: payments
    idempotency:
      scope: money
      mode: enforce
      dialect: ietf
      key: {header: X-Idempotency-Key, required: false, mode: strict, min_length: 16, max_length: 64}
      principal: [{header: X-Tenant}, {header: X-User}]
      fingerprint: {body: json, headers: [If-Match], ignore: [/client_timestamp, /a~1b]}
      in_flight: wait
      wait: 5s
      lease: 20s
      retention: 7d
      on_expired: execute
      release_on: [429]
      doubt_on: []
      on_unknown: reconcile
      on_store_outage: forward
      limits: {request_body: 512KiB, response_body: 512KB}
      settle_timeout: 1s
      stream: true
      forward_key: derived
"""


PLAIN = UpstreamConfig(
    name="payments",
    targets=("http://payments:8000",),
    max_execution=120.0,
    keepalive=4.0,
    max_connections=256,
    host="forward",
    forwards_overrides=False,
    tls=None,
    slot_wait=1.0,
    health=UpstreamHealth(failures=10, cooldown=5.0, circuit=None),
    timeouts=UpstreamTimeouts(connect=2.0, first_byte=30.0, read_idle=30.0, stream_idle=3600.0, total=60.0),
)


def test_the_least_file_takes_every_default(tmp_path: Path) -> None:
    """A file with one upstream and its routes gives the documented defaults, and the policy's own."""
    assert read(tmp_path, LEAST) == Config(
        name="idempotency-gateway",
        listen=TcpListener("0.0.0.0", 8080),
        tls=None,
        admin=Admin(TcpListener("127.0.0.1", 9464)),
        workers=1,
        trusted_proxies=(),
        forwarded=Forwarding.X_FORWARDED,
        proxy_status=False,
        cors=None,
        client=ClientSettings(15.0, 60.0, 60.0, 240, 30.0, 75.0, 10_000, 0, 64 * 1024, 256),
        memory=MemorySettings(256 * 1024 * 1024, None, 16 * 1024 * 1024, 3.0),
        postgres=PostgresSettings("postgresql://db/gateway", 8, 2.0, prepared_statements=True, allow_unsafe=frozenset()),
        redis=None,
        digest_secret=None,
        problem_base="urn:idempotency-gateway:problem:",
        access_log=True,
        drain=DrainSettings(5.0, 75.0),
        upstreams={"payments": PLAIN},
        routes=(
            Route("charge", "/v1/charges", "payments", frozenset({"POST", "PATCH"}), Policy(scope="charge", principal=())),
            Route("rest", "/**", "payments", frozenset({"GET", "HEAD", "OPTIONS"})),
        ),
    )


FULL_UPSTREAM = UpstreamConfig(
    name="payments",
    targets=("https://payments.example", "https://other.example:8443"),
    max_execution=180.0,
    keepalive=10.0,
    max_connections=32,
    host="api.example:8443",
    forwards_overrides=True,
    tls=None,
    slot_wait=0.5,
    health=UpstreamHealth(failures=3, cooldown=1.5, circuit=False),
    timeouts=UpstreamTimeouts(connect=1.0, first_byte=10.0, read_idle=5.0, stream_idle=600.0, total=90.0),
)


def test_a_full_file_is_taken_word_for_word(tmp_path: Path) -> None:
    """Every setting arrives where it belongs, in seconds and bytes; a policy knows its upstream's max_execution."""
    policy = Policy(
        scope="money",
        principal=(HeaderPrincipal("X-Tenant"), HeaderPrincipal("X-User")),
        key=KeyPolicy(HeaderKey("X-Idempotency-Key"), required=False, mode=KeyMode.STRICT, min_length=16, max_length=64),
        fingerprint=FingerprintPolicy(BodyMode.JSON, ("if-match",), ("/client_timestamp", "/a~1b")),
        in_flight=InFlight.WAIT,
        wait=5.0,
        lease=20.0,
        retention=604800.0,
        release_on=frozenset({429}),
        doubt_on=frozenset(),
        on_store_outage=OnStoreOutage.FORWARD,
        limits=Limits(512 * 1024, 512_000),
        settle_timeout=1.0,
        stream=True,
        forward_key=ForwardKey.DERIVED,
        max_execution=180.0,
    )
    networks = tuple(ipaddress.ip_network(text) for text in ("10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32"))
    assert read(tmp_path, FULL) == Config(
        name="edge-1",
        listen=UnixListener("/run/gateway.sock"),
        tls=None,
        admin=Admin(TcpListener("::", 9000), "s3cret"),
        workers=4,
        trusted_proxies=networks,
        forwarded=Forwarding.BOTH,
        proxy_status=True,
        cors=None,
        client=ClientSettings(5.0, 20.0, 40.0, 1024, 10.0, 30.0, 500, 50, 16 * 1024, 100),
        memory=MemorySettings(64 * 1024 * 1024, str(tmp_path), 2 * 1024 * 1024, 1.0),
        postgres=PostgresSettings(
            "postgresql://gateway@db/gateway", 16, 1.0, prepared_statements=False, allow_unsafe=frozenset({"fsync_off", "in_recovery"})
        ),
        redis=RedisSettings("rediss://cache:6380/1", 0.05, 3.0, 300.0, 8192),
        digest_secret=b"0123456789abcdef",
        problem_base="https://docs.example.com/problems/",
        access_log=False,
        drain=DrainSettings(1.0, 120.0),
        upstreams={"payments": FULL_UPSTREAM},
        routes=(Route("charge", "/v1/{account}/charges/**", "payments", frozenset({"POST", "PUT"}), policy),),
    )


def test_defaults_fill_in_field_by_field(tmp_path: Path) -> None:
    """A route's own fields win, nested ones singly; what neither names keeps its built-in default."""
    text = HEAD + (
        "defaults:\n  principal: [{header: X-Account}]\n  retention: 48h\n  key: {mode: raw, min_length: 8}\n"
        "  limits: {request_body: 1KiB}\n"
        "routes:\n  - id: a\n    path: /a\n    upstream: payments\n"
        "    idempotency: {retention: 2h, key: {min_length: 4}, principal: none}\n"
        "  - {id: b, path: /b, upstream: payments, idempotency: {}}\n  - {id: c, path: /c, upstream: payments}\n"
    )
    first, second, third = read(tmp_path, text).routes
    limits = Limits(request_body=1024)
    assert first.policy == Policy("a", (), KeyPolicy(mode=KeyMode.RAW, min_length=4), retention=7200.0, limits=limits)
    assert second.policy == Policy(
        "b", (HeaderPrincipal("X-Account"),), KeyPolicy(mode=KeyMode.RAW, min_length=8), retention=172800.0, limits=limits
    )
    assert third.policy is None


def test_an_alias_stands_for_its_value(tmp_path: Path) -> None:
    """Anchors and aliases work wherever a value stands."""
    text = HEAD + ROUTES.replace("idempotency:", "idempotency: &guard") + "  - {id: b, path: /b, upstream: payments, idempotency: *guard}\n"
    first, second = (route.policy for route in read(tmp_path, text).routes)
    assert first is not None
    assert second == Policy(scope="b", principal=())


def test_a_key_of_the_writers_own_holds_anchors(tmp_path: Path) -> None:
    """Keys that begin with `x-`, at the top of the file: what stands in them is read where an alias names it, and only there."""
    own = "x-guard: &guard {retention: 7d}\nx-odd: !tag {no_setting: []}\n"
    spelled_out = read(tmp_path, LEAST + "defaults: {retention: 7d}\n")
    assert read(tmp_path, own + LEAST + "defaults: *guard\n").routes == spelled_out.routes


def test_a_key_of_the_writers_own_stands_at_the_top(tmp_path: Path) -> None:
    """Elsewhere it is a setting that nobody knows; and a mistake in what an alias names is told where it was written."""
    assert mistakes(tmp_path, LEAST + "admin: {x-a: 1}\n")[0].endswith("admin.x-a: unknown key")
    assert mistakes(tmp_path, LEAST + "x-guard: &guard {retenton: 7d}\ndefaults: *guard\n")[0].endswith(
        "unknown key; did you mean `retention`?"
    )


def test_a_document_of_aliases_to_aliases_costs_nothing(tmp_path: Path) -> None:
    """Nine levels of ten aliases each are read as nine lists, not as a billion items."""
    levels = [f"z{level}: &z{level} [" + ", ".join([f"*z{level - 1}"] * 10 if level else ["x"] * 10) + "]" for level in range(10)]
    assert mistakes(tmp_path, HEAD + ROUTES + "\n".join(levels)) == [
        f"gateway.yaml:{11 + level}:1: z{level}: unknown key" for level in range(10)
    ]


def test_yaml_words_of_old_are_text(tmp_path: Path) -> None:
    """`no`, `on` and `12:30` are text, as in YAML 1.2."""
    text = HEAD + "routes:\n  - {id: no, path: /a, upstream: payments}\n  - {id: on, path: /b, upstream: payments}\n"
    assert [route.id for route in read(tmp_path, text).routes] == ["no", "on"]


def test_secrets_may_come_from_files(tmp_path: Path) -> None:
    """Each `*_file` twin is read relative to the configuration's folder, without its closing line break."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "digest").write_text("0123456789abcdef\n")
    (folder / "dsn").write_text("postgresql://u:p@db/gateway\r\n")
    (folder / "redis").write_text("redis://cache:6379/0")
    (folder / "token").write_text("${not-a-variable}\n")
    text = ROUTES + (
        "upstreams: {payments: {url: 'http://payments'}}\ndigest_secret_file: secrets/digest\npostgres: {dsn_file: '${DIR}/dsn'}\n"
        f"redis: {{url_file: {folder}/redis}}\nadmin: {{token_file: secrets/token}}\n"
    )
    config = read(tmp_path, text, {"DIR": "secrets"})
    assert (config.digest_secret, config.postgres.dsn) == (b"0123456789abcdef", "postgresql://u:p@db/gateway")
    assert config.redis is not None
    assert (config.redis.url, config.admin.token) == ("redis://cache:6379/0", "${not-a-variable}")


def test_an_empty_twin_is_not_given(tmp_path: Path) -> None:
    """`${VAR:-}` on either side of a pair leaves the other one in charge."""
    (tmp_path / "secret").write_text("0123456789abcdef")
    text = (
        HEAD.replace("0123456789abcdef", "${NONE:-}") + ROUTES + "digest_secret_file: secret\nadmin: {token: t, token_file: '${NONE:-}'}\n"
    )
    config = read(tmp_path, text)
    assert (config.digest_secret, config.admin.token) == (b"0123456789abcdef", "t")


TWINS = [
    pytest.param("digest_secret_file: good", "11:21: digest_secret_file: `digest_secret` is given too; keep one of them", id="both"),
    pytest.param("admin: {token_file: none}", "11:21: admin.token_file: cannot read none: No such file or directory", id="missing"),
    pytest.param("admin: {token_file: .}", "11:21: admin.token_file: cannot read .: Is a directory", id="folder"),
    pytest.param("admin: {token_file: empty}", "11:21: admin.token_file: cannot use empty: it is empty", id="empty"),
    pytest.param("admin: {token_file: binary}", "11:21: admin.token_file: cannot use binary: it is not UTF-8 text", id="binary"),
    pytest.param("admin: {token_file: large}", "11:21: admin.token_file: cannot use large: it is larger than 64KiB", id="large"),
    pytest.param('admin: {token_file: "a\\0"}', r"11:21: admin.token_file: cannot read a\x00: no file can have this name", id="nul"),
    pytest.param("redis: {url_file: good}", "11:19: redis.url_file: a Redis URL looks like redis://host:6379/0, "
        "rediss://host:6379/0, unix:///run/redis.sock, redis+sentinel://host1,host2/0?master=name or "
        "redis+cluster://host1,host2", id="content"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), TWINS)
def test_a_file_that_cannot_give_a_secret_is_a_mistake(tmp_path: Path, line: str, expected: str) -> None:
    """A twin that is unreadable, empty, binary, too large, wrong in content or given twice is reported at its path."""
    (tmp_path / "good").write_text("0123456789abcdef")
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_text("x" * (64 * 1024 + 1))
    assert mistakes(tmp_path, HEAD + ROUTES + line + "\n") == [f"gateway.yaml:{expected}"]


def test_a_secret_without_permission_is_a_mistake(as_a_user: Path) -> None:
    """A twin that this user may not read says so."""
    (as_a_user / "secret").touch(mode=0)
    assert mistakes(as_a_user, HEAD + ROUTES + "admin: {token_file: secret}\n") == [
        "gateway.yaml:11:21: admin.token_file: cannot read secret: Permission denied"
    ]


def test_no_repr_shows_a_secret(tmp_path: Path) -> None:
    """Neither the configuration nor a mistake's text gives a secret away, whatever is wrong with it."""
    config = read(tmp_path, FULL.replace("//gateway@db", "//gateway:hunter2@db").replace("//cache", "//:hunter2@cache"))
    assert "hunter2" not in repr(config)
    assert "s3cret" not in repr(config)
    assert "0123456789abcdef" not in repr(config)
    wrong = HEAD.replace("0123456789abcdef", "hunter2").replace("postgresql://db", "hunter2://hunter2") + ROUTES
    found = mistakes(tmp_path, wrong + "admin: {token: hunter2 hunter2}\nredis: {url: hunter2}\n")
    assert len(found) == 4
    assert "hunter2" not in "".join(found)


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    """Files of editors that write a byte order mark load, and positions do not count it."""
    assert read(tmp_path, "\ufeff" + LEAST).workers == 1
    assert mistakes(tmp_path, "\ufeffzzz: 1\n" + LEAST) == ["gateway.yaml:1:1: zzz: unknown key"]


def test_paths_are_relative_to_the_file_and_not_to_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration named by a relative path finds its secrets beside itself."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "token").write_text("t")
    write(tmp_path / "etc", LEAST + "admin: {token_file: token}\n")
    monkeypatch.chdir(tmp_path)
    assert load(Path("etc/gateway.yaml"), {}).admin.token == "t"
