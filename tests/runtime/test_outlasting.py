"""Who waits for a task may leave it; what it raises then is told to nobody, and a defect to the log."""

import asyncio
import gc
import logging

import pytest

from gateway.ports import StoreUnavailable
from gateway.runtime.outlasting import outlasting

AWAY = StoreUnavailable("authority", "timeout", may_have_landed=False)


async def fails(error: BaseException | None) -> str:
    await asyncio.sleep(0.01)
    if error is not None:
        raise error
    return "done"


@pytest.mark.parametrize(
    ("error", "logged"), [(None, 0), (AWAY, 0), (KeyError("known"), 0), (ZeroDivisionError(), 1), (asyncio.CancelledError(), 0)]
)
async def test_a_caller_that_leaves(error: BaseException | None, logged: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    complaints: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: complaints.append(about))
    task = loop.create_task(fails(error))
    waiting = loop.create_task(outlasting(task, KeyError))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not task.done()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    del task, waiting
    gc.collect()
    assert (len(caplog.records), complaints) == (logged, [])


@pytest.mark.parametrize("error", [AWAY, ZeroDivisionError()])
async def test_a_caller_that_stays(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    assert await outlasting(loop.create_task(fails(None))) == "done"
    with pytest.raises(type(error)):
        await outlasting(loop.create_task(fails(error)))
    assert not caplog.records


async def test_those_who_stay_hear_it_when_others_leave() -> None:
    loop = asyncio.get_running_loop()
    task = loop.create_task(fails(AWAY))
    leaving, staying = (loop.create_task(outlasting(task)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(StoreUnavailable):
        await staying
