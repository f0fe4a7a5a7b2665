"""How exact a quota is that two gateways count together.

    python -m benchmarks.quotas [--seconds 5]

One caller asks both gateways all the time, each time with a new key; then, with all of its quota earned again, in two bursts, as at either
side of a window's edge. What it may get in a run is one burst and what the rate earns until the run's last answer.
"""

import argparse
import asyncio
import time
from collections import Counter
from itertools import count

from benchmarks.load import load
from benchmarks.systems import POLICY, Settings, stage, start_gateway

RATE, BURST = 20, 40
QUOTA = f"quota: {{new_keys: {{rate: {RATE}/s, burst: {BURST}}}}}"
AT_ONCE = 20
_numbers = count()


async def ask(ports: list[int], requests: int, name: str) -> Counter[int]:
    """Statuses of so many requests at each gateway."""
    found = await asyncio.gather(
        *(load(port, connections=4, requests=requests, prefix=f"{name}-{next(_numbers)}-{port}") for port in ports)
    )
    return sum((one.statuses for one in found), Counter[int]())


async def all_the_time(ports: list[int], seconds: float) -> tuple[Counter[int], float]:
    begun, statuses = time.perf_counter(), Counter[int]()
    while time.perf_counter() - begun < seconds:
        statuses += await ask(ports, AT_ONCE, "all")
    return statuses, time.perf_counter() - begun


async def at_an_edge(ports: list[int]) -> tuple[Counter[int], float]:
    """Where each second, or minute, had its own count, the second burst would be let in like the first."""
    await asyncio.sleep(BURST / RATE)
    begun = time.perf_counter()
    before = await ask(ports, BURST, "edge")
    after = await ask(ports, BURST, "edge")
    return before + after, time.perf_counter() - begun


def line(name: str, statuses: Counter[int], seconds: float) -> str:
    may = BURST + RATE * seconds
    return f"| {name} | {seconds:.2f} | {statuses.total()} | {statuses[201]} | {may:.0f} | {100 * (statuses[201] / may - 1):+.1f} % |"


def main() -> None:
    """Start everything, ask, print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    seconds = parser.parse_args().seconds
    with stage() as on:
        settings = Settings(policy=f"{POLICY}, {QUOTA}", more="workers: 1")
        ports = [start_gateway(on, name, settings=settings).port for name in ("one", "other")]
        print("| one caller, two gateways | seconds | asked | let in | may be | off |\n| --- | ---: | ---: | ---: | ---: | ---: |")
        print(line("all the time", *asyncio.run(all_the_time(ports, seconds))))
        print(line("two bursts, one behind the other", *asyncio.run(at_an_edge(ports))))


if __name__ == "__main__":
    main()
