"""The commands of a fresh clone, before anything is installed."""

import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(file for file in (ROOT / "scripts").iterdir() if file.suffix == "" and file.is_file())
ENSURE = [file.name for file in SCRIPTS if "from _environment import" in file.read_text("utf-8")]
"""Those that need more than Python."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A project of the same scripts, whose environment is there, and whose checks are slow."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'one'\nversion = '1'\n[dependency-groups]\ntest = []\nlint = []\n")
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(sys.executable)
    for name in ("ruff", "mypy", "lint-imports", "pytest"):
        (binaries / name).write_text(f"#!/bin/sh\necho {name} runs\nexec sleep 60\n")
        (binaries / name).chmod(0o755)
    return tmp_path


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """What a shell runs in the background ignores Ctrl-C, and so would all that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def installed(clone: Path) -> None:
    """The mark that the environment is as pyproject.toml wants it, as the scripts themselves leave it."""
    code = (
        "import hashlib, sys; sys.path.insert(0, 'scripts'); import _environment as e; "
        "p = (e.ROOT / 'pyproject.toml').read_bytes(); w = repr((str(e.ROOT), sys.version_info[:2], e.PARTS['test'])); "
        "(e.VENV / 'installed-for-test').write_text(hashlib.sha256(p + w.encode()).hexdigest())"
    )
    subprocess.run([sys.executable, "-c", code], cwd=clone, check=True)


def test_ctrl_c_ends_the_checks_without_a_traceback(clone: Path) -> None:
    """As in a terminal, where the whole group of processes hears it: 130, and what ran is named with how much is left."""
    installed(clone)
    with subprocess.Popen(
        [sys.executable, "scripts/test"], cwd=clone, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        seen = ""
        while "ruff runs" not in seen:
            seen += process.stdout.readline()
        assert "== 1 of 5, after 0 s: ruff check ." in seen
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130
    assert "Traceback" not in seen + rest


def test_a_clone_that_cannot_be_written_says_so(clone: Path) -> None:
    """The remedy is another folder; no package of the system would help."""
    shutil.rmtree(clone / ".venv")
    code = "import os, sys; sys.path.insert(0, 'scripts'); os.access = lambda *_: False; import _environment; _environment.ensure('test')"
    done = subprocess.run([sys.executable, "-c", code], cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert (
        done.stderr.rstrip()
        == f"{clone} cannot be written to by this user, and .venv is made there: clone the project to a folder of your own."
    )


def test_installing_says_what_it_does(clone: Path) -> None:
    """Each of its steps, and how many there are; with a terminal also what pip says."""
    shutil.rmtree(clone / ".venv")
    code = (
        "import sys; sys.path.insert(0, 'scripts'); import _environment as e; "
        "e.run = lambda argv, _: print('quiet' if '--quiet' in argv else 'open', *argv[1:3]); "
        "e.works = lambda *_: True; e.VENV.mkdir(); e.make(e.VENV / 'bin' / 'python', 'test')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=clone, capture_output=True, text=True, check=True)
    assert [line.strip().partition(":")[0] for line in done.stderr.splitlines()[1:4]] == ["1 of 3", "2 of 3", "3 of 3"]
    assert done.stdout.splitlines() == ["quiet -m pip"] * 2
    shutil.rmtree(clone / ".venv")
    terminal, end = pty.openpty()
    watched = subprocess.run([sys.executable, "-c", code], cwd=clone, stdout=subprocess.PIPE, stderr=end, text=True, check=True)
    os.close(end)
    os.close(terminal)
    assert watched.stdout.splitlines() == ["open -m pip"] * 2


@pytest.mark.parametrize("name", ENSURE)
def test_an_interrupted_start_leaves_no_traceback(clone: Path, name: str) -> None:
    """Whichever script is interrupted while it looks for what it needs."""
    (clone / "sitecustomize.py").write_text(
        "import subprocess, sys, time\n"
        "def run(*_, **__):\n    print('begun', file=sys.stderr, flush=True)\n    time.sleep(60)\n"
        "subprocess.run = run\n"
    )
    env = {**os.environ, "PYTHONPATH": str(clone)}
    with subprocess.Popen([sys.executable, f"scripts/{name}"], cwd=clone, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 130
