"""A differential run by command: see `scripts/differential --help`."""

import argparse
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.system.differential.judge import passed_on
from tests.system.differential.running import commands, ran, serving
from tests.system.differential.spellings import requests


def main() -> int:
    """0: nothing found; 1: something was, and is told on stdout."""
    parser = argparse.ArgumentParser(prog="scripts/differential", description="Look for spellings that a server routes around the guard.")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long (default 5)")
    parser.add_argument("--seed", type=int, help="where to begin (default: anywhere)")
    parser.add_argument("--only", action="append", help="one server alone; may be given several times")
    parser.add_argument("--node-modules", type=Path, help="a node_modules folder with express, express5, fastify, koa and what they need")
    chosen = parser.parse_args()
    number = random.randrange(10**6) if chosen.seed is None else chosen.seed
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports: dict[str, int] = {}
        for name, command in commands(chosen.node_modules).items():
            if not chosen.only or name in chosen.only:
                try:
                    ports[name] = stack.enter_context(serving(command, folder, chosen.node_modules))
                except RuntimeError as error:
                    sys.stderr.write(f"{error}\n")
        sys.stderr.write(f"seed {number}, servers: {', '.join(ports)}\n")
        return _run(ports, number, chosen.minutes)


def _run(ports: dict[str, int], number: int, minutes: float) -> int:
    until, sent, ran_at = time.monotonic() + 60 * minutes, 0, dict.fromkeys(ports, 0)
    found: set[tuple[str, bytes, bytes]] = set()
    for request in requests(number):
        if time.monotonic() > until:
            break
        forwarded = passed_on(request)
        for name, port in ports.items():
            ran_at[name] += ran(port, request) is not None
            sent += 1
            operation = None if forwarded is None else ran(port, forwarded)
            if operation is not None and (name, request.method, request.target) not in found:
                found.add((name, request.method, request.target))
                sys.stdout.write(f"{name} runs {operation}, unguarded: {request}\n")
                sys.stdout.flush()
    sys.stderr.write(f"{sent} requests; without a gateway the servers ran {ran_at}; around it: {len(found)}\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
