"""How long the path of a request is: calls and files of ours, and coroutines of ours under which it waits for its reserve.

    python -m benchmarks.calls [--functions] [--without-redis]

One process with everything on, real Postgres and Redis, one request at a time over one connection, after a warm-up. What counts
is the shortest of 25 requests of a kind, so that background work is left out. Unlike times, the figures are the same on every run of
one Python, give or take a call, also on a busy machine: `tests/system/e2e/test_path_length.py` holds them as upper limits.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.systems import PLAIN, Settings, config_text, migrate, stage
from gateway.devtools.embedded.ports import free_port


def count(folder: Path, dsn: str, redis: str, upstream: int, *, functions: bool = False, settings: Settings = PLAIN) -> dict[str, Any]:
    """The figures of a gateway on these stores, whose schema is there. `upstream` is the port of one that answers 201."""
    port, config, result = free_port(), folder / "counted.yaml", folder / "counted.json"
    config.write_text(config_text(dsn, redis, upstream, port=port, settings=settings))
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.counted", str(config), str(port), dsn, str(result)]
    done = subprocess.run([*command, *(["--functions"] if functions else [])], capture_output=True, text=True, timeout=110, check=False)
    if not result.exists():
        raise RuntimeError(f"nothing was counted: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(result.read_text())
    return figures


def table(figures: dict[str, Any]) -> str:
    lines = [f"{'request':12} {'calls':>6} {'files':>6} {'frames':>7} {'resumed':>8} {'libraries':>10} {'garbage':>8}"]
    for name in ("new key", "replay", "unguarded"):
        row = figures[name]
        shown = (row["calls"], row["files"], row.get("frames", "-"), row["resumed"], row["libraries"], row["garbage"])
        lines.append("{:12} {:6} {:6} {:>7} {:8} {:10} {:8}".format(name, *shown))
    return "\n".join(lines)


def main() -> None:
    """Start everything, count, print a table; with `--functions`, each function's calls and the stack at reserve as well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", action="store_true")
    parser.add_argument("--without-redis", action="store_true")
    chosen = parser.parse_args()
    with stage() as on:
        config = on.folder / "migrate.yaml"
        config.write_text(config_text(on.dsn, "", on.upstream, port=free_port(), settings=PLAIN))
        migrate(config)
        redis = "" if chosen.without_redis else on.redis
        figures = count(on.folder, on.dsn, redis, on.upstream, functions=chosen.functions)
    print(table(figures))
    for name, functions in figures.get("functions", {}).items():
        print(f"\n{name}")
        for function, times in functions:
            print(f"{times:5} {function}")
    for stack in figures.get("stacks", []):
        print("\nwaiting while Postgres reserves, outermost first", *stack, sep="\n      ")


if __name__ == "__main__":
    main()
