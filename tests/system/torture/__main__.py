"""A torture run by command: see `scripts/torture --help`."""

import argparse
import asyncio
import random
import sys
import time

from tests.system.torture.run import torture


def main() -> int:
    """0: every promise held; 1: one did not, and its story is on stdout."""
    parser = argparse.ArgumentParser(
        prog="scripts/torture",
        description="Two gateways, Postgres and Redis, killed, frozen, cut off and crashed at random under clients that insist, hang up "
        "and make mistakes; then every promise is checked against the upstream's own ledger.",
    )
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default 5)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="what is tried first (default: anything)")
    parser.add_argument("--round", type=float, default=40.0, help="seconds of faults in each round (default 40)")
    parser.add_argument("--clients", type=int, default=12, help="clients at a time (default 12)")
    parser.add_argument("--settle-timeout", default="20s", help="of the route; short ones let answers go uncommitted (default 20s)")
    parser.add_argument("--standby", action="store_true", help="a primary and its synchronous standby, which fail over")
    chosen = parser.parse_args()
    until, seed, broken = time.monotonic() + 60 * chosen.minutes, chosen.seed, 0
    while time.monotonic() < until and not broken:
        seconds = min(chosen.round, max(5.0, until - time.monotonic()))
        outcome = asyncio.run(torture(seed, seconds, clients=chosen.clients, settle_timeout=chosen.settle_timeout, standby=chosen.standby))
        sys.stderr.write(f"seed {seed}: {outcome.operations} operations, {outcome.faults} faults, answers {dict(outcome.answers)}\n")
        for story in outcome.broken:
            sys.stdout.write(f"seed {seed}: {story}\n\n")
        broken += len(outcome.broken)
        seed += 1
    sys.stdout.write(f"{broken} promises broken\n")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
