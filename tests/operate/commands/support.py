"""The command, run in this process, or as its users run it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from click.testing import CliRunner

from gateway.cli import main

MODULE = (sys.executable, "-m", "gateway")

LEAST = """\
digest_secret: 0123456789abcdef
postgres: {dsn: "${DSN:-postgresql://127.0.0.1:1/gateway}"}
upstreams: {payments: {url: "http://payments:8000"}}
routes:
  - {id: charge, path: /v1/charges, upstream: payments, idempotency: {principal: [{header: X-Account}]}}
  - {id: rest, path: /**, methods: [GET, HEAD, OPTIONS], upstream: payments}
"""


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended. No command of these tests may ever show a traceback."""

    code: int
    out: str
    err: str


def run(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Done:
    """Run the command to its end in this process, with none of the caller's GATEWAY_ variables. For commands that start no loop of
    their own while one runs here, and take no signals: what those do is `run_process`'s.
    """
    hidden = {name: None for name in os.environ if name.startswith("GATEWAY_")}
    done = CliRunner().invoke(
        main, [*map(str, arguments)], env={**hidden, **(env or {})}, prog_name="idempotency-gateway", terminal_width=120
    )
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(done.exit_code, done.stdout, done.stderr)


def run_process(
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    command: tuple[str, ...] = MODULE,
    stdout: int | IO[bytes] = subprocess.PIPE,
) -> Done:
    """Run the command to its end as a process, with none of the caller's GATEWAY_ variables."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    done = subprocess.run(
        [*command, *map(str, arguments)],
        env={**clean, "COLUMNS": "120", **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    result = Done(done.returncode, (done.stdout or b"").decode(), done.stderr.decode())
    assert "Traceback" not in result.err, result.err
    return result


def write(folder: Path, text: str = LEAST) -> Path:
    path = folder / "gateway.yaml"
    path.write_text(text)
    return path
