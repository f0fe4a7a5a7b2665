"""The virtual environment `.venv` of the scripts beside this file: made and refreshed as needed, at once when nothing changed.

Needs a Python that the package supports and nothing else. This file must stay readable for older Pythons, so that they can say so.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
OLDEST, NEWEST = (3, 11), (3, 13)


def groups(*names: str) -> list:
    """The options by which pip installs these dependency groups."""
    return [word for name in names for word in ("--group", name)]


PARTS = {
    "dev": ["--editable", ".[embedded,sealing]"],
    "test": ["--editable", ".[embedded,sealing]", *groups("test", "lint", "deploy", "docs", "build")],
    "docs": ["--editable", ".", *groups("docs")],
    "package": groups("build"),
}


def ensure(purpose: str) -> Path:
    """The Python of `.venv`, in which everything for `purpose` (a name in PARTS) is installed. Ends the program if that fails."""
    use_supported_python()
    with (ROOT / "pyproject.toml").open("rb") as project:
        fcntl.flock(project, fcntl.LOCK_EX)  # two scripts at once: the second finds the work done
        wanted = hashlib.sha256(project.read() + repr((str(ROOT), sys.version_info[:2], PARTS[purpose])).encode()).hexdigest()
        stamp = VENV / ("installed-for-" + purpose)
        python = VENV / "bin" / "python"
        if not (works(python) and stamp.exists() and stamp.read_text() == wanted):
            make(python, purpose)
            stamp.write_text(wanted)
    return python


@contextlib.contextmanager
def quietly_interrupted():
    """Ctrl-C ends the program with the status that shells expect, and no traceback: its children have heard of it themselves."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)


def use_supported_python() -> None:
    """Go on under a Python that the package supports: this one, or one on the PATH."""
    if OLDEST <= sys.version_info[:2] <= NEWEST:
        return
    for minor in range(NEWEST[1], OLDEST[1] - 1, -1):
        other = shutil.which(f"python3.{minor}")
        if other and works(Path(other)):
            os.execv(other, [other, *sys.argv])  # noqa: S606 - the same script under another interpreter
    found = ".".join(str(part) for part in sys.version_info[:2])
    sys.exit(f"This needs Python 3.{OLDEST[1]} to 3.{NEWEST[1]}; this one is {found} and no other was found on the PATH.")


def works(python: Path, code: str = "") -> bool:
    """Whether the interpreter is there and runs `code` to a good end."""
    try:
        return subprocess.run([str(python), "-c", code], check=False, stderr=subprocess.DEVNULL).returncode == 0  # noqa: S603 - an interpreter
    except OSError:
        return False


def make(python: Path, purpose: str) -> None:
    """Make `.venv` if it is not there or broken, and install into it."""
    if not os.access(str(VENV if VENV.exists() else ROOT), os.W_OK):
        sys.exit(f"{ROOT} cannot be written to by this user, and .venv is made there: clone the project to a folder of your own.")
    begun = time.monotonic()
    tell(f"Installing into {VENV}: a minute or two, and only when pyproject.toml has changed")
    tell("  1 of 3: the environment")
    if not works(python, f"import pip, sys; sys.exit(sys.version_info[:2] != {tuple(sys.version_info[:2])})"):
        run(
            [sys.executable, "-m", "venv", "--clear", str(VENV)],
            "Cannot make a virtual environment; on Debian: apt-get install python3-venv",
        )
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", *([] if sys.stderr.isatty() else ["--quiet"])]
    tell("  2 of 3: pip")
    run([*pip, "--upgrade", "pip>=25.1"], "Cannot install pip 25.1 or newer, which --group needs")
    tell(f"  3 of 3: what `{purpose}` needs")
    run([*pip, *PARTS[purpose]], "Cannot install the package and what it needs")
    tell(f"Installed in {time.monotonic() - begun:.0f} s")


def tell(message: str) -> None:
    """Progress, for people."""
    print(message, file=sys.stderr, flush=True)


def run(argv: list, complaint: str) -> None:
    code = subprocess.run(argv, check=False, cwd=str(ROOT)).returncode  # noqa: S603 - our own commands
    if code != 0:
        sys.exit(f"{complaint} (exit code {code} of: {' '.join(argv)})")
