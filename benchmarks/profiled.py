"""A gateway that is sampled while it serves: what `benchmarks.profile` starts.

SIGPROF comes after each millisecond of CPU, and the handler notes which functions of ours are on the stack. It runs between two
instructions of Python, so the time of a C function counts for whoever called it.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

import uvloop

import gateway
from gateway.config import load
from gateway.run.server.process import Process

OURS = str(Path(gateway.__file__).parent) + os.sep
INTERVAL = 0.001
LOOP = "(the event loop and the kernel)"


class Sampler:
    """Samples between SIGUSR1 and SIGUSR2, then writes them to a file."""

    def __init__(self, result: Path) -> None:
        self._result = result
        self._samples = 0
        self._innermost: Counter[str] = Counter()
        self._anywhere: Counter[str] = Counter()
        self._started = 0.0

    def start(self, *_: object) -> None:
        self._samples, self._started = 0, time.process_time()
        self._innermost.clear()
        self._anywhere.clear()
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)

    def stop(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        told = {
            "cpu": time.process_time() - self._started,
            "samples": self._samples,
            "innermost": self._innermost,
            "anywhere": self._anywhere,
        }
        part = self._result.with_suffix(".part")
        part.write_text(json.dumps(told))
        part.rename(self._result)

    def sample(self, _: int, frame: FrameType | None) -> None:
        self._samples += 1
        seen: list[str] = []
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(OURS):
                seen.append(f"{code.co_filename[len(OURS) :]} {code.co_qualname}")
            frame = frame.f_back
        served = [name for name in seen if not name.startswith("run/")]  # `run` is below everything
        self._innermost[served[0] if served else LOOP] += 1
        self._anywhere.update(set(served))


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("result", type=Path)
    chosen = parser.parse_args()
    sampler = Sampler(chosen.result)
    signal.signal(signal.SIGPROF, sampler.sample)
    signal.signal(signal.SIGUSR1, sampler.start)
    signal.signal(signal.SIGUSR2, sampler.stop)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(Process(load(chosen.config, os.environ)).run(accept_scope_change=False, accept_clock=False)))


if __name__ == "__main__":
    main()
