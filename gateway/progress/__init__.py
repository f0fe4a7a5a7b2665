"""Where upstreams that take part tell how far they have come: a listener of its own, so that they never need the admin token."""

from gateway.progress.listener import ProgressListener

__all__ = ["ProgressListener"]
