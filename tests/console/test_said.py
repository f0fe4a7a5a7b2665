"""What the console says, conceals, and reads: the pure parts."""

import datetime as dt
import json
import re
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.console import concealing, words
from gateway.console.answers import Answer, Given, preview, read_answer
from gateway.console.figures import Meter, figures
from gateway.console.rooms.routes import flat
from gateway.console.searching import read_search
from gateway.console.timeline import ACTIONS, timeline
from gateway.core.model import RecordKey, Status, StoredResponse
from gateway.core.policy import Policy
from gateway.operate.admin.exposition import read
from gateway.operate.admin.figures import figures as api_figures
from gateway.operate.operations import Wrong
from gateway.operate.operations.rules import Change
from gateway.ports.reconciliation import Entry, Listed, Remembered, Shown
from gateway.store.postgres.queries import QUERIES

CONSOLE = Path(words.__file__).parent
NOW = dt.datetime(2026, 11, 28, 4, 30, tzinfo=dt.UTC)
HOUR = dt.timedelta(hours=1)


def listed(status: Status = Status.UNKNOWN, **facts: object) -> Listed:
    doubtful = status is Status.UNKNOWN
    plain = Listed(
        key=RecordKey("payments:none", "k1"),
        record_id=UUID(int=1),
        version=2,
        status=status,
        route_id="pay",
        request_id="r1",
        method="POST",
        attempt=1,
        observed=False,
        reason="upstream_disconnected",
        created_at=NOW - HOUR,
        locked_until=NOW + HOUR if status is Status.IN_PROGRESS else None,
        unknown_since=NOW - HOUR if doubtful else None,
        doubtful_until=NOW + HOUR if doubtful else None,
        reconcile_after=NOW + HOUR if doubtful else None,
        looks=0,
        dead_lettered_at=None,
        completed_at=NOW if status is Status.COMPLETED else None,
        expires_at=NOW + HOUR if status in {Status.COMPLETED, Status.FAILED_RETRYABLE} else None,
        response_status=None,
        response_length=None,
    )
    return replace(plain, **facts)  # type: ignore[arg-type]  # a test's choice


def shown(record: Listed, *history: Remembered, response: StoredResponse | None = None) -> Shown:
    return Shown(record, b"/v1/pay", {}, 1, b"", response, history, NOW, evidence=False)


@pytest.mark.parametrize("status", list(Status))
def test_every_state_says_what_a_retry_gets_and_what_comes_next(status: Status) -> None:
    """Each in a sentence."""
    for record in (listed(status), listed(status, observed=True), listed(status, locked_until=NOW - HOUR, expires_at=NOW - HOUR)):
        for policy in (None, Policy("pay", ())):
            assert words.retry_now(record, NOW, policy).endswith(".")
        assert words.next_step(record).text
    assert words.state_of(listed(status)) in words.STATE_WORDS


@pytest.mark.parametrize("change", list(Change))
def test_every_change_says_what_it_means(change: Change) -> None:
    """It has a way, a title, a button, a role, and a sentence about the next retry."""
    assert change in words.PATHS.values()
    assert all(table[change] for table in (words.TITLES, words.BUTTONS, words.CHOOSE, words.DONE, words.NEEDS))
    for status in Status:
        assert re.search(r"retry|retries|request", words.consequence(change, listed(status)))


@given(st.floats(0, 10**9))
def test_a_duration_has_two_units_at_most_and_never_overstates(seconds: float) -> None:
    """What it says is not more than the truth, and less by one lower unit at most."""
    parts = words.duration(seconds).split()
    size = {"d": 86400, "h": 3600, "min": 60, "s": 1}
    said = sum(int(number) * size[unit] for number, unit in zip(parts[::2], parts[1::2], strict=True))
    assert len(parts) in {2, 4}
    assert 0 <= seconds - said < max(size[parts[-1]], 3600 if "d" in parts else 60 if "h" in parts else 1)


SECRET = "sekret-0123456789"
NAMES = st.sampled_from(["token", "Client-Secret", "password", "PAN", "cvc", "access_token", "api-key"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5).map("x".__add__), inner, max_size=3)  # no name of a secret
        | st.dictionaries(NAMES, st.just(SECRET) | st.just([SECRET]) | st.just({"a": SECRET}), max_size=2)
    ),
    max_leaves=10,
)


@given(JSON)
def test_no_secret_of_a_document_is_shown(document: object) -> None:
    """However deep; and what is no secret stays."""
    text = concealing.body(json.dumps(document).encode())
    assert SECRET not in text.text
    assert text.hidden == (SECRET in json.dumps(document))
    assert text.hidden or json.loads(text.text) == document


