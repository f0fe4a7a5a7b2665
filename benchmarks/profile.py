"""Where the CPU of a request goes, by step and by function of ours, for new keys, replays and unguarded requests.

    python -m benchmarks.profile [--connections 64] [--requests 20000] [--without-redis] [--top 25]

A step is a folder of `gateway/`; a function's own time is that of the samples in which it is the innermost of ours, with all that it calls
in libraries and in the kernel. Sampling costs some percent: the shares count, and they are given in µs of the whole CPU a request took.
"""

import argparse
import json
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.load import load
from benchmarks.systems import PLAIN, Stage, config_text, migrate, process, stage
from gateway.devtools.embedded.ports import free_port


@dataclass(frozen=True, slots=True)
class Kind:
    """What is asked: replays go over so many `keys`."""

    path: bytes = b"/v1/charges"
    keys: int | None = None


KINDS = {"new key": Kind(), "replay": Kind(keys=4096), "unguarded": Kind(b"/other")}


def sampled(port: int, pid: int, result: Path, connections: int, requests: int, kind: Kind) -> dict[str, Any]:
    """The samples of one kind of request, after a warm-up."""
    keys, prefix = kind.keys, f"profile-{os.getpid()}-{kind.path.decode()}-{kind.keys}"
    result.unlink(missing_ok=True)
    warm = prefix if keys else prefix + "-warm"
    uvloop.run(load(port, connections=connections, requests=keys or 2000, prefix=warm, path=kind.path))
    os.kill(pid, signal.SIGUSR1)
    done = uvloop.run(load(port, connections=connections, requests=requests, prefix=prefix, keys=keys, path=kind.path))
    os.kill(pid, signal.SIGUSR2)
    if done.statuses[201] != requests:
        raise SystemExit(f"unexpected statuses {done.statuses}")
    while not result.exists():
        time.sleep(0.05)
    told: dict[str, Any] = json.loads(result.read_text())
    return told


def step_of(function: str) -> str:
    """The folder of a function, two levels deep where the first holds many things."""
    if function.startswith("("):
        return function
    parts = function.partition(" ")[0].split("/")
    return "/".join(parts[:2]) if parts[0] == "store" and len(parts) > 2 else parts[0].removesuffix(".py")


def by_step(told: dict[str, Any]) -> Counter[str]:
    steps: Counter[str] = Counter()
    for function, samples in told["innermost"].items():
        steps[step_of(function)] += samples
    return steps


def report(found: dict[str, dict[str, Any]], requests: int, top: int) -> str:
    """Tables in Markdown: steps of all kinds side by side, then the functions of each."""
    each = {kind: told["cpu"] / requests * 1e6 for kind, told in found.items()}
    steps = {kind: by_step(told) for kind, told in found.items()}
    names = sorted({name for counted in steps.values() for name in counted}, key=lambda name: -max(one[name] for one in steps.values()))
    lines = ["| step, us a request | " + " | ".join(found) + " |", "| --- |" + " ---: |" * len(found)]
    for name in names:
        shares = [each[kind] * steps[kind][name] / found[kind]["samples"] for kind in found]
        if max(shares) >= 0.5:
            lines.append(f"| {name} | " + " | ".join(f"{share:.1f}" for share in shares) + " |")
    lines.append("| together | " + " | ".join(f"{each[kind]:.0f}" for kind in found) + " |")
    for kind, told in found.items():
        lines += ["", f"| {kind}: function | own us | with those it calls |", "| --- | ---: | ---: |"]
        for function, samples in Counter(told["innermost"]).most_common(top):
            own, whole = (each[kind] * of / told["samples"] for of in (samples, told["anywhere"].get(function, samples)))
            lines.append(f"| {function} | {own:.1f} | {whole:.1f} |")
    return "\n".join(lines)


def run(on: Stage, chosen: argparse.Namespace) -> str:
    port, config, result = free_port(), on.folder / "profiled.yaml", on.folder / "profiled.json"
    redis = "" if chosen.without_redis else on.redis
    config.write_text(config_text(on.dsn, redis, on.upstream, port=port, settings=PLAIN))
    migrate(config)
    with process("-m", "benchmarks.profiled", str(config), str(result), port=port, log=on.log("profiled")) as child:
        found = {name: sampled(port, child.pid, result, chosen.connections, chosen.requests, kind) for name, kind in KINDS.items()}
    return report(found, chosen.requests, chosen.top)


def main() -> None:
    """Start everything, sample, print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--without-redis", action="store_true")
    parser.add_argument("--top", type=int, default=25)
    chosen = parser.parse_args()
    with stage() as on:
        print(run(on, chosen))


if __name__ == "__main__":
    main()
