"""`serve --reload-on-change`: files of the configuration that change are read again, once they stand still."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gateway.run.server.watching import Watched
from gateway.runtime.local_files import LocalFileError, read_local
from tests.support.gateway import Setup, running

BRISK = 0.02


@dataclass
class Files:
    """A configuration of two files, of which the first names the second. `readings` are what was read."""

    folder: Path
    readings: list[str] = field(default_factory=list)
    broken: bool = False

    def read(self) -> str:
        second = read_local(self.folder / "first", 100).decode()
        if second == "bad":
            raise ValueError("bad")
        self.readings.append(read_local(self.folder / second, 100).decode())
        return self.readings[-1]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "first").write_text("second")
    (tmp_path / "second").write_text("one")
    return Files(tmp_path)


@contextlib.asynccontextmanager
async def watching(files: Files) -> AsyncIterator[list[int]]:
    """Watched after a first reading; the list gets a number for each reload."""
    watched, reloads = Watched(files.read), list[int]()
    watched()

    async def reload() -> None:
        reloads.append(len(reloads))
        if files.broken:
            raise RuntimeError("a defect")
        with contextlib.suppress(ValueError, LocalFileError):
            watched()

    task = asyncio.ensure_future(watched.run(reload, BRISK))
    await asyncio.sleep(5 * BRISK)
    assert not reloads
    try:
        yield reloads
        await asyncio.sleep(5 * BRISK)
    finally:
        assert not task.done(), "the watch goes on, whatever a reload does"
        task.cancel()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(BRISK / 4)


async def test_a_file_that_another_names_counts(files: Files) -> None:
    """A secret changes in place, or is replaced by a new file as Kubernetes and certificate tools do: one reload for each."""
    async with watching(files) as reloads:
        (files.folder / "second").write_text("two")
        await until(lambda: files.readings == ["one", "two"])
        (files.folder / "new").write_text("three")
        (files.folder / "new").replace(files.folder / "second")
        await until(lambda: files.readings == ["one", "two", "three"])
    assert len(reloads) == 2


async def test_it_waits_until_all_is_written(files: Files) -> None:
    """While a file still changes from look to look nothing is read."""
    async with watching(files) as reloads:
        for size in range(1, 20):
            (files.folder / "second").write_text("x" * size)
            await asyncio.sleep(BRISK / 2)
            assert not reloads
        await until(lambda: files.readings[-1] == "x" * 19)
    assert len(reloads) == 1


async def test_a_reading_that_fails_is_not_repeated_until_something_changes(files: Files) -> None:
    """Neither for the file that is wrong, nor for one that changed unread; what mends it is read at once."""
    async with watching(files) as reloads:
        (files.folder / "first").write_text("bad")
        (files.folder / "second").write_text("two")
        await until(lambda: len(reloads) == 1)
        await asyncio.sleep(8 * BRISK)
        assert len(reloads) == 1
        (files.folder / "first").write_text("second")
        await until(lambda: files.readings == ["one", "two"])
    assert len(reloads) == 2


async def test_a_file_that_goes_away_and_comes_back(files: Files) -> None:
    """Its loss is a reload that fails, its return one that does not."""
    async with watching(files) as reloads:
        (files.folder / "second").unlink()
        await until(lambda: len(reloads) == 1)
        (files.folder / "second").write_text("two")
        await until(lambda: files.readings == ["one", "two"])
    assert len(reloads) == 2


async def test_a_defect_of_a_reload_ends_no_watch(files: Files) -> None:
    async with watching(files) as reloads:
        files.broken = True
        (files.folder / "second").write_text("two")
        await until(lambda: len(reloads) == 1)
        await asyncio.sleep(8 * BRISK)
        assert len(reloads) == 1, "nor is it repeated by itself"
        files.broken = False
        (files.folder / "second").write_text("three")
        await until(lambda: files.readings == ["one", "three"])


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_gateway_reloads_by_itself(setup: Setup, tmp_path: Path, workers: int) -> None:
    """The file is replaced, and the gateway serves by it without a signal; alone, and with workers."""
    more = f"workers: {workers}"
    async with running(replace(setup, more=more), tmp_path, options=["--reload-on-change"]) as gateway:
        text = gateway.config.read_text()
        (tmp_path / "new.yaml").write_text(text.replace("id: rest", "id: all-the-rest"))
        (tmp_path / "new.yaml").replace(gateway.config)
        await gateway.logged(lambda line: line["msg"] == "Reloaded the configuration")
        assert b"all-the-rest" in (await gateway.get("/admin/v1/config"))[1]
        gateway.config.write_text("routes: []\n")
        (refused, *_) = await gateway.logged(lambda line: line["msg"].startswith("Reload refused"))
        assert str(gateway.config) in refused["msg"]
        assert (await gateway.get("/readyz"))[0] == 200
