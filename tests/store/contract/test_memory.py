import pytest

from tests.store.contract.harness import MemoryHarness
from tests.store.contract.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    """The reference store keeps the contract."""

    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()
