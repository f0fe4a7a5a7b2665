"""`cors`, of the file and of a route."""

from pathlib import Path

import pytest

from gateway.core.cors import Cors
from tests.config.support import HEAD, ROUTES, mistakes, read

NO_ORIGIN = "is no origin; write scheme, host and perhaps a port, as in https://shop.example, or *"
OPTIONS = "  - {id: rest, path: /**, upstream: payments}\n"


def test_a_route_fills_in_from_the_file(tmp_path: Path) -> None:
    """What a route leaves out is the file's; an empty list of origins turns it off."""
    more = (
        "  - {id: b, path: /b, upstream: payments, cors: {credentials: true, preflight: answer, max_age: 1m}}\n"
        "  - {id: c, path: /c, upstream: payments, cors: {origins: []}}\n"
    )
    config = read(tmp_path, f"cors: {{origins: ['https://Shop.example:8443'], expose: [X-A]}}\n{HEAD}{ROUTES}      lease: 30s\n{more}")
    shop = frozenset({"https://shop.example:8443"})
    assert config.cors == Cors(shop, expose=("X-A",))
    assert [route.cors for route in config.routes] == [config.cors, Cors(shop, True, ("X-A",), answers=True, max_age=60.0), None]
    assert read(tmp_path, f"{HEAD}{ROUTES}      lease: 30s\n").routes[0].cors is None


@pytest.mark.parametrize(
    ("cors", "words"),
    [
        ("{origins: ['*', 'https://a']}", "origins: `*` is any origin already; name it alone, or leave it out"),
        (
            "{origins: ['*'], credentials: true}",
            "credentials: any page could act for who is logged in, and browsers refuse it; name the origins",
        ),
        (
            "{origins: ['https://a/']}",
            f'origins[0]: "https://a/" {NO_ORIGIN}',
        ),
        ("{origins: ['https://a:443']}", "origins[0]: browsers leave out the port that is the scheme's own; write https://a"),
        ("{origins: ['null']}", f'origins[0]: "null" {NO_ORIGIN}'),
        ("{allow_origins: []}", "allow_origins: unknown key; did you mean `origins`?"),
    ],
)
def test_mistakes(tmp_path: Path, cors: str, words: str) -> None:
    """At the file's, and at a route's."""
    (found,) = mistakes(tmp_path, f"cors: {cors}\n{HEAD}{ROUTES}      lease: 30s\n")
    assert found.endswith(f": cors.{words}")
    (found,) = mistakes(tmp_path, f"{HEAD}{ROUTES}      lease: 30s\n    cors: {cors}\n")
    assert found.endswith(f": routes[0].cors.{words}")


def test_preflights_that_nobody_answers(tmp_path: Path) -> None:
    """A guarded route takes POST and PATCH; without a route for OPTIONS no page can send there."""
    base = f"cors: {{origins: ['https://a']}}\n{HEAD}{ROUTES}      lease: 30s\n"
    (warning,) = [one.message for one in read(tmp_path, base).warnings if "preflights" in one.message]
    assert "write `preflight: answer`, or add a route" in warning
    for text in (base + OPTIONS, base.replace("['https://a']", "['https://a'], preflight: answer")):
        assert [one for one in read(tmp_path, text).warnings if "preflights" in one.message] == []
