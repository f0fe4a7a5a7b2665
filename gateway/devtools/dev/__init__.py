"""The `dev` command: Postgres, Redis, a sample API and the gateway on this machine, with a tour to copy and paste."""

from gateway.devtools.dev.main import run

__all__ = ["run"]
