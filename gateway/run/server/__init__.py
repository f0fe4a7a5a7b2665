"""The composition root: the only place that knows every part. `serve` runs one process."""

from gateway.run.server.process import serve
from gateway.run.server.startup import Unavailable, check_connect, participation_warnings

__all__ = ["Unavailable", "check_connect", "participation_warnings", "serve"]
