"""Configuration files written for one test, and the mistakes that loading them reports."""

from collections.abc import Mapping
from pathlib import Path

from gateway.config import Config, ConfigErrors, load

HEAD = """\
digest_secret: 0123456789abcdef
postgres: {dsn: "postgresql://db/gateway"}
upstreams:
  payments: {url: "http://payments:8000"}
"""
"""Four lines with all that a file needs besides routes."""

ROUTES = """\
routes:
  - id: charge
    path: /v1/charges
    upstream: payments
    idempotency:
      principal: none
"""
"""Six lines: one guarded route, open at the end for more of its `idempotency`."""


def write(folder: Path, text: str) -> Path:
    path = folder / "gateway.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, text: str, env: Mapping[str, str] | None = None) -> Config:
    return load(write(folder, text), env or {})


def mistakes(folder: Path, text: str, env: Mapping[str, str] | None = None) -> list[str]:
    """Every mistake as it is printed, without the folder; an empty list for a valid file."""
    try:
        read(folder, text, env)
    except ConfigErrors as errors:
        found = errors
    else:
        return []
    assert str(found).splitlines() == [str(one) for one in found.mistakes]
    return [str(one).replace(f"{folder}/", "") for one in found.mistakes]
