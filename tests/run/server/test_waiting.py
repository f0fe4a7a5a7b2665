"""What a starting process says and does while Postgres is not ready."""

import asyncio
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.devtools.embedded.ports import free_port
from tests.operate.commands.support import run_process
from tests.support.faults import fault_proxy
from tests.support.gateway import Gateway, Setup, running

PASSWORD = "not-the-password"


def broken(dsn: str, how: str) -> str:
    """The DSN with a wrong password, a missing role or a missing database."""
    at = urlsplit(dsn)
    netloc = f"{at.hostname}:{at.port}"
    match how:
        case "password":
            return at._replace(netloc=f"{at.username}:{PASSWORD}@{netloc}").geturl()
        case "role":
            return at._replace(netloc=f"nobody-here:{PASSWORD}@{netloc}").geturl()
        case _:
            return at._replace(path="/nowhere").geturl()


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("password", 'password authentication failed for user "gateway"'),
        ("role", 'password authentication failed for user "nobody-here"'),
        ("database", 'database "nowhere" does not exist'),
    ],
)
async def test_what_waiting_cannot_mend_ends_the_start_at_once(setup: Setup, tmp_path: Path, how: str, sentence: str) -> None:
    """The driver's sentence, exit code 69, no password, long before patience ends; `check --connect` says the same."""
    config = tmp_path / "gateway.yaml"
    config.write_text(replace(setup, postgres=broken(setup.postgres, how)).yaml(free_port(), free_port()))
    started = time.monotonic()
    served = await asyncio.to_thread(run_process, "serve", "--config", config)
    assert time.monotonic() - started < 20
    errors = [line["msg"] for line in map(json.loads, served.err.splitlines()) if line["level"] == "error"]
    assert (served.code, errors) == (69, [f"Postgres is not ready: {sentence}"])
    checked = await asyncio.to_thread(run_process, "check", "--connect", "--config", config)
    assert checked.code == 69
    assert f"postgres: {sentence}" in checked.err.splitlines()
    for secret in (PASSWORD, urlsplit(setup.postgres).password or "?"):
        assert secret not in served.err + served.out + checked.err + checked.out


async def test_a_schema_that_is_behind_is_told_once(setup: Setup, tmp_path: Path, empty_database: str) -> None:
    """One message with one advice, at once."""
    config = tmp_path / "gateway.yaml"
    config.write_text(replace(setup, postgres=empty_database).yaml(free_port(), free_port()))
    served = await asyncio.to_thread(run_process, "serve", "--config", config)
    (error,) = [line["msg"] for line in map(json.loads, served.err.splitlines()) if line["level"] == "error"]
    assert served.code == 69
    assert error.startswith("Postgres is not ready: the schema is behind: ")
    assert served.err.count("migrate") == 1


async def test_a_schema_of_another_build_is_not_waited_for(setup: Setup, tmp_path: Path, database: str) -> None:
    """A migration that is not the one that was applied ends the start with what to do; nothing is waited for."""
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("UPDATE gateway_schema_migrations SET checksum = sha256('another') WHERE version = 6")
    finally:
        await connection.close()
    config = tmp_path / "gateway.yaml"
    config.write_text(replace(setup, postgres=database).yaml(free_port(), free_port()))
    served = await asyncio.to_thread(run_process, "serve", "--config", config)
    assert served.code == 69
    assert "Postgres is not ready: the schema is another build's: 0006_accepted.sql was changed" in served.err
    assert "Waiting for Postgres" not in served.err


async def test_a_table_that_may_not_be_read_is_told(setup: Setup, tmp_path: Path, database: str) -> None:
    """A store that connects and still fails is shown with the server's words, without the advice to migrate."""
    at = urlsplit(database)
    role = f"reader_{at.path[1:]}"
    connection = await asyncpg.connect(database)
    try:
        await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
        dsn = at._replace(netloc=f"{role}:{PASSWORD}@{at.hostname}:{at.port}").geturl()
        config = tmp_path / "gateway.yaml"
        config.write_text(replace(setup, postgres=dsn).yaml(free_port(), free_port()))
        checked = await asyncio.to_thread(run_process, "check", "--connect", "--config", config)
    finally:
        await connection.execute(f"DROP ROLE {role}")
        await connection.close()
    assert checked.code == 69
    assert "postgres: permission denied for table gateway_schema_migrations" in checked.err.splitlines()
    assert "migrate`" not in checked.err


async def test_an_absent_server_is_waited_for(setup: Setup, tmp_path: Path) -> None:
    """Each new reason is logged when it begins, and the start goes on as soon as the server answers."""
    at = urlsplit(setup.postgres)
    assert at.hostname is not None
    assert at.port is not None
    async with fault_proxy(at.hostname, at.port) as proxy:
        away = replace(setup, postgres=setup.postgres.replace(f":{at.port}/", f":{proxy.port}/"), postgres_timeout="500ms")
        proxy.stall()
        starting = asyncio.create_task(started(away, tmp_path))
        try:
            await said(tmp_path, "Waiting for Postgres: no answer within 500ms")
            await proxy.refuse()
            await said(tmp_path, "Waiting for Postgres: [Errno 111]")
            await proxy.heal()
            gateway = await starting
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
    messages = [str(line["msg"]) for line in gateway.log_lines()]
    waits = [message for message in messages if message.startswith("Waiting for Postgres")]
    assert all(earlier != later for earlier, later in itertools.pairwise(waits))
    assert not any("migrate" in message for message in messages)


async def started(setup: Setup, folder: Path) -> Gateway:
    """A gateway that became ready, and was stopped then."""
    async with running(setup, folder) as gateway:
        return gateway


async def said(folder: Path, words: str) -> None:
    """Wait until the log holds these words."""
    log = folder / "gateway.log"
    async with asyncio.timeout(20):
        while not log.exists() or words not in log.read_text():
            await asyncio.sleep(0.05)


async def test_a_server_that_is_lost_between_two_steps_is_waited_for_again(setup: Setup, tmp_path: Path) -> None:
    """A connection that breaks while the start looks at the server's settings is no reason to give up."""
    at = urlsplit(setup.postgres)
    assert at.hostname is not None
    assert at.port is not None
    async with fault_proxy(at.hostname, at.port) as proxy:
        proxy.drop_reply_to(b"synchronous_commit")
        netloc = f"{at.username}:{at.password}@127.0.0.1:{proxy.port}"
        async with running(replace(setup, postgres=at._replace(netloc=netloc).geturl()), tmp_path) as gateway:
            assert await gateway.logged(lambda line: str(line["msg"]).startswith("Waiting for Postgres: "))
