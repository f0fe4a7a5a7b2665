"""The unit for systemd: good by systemd's own judgement, and true to the gateway that it runs."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli import main
from gateway.config import Config, load
from gateway.operate.commands.shared import BAD_CONFIG
from gateway.run.server.process import GRACE_SLACK
from gateway.run.server.startup import START_PATIENCE
from tests.deploy.pods import SECRETS
from tests.deploy.support import ROOT
from tests.support.gateway import Setup, running
from tests.support.stack import setup, upstream

__all__ = ["setup", "upstream"]

UNIT = ROOT / "deploy" / "systemd" / "idempotency-gateway.service"
analyze = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(analyze is None, reason="no systemd-analyze here: apt-get install systemd")


def entries() -> dict[str, list[str]]:
    """The unit's settings, each with all its values."""
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


def one(name: str) -> str:
    (value,) = entries()[name]
    return value


@needs_systemd
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    """No unknown setting, no bad value; the program is one of this machine in the place of the installed one."""
    program, *_ = one("ExecStart").split()
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(program, sys.executable))
    done = subprocess.run([str(analyze), "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert ours == []


@needs_systemd
def test_systemd_finds_little_exposed(tmp_path: Path) -> None:
    """Of ten, at most 1.5: what is left is the network, and the host's own root."""
    command = [str(analyze), "security", "--no-pager", "--offline=true", "--threshold=15", "--json=short", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)


def test_it_runs_a_command_of_ours() -> None:
    """What it starts is what the command line takes, and a reload is the signal that the gateway knows."""
    _, command, *arguments = one("ExecStart").split()
    assert main.commands[command].make_context(command, arguments, resilient_parsing=True).params["config"].name == "gateway.yaml"
    assert one("ExecReload") == "/bin/kill -HUP $MAINPID"
    assert one("Type") == "notify"
    assert one("KillMode") == "mixed", "workers hear of a stop once, from their supervisor"


def test_its_times_are_the_gateways(tmp_path: Path) -> None:
    """A start may wait for Postgres; a stop may take a drain of the default length, also before the gateway has said so itself."""
    drain = _map(tmp_path).drain
    assert float(one("TimeoutStartSec")) > START_PATIENCE
    assert float(one("TimeoutStopSec")) >= drain.delay + drain.timeout + GRACE_SLACK
    assert str(BAD_CONFIG) in one("RestartPreventExitStatus").split()


def test_its_credentials_are_those_of_the_route_map(tmp_path: Path) -> None:
    """The example reads each credential that the unit loads, and no other, and is without warnings."""
    loaded = {value.partition(":")[0] for value in entries()["LoadCredential"]}
    text = (UNIT.parent / "gateway.yaml").read_text()
    assert loaded == set(re.findall(r"\$\{CREDENTIALS_DIRECTORY\}/([\w-]+)", text)) == set(SECRETS)
    assert _map(tmp_path).warnings == ()


def _map(folder: Path) -> Config:
    for name, value in SECRETS.items():
        (folder / name).write_text(value + "\n")
    return load(UNIT.parent / "gateway.yaml", {"CREDENTIALS_DIRECTORY": str(folder)})


async def test_the_gateway_needs_no_memory_that_is_both_written_and_executed(setup: Setup, tmp_path: Path) -> None:
    """What MemoryDenyWriteExecute refuses, asked of the kernel itself: the gateway starts and is ready all the same."""
    (tmp_path / "sitecustomize.py").write_text(
        "import ctypes, os\n"
        "code = ctypes.CDLL(None, use_errno=True).prctl(65, 1, 0, 0, 0)\n"  # PR_SET_MDWE, from Linux 6.3
        f"open({str(tmp_path / 'denied')!r}, 'a').write(str(code))\n"
    )
    async with running(setup, tmp_path, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}, whole=True) as gateway:
        assert (await gateway.get("/readyz"))[0] == 200
    if "0" not in (tmp_path / "denied").read_text().replace("-1", ""):
        pytest.skip("this kernel has no PR_SET_MDWE: Linux 6.3 or newer")
