from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")
def _no_proxy_between() -> Iterator[None]:
    """Clients go straight to the servers here, whatever proxy the environment names."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("NO_PROXY", "127.0.0.1")
        environment.setenv("no_proxy", "127.0.0.1")
        yield
