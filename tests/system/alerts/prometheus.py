"""A Prometheus that watches one gateway with the project's own rules, in hurried time."""

import asyncio
import contextlib
import json
import re
import shutil
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.devtools.embedded.ports import free_port

RULES = Path(__file__).parents[3] / "deploy" / "prometheus" / "alerts.yml"
SCRAPES = "500ms"
START_SECONDS = 30.0

_WINDOW = re.compile(r"(?<=\[)(\d+)([smh])(?=\])")
_FOR = re.compile(r"(?<=^        for: )(\d+)([smh])$", re.MULTILINE)
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def hurried(rules: str, factor: float) -> str:
    """The rules with `for` and the windows of rates divided by `factor`. What they compare with stays as it is."""

    def shorter(found: re.Match[str]) -> str:
        return f"{max(1, round(int(found[1]) * _SECONDS[found[2]] / factor * 1000))}ms"

    return _FOR.sub(shorter, _WINDOW.sub(shorter, rules))


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One that runs."""

    port: int

    async def alerts(self) -> dict[str, bool]:
        """By the series `ALERTS`: the names of alerts, and whether they fire; others are pending."""
        states = await self._query("count by (alertname, alertstate) (ALERTS)")
        firing = {one["alertname"] for one in states if one["alertstate"] == "firing"}
        return {one["alertname"]: one["alertname"] in firing for one in states}

    async def sees_the_gateway(self) -> bool:
        """Whether it has scraped it, and no alert says that there is none."""
        with contextlib.suppress(OSError):
            return bool(await self._query("up == 1")) and not await self.alerts()
        return False

    async def has(self, expression: str, seconds: int) -> bool:
        """Whether it had a value within the last seconds."""
        return bool(await self._query(f"last_over_time(({expression})[{seconds}s:1s])"))

    async def _query(self, expression: str) -> list[dict[str, str]]:
        """The labels of the series."""
        query = urllib.parse.urlencode({"query": expression})

        def get() -> Any:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{query}", timeout=10) as answer:
                return json.load(answer)

        return [one["metric"] for one in (await asyncio.to_thread(get))["data"]["result"]]


@contextlib.asynccontextmanager
async def watching(admin: int, folder: Path, factor: float) -> AsyncIterator[Prometheus]:
    """One that has begun to scrape the gateway with this admin port twice a second, and is gone at the end of the block."""
    program = shutil.which("prometheus")
    if program is None:
        raise FileNotFoundError("no `prometheus` on the PATH: Debian and Ubuntu have a package of this name")
    (folder / "alerts.yml").write_text(hurried(RULES.read_text("utf-8"), factor))
    job = {"job_name": "idempotency-gateway", "static_configs": [{"targets": [f"127.0.0.1:{admin}"]}]}
    every = {"scrape_interval": SCRAPES, "scrape_timeout": SCRAPES, "evaluation_interval": SCRAPES}
    (folder / "prometheus.yml").write_text(json.dumps({"global": every, "rule_files": ["alerts.yml"], "scrape_configs": [job]}))
    found = Prometheus(free_port())
    options = [
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/tsdb",
        f"--web.listen-address=127.0.0.1:{found.port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(program, *options, stdout=log, stderr=log, cwd=folder)
    try:
        async with asyncio.timeout(START_SECONDS):
            while not await found.sees_the_gateway():
                if process.returncode is not None:
                    raise RuntimeError((folder / "prometheus.log").read_text()[-2000:])
                await asyncio.sleep(0.1)
        yield found
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
