"""A port that one process of ours chose is no other's choice."""

import subprocess
import sys
import tempfile

import pytest

from gateway.devtools.embedded import ports

CHOOSES = """
import sys
import tempfile
from gateway.devtools.embedded import ports
ports.PORTS = range(*map(int, sys.argv[1:]))
print(*[ports.free_port() for _ in range(3)], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> range:
    """Only these are chosen from, which no other test uses."""
    few = range(19_960, 19_980)
    monkeypatch.setattr(ports, "PORTS", few)
    monkeypatch.setattr(ports, "_given", set())
    return few


def test_processes_choose_different_ports(few: range) -> None:
    """Of 20 ports, six processes that run at once choose 18 different ones, whether anything listens there by then or not."""
    command = [sys.executable, "-c", CHOOSES, str(few.start), str(few.stop)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    try:
        chosen = [port for process in processes if process.stdout for port in process.stdout.readline().split()]
    finally:
        for process in processes:
            process.communicate()
    assert len(chosen) == len(set(chosen)) == 18


def test_where_nothing_can_be_claimed_a_port_is_had_all_the_same(few: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder for temporary files, or a stranger's link in it."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/none")
    ports._claims.cache_clear()
    try:
        assert ports.free_port() in few
    finally:
        ports._claims.cache_clear()


def test_a_port_is_free_again_when_its_process_has_ended(few: range) -> None:
    """However it ended; and a process is given its own ports again only when it has been given half of all."""
    mine = [ports.free_port() for _ in range(10)]
    assert len(set(mine)) == 10
    command = [sys.executable, "-c", CHOOSES, str(few.start), str(few.stop)]
    for _ in range(8):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
        assert not {int(port) for port in done.stdout.split()} & set(mine)
