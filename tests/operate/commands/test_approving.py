"""A second person at the commands: what is confirmed is what was seen."""

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.operate.commands.support import MODULE, Done
from tests.operate.commands.test_records import CONFIG, Desk
from tests.operate.commands.test_users import made

WHY = ("--reason", "INC-7: asked the provider")


class Bureau(Desk):
    """Two people, of whom one proposes and the other confirms. The records' `order` is no number, and so counts as a large amount."""

    def __init__(self, folder: Path, dsn: str) -> None:
        super().__init__(folder, dsn)
        people = {"ana": "operator", "ben": "approver"}
        users = {name: made(name, role) for name, role in people.items()}
        self.tokens = {name: token for name, (token, _) in users.items()}
        second = "second_approval: {above: {capture: order, value: 1}}"
        captured = "idempotency: {principal: none, reconcile: {capture: {order: /order}}}"
        config = CONFIG.replace("idempotency: {principal: none}", captured)
        text = f"{config}admin: {{users: [{', '.join(line for _, line in users.values())}], {second}}}\n"
        (folder / "gateway.yaml").write_text(text)

    def by(self, name: str, *arguments: str, code: int = 0) -> Done:
        return self.run(*arguments, code=code, GATEWAY_TOKEN=self.tokens[name])

    def propose(self, record: str, body: str) -> None:
        (self.folder / "body").write_text(body)
        answer = ("--completed", "--status", "201", "--body-file", str(self.folder / "body"))
        done = self.by("ana", "records", "resolve", record, *answer, *WHY)
        assert "Proposed: another user confirms it, with: dead-letters approve rec_" in done.err

    def at_terminal(self, name: str, *arguments: str, says: str) -> tuple[int, str]:
        """The exit code, and what is said to the person at a terminal."""
        ours, theirs = pty.openpty()
        env = {**os.environ, **self.env, "GATEWAY_TOKEN": self.tokens[name]}
        with subprocess.Popen([*MODULE, *arguments], env=env, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            os.write(ours, says.encode())
            _, shown = process.communicate(timeout=60)
        os.close(ours)
        os.close(theirs)
        return process.returncode, shown.decode()


@pytest.fixture
def bureau(tmp_path: Path, database: str) -> Bureau:
    return Bureau(tmp_path, database)


def test_a_proposal_that_was_replaced_is_not_confirmed(bureau: Bureau) -> None:
    """Who proposes may replace it at any moment: the one that was seen counts, and no other."""
    (record,) = bureau.make(("unknown", "k"))
    bureau.age()
    bureau.propose(record, "harmless")
    (seen,) = json.loads(bureau.by("ben", "dead-letters", "proposals", "--json").out)["proposals"]
    assert seen["proposal"] in bureau.by("ben", "dead-letters", "proposals").out
    bureau.propose(record, "another answer")
    refused = bureau.by("ben", "dead-letters", "approve", record, "--proposal", seen["proposal"], *WHY, code=1)
    assert "There is no such proposal any more" in refused.err
    (now,) = json.loads(bureau.by("ben", "dead-letters", "proposals", "--json").out)["proposals"]
    bureau.by("ben", "dead-letters", "approve", record, "--proposal", now["proposal"], *WHY)
    response = bureau.find("k")
    assert response is not None
    assert response.body == b"another answer"


def test_without_a_terminal_the_proposal_is_named(bureau: Bureau) -> None:
    """Whatever waits there by then is nothing that anybody has seen. To drop it, the record is enough."""
    (record,) = bureau.make(("unknown", "k"))
    bureau.age()
    bureau.propose(record, "harmless")
    refused = bureau.by("ben", "dead-letters", "approve", record, *WHY, code=2)
    assert "Say which proposal you have seen: --proposal" in refused.err
    bureau.by("ben", "dead-letters", "reject", record, *WHY)
    assert json.loads(bureau.by("ben", "dead-letters", "proposals", "--json").out) == {"proposals": []}


def test_a_terminal_shows_what_is_confirmed(bureau: Bureau) -> None:
    """Verdict, person, reason and answer, with nothing in it that a terminal obeys."""
    (record,) = bureau.make(("unknown", "k"))
    bureau.age()
    bureau.propose(record, "paid \x1b[31m20000")
    code, shown = bureau.at_terminal("ben", "dead-letters", "approve", record, *WHY, says="y\n")
    assert code == 0, shown
    for said in (r"paid \x1b[31m20000", "proposed_by: ", " ana\n", "201 Created", WHY[1]):
        assert said in shown
    assert "\x1b[31m" not in shown
    response = bureau.find("k")
    assert response is not None
    assert response.body == b"paid \x1b[31m20000"
