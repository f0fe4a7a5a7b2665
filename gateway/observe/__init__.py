"""What can be seen from outside: metrics, the access log, messages."""

from gateway.observe.logs import configure
from gateway.observe.observer import MetricsObserver

__all__ = ["MetricsObserver", "configure"]
