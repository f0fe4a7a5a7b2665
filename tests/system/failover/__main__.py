"""Failovers by command: see `scripts/failover --help`."""

import argparse
import asyncio
import sys

from tests.system.failover.run import FAULTS, HEAD, fail_over, stage


async def failovers(clients: int, only: str) -> int:
    broken: list[str] = []
    print(HEAD, flush=True)
    async with stage() as staged:
        for fault in FAULTS:
            if only in fault:
                row = await fail_over(staged, fault, clients=clients)
                print(row.line(), flush=True)
                broken += [*row.double_runs, *row.lost]
    for story in broken[:20]:
        print(story)
    return int(bool(broken))


def main() -> int:
    """0: nothing ran twice and no answer was lost; 1: the stories are on stdout."""
    parser = argparse.ArgumentParser(
        prog="scripts/failover",
        description="A primary with a synchronous standby, two gateways, clients that insist: the primary is killed, stopped, cut off, "
        "switched over, and brought back by mistake. Prints a table of what clients saw, and how long there was no service.",
    )
    parser.add_argument("--clients", type=int, default=16, help="how many at a time (default 16)")
    parser.add_argument("--only", default="", help="only faults whose name holds this")
    chosen = parser.parse_args()
    return asyncio.run(failovers(chosen.clients, chosen.only))


if __name__ == "__main__":
    sys.exit(main())
