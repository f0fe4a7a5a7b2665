"""What `check` says of unguarded routes that reach where guarded ones are."""

from pathlib import Path

import pytest

from tests.config.support import read

HEAD = """\
digest_secret: 0123456789abcdef
postgres: {dsn: "postgresql://db/gateway"}
upstreams: {api: {url: "http://api:8000"}, other: {url: "http://other:8000"}}
routes:
  - {id: pay, methods: [POST], path: /v1/pay, upstream: api, idempotency: {principal: none}}
"""
CATCH_ALL = (
    "takes, unguarded, any spelling of /v1/pay (route `pay`) that the upstream alone knows; "
    "give it `methods: [GET, HEAD, OPTIONS]`, and other paths routes of their own"
)
UNLISTED = "of this path pass through `rest` unguarded, with a key too; list them here, or keep them out of there"


@pytest.mark.parametrize(
    ("route", "want"),
    [
        (
            "{id: rest, path: /**, upstream: api}",
            [("routes[1].path", CATCH_ALL), ("routes[0].methods", f"DELETE, PATCH and PUT {UNLISTED}")],
        ),
        ("{id: rest, path: /v1/**, methods: [POST], upstream: api}", [("routes[1].path", CATCH_ALL)]),
        ("{id: rest, path: /**, methods: [GET, PUT], upstream: api}", [("routes[0].methods", "PUT of this path passes through `rest`")]),
        ("{id: rest, path: /**, methods: [GET, HEAD, OPTIONS], upstream: api}", []),
        ("{id: rest, path: /static/**, upstream: api}", []),
        ("{id: rest, path: /**, upstream: other}", []),
        ("{id: rest, path: /**, upstream: api, idempotency: {principal: none}}", []),
    ],
)
def test_unguarded_routes_beside_guarded_ones(tmp_path: Path, route: str, want: list[tuple[str, str]]) -> None:
    """A catch-all for spellings that nobody knows, and methods that no guard lists; not where nothing could happen."""
    found = {one.place.path: one.message for one in read(tmp_path, f"{HEAD}  - {route}\n").warnings if one.place is not None}
    assert found.keys() == {path for path, _ in want}
    assert all(found[path].startswith(message) for path, message in want)


def test_methods_that_another_guard_takes_are_not_told_of(tmp_path: Path) -> None:
    """What is guarded elsewhere is guarded."""
    more = "  - {id: change, methods: [PUT, PATCH, DELETE], path: '/v1/{x}', upstream: api, idempotency: {principal: none}}\n"
    rest = "  - {id: rest, path: /**, methods: [GET, PUT, PATCH, DELETE], upstream: api}\n"
    paths = {one.place.path for one in read(tmp_path, HEAD + more + rest).warnings if one.place is not None}
    assert paths == {"routes[2].path"}


def test_a_remedy_is_never_what_stands_there_already(tmp_path: Path) -> None:
    """Where reading itself is guarded, keeping a catch-all to methods that read does not help."""
    read_guard = HEAD.replace("[POST]", "[GET, POST]")
    found = read(tmp_path, f"{read_guard}  - {{id: rest, path: /**, methods: [GET, HEAD, OPTIONS], upstream: api}}\n").warnings
    words = [one.message.partition("; ")[2] for one in found if one.place is not None and one.place.path == "routes[1].path"]
    assert words == ["take GET out of its `methods`, and give other paths routes of their own"]
