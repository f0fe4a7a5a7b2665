"""The dialects that come with the gateway, as their files say and as a configuration resolves them."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gateway import dialects
from gateway.config.load import load
from gateway.core.dialect import parse_dialect
from gateway.core.dialect_model import Dialect
from gateway.core.policy import Policy

NAMES = dialects.names()


@cache
def tree(name: str) -> Any:
    """A file's document."""
    return yaml.safe_load(dialects.text_of(name))


@cache
def dialect(name: str) -> Dialect:
    """The wire form that a file describes."""
    return parse_dialect(tree(name), name)[0]


def defaults(name: str) -> dict[str, Any]:
    """The fields of `idempotency` that a file brings."""
    return dict(parse_dialect(tree(name), name)[1])


def policy(name: str, folder: Path) -> Policy:
    """The policy of a route that names a dialect and nothing else."""
    config = folder / "gateway.yaml"
    config.write_text(f"""
postgres: {{dsn: "postgresql://gateway@127.0.0.1/gateway"}}
digest_secret: a-secret-of-the-tests-0123456789
upstreams: {{api: {{url: "http://127.0.0.1:9"}}}}
routes: [{{id: pay, path: /pay, upstream: api, idempotency: {{principal: none, dialect: "{name}"}}}}]
""")
    found = load(config, {}).routes[0].policy
    assert found is not None
    return found
