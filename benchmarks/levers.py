"""What each change gained: the CPU of the gateway of one commit against that of its parent, in turns in one run.

    python -m benchmarks.levers [COMMIT ...] [--against COMMIT] [--requests 6000] [--rounds 5]

Each commit (default: HEAD) is checked out beside this tree, into a folder that is gone at the end, and runs with the libraries that are
installed here. `--against` compares with another commit than the parent of each.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from benchmarks.rounds import Sample, in_turns, ratio
from benchmarks.systems import HERE, System, stage, start_gateway

KEYS = 2048
CASES = ("new key", "replay", "unguarded")


def git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True, cwd=HERE.parent).stdout.strip()


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """The files of a commit."""
    with tempfile.TemporaryDirectory(prefix="gateway-tree-") as folder:
        packed = subprocess.run(["git", "archive", commit], capture_output=True, check=True, cwd=HERE.parent).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        yield Path(folder)


def compared(before: str, after: str, requests: int, rounds: int) -> dict[str, list[Sample]]:
    """Rounds of both gateways in turns, on the same stores, each with a database of its own schema version."""
    with stage() as on, tree_of(before) as old, tree_of(after) as new:
        systems = []
        for name, tree in (("before", old), ("after", new)):
            gateway = start_gateway(on, name, dsn=on.database(name), tree=tree)
            systems += [
                System(f"{name}, new key", gateway.port, gateway.pid),
                System(f"{name}, replay", gateway.port, gateway.pid, keys=KEYS),
                System(f"{name}, unguarded", gateway.port, gateway.pid, b"/other"),
            ]
        return uvloop.run(in_turns(systems, 64, requests, rounds))


def row(before: str, after: str, samples: dict[str, list[Sample]]) -> str:
    """One row of the table in the README: CPU in us before and after (least of the rounds), and the median of the ratios."""
    cells = []
    for case in CASES:
        old, new = samples[f"before, {case}"], samples[f"after, {case}"]
        least = [min(one.cpu for one in seen) * 1e6 for seen in (old, new)]
        cells.append(f"{least[0]:.0f} → {least[1]:.0f} ({ratio(new, old, lambda one: one.cpu):.2f})")
    spread = statistics.median(max(one.cpu for one in seen) / min(one.cpu for one in seen) for seen in samples.values())
    subject = git("log", "-1", "--format=%s", after)
    return (
        f"| {subject} | {git('rev-parse', '--short', before)}..{git('rev-parse', '--short', after)} | {' | '.join(cells)} | {spread:.1f} |"
    )


def main() -> None:
    """A row for each commit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", default=["HEAD"])
    parser.add_argument("--against")
    parser.add_argument("--requests", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    print("| lever | commits | new key, CPU us | replay | unguarded | spread |\n| --- | --- | --- | --- | --- | --- |")
    for commit in chosen.commits:
        before = chosen.against or f"{commit}^"
        print(row(before, commit, compared(before, commit, chosen.requests, chosen.rounds)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
