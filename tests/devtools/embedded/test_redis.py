"""The embedded Redis: private, alone in its folder, replaced when a killed run left one over."""

import os
import socket
import sys
from pathlib import Path

import pytest

from gateway.devtools.embedded import EmbeddedError, start_redis
from gateway.devtools.embedded.redis import WHEELS, find_server
from tests.devtools.embedded.leftovers import abandon, gone
from tests.support.services import redis_command


def test_it_answers_and_ends(data_folder: Path) -> None:
    """A started server takes commands; a stopped one is gone, and a second stop is harmless."""
    server = start_redis(data_folder)
    assert redis_command(server, "SET a 1") == b"+OK"
    server.stop()
    server.stop()
    assert gone(server.pid)


def test_data_survives_a_restart_when_asked_to(data_folder: Path) -> None:
    """With an append-only file in its settings, Redis keeps its data in the folder."""
    first = start_redis(data_folder, settings={"appendonly": "yes"})
    assert redis_command(first, "SET a 1") == b"+OK"
    first.stop()
    second = start_redis(data_folder, settings={"appendonly": "yes"})
    try:
        assert redis_command(second, "STRLEN a") == b":1"
    finally:
        second.stop()


def test_it_forgets_over_a_restart_by_default(data_folder: Path) -> None:
    """By itself Redis is a cache: a restart starts empty."""
    first = start_redis(data_folder)
    assert redis_command(first, "SET a 1") == b"+OK"
    first.kill()
    second = start_redis(data_folder)
    try:
        assert redis_command(second, "DBSIZE") == b":0"
    finally:
        second.stop()


def test_a_server_of_a_killed_run_is_replaced(data_folder: Path) -> None:
    """A server whose starter was killed -9 is stopped by the next start in its folder."""
    left = abandon("start_redis", data_folder)
    server = start_redis(data_folder)
    try:
        assert gone(left.pid)
        assert redis_command(server, "PING") == b"+PONG"
    finally:
        server.stop()


def test_two_servers_on_one_folder_are_refused(data_folder: Path) -> None:
    """The second start in a folder in use says so and leaves the first one alone."""
    server = start_redis(data_folder)
    try:
        with pytest.raises(EmbeddedError, match=f"in use by process {os.getpid()}"):
            start_redis(data_folder)
        assert redis_command(server, "PING") == b"+PONG"
    finally:
        server.stop()


def test_a_taken_port_is_named(data_folder: Path) -> None:
    """A port that somebody listens on is an error that names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedError, match=f"port {port} for Redis is taken"):
            start_redis(data_folder, port=port)


def test_a_failed_start_shows_the_end_of_the_log(data_folder: Path) -> None:
    """Redis' own words are in the error, and the folder is free for a better try."""
    with pytest.raises(EmbeddedError, match="maxmemory-policy"):
        start_redis(data_folder, settings={"maxmemory-policy": "whatever"})
    start_redis(data_folder).stop()


def test_a_missing_wheel_names_the_remedy(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the `embedded` extra and a server on the PATH the error says how to install it."""
    for name, _ in WHEELS:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("PATH", str(data_folder))
    with pytest.raises(EmbeddedError, match=r"pip install 'idempotency-gateway\[embedded\]'"):
        start_redis(data_folder)


def test_a_server_on_the_path_stands_in_for_a_missing_wheel(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the extra has no Redis for the machine, the one on the PATH is used."""
    wheel = find_server()
    programs = data_folder / "programs"
    programs.mkdir()
    (programs / "redis-server").symlink_to(wheel)
    for name, _ in WHEELS:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("PATH", str(programs))
    start_redis(data_folder).stop()


def test_a_folder_with_blanks_and_quotes_in_its_name_works(data_folder: Path) -> None:
    """The configuration file takes any path."""
    server = start_redis(data_folder / 'a "b" \\c')
    server.stop()


def test_a_stranger_is_told_nothing(data_folder: Path) -> None:
    """Without the password, which only our user may read, no command is answered."""
    server = start_redis(data_folder)
    try:
        with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
            connection.sendall(b"PING\r\n")
            assert connection.recv(100).startswith(b"-NOAUTH")
        assert {(data_folder / name).stat().st_mode & 0o777 for name in ("redis.password", "redis.conf")} == {0o600}
    finally:
        server.stop()
