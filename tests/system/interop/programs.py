"""Programs that others made: found, run to their end, and stopped."""

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.support.services import missing

PATIENCE = 60.0


def required(name: str) -> str:
    """The path of a program that CI must have; elsewhere its absence skips the test."""
    return _path(name) or missing(f"{name} on the PATH or in /usr/sbin")


def optional(name: str) -> str:
    """The path of a program whose absence skips the test everywhere."""
    return _path(name) or pytest.skip(f"there is no {name}")


def _path(name: str) -> str | None:
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


async def run(*argv: str, stdin: bytes = b"", codes: Sequence[int] = (0,)) -> bytes:
    """Run a program to its end, which must be one of `codes`. Returns what it wrote to stdout."""
    async with started(*argv) as process:
        out, err = await process.communicate(stdin)
    assert process.returncode in codes, (argv, process.returncode, out, err)
    return out


@contextlib.asynccontextmanager
async def started(*argv: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program with pipes to all its streams, which is gone at the end of the block, and the block at the end of our patience."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(PATIENCE):
            yield process
    finally:
        await _end(process)


@contextlib.asynccontextmanager
async def listening(argv: Sequence[str], ports: Sequence[int], log: Path) -> AsyncIterator[None]:
    """A server that is gone at the end of the block. It is ready when it accepts connections on all of `ports`."""
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        async with asyncio.timeout(PATIENCE):
            for port in ports:
                while not _accepts(port):
                    assert process.returncode is None, f"{argv[0]} ended, see {log}"
                    await asyncio.sleep(0.02)
        yield
    finally:
        await _end(process)


def _accepts(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex(("127.0.0.1", port)) == 0


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()
