"""Makes the pictures of docs/console: python -m tests.console.pictures FOLDER. Every room, of a shop with some trouble."""

import asyncio
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Browser

from tests.console.browser import NARROW, Tab, chromium, signed_in
from tests.console.shop import Shop, shop
from tests.support.services import Services

_WIDE = 1200
_HEIGHT = 780


async def main(folder: Path) -> None:
    """Start a shop and a browser, and look around."""
    services = Services()
    try:
        dsn = await asyncio.to_thread(lambda: services.migrated_database(services.postgres()))
        redis = await asyncio.to_thread(lambda: services.redis().url)
        with tempfile.TemporaryDirectory() as work:
            async with chromium() as browser, shop(dsn, redis, Path(work)) as open_shop:
                await _trade(open_shop)
                await _look_around(open_shop, browser, folder)
    finally:
        await asyncio.to_thread(services.stop)


async def _trade(open_shop: Shop) -> None:
    for number in range(8):
        await open_shop.pay(f"order-{5510 + number}", order=f"A-{5510 + number}", amount=990 + number * 1500)
    await open_shop.pay("lost-refund-7041", "/v1/refunds", order="A-5301", amount=4000)
    await open_shop.pay("void-refund-7042", "/v1/refunds", order="A-5302", amount=12500)
    await open_shop.pay("lost-charge-5520", order="A-5520", amount=19900)
    await open_shop.pay("void-charge-5521", order="A-5521", amount=990)
    await open_shop.pay("lost-payout-88", "/v1/payouts", amount=250000)
    await open_shop.pay("quote-1", "/v1/quotes")
    await open_shop.dead_letters(5)
    open_shop.bank.away = False


async def _look_around(open_shop: Shop, browser: Browser, folder: Path) -> None:
    for scheme, width, mark in (("light", _WIDE, ""), ("dark", NARROW, "-narrow"), ("dark", _WIDE, "-dark")):
        viewport = {"width": width, "height": _HEIGHT}
        context = await signed_in(browser, open_shop.address, open_shop.tokens["operator"], color_scheme=scheme, viewport=viewport)
        tab = await Tab.of(context, open_shop.address)

        async def take(name: str, tab: Tab = tab, mark: str = mark) -> None:
            await tab.page.wait_for_timeout(150)
            await tab.page.screenshot(path=folder / f"{name}{mark}.png", full_page=True)

        await tab.record("lost-charge-5520")
        await take("record")
        await tab.click("Ask the upstream now")
        await tab.fill("Reason", "INC-7: ch_000010 at the provider")
        await take("verdict")
        if mark == "-dark":
            await context.close()
            continue
        if not mark:
            await _propose(tab)
            await tab.go("proposals")
            await take("proposals")
        await tab.go("dead-letters?order=amount")
        await take("dead-letters")
        await tab.go("records")
        await take("records")
        await tab.go("now")
        await tab.page.locator("a.tile-bad").wait_for(timeout=60_000)  # counted every 15 s
        await take("now")
        if not mark:
            await _the_rest(tab, take)
        await context.close()


async def _propose(tab: Tab) -> None:
    await tab.record("lost-payout-88")
    await tab.click("It was executed", "link")
    await tab.fill("Body", '{"id": "po_88"}')
    await tab.click("Preview")
    await tab.fill("Reason", "INC-7: po_88 at the provider")
    await tab.click("Propose it to a second person")


async def _the_rest(tab: Tab, take: object) -> None:
    assert callable(take)
    path = await tab.record("void-refund-7042")
    await tab.go(f"{path}/not-executed")
    await tab.fill("Reason", "INC-7: the provider has no trace of it")
    await tab.click("Record: not executed")
    await tab.go("routes")
    await tab.page.locator("summary").first.click()
    await take("routes")
    await tab.go("audit")
    await take("audit")
    async with tab.page.expect_navigation():
        await tab.page.get_by_role("button", name="Sign out").click()
    await take("login")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
