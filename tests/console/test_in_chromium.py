"""The console in a real browser, in front of a real gateway: what a person sees, does, and is kept from."""

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.console.browser import NARROW, WIDE, Tab, chromium, signed_in
from tests.console.shop import Shop, shop
from tests.support.services import Services

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]  # the first waits for gateway and browser

ATTACK = "<img src=x onerror=\"alert('xss')\"><script>alert('xss')</script>"
KEYS = (
    *(
        ("/v1/refunds", key)
        for key in ("lost-refund-1", "lost-refund-2", "lost-refund-3", "void-refund-4", "lost-refund-5", f"lost-{ATTACK}")
    ),
    *(("/v1/charges", key) for key in ("lost-charge-1", "void-charge-2", "order-1")),
    ("/v1/payouts", "lost-payout-1"),
)
LARGE = "lost-charge-6"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the tests are."""

    shop: Shop
    browser: Browser

    async def tab(self, role: str = "operator", **options: object) -> Tab:
        """A tab of a user with this role. It is closed with the test."""
        context = await signed_in(self.browser, self.shop.address, self.shop.tokens[role], **options)
        return await Tab.of(context, self.shop.address)


@pytest_asyncio.fixture(loop_scope="module")
async def place(town: Place) -> AsyncIterator[Place]:
    """The place, without tabs of earlier tests."""
    yield town
    for context in town.browser.contexts:
        await context.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town(services: Services, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    """A shop with dead letters, whose bank answers by now, and a browser."""
    async with chromium() as browser:
        server = services.postgres()
        dsn = services.migrated_database(server)
        async with shop(dsn, services.redis().url, tmp_path_factory.mktemp("shop")) as open_shop:
            for path, key in KEYS:
                await open_shop.pay(key, path, order=ATTACK)
            await open_shop.pay(LARGE, amount=250_000)
            await open_shop.dead_letters(len(KEYS))
            open_shop.bank.away = False
            yield Place(open_shop, browser)
        services.drop_database(server, dsn)


async def test_five_clicks_from_the_alert_to_the_clients_replay(place: Place) -> None:
    """By hand, without a script. What the preview shows is what the client's retry gets, byte for byte."""
    tab = await place.tab(java_script_enabled=False)
    await tab.page.goto("data:text/html," + f"<a href='{place.shop.address}/console/dead-letters?route=create-refund'>alert</a>")
    await tab.click("alert", "link")
    await tab.page.wait_for_url("**/console/dead-letters?route=create-refund")
    await tab.click("lost-refund-1", "link")
    assert "409 outcome-unknown" in await tab.text()
    await tab.click("It was executed", "link")
    await tab.fill("Status", "201")
    await tab.fill("Header fields, one a line", "Content-Type: application/json\nLocation: /v1/refunds/re_1\nSet-Cookie: a=1")
    await tab.fill("Body", '{\n  "id": "re_1"\n}')
    await tab.click("Preview")
    shown = await tab.page.get_by_role("region", name="The answer, byte for byte").text_content()
    await tab.fill("Reason", "INC-7: re_1 at the provider")
    await tab.click("Record this answer")
    assert tab.clicks == 5
    assert "Retries get this answer from now on" in await tab.text()
    answer = await place.shop.pay("lost-refund-1", "/v1/refunds", order=ATTACK)
    own = (b"Date:", b"X-Request-Id:")
    head = [line for line in answer.head.split(b"\r\n") if not line.startswith(own)]
    previewed, _, body = (shown or "").partition("\n\n")
    assert sorted(line.decode() for line in head) == sorted(previewed.split("\n"))
    assert answer.body.decode() == body == '{\n  "id": "re_1"\n}'
    assert place.shop.upstream.runs_of(b'"lost-refund-1"') == 1
    await tab.page.reload()  # Post/Redirect/Get: nothing is sent again
    assert "completed" in await tab.text()


