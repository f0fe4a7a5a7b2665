"""Passive health of one target: the outcome of its calls decides whether it gets more calls. Pure; instants are
arguments, in seconds.

    closed ── `failures` in a row ──► open ── `cooldown` over ──► half-open: one call at a time goes through, as a trial
       ▲                               ▲                            │
       └────────────── it succeeds ────┼────────────────────────────┤
                                       └──────── it fails ──────────┘   (abandoned: the next call is the trial)

Calls that were admitted before the opening may end during it or later. They describe the past, and change nothing then.

An open target is *away* if as many failures in a row were failures to reach it at all. A target that was reached and
failed may have failed because of the request: it is open, but not away.
"""

from dataclasses import dataclass

TRIAL_LIMIT = 60.0
"""Seconds after which a trial without an outcome (a slow upload, say) no longer keeps the next one waiting."""


@dataclass(frozen=True, slots=True)
class Success:
    """A success that ended `row` failures: what is needed to take it back."""

    row: int
    number: int


class Health:
    """See the module. Instants come from one clock that never goes back. `failures=0` admits everything and counts
    nothing.

    A call that is admitted while `open` is the trial, and must end it by exactly one of `succeeded`, `failed` and
    `abandoned`; calls that are not the trial say so with `trial=False`.
    """

    __slots__ = ("_cooldown", "_failures", "_reopens", "_row", "_successes", "_trial", "_unreached", "open")

    def __init__(self, failures: int, cooldown: float) -> None:
        self._failures = failures
        self._cooldown = cooldown
        self._row = 0
        self._unreached = 0  # of the row: since it was reached last
        self._successes = 0
        self.open = False
        """Whether the target is left alone, but for trials."""
        self._reopens = 0.0
        self._trial: float | None = None  # when it was admitted

    @property
    def away(self) -> bool:
        """Whether it is open because it could not be reached."""
        return 0 < self._failures <= self._unreached

    def admits(self, now: float) -> bool:
        """Whether a call may go to the target now. While half-open, True makes that call the trial."""
        if not self.open:
            return True
        if now < self._reopens or (self._trial is not None and now - self._trial < TRIAL_LIMIT):
            return False
        self._trial = now
        return True

    def succeeded(self, *, trial: bool = True) -> Success | None:
        """The target answered a call. Returns the success if it ended failures."""
        if self.open and not trial:
            return None
        self._successes += 1
        row = self._row
        if not row:
            return None
        self._row = self._unreached = 0
        self._trial = None
        self.open = False
        return Success(row, self._successes)

    def failed(self, now: float, *, trial: bool = True, reached: bool = False, after: Success | None = None) -> None:
        """The target failed a call, `reached` or not. `after`: which had looked like this success; it is taken back,
        unless others came.
        """
        was_away = self.away
        if not reached:
            self._unreached += 1
        elif trial or not was_away:
            self._unreached = 0
        if not self.open:
            if after is not None and after.number == self._successes:
                self._row = max(self._row, after.row)
            self._row += 1
            if 0 < self._failures <= self._row:
                self.open = True
                self._reopens = now + self._cooldown
        elif trial and self._trial is not None:
            self._reopens = now + self._cooldown
            self._trial = None
        elif self.away and not was_away:
            self._reopens = now + self._cooldown

    def abandoned(self) -> None:
        """The trial ended without telling anything about the target: the next call may be it."""
        self._trial = None

    def reopens_in(self, now: float) -> float:
        """Seconds until a call may be admitted. 0 if one may be now, or as soon as the trial under way is over."""
        return max(0.0, self._reopens - now) if self.open else 0.0
