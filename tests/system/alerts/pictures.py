"""Pictures of the dashboard's panels, as Prometheus draws them: `python -m tests.system.alerts.pictures FOLDER`.

A gateway lives through faults for two minutes under traffic (`tests.system.alerts.run`), with what the dashboard asks for. Grafana is
in no package; its queries are asked here as it would ask them. Prints those that found nothing.
"""

import asyncio
import base64
import contextlib
import datetime as dt
import html
import itertools
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from playwright.async_api import Browser, FloatRect, Page, async_playwright
from playwright.async_api import TimeoutError as PlaywrightTimeout

from tests.support.client import ask, payment
from tests.system.alerts import run
from tests.system.alerts.run import Stage, stage

DASHBOARD = Path(__file__).parents[3] / "deploy" / "grafana" / "dashboard.json"
VARIABLES = {"$__rate_interval": "5s", "$__range": "2m", "$instance": ".*", "$route": ".*"}
SECONDS = 130


@dataclass(frozen=True, slots=True)
class Panel:
    row: str
    title: str
    queries: tuple[str, ...]


def panels() -> Iterator[Panel]:
    """As the dashboard has them, with its variables filled in."""
    row = ""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        else:
            yield Panel(row, panel["title"], tuple(_filled(target["expr"]) for target in panel["targets"]))


def _filled(expression: str) -> str:
    return re.sub(r"\$\w+", lambda found: VARIABLES[found[0]], expression)


async def live(staged: Stage) -> None:
    """Two minutes: calm, without Redis, with answers that are lost, without Postgres, without the upstream, calm."""
    more = asyncio.create_task(_more_traffic(staged.gateway.port))
    await asyncio.sleep(25)
    for begin, end, lasts in (
        (run.kill_redis, run.start_redis_again, 10),
        (run.lose_an_answer, run.lose_an_answer, 18),
        (run.stop_postgres, run.start_postgres_again, 5),
        (run.stop_upstream, run.start_upstream, 5),
    ):
        await begin(staged)
        await asyncio.sleep(lasts)
        await end(staged)
        await asyncio.sleep(12)
    more.cancel()


async def _more_traffic(port: int) -> None:
    """Retries, conflicts and misused keys beside the payments."""

    async def some(number: int) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            key = f"more-{number}".encode()
            await asyncio.gather(ask(port, payment(key)), ask(port, payment(key)))
            await ask(port, payment(key, b"{}") if number % 40 == 0 else payment(key))

    tasks: set[asyncio.Task[None]] = set()
    for number in itertools.count():
        task = asyncio.create_task(some(number))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await asyncio.sleep(0.05)


async def draw(page: Page, port: int, panel: Panel, end: dt.datetime) -> str:
    """The chart of a panel's first query, as an element of HTML."""
    at = end.strftime("%Y-%m-%d %H:%M:%S")
    asked = {"expr": panel.queries[0], "tab": "0", "range_input": f"{SECONDS}s", "step_input": "1", "end_input": at, "moment_input": at}
    await page.goto(f"http://127.0.0.1:{port}/graph?{urlencode({f'g0.{name}': value for name, value in asked.items()})}")
    caption = f"<figcaption>{html.escape(panel.title)}</figcaption>"
    try:
        await page.locator(".rickshaw_legend").wait_for(timeout=3000)
    except PlaywrightTimeout:
        return f"<figure>{caption}<p>nothing, in these two minutes</p></figure>"
    chart, legend = [await page.locator(name).bounding_box() for name in (".graph_area", ".rickshaw_legend")]
    assert chart is not None
    assert legend is not None
    height = legend["y"] + legend["height"] - chart["y"]
    clip: FloatRect = {"x": chart["x"], "y": chart["y"], "width": chart["width"], "height": height}
    picture = base64.b64encode(await page.screenshot(clip=clip, full_page=True)).decode()
    return f'<figure>{caption}<img src="data:image/png;base64,{picture}"></figure>'


STYLE = "body{margin:8px;font:13px sans-serif;width:960px;display:flex;flex-wrap:wrap}figure{width:310px;margin:5px}img{width:310px}"
SHORT_LEGENDS = """addEventListener("DOMContentLoaded", () => {
    const style = document.createElement("style")
    style.textContent = ".rickshaw_legend { max-height: 110px; overflow: hidden }"
    document.head.append(style)
})"""


async def pictures(browser: Browser, port: int, folder: Path, end: dt.datetime) -> None:
    """One for each row of the dashboard."""
    page = await browser.new_page(viewport={"width": 620, "height": 700})
    await page.add_init_script(SHORT_LEGENDS)
    for number, (_, row) in enumerate(itertools.groupby(panels(), lambda panel: panel.row), 1):
        charts = [await draw(page, port, panel, end) for panel in row]
        whole = await browser.new_page(viewport={"width": 980, "height": 100})
        await whole.set_content(f"<style>{STYLE}</style>{''.join(charts)}")
        await whole.screenshot(path=folder / f"row-{number}.png", full_page=True)


async def main(folder: Path) -> None:
    async with stage(60.0) as staged, async_playwright() as driver:
        await live(staged)
        end = dt.datetime.now(dt.UTC)  # noqa: TID251 - of the page that Prometheus draws
        for panel in panels():
            for query in panel.queries:
                if not await staged.prometheus.has(query, SECONDS):
                    print(f"nothing: {panel.row} {panel.title}: {query}")
        browser = await driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        await pictures(browser, staged.prometheus.port, folder, end)
        await browser.close()


if __name__ == "__main__":
    made = Path(sys.argv[1])
    made.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(made))
