"""The fixtures of tests that run whole gateways."""

from tests.support.stack import gateway, setup, upstream

__all__ = ["gateway", "setup", "upstream"]
