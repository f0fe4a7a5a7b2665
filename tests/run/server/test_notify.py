"""The gateway as a service of `Type=notify`: what its manager hears from a whole gateway, alone and with workers."""

import asyncio
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.run.server.process import GRACE_SLACK
from tests.support.gateway import Setup, running


class Ears:
    """The manager's end of the socket, which knows who speaks."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind(str(path))
        self.socket.settimeout(20)
        self.speakers: set[int] = set()

    async def hear(self) -> dict[str, str]:
        """The next message that is none of the watchdog's."""
        while True:
            data, ancillary, *_ = await asyncio.to_thread(self.socket.recvmsg, 65536, 64)
            self.speakers |= {int.from_bytes(content[:4], "little") for _, kind, content in ancillary if kind == socket.SCM_CREDENTIALS}
            message = dict(line.partition("=")[::2] for line in data.decode().split("\n"))
            if "WATCHDOG" not in message:
                return message


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_manager_hears_of_a_life(setup: Setup, tmp_path: Path, workers: int) -> None:
    """Ready once all serve, a reload with its end or its refusal, how long the stop may take; from the main process alone."""
    ears = Ears(tmp_path / "notify")
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "10000000"}
    setup = replace(setup, more=f"workers: {workers}", drain="{delay: 0s, timeout: 91s}")
    async with running(setup, tmp_path, env=env) as gateway:
        ready = await ears.hear()
        assert ready["READY"] == "1"
        assert ("2 workers serve" if workers == 2 else "Serving on 127.0.0.1") in ready["STATUS"]
        gateway.process.send_signal(signal.SIGHUP)
        assert (await ears.hear())["RELOADING"] == "1"
        assert (await ears.hear())["READY"] == "1"
        gateway.config.write_text("routes: []\n")
        await gateway.post("/admin/v1/reload")
        assert (await ears.hear())["RELOADING"] == "1"
        refused = await ears.hear()
        assert refused["READY"] == "1"
        assert refused["STATUS"].startswith(f"Reload refused: {gateway.config}:")
        gateway.terminate()
        stopping = await ears.hear()
        assert stopping["STOPPING"] == "1"
        assert int(stopping["EXTEND_TIMEOUT_USEC"]) == (91 + GRACE_SLACK) * 1e6
        assert await gateway.process.wait() == 0
        assert ears.speakers == {gateway.pid}
    ears.socket.close()
