"""Chromium, as Debian packages it, and what is asked of every page that it shows."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.support.services import missing

_OPTIONS = (
    *(
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-software-rasterizer",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ),
    *("--disable-component-update", "--disable-sync"),
)
NARROW, WIDE = 360, 1280


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser. Skips the test where there is none, and fails it in CI."""
    path = shutil.which("chromium")
    if path is None:
        missing("Chromium (apt-get install chromium)")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(_OPTIONS))
        try:
            yield browser
        finally:
            await browser.close()


@dataclass(slots=True)
class Tab:
    """One page, and what went wrong in it: scripts that failed, what the policy kept out, dialogs, requests to other hosts."""

    page: Page
    address: str
    clicks: int = 0
    wrong: list[str] = field(default_factory=list)

    @classmethod
    async def of(cls, context: BrowserContext, address: str) -> "Tab":
        tab = cls(await context.new_page(), address)
        tab.page.on("pageerror", lambda error: tab.wrong.append(f"script: {error}"))
        tab.page.on("dialog", lambda dialog: tab.wrong.append(f"dialog: {dialog.message}"))
        tab.page.on("console", lambda said: tab.wrong.append(said.text) if "Content Security Policy" in said.text else None)
        tab.page.on("request", lambda sent: None if sent.url.startswith((address, "data:")) else tab.wrong.append(f"request: {sent.url}"))
        return tab

    async def go(self, path: str) -> None:
        await self.page.goto(f"{self.address}/console/{path}")

    async def click(self, name: str, role: Any = "button") -> None:
        """Click what has this name and leads to another page, and count it."""
        self.clicks += 1
        async with self.page.expect_navigation():
            await self.page.get_by_role(role, name=name, exact=True).click()

    async def fill(self, label: str, text: str) -> None:
        await self.page.get_by_label(label, exact=True).fill(text)

    async def text(self) -> str:
        """What the page says."""
        return await self.page.locator("body").inner_text()

    async def record(self, key: str) -> str:
        """Open the record with this key. Its path."""
        await self.page.goto(f"{self.address}/console/records")
        await self.fill("Look for", key)
        await self.click("Search")
        await self.click(key, "link")
        return self.page.url.removeprefix(f"{self.address}/console/")

    async def check(self) -> None:
        """No violation of axe-core's rules, nothing to scroll sideways, nothing wrong so far."""
        results = await Axe().run(self.page)
        found = [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in results.response["violations"]]
        assert found == [], (self.page.url, found)
        wide = await self.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert wide[0] <= wide[1], (self.page.url, wide)
        assert self.wrong == []


async def signed_in(browser: Browser, address: str, token: str, **options: Any) -> BrowserContext:
    """A context with a session."""
    context = await browser.new_context(**{"viewport": {"width": WIDE, "height": 900}, **options})
    page = await context.new_page()
    await page.goto(f"{address}/console/login")
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url("**/console/now")
    await page.close()
    return context
