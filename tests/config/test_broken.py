"""Files that are wrong in ways nobody wrote a test for, one by one: each ends in mistakes with their places, none in a traceback."""

import os
import random
from pathlib import Path

import pytest

from gateway.config import ConfigErrors, load
from tests.config.broken import Breaker, furnish, judge
from tests.config.support import HEAD, ROUTES, mistakes

SHADOWED = """\
  - id: again
    path: /v1/charges
    methods: [POST]
    upstream: payments
"""


def test_a_guarded_route_that_takes_all_of_another_is_named(tmp_path: Path) -> None:
    """Guarded routes hold what cannot be hashed; the message about a shadowed one needs none of it."""
    assert mistakes(tmp_path, HEAD + ROUTES + SHADOWED) == [
        "gateway.yaml:12:11: routes[1].path: this route can never match: all of its requests go to `charge` (line 6)"
    ]


def test_a_folder_whose_name_is_too_long_is_told(tmp_path: Path) -> None:
    found = mistakes(tmp_path, f"{HEAD}memory: {{spill_directory: {'n' * 300}}}\n{ROUTES}")
    assert len(found) == 1
    assert found[0].startswith("gateway.yaml:5:27: memory.spill_directory: ")
    assert "cannot be used as a folder (File name too long)" in found[0]


def test_a_folder_that_may_not_be_looked_into_is_told(as_a_user: Path) -> None:
    locked = as_a_user / "locked"
    locked.mkdir(mode=0)
    text = f"{HEAD}memory: {{spill_directory: {locked}/spill}}\nlisten: unix:{locked}/run/gateway.sock\n{ROUTES}"
    found = mistakes(as_a_user, text)
    assert ["cannot be used as a folder (Permission denied)" in one for one in found] == [True, True]


FILES = {
    "digest_secret_file: {file}\npostgres: {{dsn: x}}\nupstreams: {{payments: {{url: 'http://x'}}}}\n": "digest_secret_file",
    HEAD.replace("{", "{{").replace("}", "}}") + "tls: {{cert_file: {file}}}\n": "tls.cert_file",
    HEAD.replace("{", "{{").replace("}", "}}") + "defaults: {{dialect: {file}}}\n": "defaults.dialect",
    HEAD.replace("{", "{{").replace("}", "}}")
    + "defaults: {{principal: [{{jwt: {{claim: sub, jwks_file: {file}, algorithms: [RS256], issuer: a, audience: b}}}}]}}\n": "jwks_file",
}


@pytest.mark.parametrize("what", ["a named pipe", "a folder", "a device"])
@pytest.mark.parametrize("text", FILES, ids=list(FILES.values()))
def test_what_is_no_file_is_refused_without_being_read(tmp_path: Path, text: str, what: str) -> None:
    """A named pipe that nobody writes to would hold the reader for ever, and some devices never end."""
    path, word = tmp_path / "thing.yaml", f"it is {what}"
    match what:
        case "a named pipe":
            os.mkfifo(path)
        case "a folder":
            path.mkdir()
            word = "Is a directory"
        case _:
            path.symlink_to("/dev/zero")
    found = mistakes(tmp_path, text.format(file=path) + ROUTES.replace("      principal: none\n", "      scope: charges\n"))
    assert [one for one in found if word in one], found


def test_a_configuration_that_is_a_named_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gateway.yaml")
    with pytest.raises(ConfigErrors, match="it is a named pipe; write what it gives into a file first"):
        load(tmp_path / "gateway.yaml", {})


def test_a_message_is_one_line_whatever_it_repeats(tmp_path: Path) -> None:
    found = mistakes(tmp_path, HEAD + 'drain: {delay: "3\\u2028\\e[2J"}\n' + ROUTES)
    assert len(found) == 1
    assert found[0].isprintable()


def test_no_broken_file_ends_otherwise_than_in_mistakes(tmp_path: Path) -> None:
    """Each field of the table with two wrong values, and the shipped maps changed at random: as many as fit into some seconds."""
    env = furnish(tmp_path)
    breaker = Breaker(random.Random(20261128), tmp_path)
    cases = [*breaker.each_field(2), *(breaker.any() for _ in range(80))]
    faults = [f"{case.done}\n{fault}" for case in cases if (fault := judge(case, tmp_path, env)) is not None]
    assert not faults, "\n".join(faults[:3])
