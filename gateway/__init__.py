"""The idempotency gateway: a reverse proxy that gives any HTTP API the `Idempotency-Key` contract."""

__version__ = "0.1.0"
