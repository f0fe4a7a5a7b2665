"""How long the path of a request is: calls and files of ours, and coroutines of ours under which it waits for its reserve.

    python -m benchmarks.calls [--functions] [--without-redis]

One process with everything on, real Postgres and Redis, one request at a time over one connection, after a warm-up. Unlike times, the
figures are the same on every run of one Python: `tests/system/e2e/test_path_length.py` holds them as upper limits.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.compare import CONFIG, newest_redis, process
from gateway.devtools.embedded import start_postgres, start_redis
from gateway.devtools.embedded.launch import free_port


def count(folder: Path, dsn: str, redis: str, upstream: int, *, functions: bool = False) -> dict[str, Any]:
    """The figures of a gateway on these stores, whose schema is there. `upstream` is the port of one that answers 201."""
    port, config, result = free_port(), folder / "counted.yaml", folder / "counted.json"
    config.write_text(CONFIG.format(port=port, admin=free_port(), dsn=dsn, redis=redis, upstream=upstream))
    command = [sys.executable, "-m", "benchmarks.counted", str(config), str(port), dsn, str(result)]
    done = subprocess.run([*command, *(["--functions"] if functions else [])], capture_output=True, text=True, timeout=110, check=False)
    if not result.exists():
        raise RuntimeError(f"nothing was counted: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(result.read_text())
    return figures


def table(figures: dict[str, Any]) -> str:
    lines = [f"{'request':12} {'calls':>6} {'files':>6} {'frames':>7} {'resumed':>8} {'libraries':>10}   agreed"]
    for name in ("new key", "replay", "unguarded"):
        row = figures[name]
        shown = (row["calls"], row["files"], row.get("frames", "-"), row["resumed"], row["libraries"])
        lines.append("{:12} {:6} {:6} {:>7} {:8} {:10}   {}".format(name, *shown, row["agreed"]))
    return "\n".join(lines)


def main() -> None:
    """Start everything, count, print a table; with `--functions`, each function's calls and the stack at reserve as well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", action="store_true")
    parser.add_argument("--without-redis", action="store_true")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-calls-")))
        folder.chmod(0o755)
        postgres = start_postgres(folder / "postgres")
        stack.callback(postgres.stop)
        redis = ""
        if not chosen.without_redis:
            server = start_redis(folder / "redis", binary=newest_redis())
            stack.callback(server.stop)
            redis = server.url
        upstream = free_port()
        stack.enter_context(process("-m", "benchmarks.upstream", str(upstream), port=upstream, log=folder / "upstream.log"))
        migrate(folder, postgres.dsn)
        figures = count(folder, postgres.dsn, redis, upstream, functions=chosen.functions)
    print(table(figures))
    for name, functions in figures.get("functions", {}).items():
        print(f"\n{name}")
        for function, times in functions:
            print(f"{times:5} {function}")
    if "stack" in figures:
        print("\nwaiting for reserve, outermost first", *figures["stack"], sep="\n      ")


def migrate(folder: Path, dsn: str) -> None:
    """Bring the schema of a database to this version."""
    config = folder / "migrate.yaml"
    config.write_text(CONFIG.format(port=free_port(), admin=free_port(), dsn=dsn, redis="", upstream=free_port()))
    subprocess.run([sys.executable, "-m", "gateway", "migrate", "--config", str(config)], check=True, capture_output=True)


if __name__ == "__main__":
    main()
