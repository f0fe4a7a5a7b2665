"""The gateway against a bare aiohttp proxy and against other systems: requests/s, CPU and latency, for new keys and for replays.

    python -m benchmarks.compare [--connections 64] [--requests 20000] [--rounds 3] [--keys 4096] [--workers N] [--peers [NAME ...]]
    python -m benchmarks.compare --lone            # one request at a time, against the least that any gateway has to do
    python -m benchmarks.compare --in-flight 10000 --workers 2  # memory while so many slow requests are under way
    python -m benchmarks.compare --rows 1000000    # so many live records, whole and in partitions, against none; the reaper
    python -m benchmarks.compare --features        # what a feature costs a route that uses it

Everything runs on this machine: Postgres with fsync on, Redis, one upstream, one load generator. The systems take turns, round
by round, so that a machine whose speed drifts treats them alike: compare the ratios, not the absolute figures. CPU is that of
the proxy's own processes (user and system); that of Postgres and Redis is not in it. Every request has a key, a body and a trace
of its own; replays go over `--keys` keys. `--workers` adds the gateway with so many processes.

`--peers` starts those of `benchmarks.peers` that are installed, or only the named ones. `--peer NAME=URL` measures a proxy that
runs already on this machine, in front of an upstream of its own that answers 201.
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from benchmarks import features, in_flight, lone, rows
from benchmarks.peers import PEERS, start_peer
from benchmarks.rounds import in_turns, table
from benchmarks.systems import Settings, Stage, System, stage, start_gateway, start_plain_proxy


def systems_of(on: Stage, arguments: argparse.Namespace) -> Iterator[System]:
    """What takes turns, the bare proxy first."""
    yield start_plain_proxy(on)
    gateway, without = (
        start_gateway(on, "gateway", tree=arguments.tree),
        start_gateway(on, "gateway-no-redis", redis="", tree=arguments.tree),
    )
    yield System("gateway, unguarded", gateway.port, gateway.pid, b"/other")
    yield from _both("gateway", gateway, arguments.keys)
    yield from _both("gateway without Redis", without, arguments.keys)
    if arguments.workers > 1:
        workers, name = Settings(more=f"workers: {arguments.workers}"), f"{arguments.workers} workers"
        yield from _both(f"gateway, {name}", start_gateway(on, "workers", tree=arguments.tree, settings=workers), arguments.keys)
        without = start_gateway(on, "workers-no-redis", redis="", tree=arguments.tree, settings=workers)
        yield from _both(f"gateway without Redis, {name}", without, arguments.keys)
    for name in arguments.peers if arguments.peers != [] else PEERS:
        peer = start_peer(on, name)
        if peer is not None:
            yield from _both(name, peer, arguments.keys)
    for given in arguments.peer:
        name, _, url = given.partition("=")
        port = urlsplit(url).port or 80
        yield from _both(name, System(name, port, _listener(port)), arguments.keys)


def _both(name: str, system: System, keys: int) -> Iterator[System]:
    yield System(f"{name}, new keys", system.port, system.pid)
    yield System(f"{name}, replays", system.port, system.pid, keys=keys)


def _listener(port: int) -> int:
    """The process that listens on a port of this machine; 0 if nobody knows."""
    told = subprocess.run(["ss", "-Hltnp", f"sport = :{port}"], capture_output=True, text=True, check=False).stdout
    return int(told.partition("pid=")[2].partition(",")[0] or 0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, nargs="+", default=[64])
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, default=4096)
    parser.add_argument("--peers", nargs="*", choices=PEERS, metavar="NAME", default=())
    parser.add_argument("--peer", metavar="NAME=URL", action="append", default=[])
    parser.add_argument("--tree", type=Path, metavar="FOLDER", help="the source tree of the gateway, if not this one")
    parser.add_argument("--lone", action="store_true")
    parser.add_argument("--in-flight", type=int, metavar="N")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes of the gateway")
    parser.add_argument("--rows", type=int, metavar="N")
    parser.add_argument("--partitions", type=int, metavar="N", default=16)
    parser.add_argument("--features", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Start everything, measure, print tables in Markdown."""
    arguments = parse()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with stage() as on:
        if arguments.lone:
            print(lone.run(on, arguments.rounds, arguments.tree))
        elif arguments.in_flight:
            print(in_flight.run(on, arguments.in_flight, arguments.tree, arguments.workers))
        elif arguments.rows:
            print(rows.run(on, arguments.rows, arguments.partitions, arguments.requests, arguments.rounds))
        elif arguments.features:
            print(features.run(on, arguments.requests, arguments.rounds))
        else:
            systems = list(systems_of(on, arguments))
            for connections in arguments.connections:
                samples = uvloop.run(in_turns(systems, connections, arguments.requests, arguments.rounds))
                print(f"\n{connections} connections, {arguments.requests} requests a round, {arguments.rounds} rounds: median and least")
                print(table(samples))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
