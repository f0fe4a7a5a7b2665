"""Logs the answers of one upstream that break the rules: at most one line a minute for each kind of violation."""

import logging
from collections.abc import Iterable

from gateway.upstream.repair import Violation

INTERVAL = 60.0
"""Seconds between two lines about the same violation: an upstream that commits it commits it every time."""

KINDS = 64
"""As many different violations are told apart; what a parser finds wrong is a closed set, and smaller."""

_log = logging.getLogger(__name__)


class ProtocolViolations:
    """About the upstream at `url`. `now` is the loop's time, in seconds."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._quiet_until: dict[str, float] = {}

    def refused(self, why: str, now: float) -> None:
        """The gateway refused an answer, so the outcome is unknown."""
        if self._speaks(why, now):
            _log.warning("%s sent an answer that is no valid HTTP: %s", self._url, why)

    def repaired(self, violations: Iterable[Violation], now: float) -> None:
        """The gateway put an answer right and took it."""
        for violation in violations:
            if self._speaks(violation.value, now):
                _log.info("%s sent an answer that had to be put right: %s", self._url, violation.value)

    def _speaks(self, what: str, now: float) -> bool:
        if now < self._quiet_until.get(what, now) or (len(self._quiet_until) >= KINDS and what not in self._quiet_until):
            return False
        self._quiet_until[what] = now + INTERVAL
        return True