@given(st.binary(max_size=50))
def test_any_bytes_can_be_shown(raw: bytes) -> None:
    """As text, or not at all."""
    assert concealing.body(raw).kind in {"json", "text", "binary"}


def test_what_is_too_deep_or_too_long_is_cut() -> None:
    """A page has its limits."""
    assert concealing.body(b"[" * 100_000).kind in {"text", "binary"}
    assert concealing.body(b"a" * (concealing.SHOWN_MAX + 1)).cut


def test_credentials_in_fields_are_not_shown() -> None:
    """By name; the others are as they are."""
    fields = ((b"Set-Cookie", b"a=1"), (b"X-Session-Token", b"t"), (b"Content-Type", b"text/plain"))
    assert concealing.fields(fields) == [("Set-Cookie", "***"), ("X-Session-Token", "***"), ("Content-Type", "text/plain")]
    assert concealing.target(b"/pay?token=abc&x=\xff") == "/pay?token=***&x=\xff"


def test_a_timeline_is_in_order_and_knows_what_is_to_come() -> None:
    """Every line of the history is there once, with its actor, reason and facts."""
    look = Remembered(NOW - HOUR / 2, Entry("lookup", "not_yet_known", {"why": "no rule applies", "status": 503, "nothing": None}))
    person = Remembered(NOW - HOUR / 4, Entry("operator", "requeued", {}, "ana", "INC-7"))
    moments = timeline(shown(listed(), look, person))
    assert [moment.at for moment in moments] == sorted(moment.at for moment in moments)
    assert [moment.kind for moment in moments] == ["begun", "doubt", "look", "person", "coming", "coming"]
    assert moments[2].facts == (("why", "no rule applies"), ("status", "503"))
    assert (moments[3].actor, moments[3].reason) == ("ana", "INC-7")


def test_each_word_that_a_change_leaves_in_history_has_a_title() -> None:
    """The statements write them."""
    written = {what for sql in QUERIES.values() for what in re.findall(r"'operator', '(\w+)'", sql)}
    assert written
    assert written <= ACTIONS.keys()


def test_a_search_is_shown_again_as_it_was_given() -> None:
    """What is wrong is told at its field, and a record id says itself what it is."""
    search = read_search({"q": " k 1 ", "state": "unknown", "route": "pay", "since": "2026-11-28 04:21", "utm": "x"})
    assert (search.selection.key, search.selection.state, search.selection.since) == ("k 1", "unknown", NOW - dt.timedelta(minutes=9))
    assert read_search({"q": "rec_abc"}).id == "rec_abc"
    assert read_search({"q": "r1", "by": "request_id"}).selection.request_id == "r1"
    wrong = read_search({"state": "x", "since": "yesterday", "until": "9999-12-31T23:59:59-23:59"})
    assert set(wrong.mistakes) == {"state", "since", "until"}
    assert read_search({"state": "x"}, "dead_letter").selection.state == "dead_letter"


@given(st.dictionaries(st.sampled_from(["q", "by", "state", "route", "since", "until", "cursor"]), st.text(max_size=20)))
def test_any_query_can_be_read(query: dict[str, str]) -> None:
    """It raises nothing, and leads to an address of the same list."""
    assert read_search(query).address("/console/records").startswith("/console/records")


@given(st.text(max_size=30), st.text(max_size=60), st.text(max_size=30))
def test_an_answer_of_any_texts_is_read_or_refused_by_field(status: str, headers: str, body: str) -> None:
    """Nothing else can happen to it; and a preview knows its fields."""
    fields = Given(status, headers, body)
    assert fields.digest != Given(status, headers, body + "x").digest
    try:
        answer = read_answer(fields)
    except Wrong as wrong:
        refused_at = wrong.field
    else:
        refused_at = "body" if preview(answer, listed(), None).body == body else "preview"
    assert refused_at in {"status", "headers", "body"}


def test_a_preview_says_which_fields_are_left_out() -> None:
    """Those that no stored answer has."""
    shows = preview(read_answer(Given("201", "Set-Cookie: a=1\nX-A: b", "{}")), listed(), Policy("pay", (), status_fields=True))
    assert shows.left_out == ("Set-Cookie",)
    assert "X-A: b\nIdempotent-Replayed: true" in shows.head
    assert "Idempotency-Status: replayed" in shows.head
    with pytest.raises(Wrong, match="line 1"):
        read_answer(Given("201", "no field", ""))


def test_a_preview_of_bytes_that_are_no_text_hides_none_of_them() -> None:
    """A proposal of the API may have any: who confirms it must not take it for an empty body."""
    shows = preview(Answer(200, (), b"ok\xff"), listed(), None)
    assert (shows.head.split("\n")[-1], shows.body) == ("Content-Length: 3", "ok\ufffd")


