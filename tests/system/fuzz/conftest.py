"""Fixtures of the fuzz tests."""

from collections.abc import Iterator

import pytest

from tests.support.services import Services
from tests.system.fuzz.bench import Bench, bench


@pytest.fixture(scope="module")
def edge(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A gateway of the module's own, in front of a strict upstream."""
    postgres = services.postgres()
    dsn = services.migrated_database(postgres)
    with bench(dsn, services.redis(), tmp_path_factory.mktemp("edge")) as edge:
        yield edge
    services.drop_database(postgres, dsn)
