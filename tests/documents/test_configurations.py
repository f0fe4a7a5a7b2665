"""Every block of configuration in the pages loads, alone or in the place where it belongs."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gateway.config.model import Config
from gateway.core.policy import Policy
from gateway.core.setting import settings_of
from tests.config.support import mistakes
from tests.documents.test_blocks import blocks
from tests.documents.test_prose import PAGES

ROOT_KEYS = {name for one in settings_of(Config) for name in one.names}
POLICY_KEYS = {name for one in settings_of(Policy) for name in one.names}
SECRET = "0123456789abcdef" * 4
ENV = {"GATEWAY_POSTGRES_DSN": "postgresql://db/gateway", "GATEWAY_REDIS_URL": "redis://redis"}
BESIDES = {
    "postgres": 'postgres: {dsn: "postgresql://db/gateway"}',
    "digest_secret": f"digest_secret: {SECRET}",
    "routes": "routes: [{id: charge, path: /v1/charges, upstream: payments, idempotency: {principal: [{header: X-Account-Id}]}}]",
}
"""What a block that is a part of a file leaves out."""
OTHERS = {"values.yaml", "prometheus.yml", "Prometheus adapter"}
"""Files of other programs, by the comment that they begin with: tests/documents/test_blocks.py and tests/deploy use them."""
OF_THE_LISTENER = "client_certificate: needs `tls.client_ca_file`"
"""What the page says beside that setting; its files are not there."""


def alternatives(text: str) -> Iterator[str]:
    """A block that shows a setting several times, with each of these in turn."""
    parts = [part for part in re.split(r"^(?=[\w#])", textwrap.dedent(text), flags=re.MULTILINE) if not part.startswith("#")]
    keys = [part.partition(":")[0] for part in parts]
    for number in range(max(map(keys.count, keys))):
        shown = [[part for part, other in zip(parts, keys, strict=True) if other == key] for key in dict.fromkeys(keys)]
        yield "".join(each[min(number, len(each) - 1)] for each in shown)


def whole(text: str) -> str:
    """The block as a file: with what it leaves out, or as the `idempotency` of a route."""
    said = yaml.safe_load(text)
    if not set(said) <= ROOT_KEYS:
        assert set(said) <= POLICY_KEYS, "neither a file of ours, nor a part of one"
        caller = "" if "principal" in said else "principal: [{header: X-Account-Id}]\n"
        route = "routes:\n  - id: charge\n    path: /v1/charges\n    upstream: payments\n    idempotency:\n"
        return whole(route + textwrap.indent(caller + text, " " * 6))
    missing = [line for key, line in BESIDES.items() if key not in said]
    if "principal" not in text and "routes" in said:
        missing.append("defaults: {principal: [{header: X-Account-Id}]}")
    named = set(re.findall(r"upstream: (\w+)", text + "".join(missing))) - set(said.get("upstreams", ()))
    upstreams = "".join(f'  {name}: {{url: "http://{name}:8000", max_execution: 2m}}\n' for name in sorted(named))
    if "upstreams" in said:
        text = text.replace("upstreams:\n", f"upstreams:\n{upstreams}")
    elif upstreams:
        missing.append(f"upstreams:\n{upstreams}")
    return "\n".join([*missing, text])


def shown() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for number, text in enumerate(blocks(page), 1):
            if text.partition("\n")[0].removeprefix("# ") not in OTHERS:
                yield f"{page.name}-{number}", text


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in shown()])
def test_it_loads(text: str, tmp_path: Path) -> None:
    """A reader who copies it gets no mistake."""
    digests = iter("abcdef")
    text = re.sub(r"sha256:\w+…", lambda _: f"sha256:{next(digests) * 64}", text)
    env = {**dict.fromkeys(re.findall(r"\$\{(\w+)", text), SECRET), **ENV}
    for each in alternatives(text):
        found = [mistake for mistake in mistakes(tmp_path, whole(each), env) if OF_THE_LISTENER not in mistake]
        assert found == [], whole(each)


def test_the_blocks_are_found() -> None:
    """A block that is written otherwise would not be looked at."""
    assert len(list(shown())) > 12
