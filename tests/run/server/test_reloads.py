"""Reloads of one process that come together."""

import signal
from pathlib import Path

from tests.support.gateway import Setup, running


async def test_a_signal_and_a_command_do_not_take_each_others_configuration(setup: Setup, tmp_path: Path) -> None:
    """Each has its own, and both come into force."""
    async with running(setup, tmp_path) as gateway:
        for _ in range(5):
            gateway.process.send_signal(signal.SIGHUP)
            status, body = await gateway.post("/admin/v1/reload")
            assert status == 200, body
        await gateway.logged(lambda line: line["msg"] == "Reloaded the configuration", 10)
        assert await gateway.logged(lambda line: line["msg"].startswith("Reload refused"), 0) == []
