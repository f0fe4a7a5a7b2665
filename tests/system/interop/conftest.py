import re
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def _no_proxy_between() -> Iterator[None]:
    """Clients go straight to the servers here, whatever proxy the environment names."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("NO_PROXY", "127.0.0.1")
        environment.setenv("no_proxy", "127.0.0.1")
        yield


@pytest.fixture
def token(request: pytest.FixtureRequest) -> str:
    """A caller of the test's own; the servers last longer than a test."""
    return "sk_test_" + re.sub(r"\W+", "_", request.node.name)
