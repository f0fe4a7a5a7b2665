import pytest

from tests.contract.harness import MemoryHarness
from tests.contract.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    """The reference store keeps the contract."""

    @pytest.fixture
    def harness(self) -> MemoryHarness:
        return MemoryHarness()