def test_an_answer_that_a_form_would_change_is_not_filled_in() -> None:
    """A text area has its own line ends, and no bytes."""
    made = StoredResponse(201, b"Created", ((b"X-A", b"b"),), b"{}", 2, b"")
    assert Given.from_response(made) == Given("201", "X-A: b", "{}")
    for body in (b"\xff", b"a\r\nb", b"a\0b", None):
        assert Given.from_response(replace(made, body=body)) is None


EXPOSED = """# HELP idempotency_requests_total Requests.
idempotency_requests_total{decision="execute",mode="enforce",route="pay"} %d.0
idempotency_requests_total{decision="replay",mode="enforce",route="pay"} 5.0
idempotency_in_flight{route="pay"} 3.0
idempotency_route_unknown{route="pay"} 2.0
idempotency_route_dead_letters{route="pay"} 1.0
idempotency_route_unknown_oldest_age_seconds{route="pay"} 61.5
idempotency_store_duration_seconds_sum{operation="reserve",store="postgres"} %d.0
idempotency_store_duration_seconds_count{operation="reserve",store="postgres"} 1000.0
idempotency_upstream_target_up{target="http://a\\"b",upstream="api"} 0.0
idempotency_requests_total{broken
go_gc 1
"""


def test_the_api_has_the_decisions_of_each_route() -> None:
    """What the page of routes shows, for `mode: observe`, too."""
    told = api_figures(EXPOSED % (10, 1))
    assert told["routes"] == {
        "pay": {
            "requests": 15.0,
            "in_flight": 3.0,
            "unknown": 2.0,
            "dead_letters": 1.0,
            "unknown_oldest_age_seconds": 61.5,
            "decisions": {"execute": 10.0, "replay": 5.0},
        }
    }


def test_figures_are_what_the_metrics_say() -> None:
    """Rates are those since the reading before."""
    before, now = read(EXPOSED % (10, 0)), read(EXPOSED % (30, 2))
    found = figures(now, before, 10.0)
    (pay,) = found.routes
    assert (pay.rate, pay.in_flight, pay.unknown, pay.oldest, pay.dead_letters) == (2.0, 3, 2, 61.5, 1)
    assert found.decisions("pay") == {"execute": 30, "replay": 5}
    assert found.targets == [("api", 'http://a"b', False)]
    assert figures(now, None, 0.0).rate is None
    assert found.stores[0].milliseconds is None  # no call in between
    assert figures(now, None, 0.0).stores[0].milliseconds == 2.0


def test_a_meter_has_rates_from_the_second_reading_on() -> None:
    """One from long ago tells nothing of now."""
    clock = iter((0.0, 10.0, 1000.0, 1000.5))
    meter = Meter(lambda: next(clock))
    assert meter.figures(EXPOSED % (10, 0)).rate is None
    assert meter.figures(EXPOSED % (30, 0)).rate == 2.0
    assert meter.figures(EXPOSED % (40, 0)).rate is None
    assert meter.figures(EXPOSED % (40, 0)).rate is None


@given(st.text())
def test_any_exposition_can_be_read(text: str) -> None:
    """What is no series is left out."""
    assert list(read(text)) == []


def test_settings_are_lines() -> None:
    """Nested ones have dots, lists their index; what is not set is left out."""
    settings = {"a": None, "b": {"c": True, "d": 1.0}, "e": ["x", "y"], "f": [{"g": 1}], "h": []}
    assert flat(settings) == [("b.c", "yes"), ("b.d", "1"), ("e", "x, y"), ("f[0].g", "1")]


@pytest.mark.parametrize("template", sorted((CONSOLE / "templates").iterdir()), ids=lambda path: path.name)
def test_templates_hold_nothing_that_the_policy_keeps_out(template: Path) -> None:
    """No style, script or handler of its own, no address of another host, and nothing that is not escaped."""
    text = template.read_text("utf-8")
    assert re.search(r"\sstyle=|\son[a-z]+=|<style|javascript:|https?://|\|\s*safe|Markup|autoescape", text) is None
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))


def test_colours_can_be_told_from_their_ground() -> None:
    """Each pair that the style sheet uses has a contrast of 4.5:1 at least (WCAG 2.2, 1.4.3), in both schemes."""
    schemes = re.findall(r":root \{(.*?)\}", (CONSOLE / "static" / "console.css").read_text("utf-8"), re.DOTALL)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", scheme))
        states = [(name, f"{name}-ground") for name in ("good", "wait", "bad", "busy", "calm")]
        plain = [(ink, ground) for ink in ("ink", "quiet", "link", "bad", "good", "wait") for ground in ("ground", "surface", "sunken")]
        for ink, ground in [*states, *plain, ("on-accent", "accent"), ("on-danger", "danger")]:
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
