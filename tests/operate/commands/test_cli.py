"""Commands, their output, their messages and their exit codes."""

import json
import os
import socket
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from gateway import __version__
from gateway.config import json_schema
from gateway.devtools.embedded import start_redis
from gateway.dialects import names, text_of
from tests.operate.commands.support import LEAST, MODULE, run, run_process, write

COMMANDS = ["dev", "serve", "check", "migrate", "schema", "dialects", "version"]
HEAVY = ["aiohttp", "asyncpg", "redis", "yaml", "uvloop", "asyncio"]


@pytest.mark.parametrize("command", ["dev", "serve", "check", "migrate", "schema", "dialects"])
def test_help_teaches_with_an_example(command: str) -> None:
    """Each command's help shows how it is called."""
    done = run(command, "--help")
    assert done.code == 0
    assert f"\n    idempotency-gateway {command}" in done.out


def test_the_commands_are_listed() -> None:
    """The group's help names every command and the exit codes."""
    done = run("--help")
    assert (done.code, done.err) == (0, "")
    assert all(f"\n  {command} " in done.out for command in COMMANDS)
    assert "Exit codes: 0 done, 1 failed, 2 wrong usage, 69 a service is unavailable, 78 the configuration is wrong." in done.out


def test_help_loads_nothing_heavy() -> None:
    """Help answers without importing drivers, servers or the YAML parser."""
    done = run_process("serve", "--help", command=(sys.executable, "-X", "importtime", *MODULE[1:]))
    imported = {line.rpartition("|")[2].strip() for line in done.err.splitlines()}
    assert "click" in imported
    assert not imported & set(HEAVY)


def test_the_installed_command_is_the_module() -> None:
    """`idempotency-gateway` and `python -m gateway` are the same."""
    script = Path(sys.executable).with_name("idempotency-gateway")
    assert run_process("version", command=(str(script),)) == run_process("version")
    assert run_process("serve", command=(str(script),)) == run_process("serve")


def test_the_version_is_data() -> None:
    """The version goes to stdout, as a command and as an option."""
    assert run("version").out.split() == ["idempotency-gateway", __version__]
    assert __version__ in run("--version").out


def test_check_prints_the_routes_and_says_ok(tmp_path: Path) -> None:
    """The table is data, the verdict a message."""
    done = run("check", "--config", write(tmp_path))
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == ["ROUTE", "charge", "rest"]
    assert done.err == f"OK: {tmp_path}/gateway.yaml, 2 routes\n"


def test_check_prints_warnings_and_still_says_ok(tmp_path: Path) -> None:
    """A warning is a message and no failure."""
    done = run("check", "--config", write(tmp_path, LEAST.replace("X-Account", "Authorization")))
    assert done.code == 0
    first, last = done.err.splitlines()
    assert first.startswith(f"warning: {tmp_path}/gateway.yaml:5:82: routes[0].idempotency.principal: Authorization is a raw credential")
    assert last.startswith("OK: ")


def test_check_reads_the_environment(tmp_path: Path) -> None:
    """Variables of the file come from the process's environment, the file's own path from GATEWAY_CONFIG."""
    path = write(tmp_path, LEAST.replace("0123456789abcdef", "${SECRET}"))
    good, bad = (
        run("check", env={"GATEWAY_CONFIG": str(path), "SECRET": "0123456789abcdef"}),
        run("check", env={"GATEWAY_CONFIG": str(path)}),
    )
    assert good.code == 0
    assert (bad.code, bad.out) == (78, "")
    assert (
        bad.err == f"{path}:1:16: digest_secret: the environment variable SECRET is not set; ${{SECRET:-default}} would give it a default\n"
    )


@pytest.mark.parametrize("command", [["check"], ["check", "--connect"], ["serve"], ["serve", "--workers", "2"], ["migrate"]])
def test_a_wrong_configuration_exits_with_78(tmp_path: Path, command: list[str]) -> None:
    """Every command that needs a configuration prints all of its mistakes, on stderr, and ends."""
    path = write(tmp_path, LEAST + "zzz: 1\nworkers: none\n")
    done = run(*command, "--config", path)
    assert (done.code, done.out) == (78, "")
    assert done.err.splitlines() == [
        f"{path}:7:1: zzz: unknown key",
        f'{path}:8:10: workers: expected a whole number from 1 to 256, found text "none"',
    ]


def test_a_missing_configuration_exits_with_78(tmp_path: Path) -> None:
    """A file that is not there is a wrong configuration, not wrong usage."""
    done = run("serve", "--config", tmp_path / "none.yaml")
    assert (done.code, done.err) == (78, f"{tmp_path}/none.yaml: cannot read the file: No such file or directory\n")