async def test_the_upstreams_answer_fills_the_verdict_in(place: Place) -> None:
    """One click asks; what the route's rules make of it is the answer; the client gets it."""
    tab = await place.tab()
    await tab.go("dead-letters?route=create-charge")
    await tab.click("lost-charge-1", "link")
    await tab.click("Ask the upstream now")
    text = await tab.text()
    assert "By the route's rules: executed" in text
    assert '"client_secret": "***"' in text
    await tab.check()
    await tab.fill("Reason", "INC-8: the provider has it")
    await tab.click("Record this answer")
    assert tab.clicks == 3
    answer = await place.shop.pay("lost-charge-1", order=ATTACK)
    assert (answer.status, answer.field("idempotent-replayed")) == (201, b"true")
    assert json.loads(answer.body) == place.shop.bank.charges["lost-charge-1"]
    assert place.shop.upstream.runs_of(b'"lost-charge-1"') == 1


async def test_the_api_asks_the_upstream_as_the_page_does(place: Place) -> None:
    """The verdict, and what the rules make of the answer; nothing changes, and the audit says who has asked."""
    headers = {"Authorization": f"Bearer {place.shop.tokens['operator']}"}
    async with aiohttp.ClientSession(f"{place.shop.address}/admin/v1/", headers=headers) as api:
        async with api.get("records", params={"key": "order-1"}) as response:
            (before,) = (await response.json())["records"]
        async with api.post(f"records/{before['id']}/ask", json={"reason": "INC-9: is it there?"}) as response:
            asked = await response.json()
        assert (response.status, asked["verdict"], asked["answer"]["status"]) == (200, "executed", 201)
        assert json.loads(base64.b64decode(asked["answer"]["body_base64"])) == place.shop.bank.charges["order-1"]
        async with api.get("records", params={"key": "order-1"}) as response:
            assert (await response.json())["records"] == [before]
        async with api.get("audit", params={"newest": "true", "limit": "1"}) as response:
            (line,) = (await response.json())["lines"]
    assert (line["actor"], line["action"], line["reason"], line["id"]) == ("ana", "ask", "INC-9: is it there?", before["id"])


async def test_what_the_upstream_does_not_know_runs_with_the_next_retry(place: Place) -> None:
    """The trial look says so, the verdict frees the key, and the retry executes."""
    tab = await place.tab()
    await tab.record("void-charge-2")
    await tab.click("Ask the upstream now")
    assert "By the route's rules: not executed" in await tab.text()
    await tab.click("record not executed", "link")
    assert "attempt 2" in await tab.text()
    await tab.fill("Reason", "INC-9: no trace of it")
    await tab.click("Record: not executed")
    assert "The next retry runs the operation" in await tab.text()


async def test_an_answer_is_recorded_only_as_it_was_previewed(place: Place) -> None:
    """Changed after the preview, it is shown once more; a wrong one is refused at its field."""
    tab = await place.tab()
    await tab.record("lost-refund-5")
    await tab.click("It was executed", "link")
    await tab.fill("Body", "one")
    await tab.click("Preview")
    await tab.fill("Body", "two")
    await tab.fill("Reason", "INC-7")
    await tab.click("Record this answer")
    assert "You changed the answer after its preview" in await tab.text()
    await tab.fill("Status", "20x")
    await tab.click("Record this answer")
    assert "Three digits" in await tab.text()
    assert await tab.page.get_by_label("Status").get_attribute("aria-invalid") == "true"
    await tab.check()
    await tab.fill("Status", "200")
    await tab.click("Preview")
    await tab.click("Record this answer")
    assert (await place.shop.pay("lost-refund-5", "/v1/refunds", order=ATTACK)).body == b"two"


async def test_who_was_faster_is_named_and_wins(place: Place) -> None:
    """A form of an older version changes nothing. It tells what happened, and by whom."""
    slow, fast = await place.tab(), await place.tab("admin")
    await slow.record("lost-refund-2")
    await slow.click("It was not executed", "link")
    await slow.fill("Reason", "INC-7: I see none")
    path = await fast.record("lost-refund-2")
    await fast.go(f"{path}/completed")
    await fast.fill("Body", "{}")
    await fast.click("Preview")
    await fast.fill("Reason", "INC-7: it is there")
    await fast.click("Record this answer")
    await slow.click("Record: not executed")
    text = await slow.text()
    assert "Nothing of yours was written" in text
    assert "by cy" in text
    assert "INC-7: it is there" in text
    assert (await place.shop.pay("lost-refund-2", "/v1/refunds", order=ATTACK)).body == b"{}"
    await slow.check()


