"""The identifier of a configuration: it knows every source of every route, and addresses of keys by the system's authorities."""

from pathlib import Path

import pytest

from gateway.config import load
from gateway.core.policy import Policy
from gateway.principal import Unidentified
from gateway.run.server.edge import make_identifier
from tests.principal.servers import Answering, response
from tests.principal.tokens import Signer, bearer, key_set

ONE = Signer(key_id="one")
CONFIG = """
postgres: {{dsn: postgres://localhost/gateway}}
digest_secret: a-secret-of-the-tests-0123456789
upstreams: {{bank: {{url: "http://127.0.0.1:1"}}}}
routes:
  - {{id: named, methods: [POST], path: /named, upstream: bank, idempotency: {{principal: [{{header: Authorization}}]}}}}
  - id: token
    methods: [POST]
    path: /token
    upstream: bank
    idempotency: {{principal: [{{jwt: {{claim: sub, jwks_url: "{url}/keys", algorithms: [ES256]}}}}]}}
"""


@pytest.mark.parametrize("order", [1, -1])
async def test_each_source_of_each_route_is_known(tmp_path: Path, order: int) -> None:
    """In whichever order they stand."""
    async with Answering(response(key_set(ONE.jwk()))) as server:
        head, *routes = CONFIG.format(url=server.url).split("  - ")
        file = tmp_path / "gateway.yaml"
        file.write_text("  - ".join([head, *[route.rstrip() + "\n" for route in routes[::order]]]))
        config = load(file, {})
        identifier = make_identifier(config, {})
        policies: list[Policy] = [route.policy for route in config.routes if route.policy is not None]
        found = [await identifier.identify(bearer(ONE.token()), policy) for policy in policies]
        assert len(found) == 2
        assert not [one for one in found if isinstance(one, Unidentified)]
        await identifier.close()