USAGE = [
    pytest.param(["check"], "Missing option '--config' (env var: 'GATEWAY_CONFIG').", id="no-config"),
    pytest.param(["migrate"], "Missing option '--config' (or --print).", id="migrate-no-config"),
    pytest.param(["serve", "--config", "x", "--workers", "0"], "Invalid value for '--workers'", id="workers"),
    pytest.param(["dev", "--port", "70000"], "Invalid value for '--port'", id="port"),
    pytest.param(["srve"], "No such command 'srve'", id="command"),
    pytest.param(["dialects", "strip-v1"], "No such dialect 'strip-v1'. Did you mean 'stripe-v1'?", id="dialect"),
    pytest.param(["dialects", "../dialects/ietf"], "No such dialect '../dialects/ietf'.", id="dialect-path"),
    pytest.param(["check", "--confg", "x"], "No such option '--confg'", id="option"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE)
def test_wrong_usage_exits_with_2(arguments: list[str], message: str) -> None:
    """A wrong call says what is wrong, on stderr."""
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_the_schema_is_data() -> None:
    """`schema` prints the JSON Schema and nothing else."""
    done = run("schema")
    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out) == json.loads(json.dumps(json_schema()))


def test_dialects_are_listed() -> None:
    """One line each, as data."""
    done = run("dialects")
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.splitlines()] == ["DIALECT", *names()]


@pytest.mark.parametrize("name", ["ietf", "stripe-v1"])
def test_a_dialect_is_printed_as_it_was_written(tmp_path: Path, name: str) -> None:
    """Comments and all; what is printed is a dialect that a route can name."""
    done = run("dialects", name)
    assert (done.code, done.out, done.err) == (0, text_of(name), "")
    (tmp_path / "own.yaml").write_text(done.out)
    path = write(tmp_path, LEAST.replace("{principal", "{dialect: ./own.yaml, principal"))
    assert run("check", "--config", path).code == 0


def test_a_mistake_in_a_dialect_exits_with_78(tmp_path: Path) -> None:
    """It is told with the dialect's own file and line."""
    (tmp_path / "own.yaml").write_text(text_of("ietf").replace("replay: verbatim", "replay: verbtim"))
    done = run("check", "--config", write(tmp_path, LEAST.replace("{principal", "{dialect: ./own.yaml, principal")))
    line = text_of("ietf").splitlines().index("replay: verbatim") + 1
    assert (done.code, done.out, done.err) == (78, "", f"{tmp_path}/own.yaml:{line}:9: replay: must be verbatim or conflict\n")


BEHIND = LEAST.replace("http://payments:8000", "http://payments:8000/api").replace(
    "upstream: payments, idempotency", "upstream: payments, rewrite: {from: /v1, to: /inside}, idempotency"
)


def test_an_overlay_of_what_an_upstream_says_of_itself(tmp_path: Path) -> None:
    """Its paths are those behind `rewrite` and the path of its URL."""
    (tmp_path / "api.yaml").write_text("paths: {/inside/charges: {post: {responses: {'201': {description: A charge}}}}}")
    config = write(tmp_path, BEHIND)
    document = ("--document", tmp_path / "api.yaml", "--base-path", "/api")
    made = json.loads(run("openapi", "--config", config, *document, "--upstream", "payments").out)
    assert {action["target"] for action in made["actions"]} >= {"$.paths['/inside/charges']['post']"}
    assert json.loads(run("openapi", "--config", config, *document).out)["x-idempotency-unplaced"]
    wrong = run("openapi", "--config", config, *document, "--upstream", "shop")
    assert (wrong.code, "there are payments" in wrong.err) == (2, True)
    alone = run("openapi", "--config", config, "--upstream", "payments")
    assert (alone.code, "--document" in alone.err) == (2, True)


def test_migrations_can_be_printed_without_a_configuration() -> None:
    """The SQL is data and needs no database."""
    done = run("migrate", "--print")
    assert (done.code, done.err) == (0, "")
    assert "CREATE TABLE" in done.out


def test_migrate_applies_once(tmp_path: Path, empty_database: str) -> None:
    """What was applied is data; a second run has nothing to do."""
    path = write(tmp_path)
    first = run("migrate", "--config", path, env={"DSN": empty_database})
    assert (first.code, first.err) == (0, "OK\n")
    assert all(name.endswith(".sql") for name in first.out.splitlines())
    assert first.out.startswith("0001_")
    second = run("migrate", "--config", path, env={"DSN": empty_database})
    assert (second.code, second.out, second.err) == (0, "", "OK: nothing to do\n")


def test_migrate_with_a_service_that_is_in_no_file_exits_with_78(tmp_path: Path) -> None:
    """What a DSN refers to is looked for when it is needed."""
    done = run("migrate", "--config", write(tmp_path), env={"DSN": "service=nowhere"})
    assert (done.code, done.out) == (78, "")
    assert done.err.startswith("Postgres: the service ")


def test_migrate_without_a_server_exits_with_69(tmp_path: Path) -> None:
    """A Postgres that refuses connections is unavailable."""
    done = run("migrate", "--config", write(tmp_path))
    assert (done.code, done.out) == (69, "")
    assert done.err.startswith("Postgres cannot be reached: ")