async def test_a_large_verdict_needs_a_second_person(place: Place) -> None:
    """Who proposes cannot confirm. The second person sees the bytes that a client will get, and confirms them."""
    one, two = await place.tab("operator"), await place.tab("approver")
    await one.record(LARGE)
    await one.click("It was executed", "link")
    await one.fill("Body", '{"id": "ch_6"}')
    await one.click("Preview")
    assert "This verdict becomes a proposal" in await one.text()
    await one.fill("Reason", "INC-7: ch_6 at the provider")
    await one.click("Propose it to a second person")
    assert "A verdict waits for a second person" in await one.text()
    assert await one.page.get_by_role("button", name="Confirm").count() == 0
    assert (await place.shop.pay(LARGE, amount=250_000)).status == 409
    await two.go("now")
    await two.page.locator("a.tile", has_text="Proposals").click()
    assert "INC-7: ch_6 at the provider" in await two.text()
    await two.check()
    await two.page.locator("main").get_by_role("link", name=LARGE).click()
    assert '{"id": "ch_6"}' in await two.text()
    await two.check()
    await two.fill("Reason", "INC-7: I see it, too")
    await two.click("Confirm")
    assert "You have confirmed the verdict" in await two.text()
    assert (await place.shop.pay(LARGE, amount=250_000)).body == b'{"id": "ch_6"}'


async def test_a_session_that_has_ended_changes_nothing(place: Place) -> None:
    """The cookie of a session that was signed out is good for nothing; after a new login the way leads back."""
    tab = await place.tab()
    path = await tab.record("lost-refund-3")
    await tab.click("Release it", "link")
    await tab.fill("Reason", "INC-7")
    cookies = await tab.page.context.cookies()
    other = await Tab.of(tab.page.context, tab.address)
    await other.go("now")
    await other.click("Sign out")
    await tab.page.context.add_cookies(cookies)  # type: ignore[arg-type]  # what it gave is what it takes
    await tab.click("Release")
    assert "Your session has ended" in await tab.text()
    await tab.click("Sign in", "link")
    await tab.fill("Token", place.shop.tokens["operator"])
    await tab.click("Sign in")
    assert tab.page.url == f"{tab.address}/console/{path}/release"
    assert "dead letter" in await tab.text()


async def test_a_viewer_sees_and_may_not(place: Place) -> None:
    """No way to a verdict or a body on the page, and none past the page."""
    tab = await place.tab("viewer")
    path = await tab.record("lost-refund-3")
    text = await tab.text()
    assert "Needs the role operator." in text
    assert "Needs the role admin." not in text  # nothing to delete here
    assert await tab.page.get_by_role("link", name="It was executed").count() == 0
    await tab.check()
    await tab.go(f"{path}/release")
    assert "This needs the role operator; vera has the role viewer." in await tab.text()
    token = await tab.page.locator('input[name="csrf"]').first.get_attribute("value")
    posted = await tab.page.request.post(
        f"{tab.address}/console/{path}/release", form={"csrf": token or "", "version": "2", "reason": "mine"}
    )
    assert posted.status == 403
    await tab.record("order-1")
    assert await tab.page.get_by_text("Show the body").count() == 0


async def test_too_early_is_told_with_its_end(place: Place) -> None:
    """Up to `doubtful_until` nobody can say *not executed*: the pages count down."""
    tab = await place.tab()
    path = await tab.record("lost-payout-1")
    assert "Not before" in await tab.text()
    await tab.go(f"{path}/not-executed")
    assert "Too early" in await tab.text()
    shown = tab.page.locator(".banner .relative")
    before = await shown.text_content()
    await tab.page.wait_for_function("before => document.querySelector('.banner .relative').textContent !== before", arg=before)


