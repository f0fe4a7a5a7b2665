"""Route ids that are renamed while keys under them live, with whole gateways."""

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

from gateway.devtools.embedded.ports import free_port
from tests.operate.commands.support import run_process
from tests.support.client import ask, payment
from tests.support.gateway import ROUTES, Gateway, Setup, running
from tests.support.upstream import CountingUpstream

RENAMED = ROUTES.replace("id: pay", "id: create-payment")
MOVED = "route POST /v1/pay (upstream payments) moved to scope 'create-payment'"
HINT = "restart once with --accept-scope-change"


async def test_a_renamed_route_is_refused_at_reload(setup: Setup, gateway: Gateway, upstream: CountingUpstream) -> None:
    """The refusal says what moved and how to go on; the old map stays in force and the key replays."""
    assert (await ask(gateway.port, payment(b"k1"))).status == 201
    gateway.config.write_text(replace(setup, routes=RENAMED).yaml(gateway.port, gateway.admin))
    status, body = await gateway.post("/admin/v1/reload")
    assert status != 200
    assert MOVED in body.decode()
    assert HINT in body.decode()
    again = await ask(gateway.port, payment(b"k1"))
    assert again.field("idempotent-replayed") == b"true"
    assert upstream.runs_of(b"k1") == 1


async def test_a_renamed_route_is_refused_at_start_until_accepted(setup: Setup, upstream: CountingUpstream, tmp_path: Path) -> None:
    """`check --connect` and `serve` refuse; with the flag it starts, and from then on without it."""
    async with running(setup, tmp_path) as first:
        assert (await ask(first.port, payment(b"k1"))).status == 201
    renamed = replace(setup, routes=RENAMED)
    config = tmp_path / "renamed.yaml"
    config.write_text(renamed.yaml(free_port(), free_port()))
    checked = await asyncio.to_thread(run_process, "check", "--connect", "--config", config)
    assert checked.code == 69
    assert MOVED in checked.err
    assert HINT in checked.err
    served = await asyncio.to_thread(run_process, "serve", "--config", config)
    assert served.code == 78
    errors = [line for line in map(json.loads, served.err.splitlines()) if line["level"] == "error"]
    assert [MOVED in line["msg"] and HINT in line["msg"] for line in errors] == [True]
    await serve_accepting(config)
    async with running(renamed, tmp_path) as second:
        assert (await ask(second.port, payment(b"k2"))).status == 201
    async with running(renamed, tmp_path) as third:
        again = await ask(third.port, payment(b"k2"))
    assert again.field("idempotent-replayed") == b"true"
    assert upstream.runs_of(b"k2") == 1


async def serve_accepting(config: Path) -> None:
    """Start once with --accept-scope-change, and stop when it serves."""
    arguments = ("-m", "gateway", "serve", "--config", str(config), "--accept-scope-change")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(30):
            while line := await process.stderr.readline():
                if b"Serving on" in line:
                    break
        assert line, "it ended before it served"
        process.terminate()
        _, code = await asyncio.gather(process.stderr.read(), asyncio.wait_for(process.wait(), 20))
        assert code == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
