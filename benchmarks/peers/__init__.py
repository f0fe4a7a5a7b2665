"""Other systems to compare with: thin reverse proxies around their idempotency layers, on the same stores and the same upstream.

None is part of the product. `python -m benchmarks.peers` installs them beside this file; one that is not installed is left out
with a message.
Durability differs: idemkit-pg keeps records in Postgres, the others lose them with Redis.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.systems import Stage, System, command
from gateway.devtools.embedded.ports import free_port

HERE = Path(__file__).parent
PYTHON = HERE / ".venv" / "bin" / "python"
NODE_MODULES = HERE / "node_modules"
NODE, IDEMKIT_PG = "node-idempotency", "idemkit-pg"
PEERS = (NODE, "idemkit-redis", IDEMKIT_PG, "idemgate")


def install() -> None:
    """Fetch the peers from npm and PyPI into folders that git ignores."""
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"], cwd=HERE, check=True)
    subprocess.run([sys.executable, "-m", "venv", str(HERE / ".venv")], check=True)
    subprocess.run([str(PYTHON), "-m", "pip", "install", "-q", "-r", str(HERE / "requirements.txt")], check=True)


def start_peer(on: Stage, name: str) -> System | None:
    """Start one; None if it is not installed or does not start, which is said on stderr."""
    port = free_port()
    redis = on.redis.rpartition("/")[0] + f"/{1 + PEERS.index(name)}"
    environment = {"UPSTREAM": f"http://127.0.0.1:{on.upstream}", "REDIS": redis, "PG": on.dsn, "PORT": str(port), "PEER": name}
    words = _words(name, port)
    if words is None:
        print(f"{name} is left out: python -m benchmarks.peers installs it", file=sys.stderr)
        return None
    try:
        if name == IDEMKIT_PG:
            subprocess.run([str(PYTHON.with_name("idemkit")), "init-pg", on.dsn], check=True, capture_output=True)
        child = on.stack.enter_context(command(*words, port=port, log=on.log(name), environment=environment, folder=HERE))
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        print(f"{name} is left out: {error}", file=sys.stderr)
        return None
    return System(name, port, child.pid)


def _words(name: str, port: int) -> tuple[str, ...] | None:
    node = shutil.which("node")
    if name == NODE:
        return (node, "node_idempotency.mjs") if node is not None and NODE_MODULES.exists() else None
    if not PYTHON.exists():
        return None
    return (str(PYTHON), "-m", "uvicorn", "asgi:app", "--port", str(port), "--no-access-log", "--log-level", "error")
