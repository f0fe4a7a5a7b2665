"""Where a server is to be found."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from gateway.store.redis.connection import Opener, address_of, opener


class Place(Protocol):
    """Asked before each connection. `address` is where `find` last led, for people.

    `changed` returns once `find` would lead elsewhere than it last did; None: it never does.
    """

    address: str

    @property
    def changed(self) -> Callable[[], Coroutine[Any, Any, None]] | None: ...

    async def find(self, deadline: float) -> Opener:
        """How to connect. Raises Unfit, OSError, or TimeoutError at `deadline`."""
        ...

    async def close(self) -> None:
        """Cut what connections it has. May be called repeatedly."""
        ...


class FixedPlace:
    """The host of a URL; its name is looked up anew at each connection. ValueError if the URL cannot be used."""

    changed: Callable[[], Coroutine[Any, Any, None]] | None = None

    def __init__(self, url: str) -> None:
        self.address = address_of(url)
        self._make = opener(url)

    async def find(self, deadline: float) -> Opener:
        """As `Place.find`."""
        return self._make

    async def close(self) -> None:
        """As `Place.close`."""
