"""Starting a server: its port, its log, the account it runs as, and how to know that it is ready."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway.devtools.embedded.ports import free_port
from gateway.devtools.embedded.process import Account, EmbeddedError, Steps, end, note_pid, wait_until

LOG_TAIL = 15
PATIENCE = 10.0
PAUSE = 0.2


@dataclass(frozen=True, slots=True)
class Plan:
    """How one server is started: its command for a port, when it is ready, and which of its complaints are worth
    another try.

    `ready` is asked with the pid and the port. Another process may take a free port before the server has it
    (`port_taken` is what the log then says); complaints in `passing` end by themselves. `timeout` bounds the wait for
    one start. `pid_file` is where a later run finds this process, should we be killed. `env` None: ours, cleared of
    what would change a server.
    """

    name: str
    command: Callable[[int], Sequence[str]]
    ready: Callable[[int, int], bool]
    stop: Steps
    log: Path
    account: Account | None
    port_taken: str
    timeout: float
    passing: tuple[str, ...] = ()
    pid_file: Path | None = None
    env: Mapping[str, str] | None = None


def launch(plan: Plan, port: int | None) -> tuple[subprocess.Popen[bytes], int]:
    """Start the server of `plan` on `port`, or on a free one, and wait until it is ready. Raises EmbeddedError with the
    log's tail.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        chosen = port or free_port()
        process = spawn(plan, plan.command(chosen))
        if comes_up(plan, process, chosen):
            return process, chosen
        complaint = tail(plan.log)
        taken = plan.port_taken in complaint
        if taken and port is not None:
            raise EmbeddedError(f"port {port} for {plan.name} is taken")
        if time.monotonic() > deadline or not (taken or any(text in complaint for text in plan.passing)):
            raise EmbeddedError(f"{plan.name} did not start; the end of {plan.log}:\n{complaint}")
        time.sleep(PAUSE)


def comes_up(plan: Plan, process: subprocess.Popen[bytes], port: int) -> bool:
    """Whether the server got ready in time. It is running then, and has ended otherwise, also when we are
    interrupted.
    """
    ready = False
    try:
        wait_until(lambda: process.poll() is not None or plan.ready(process.pid, port), plan.timeout)
        ready = process.poll() is None and plan.ready(process.pid, port)
    finally:
        if not ready:
            end(process, plan.stop)
    return ready


def spawn(plan: Plan, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the server with its output in its log; the log of the start before is kept beside it as `.1`."""
    log, account = plan.log, plan.account
    if log.exists():
        log.replace(log.with_name(log.name + ".1"))
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603 - our own binaries, no shell
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd="/" if account else None,
                env=environment() if plan.env is None else plan.env,
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
    except OSError as error:
        raise EmbeddedError(f"cannot run {argv[0]}: {error}") from error
    if plan.pid_file is not None:
        try:
            note_pid(plan.pid_file, process, argv)
        except BaseException:
            end(process, plan.stop)
            raise
    return process


def environment() -> Mapping[str, str]:
    """Ours, without the variables by which libpq or a shell's locale would change what the servers do."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))} | {"LC_ALL": "C"}


def tail(log: Path) -> str:
    """The last lines of a log, for an error message."""
    try:
        return last_lines(log.read_bytes())
    except OSError:
        return last_lines(b"")


def last_lines(output: bytes) -> str:
    """The last lines of a program's output, indented."""
    lines = output.decode("utf-8", "replace").splitlines()
    return "\n".join(f"  {line}" for line in lines[-LOG_TAIL:]) or "  (no output)"
