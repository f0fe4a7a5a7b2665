"""Messages on stderr: their form, and what never gets into them."""

import json
import logging
import os
import subprocess
import sys

from gateway.observe.logs import JsonFormatter, describe
from gateway.ports import StoreUnavailable

_SCRIPT = """
import asyncio, logging, sys, warnings
from gateway.observe import configure
configure("info")
log = logging.getLogger("gateway.test")
log.debug("not shown")
log.warning("A %s", "message", extra={"route": "create-charge", "attempt": 2})
try:
    try:
        raise OSError(111, "Connection refused")
    except OSError as error:
        raise ValueError("key=SECRET") from error
except ValueError:
    log.exception("It failed")
warnings.warn("careful")
async def main():
    async def fail():
        raise ValueError("SECRET")
    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    del task
    await asyncio.sleep(0)
asyncio.run(main())
"""


def messages(script: str) -> list[dict[str, object]]:
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout == ""
    return [json.loads(line) for line in result.stderr.splitlines()]


def test_messages_are_json_lines_without_secrets() -> None:
    """Each message is one JSON object with its extra fields; exceptions show types and frames, never the text of a foreign error."""
    found = messages(_SCRIPT)
    first = found[0]
    assert {**first, "ts": ""} == {
        "ts": "", "level": "warning", "logger": "gateway.test", "msg": "A message", "route": "create-charge", "attempt": 2,
    }  # fmt: skip
    assert found[1]["error"] == "ValueError <- ConnectionRefusedError: [Errno 111] Connection refused"
    assert isinstance(found[1]["stack"], list)
    assert "SECRET" not in json.dumps(found)
    assert any("careful" in str(one["msg"]) for one in found)


def test_a_stalled_reader_of_stderr_does_not_hold_up_the_process() -> None:
    """Messages that nobody reads are dropped; the process goes on, and lines that did go out are whole."""
    script = """
import logging, sys
from gateway.observe import configure
configure("info")
log = logging.getLogger("t")
for number in range(5000):
    log.info("message %d %s", number, "x" * 100)
print("done", flush=True)
sys.stdin.readline()
log.info("the last")
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"done\n"
        early = os.read(process.stderr.fileno(), 1 << 20)
        process.stdin.write(b"\n")
        process.stdin.flush()
        lines = (early + process.stderr.read()).splitlines()
    found = [json.loads(line) for line in lines]
    assert 100 < len(found) < 5000
    assert found[-1]["msg"] == "the last"
    assert found[-1]["dropped_before"] == 5000 - (len(found) - 1)


def test_describe_names_causes_but_not_their_texts() -> None:
    """A store that is away says why; any other error says only what it is."""
    error = StoreUnavailable("postgres", "timeout", may_have_landed=True)
    error.__cause__ = ValueError("row (1, secret)")
    assert describe(error) == "StoreUnavailable: postgres: timeout <- ValueError"


def test_unserialisable_extras_do_not_break_a_message() -> None:
    """An extra that JSON cannot carry is shown by its repr."""
    record = logging.makeLogRecord({"msg": "m", "levelname": "INFO", "name": "n", "thing": object})
    assert json.loads(JsonFormatter().format(record))["thing"].startswith("<class")
