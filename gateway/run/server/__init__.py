"""The composition root: the only place that knows every part. `serve` runs one process."""

from gateway.run.server.process import serve
from gateway.run.server.startup import check_connect

__all__ = ["check_connect", "serve"]
