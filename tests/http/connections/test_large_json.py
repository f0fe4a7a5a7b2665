"""A large JSON body is read off the event loop."""

import asyncio

import pytest

from gateway.core.packing import INLINE
from gateway.proxy.guard import read_json


@pytest.mark.parametrize(("size", "held"), [(1000, True), (2 * INLINE, False)])
async def test_others_go_on_while_a_large_body_is_read(size: int, held: bool) -> None:
    """The loop gets its turn meanwhile; a small body is not worth a thread."""
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    text = await read_json(b'{"items":[' + b"0," * (size // 2) + b'0],"id":"k"}', ("/id",))
    assert turned.is_set() is not held
    spliced = text.with_text("/id", "K")
    assert spliced is not None
    assert spliced.endswith(b'"id":"K"}')
