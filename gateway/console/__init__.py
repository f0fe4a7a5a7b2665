"""The console: pages on the admin listener for the person who has to decide. It knows the operators' service and no driver."""

from gateway.console.figures import Meter
from gateway.console.mount import mount
from gateway.console.visits import Console

__all__ = ["Console", "Meter", "mount"]
