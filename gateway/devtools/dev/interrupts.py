"""Ctrl-C and its kin as one exception, held back while a server is being started so that none is ever forgotten."""

import signal
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class Interrupts:
    """How often we were told to stop. Every signal raises KeyboardInterrupt, except the first one inside a `shield`; `deaf` ends that."""

    count: int = 0
    shielded: bool = False
    deaf: bool = False

    def told(self, _number: int, _frame: types.FrameType | None) -> None:
        self.count += 1
        if not self.deaf and (not self.shielded or self.count > 1):
            raise KeyboardInterrupt

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Finish the body first: it is bounded in time. A second signal ends it anyway."""
        self.shielded = True
        try:
            yield
        finally:
            self.shielded = False
        if self.count:
            raise KeyboardInterrupt


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Handle the signals while the body runs; the handlers from before come back afterwards."""
    state = Interrupts()
    wanted = [number for number in SIGNALS if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN]  # nohup
    before = {number: signal.signal(number, state.told) for number in wanted}
    try:
        yield state
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
