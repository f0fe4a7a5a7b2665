"""How long a record may be kept, in seconds."""

from gateway.core.kinds import Duration
from gateway.core.units import parse_duration

DEFAULT_RETENTION = 86400.0
"""Seconds that a completed record is kept where neither its route nor its upstream says how long."""

KEPT = Duration("1s", "3650d")
MAX_RETENTION = parse_duration(KEPT.maximum)
"""Seconds: as long as a route, an upstream or an operator may have a record kept."""