async def test_what_clients_and_people_write_stays_text(place: Place) -> None:
    """In a key, a path, a captured value, a field, a body and a reason."""
    tab = await place.tab("admin")
    key = f"lost-{ATTACK}"
    await tab.record("order-1")
    assert ATTACK in await tab.text()  # a captured value
    await tab.record(key)
    assert key in await tab.text()
    await tab.click("It was executed", "link")
    await tab.fill("Header fields, one a line", f"X-Attack: {ATTACK}")
    await tab.fill("Body", f"</textarea>{ATTACK}")
    await tab.click("Preview")
    await tab.fill("Reason", f"</textarea>{ATTACK}")
    await tab.click("Record this answer")
    await tab.page.get_by_text("Show the body").first.click()
    await tab.fill("Reason", ATTACK)
    await tab.click("Show the body")
    assert f"</textarea>{ATTACK}" in await tab.text()
    assert tab.wrong == []
    for path in (
        "audit",
        f"records?q={ATTACK}",
        f"records?state={ATTACK}&route={ATTACK}&cursor={ATTACK}",
        f"{ATTACK}",
        f"login?next={ATTACK}",
    ):
        await tab.go(path)
        assert tab.wrong == []
    assert ATTACK in (await place.shop.pay(key, "/v1/refunds", order=ATTACK)).body.decode()


async def test_figures_are_live_and_can_be_stopped(place: Place) -> None:
    """They change without a reload; a person may pause them."""
    tab = await place.tab("viewer")
    await tab.go("now")
    await tab.page.evaluate("window.before = document.getElementById('live')")
    await tab.page.wait_for_function("() => document.getElementById('live') !== window.before", timeout=30_000)
    await tab.page.get_by_role("button", name="Pause").click()
    assert "Paused" in await tab.text()
    assert tab.wrong == []


async def test_many_are_queued_for_looks_at_once(place: Place) -> None:
    """What nothing could look for stays, and the page says so."""
    tab = await place.tab()
    await tab.go("dead-letters?route=create-payout")
    await tab.page.get_by_label("Choose lost-payout-1").check()
    await tab.page.get_by_text("Queue several for looks again").click()
    await tab.fill("Reason", "INC-7: the provider is back")
    await tab.click("Queue the chosen ones")
    assert "0 queued for looks. 1 stayed" in await tab.text()


async def test_the_largest_come_first_where_a_value_is_money(place: Place) -> None:
    """By a captured value that a person chooses; without it, the oldest."""
    tab = await place.tab()
    await tab.go("dead-letters")
    await tab.page.get_by_label("Order").select_option("amount")
    await tab.page.get_by_role("button", name="Show").click()
    shown = [int(text) for text in await tab.page.locator('td[data-label="amount"]').all_text_contents()]
    assert len(shown) > 1
    assert shown == sorted(shown, reverse=True)
    await tab.check()
    await tab.page.get_by_text("Queue several for looks again").click()
    await tab.fill("Reason", "INC-7: the provider is back")
    await tab.click("Queue the chosen ones")
    assert "Choose at least one" in await tab.text()
    assert await tab.page.get_by_label("Order").input_value() == "amount"


ROOMS = ("now", "dead-letters?order=amount", "proposals", "records", "records?q=none&since=x", "routes", "audit", "nowhere")


@pytest.mark.parametrize(("scheme", "width"), [("light", WIDE), ("dark", NARROW)])
async def test_every_room_is_for_everybody(place: Place, scheme: str, width: int) -> None:
    """Keyboard and screen reader (axe-core), both colour schemes, from 360 px on; nothing comes from another host."""
    tab = await place.tab("admin", color_scheme=scheme, viewport={"width": width, "height": 800})
    for room in ROOMS:
        await tab.go(room)
        await tab.check()
    path = await tab.record("order-1")
    await tab.check()
    await tab.go(f"{path}/delete")
    await tab.check()
    path = await tab.record("lost-payout-1")
    await tab.check()
    await tab.go(f"{path}/completed")
    await tab.check()
    await tab.page.context.clear_cookies()
    await tab.go("login")
    await tab.check()


async def test_the_keyboard_is_enough(place: Place) -> None:
    """The first stop skips the rooms; the focus is seen."""
    tab = await place.tab("viewer")
    await tab.go("dead-letters")
    await tab.page.keyboard.press("Tab")
    assert await tab.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    await tab.page.keyboard.press("Enter")
    await tab.page.keyboard.press("Tab")
    assert await tab.page.evaluate("document.activeElement.closest('main') !== null")
    assert await tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