def test_migrate_says_that_nobody_answered(tmp_path: Path) -> None:
    """A server that takes the connection and says nothing is a reason of its own."""
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.MonkeyPatch.context() as patch:
        patch.setattr("gateway.store.migrate.CONNECT_TIMEOUT", 0.2)
        done = run("migrate", "--config", write(tmp_path), env={"DSN": f"postgresql://gateway@127.0.0.1:{silent.getsockname()[1]}/gateway"})
    assert (done.code, done.err) == (69, "Postgres cannot be reached: no answer within 200ms\n")


def test_migrate_without_its_database_exits_with_69(tmp_path: Path, postgres_dsn: str) -> None:
    """A server that lacks the database is as good as away, and says so."""
    base, _, query = postgres_dsn.partition("?")
    dsn = f"{base.rpartition('/')[0]}/nowhere" + (f"?{query}" if query else "")
    done = run("migrate", "--config", write(tmp_path), env={"DSN": dsn})
    assert (done.code, done.out, done.err) == (69, "", 'Postgres: database "nowhere" does not exist\n')


def test_check_connect_without_a_server_exits_with_69(tmp_path: Path) -> None:
    """The routes are printed, then what cannot be reached; nothing is OK."""
    done = run("check", "--connect", "--config", write(tmp_path, LEAST + "redis: {url: redis://127.0.0.1:1}\n"))
    assert done.code == 69
    assert done.out.startswith("ROUTE ")
    assert [line.partition(":")[0] for line in done.err.splitlines()] == ["postgres", "redis"]


def test_check_connect_tells_that_redis_is_a_replica(tmp_path: Path, database: str) -> None:
    """It answers PING and takes no writes: named with its primary and the remedy, and not OK."""
    server = start_redis(tmp_path / "redis", settings={"replicaof": "127.0.0.1 1"})
    try:
        path = write(tmp_path, LEAST + 'redis: {url: "${REDIS}"}\n')
        done = run("check", "--connect", "--config", path, env={"DSN": database, "REDIS": server.url})
    finally:
        server.stop()
    assert done.code == 69
    said = "its primary is 127.0.0.1:1: it is a replica and takes no writes; redis.url must lead to the primary"
    assert done.err == f"redis: 127.0.0.1:{server.port}: {said}\n"


def test_check_connect_tells_of_a_missing_schema_and_is_content_with_a_migrated_one(tmp_path: Path, empty_database: str) -> None:
    """Before `migrate` the database is not ready to serve, after it is."""
    path, env = write(tmp_path), {"DSN": empty_database}
    before = run("check", "--connect", "--config", path, env=env)
    assert before.code == 69
    assert "schema" in before.err
    assert run("migrate", "--config", path, env=env).code == 0
    after = run("check", "--connect", "--config", path, env=env)
    assert (after.code, after.err) == (0, f"OK: {path}, 2 routes\n")


def test_check_connect_warns_of_functions_that_are_not_installed(tmp_path: Path, empty_database: str) -> None:
    """What to run is said, and it is no failure; once it was run, nothing is said."""
    taking_part = LEAST.replace("principal:", "participate: {co_commit: true}, principal:")
    path, env = write(tmp_path, taking_part), {"DSN": empty_database}
    assert run("migrate", "--config", path, env=env).code == 0
    before = run("check", "--connect", "--config", path, env=env)
    assert (before.code, "migrate --co-commit-role NAME" in before.err) == (0, True)
    assert run("migrate", "--config", path, "--co-commit-role", unquote(urlsplit(empty_database).username or ""), env=env).code == 0
    after = run("check", "--connect", "--config", path, env=env)
    assert (after.code, "co_commit" in after.err) == (0, False)


def test_check_connect_tells_why_postgres_is_away(tmp_path: Path, postgres_dsn: str) -> None:
    """The driver's own sentence, for a port that refuses and for a database that is not there."""
    path = write(tmp_path)
    assert run("check", "--connect", "--config", path).err.startswith("postgres: [Errno 111] ")
    nowhere = run("check", "--connect", "--config", path, env={"DSN": f"{postgres_dsn.rpartition('/')[0]}/nowhere"})
    assert (nowhere.code, nowhere.err) == (69, 'postgres: database "nowhere" does not exist\n')


@pytest.mark.parametrize("command", ["schema", "version", "check"])
def test_a_reader_that_went_away_is_no_traceback(tmp_path: Path, command: str) -> None:
    """Output into a closed pipe fails quietly."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as stdout:
        done = run_process(command, stdout=stdout, env={"GATEWAY_CONFIG": str(write(tmp_path))})
    assert (done.code, done.err) == (1, "")


def test_a_full_disk_is_a_message() -> None:
    """Output that cannot be written is a failure with a reason."""
    with open("/dev/full", "wb") as stdout:
        done = run_process("schema", stdout=stdout)
    assert (done.code, done.err) == (1, "output: No space left on device\n")
