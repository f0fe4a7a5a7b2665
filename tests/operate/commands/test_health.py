"""`health`, against real admin listeners of every kind."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
import trustme

from gateway.config import Listener, TcpListener, UnixListener
from gateway.devtools.embedded.ports import free_port
from gateway.operate.admin import AdminPorts, make_admin, start_admin
from tests.operate.commands.support import Done, run

TOKEN = "a-token-of-the-tests-0123456789"


def ports(wrong: str | None) -> AdminPorts:
    async def readiness() -> Mapping[str, str | None]:
        return {"postgres": wrong}

    async def config() -> object:
        return {}

    async def reload() -> list[str]:
        return []

    return AdminPorts(readiness, lambda _: (b"", "text/plain"), config, reload)


async def health(folder: Path, admin: str, *more: str) -> Done:
    """The command with a file that has this `admin` section, and is of no use otherwise."""
    file = folder / "gateway.yaml"
    file.write_text(f"admin: {admin}\nroutes: broken by somebody since\n")
    return await asyncio.to_thread(run, "health", "--config", file, *more)


@pytest.mark.parametrize("kind", ["tcp", "any", "unix", "tls"])
async def test_it_finds_the_listener_in_the_configuration(tmp_path: Path, kind: str) -> None:
    """On any interface, under TLS, on a unix socket; ready, not ready with the reason, alive all the same, gone."""
    port, context, more = free_port(), None, f", token: {TOKEN}"
    listener: Listener = TcpListener("0.0.0.0" if kind == "any" else "127.0.0.1", port)
    if kind == "unix":
        listener = UnixListener(f"{tmp_path}/a.sock")
    if kind == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate = trustme.CA().issue_cert("gateway.example")
        certificate.configure_cert(context)
        certificate.private_key_and_cert_chain_pem.write_to_path(f"{tmp_path}/admin.pem")
        more += f", tls: {{cert_file: {tmp_path}/admin.pem, key_file: {tmp_path}/admin.pem}}"
    section = f'{{listen: "{listener}"{more}}}'
    for wrong, ready in ((None, 0), ("unreachable", 1)):
        runner = await start_admin(listener, make_admin(ports(wrong), TOKEN), context)
        try:
            asked = await health(tmp_path, section)
            assert asked.code == ready, asked.err
            assert ("unreachable" in asked.err) == bool(wrong)
            assert (await health(tmp_path, section, "--live")).code == 0
        finally:
            await runner.cleanup()
    gone = await health(tmp_path, section)
    assert gone.code == 69
    assert str(listener) in gone.err


async def test_a_section_that_cannot_be_read_is_told_with_its_place(tmp_path: Path) -> None:
    """As by every command: 78."""
    asked = await health(tmp_path, "{listen: nowhere}")
    assert asked.code == 78
    assert "gateway.yaml:1:17" in asked.err
