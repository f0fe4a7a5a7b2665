"""Faults by command: see `scripts/alerts --help`."""

import argparse
import asyncio
import sys

from tests.system.alerts.run import FAULTS, HEAD, drill, quiet, stage

FACTOR = 60.0


async def drills(factor: float, only: str) -> int:
    failed = False
    async with stage(factor) as staged:
        early = await quiet(staged, 3.0)
        if early:
            print(f"without any fault: {', '.join(sorted(early))}")
        print(HEAD, flush=True)
        for fault in FAULTS:
            if only.lower() in f"{fault.name} {fault.alert}".lower():
                row = await drill(staged, fault)
                print(row.line(), flush=True)
                failed |= row.fired is None or row.cleared is None
    return int(failed or bool(early))


def main() -> int:
    """0: each alert fired and cleared; 1: one did not, or one fired without a fault."""
    parser = argparse.ArgumentParser(
        prog="scripts/alerts",
        description="A gateway with Postgres, Redis and an upstream of its own under a little traffic, and a Prometheus (on the PATH) "
        "that watches it with deploy/prometheus/alerts.yml. Redis is killed, Postgres stopped, the upstream taken down, an answer lost, "
        "the gateway frozen, one after the other. Prints after how many seconds the alert fired, and how many after the end of its "
        "fault it cleared.",
    )
    parser.add_argument(
        "--factor",
        type=float,
        default=FACTOR,
        help="by what each `for` and each window of the rules is divided (default 60: minutes are seconds); 1 for real time",
    )
    parser.add_argument("--only", default="", help="only faults whose name, or alert, holds this")
    chosen = parser.parse_args()
    return asyncio.run(drills(chosen.factor, chosen.only))


if __name__ == "__main__":
    sys.exit(main())
