"""A fuzz run by command: see `scripts/fuzz --help`."""

import argparse
import itertools
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from hypothesis import seed

from tests.system.fuzz.profile import LONG_RUN

os.environ[LONG_RUN] = "1"  # before the tests are imported, whose settings look at it

from tests.support.services import Services
from tests.system.fuzz import test_edge, test_fields, test_keys, test_targets
from tests.system.fuzz.bench import Bench, Found, bench, describe, smallest
from tests.system.fuzz.cases import load
from tests.system.fuzz.judge import judge


def main() -> int:
    """0: nothing found; 1: something was, and is told on stdout."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Fuzz the gateway: its parser edge, keys, targets and header fields.")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default 5)")
    parser.add_argument("--seed", type=int, help="where to begin (default: anywhere); a run that found something says its seed")
    parser.add_argument("--only", choices=["edge", "keys", "targets", "fields"], help="one of the four alone")
    parser.add_argument("--replay", metavar="CASE", help="play one case of the edge, as a failure printed it, and show what comes of it")
    chosen = parser.parse_args()
    services = Services()
    try:
        with tempfile.TemporaryDirectory() as folder:
            postgres = services.postgres()
            with bench(services.migrated_database(postgres), services.redis(), Path(folder)) as edge:
                if chosen.replay is not None:
                    return _replay(edge, chosen.replay)
                return _run(edge, chosen.minutes, chosen.only, random.randrange(10**6) if chosen.seed is None else chosen.seed)
    finally:
        services.stop()


def _replay(edge: Bench, text: str) -> int:
    played = edge.play([load(text)])[0]
    fault = judge(played, edge.world.used) or next(iter(edge.complaints()), None)
    sys.stdout.write(f"{describe(played, fault or 'nothing wrong')}\n  upstream  {[request for _, request in played.seen]}\n")
    return int(fault is not None)


def _run(edge: Bench, minutes: float, only: str | None, first: int) -> int:
    started = time.monotonic()
    for number in itertools.count(first):
        for group, name, test in _tests(edge, only):
            try:
                seed(number)(test)()
            except Exception as error:  # whatever a test raises is what was looked for
                sys.stdout.write(f"Found by `{name}` under seed {number}:\n{edge.found or error}\n")
                if edge.found is not None:
                    _show_small(edge, edge.found)
                else:
                    sys.stdout.writelines(f"{note}\n" for note in getattr(error, "__notes__", ()))
                sys.stdout.write(f"Again: python3 scripts/fuzz --seed {number} --only {group}\n")
                return 1
            passed = time.monotonic() - started
            sys.stderr.write(f"{passed:6.0f} s  seed {number}  {group}: {name}: fine; {edge.played} connections so far\n")
            if passed > minutes * 60:
                return 0
    raise AssertionError("seeds are endless")


def _tests(edge: Bench, only: str | None) -> Iterator[tuple[str, str, Callable[[], object]]]:
    if only in {None, "edge"}:
        yield "edge", "generated connections", partial(test_edge.test_generated_connections, edge)
    for module in (test_keys, test_targets, test_fields):
        group = module.__name__.rpartition("_")[2]
        for name in vars(module):
            if name.startswith("test_") and only in {None, group}:
                yield group, name.removeprefix("test_").replace("_", " "), getattr(module, name)


def _show_small(edge: Bench, found: Found) -> None:
    """The smallest case for each fault."""
    for case, fault in found.cases[:5]:
        small = smallest(edge, case, fault)
        played = edge.play([small])[0]
        sys.stdout.write(f"Smallest: {describe(played, judge(played, edge.world.used) or fault)}\n")


if __name__ == "__main__":
    sys.exit(main())
