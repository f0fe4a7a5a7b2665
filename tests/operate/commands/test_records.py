"""The operators' commands as processes, on a real Postgres and Redis: no gateway runs."""

import asyncio
import http.server
import json
import os
import pty
import subprocess
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.core.model import RecordKey, StoredResponse
from gateway.core.scope import key_digest
from gateway.operate.operations import parse_record_id, short_id_text
from gateway.store.postgres import PostgresStore
from tests.operate.admin.house import House
from tests.operate.commands.support import MODULE, Done, run

CONFIG = """\
digest_secret: 0123456789abcdef
postgres: {dsn: "${DSN:-postgresql://127.0.0.1:1/gateway}"}
redis: {url: "${REDIS:-}"}
upstreams: {payments: {url: "http://payments:8000", max_execution: 1m}}
routes:
  - {id: create-refund, path: /v1/refunds, upstream: payments, idempotency: {principal: none}}
  - {id: rest, path: /**, upstream: payments}
"""
REMEMBERED = "Gateways may still replay it from their own memory for 3 s at most."
REASON = ("--reason", "INC-7: asked the provider", "--actor", "ada")


def short(name: str) -> str:
    """The id that lists show for people."""
    return short_id_text(parse_record_id(name))


class Desk:
    """Where an operator sits: a configuration, and the database behind it."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.dsn = dsn
        (folder / "gateway.yaml").write_text(CONFIG)
        self.env = {"DSN": dsn, "GATEWAY_CONFIG": str(folder / "gateway.yaml")}

    def run(self, *arguments: str, code: int = 0, **env: str) -> Done:
        done = run(*arguments, env={**self.env, **env})
        assert done.code == code, done
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).out)

    def make(self, *wanted: tuple[str, str]) -> list[str]:
        """The ids of new records of the route `create-refund`: (`completed`, `unknown` or `retryable`, key) each."""

        async def work(house: House) -> list[str]:
            return [await getattr(house, how)(key, "create-refund") for how, key in wanted]

        ids: list[str] = self.with_house(work)
        return ids

    def find(self, key: str) -> StoredResponse | None:
        async def work(house: House) -> StoredResponse | None:
            record = await house.store.find(RecordKey("create-refund:none", key))
            return None if record is None else record.response

        response: StoredResponse | None = self.with_house(work)
        return response

    def age(self) -> None:
        self.with_house(lambda house: house.age())

    def with_house(self, work: Callable[[House], Awaitable[Any]]) -> Any:
        """What `work` does to the records, on a loop of its own."""

        async def working() -> Any:
            store = PostgresStore(self.dsn)
            try:
                return await work(House(self.dsn, store))
            finally:
                await store.close()

        return asyncio.run(working())


@pytest.fixture
def desk(tmp_path: Path, database: str) -> Desk:
    return Desk(tmp_path, database)


PLAIN = "  - {id: create-refund, path: /v1/refunds, upstream: payments, idempotency: {principal: none}}\n"
LOOKUP = """\
  - id: create-refund
    path: /v1/refunds
    upstream: payments
    idempotency:
      principal: none
      reconcile:
        probe: lookup
        request: {method: GET, path: "/v1/refunds?key={key}"}
        rules: [{when: [{pointer: /refunds, not_empty: true}], verdict: executed, answer: {status: 201, pointer: /refunds/0}}]
"""


class Provider(http.server.BaseHTTPRequestHandler):
    """Says of each key that it is there."""

    def do_GET(self) -> None:
        body = json.dumps({"refunds": [{"id": "re_1", "asked": self.path}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_the_upstream_is_asked_and_nothing_changes(desk: Desk) -> None:
    """What it says, by the rules of the route; the audit table has who asked. Without a lookup nothing can be asked."""
    (name,) = desk.make(("unknown", "a"))
    refused = desk.run("records", "ask", name, *REASON, code=1)
    assert "no `probe: lookup`" in refused.err
    with http.server.HTTPServer(("127.0.0.1", 0), Provider) as provider:
        threading.Thread(target=provider.serve_forever, daemon=True).start()
        asking = CONFIG.replace("http://payments:8000", f"http://127.0.0.1:{provider.server_port}").replace(PLAIN, LOOKUP)
        (desk.folder / "gateway.yaml").write_text(asking)
        asked = desk.json("records", "ask", name, *REASON)
        assert (asked["verdict"], asked["answer"]["status"]) == ("executed", 201)
        shown = desk.run("records", "ask", name, *REASON).out
        provider.shutdown()
    assert "executed" in shown
    assert '"asked":"/v1/refunds?key=a"' in shown.replace(" ", "")
    assert [line["action"] for line in desk.json("audit", "list")["lines"]] == ["ask", "ask"]
    assert desk.json("records", "show", name)["status"] == "unknown"


COMMANDS = [
    ("records", "list"),
    ("records", "show"),
    ("records", "resolve"),
    ("records", "release"),
    ("records", "ask"),
    ("records", "delete"),
    ("records", "export"),
    ("dead-letters", "list"),
    ("dead-letters", "show"),
    ("dead-letters", "requeue"),
    ("dead-letters", "resolve"),
    ("dead-letters", "proposals"),
    ("dead-letters", "approve"),
    ("dead-letters", "reject"),
    ("audit", "list"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_teaches_with_an_example(command: tuple[str, str]) -> None:
    """Each command's help shows how it is called."""
    assert f"\n    idempotency-gateway {' '.join(command)} --config" in run(*command, "--help").out


def test_lists_are_tables_or_json(desk: Desk) -> None:
    """Filters narrow them down; JSON has what the admin API gives; the limit is told with the cursor to go on from."""
    ids = desk.make(("completed", "a"), ("unknown", "b"), ("unknown", "c"))
    lines = desk.run("records", "list").out.splitlines()
    assert lines[0].split()[:3] == ["STATE", "ROUTE", "KEY"]
    assert [line.split()[0] for line in lines[1:]] == ["completed", "dead_letter", "dead_letter"]
    assert [line.split()[-1] for line in lines[1:]] == [*map(short, ids)]
    first = desk.run("records", "list", "--state", "unknown", "--limit", "1")
    assert "There are more: --cursor " in first.err
    rest = desk.json("records", "list", "--state", "unknown", "--cursor", first.err.split()[-1])
    assert [record["key"] for record in rest["records"]] == ["c"]
    assert [record["id"] for record in desk.json("dead-letters", "list", "--key", "b")["records"]] == [ids[1]]
    assert desk.json("records", "list", "--route", "rest") == {"records": [], "cursor": None}


def test_a_record_is_found_by_what_a_log_line_has(desk: Desk) -> None:
    """Request id, scope id and key digest, time: each alone, and together."""
    ids = desk.make(("completed", "a"), ("unknown", "b"))
    record = desk.json("records", "show", ids[1])
    digest = key_digest(b"0123456789abcdef", record["scope_id"], "b")
    assert record["key_digest"] == digest
    for words in (
        ("--request-id", record["request_id"], "--state", "unknown"),
        ("--key-digest", digest),
        ("--scope-id", record["scope_id"], "--key-digest", digest, "--since", "1h"),
        ("--since", record["created_at"]),
    ):
        assert [one["short_id"] for one in desk.json("records", "list", *words)["records"]] == [short(ids[1])], words
    assert desk.json("records", "list", "--until", record["created_at"])["records"][0]["id"] == ids[0]
    assert "such as 2h" in desk.run("records", "list", "--since", "yesterday", code=2).err
    assert "16 hex digits" in desk.run("records", "list", "--key-digest", "xyz", code=2).err


def test_a_record_is_shown_by_id_or_key(desk: Desk) -> None:
    """The same either way; texts of clients cannot rewrite the terminal."""
    (name,) = desk.make(("completed", "a"))
    by_id = desk.run("records", "show", name).out
    assert desk.run("records", "show", "--key", "a", "--route", "create-refund").out == by_id
    assert desk.run("records", "show", short(name)).out == by_id
    assert "No such record" in desk.run("records", "show", "rec_aaaaaaaaaa", code=1).err
    assert "captured.order:" in by_id
    assert "order \\x1b[31m1" in by_id
    assert "\x1b" not in by_id
    assert desk.json("records", "show", name)["response"]["status"] == 201


def test_a_body_is_shown_for_a_reason(desk: Desk) -> None:
    """Without one it is wrong usage; with one it is shown, and that is audited."""
    (name,) = desk.make(("completed", "a"))
    assert "--body needs a --reason" in desk.run("records", "show", name, "--body", code=2).err
    assert desk.run("records", "show", name, "--body", *REASON).out.endswith('\n{"id": "ch_1", "amount": 10}\n')
    (line,) = desk.json("audit", "list")["lines"]
    assert (line["action"], line["id"], line["actor"]) == ("show_body", name, "ada")
    assert "show_body" in desk.run("audit", "list").out
    assert desk.json("audit", "list", "--after", str(line["line"])) == {"lines": []}
    assert desk.json("audit", "list", "--newest") == {"lines": [line]}
    assert desk.json("audit", "list", "--newest", "--after", str(line["line"])) == {"lines": []}


def test_a_dead_letter_is_resolved_as_completed(desk: Desk) -> None:
    """With status, fields and a body from a file; history and audit say who did it and why."""
    (name,) = desk.make(("unknown", "b"))
    (desk.folder / "answer.json").write_bytes(b'{"id": "re_1"}\xff')
    done = desk.run(
        "dead-letters", "resolve", "--key", "b", "--completed", "--status", "201", "--header", "Content-Type: application/json",
        "--body-file", str(desk.folder / "answer.json"), *REASON,
    )  # fmt: skip
    assert done.err == "OK\n"
    assert done.out.splitlines()[1].split()[0] == "completed"
    response = desk.find("b")
    assert response is not None
    assert (response.status, response.body) == (201, b'{"id": "re_1"}\xff')
    assert response.headers == ((b"Content-Type", b"application/json"),)
    assert "INC-7: asked the provider" in desk.run("records", "show", name).out
    again = desk.run("records", "resolve", name, "--completed", "--status", "200", "--no-body", *REASON, code=1)
    assert again.err.startswith("Refused: It is completed already")
    by_key = desk.run("dead-letters", "resolve", "--key", "b", "--not-executed", *REASON, code=1)
    assert by_key.err.splitlines()[1].split()[0] == "completed", "what it is now, for whoever was slower than a colleague"
    assert by_key.err.endswith("Refused: no dead letter has this key (any more).\n")


def test_what_is_never_stored_is_told(desk: Desk) -> None:
    """A field that no retry will get is left out with a warning."""
    (name,) = desk.make(("unknown", "b"))
    fields = ["--header", "Set-Cookie: a=b", "--header", "X-Kept: yes"]
    done = desk.run("records", "resolve", name, "--completed", "--status", "201", "--no-body", *fields, *REASON)
    assert done.err == "warning: Set-Cookie is never stored with an answer: it is left out\nOK\n"
    response = desk.find("b")
    assert response is not None
    assert response.headers == ((b"X-Kept", b"yes"),)


def test_not_executed_waits_for_the_upstream(desk: Desk) -> None:
    """Too early is a failure that says until when; afterwards the next retry runs."""
    (name, other) = desk.make(("unknown", "b"), ("unknown", "c"))
    assert desk.run("records", "resolve", name, "--not-executed", *REASON, code=1).err.startswith("Too early: until ")
    early = desk.json("records", "release", other, *REASON, code=1)
    assert early["result"] == "too_early"
    desk.age()
    assert desk.json("records", "resolve", name, "--not-executed", "--retention", "2h", *REASON)["record"]["state"] == "failed_retryable"
    assert desk.run("records", "release", other, *REASON).err == "OK\n"


def test_a_deleted_record_is_gone_from_both_stores(desk: Desk, redis_url: str) -> None:
    """Redis acknowledges; while it is away the command says how long it may answer from before. For some seconds gateways remember."""
    first, second = desk.make(("completed", "a"), ("completed", "b"))
    assert desk.run("records", "delete", first, *REASON, REDIS=redis_url).err == f"OK: it is gone\n{REMEMBERED}\n"
    assert desk.run("records", "show", first, code=1).err == "No such record.\n"
    away = desk.run("records", "delete", second, *REASON, REDIS="redis://127.0.0.1:1")
    assert away.err == "OK: it is gone\nwarning: Redis has not acknowledged; for 908 s at most gateways may still answer from it\n"


def test_a_dead_letter_that_nobody_would_look_at_is_not_requeued(desk: Desk) -> None:
    """The refusal says why."""
    desk.make(("unknown", "b"))
    assert "neither a probe nor a webhook" in desk.run("dead-letters", "requeue", "--key", "b", *REASON, code=1).err


def test_an_export_is_json_lines(desk: Desk) -> None:
    """One a record on stdout, the count on stderr, a line in the audit."""
    desk.make(("completed", "a"), ("unknown", "b"))
    done = desk.run("records", "export", "--bodies", *REASON)
    assert [json.loads(line)["key"] for line in done.out.splitlines()] == ["a", "b"]
    assert done.err == "OK: 2 records\n"
    assert [line["action"] for line in desk.json("audit", "list")["lines"]] == ["export", "show_body", "show_body"]


def test_several_records_under_one_key_are_listed_and_refused(desk: Desk) -> None:
    """Whose it is must be said; a guess could be another customer's."""

    async def work(house: House) -> list[str]:
        return [await house.completed("a", "create-refund", scope_id=f"create-refund:header.{who}") for who in ("x", "y")]

    ids = desk.with_house(work)
    done = desk.run("records", "delete", "--key", "a", *REASON, code=1)
    assert all(short(name) in done.err for name in ids)
    assert done.err.endswith("Several records have this key: name one by its ID, or narrow the key down with --route or --scope.\n")
    assert len(desk.json("records", "list")["records"]) == 2


USAGE = [
    (["records", "show"], "Name one record"),
    (["records", "show", "rec_x", "--key", "a"], "Name one record"),
    (["records", "show", "rec_x", "--route", "a"], "--route and --scope narrow a --key down"),
    (["records", "show", "rec_x"], "rec_x: this is no record id"),
    (["records", "list", "--cursor", "x"], "cursor: "),
    (["records", "list", "--state", "lost"], "Invalid value for '--state'"),
    (["records", "delete", "rec_x"], "Missing option '--reason'"),
    (["records", "delete", "rec_x", "--reason", " "], "--reason: say it"),
    (["records", "delete", "rec_x", "--reason", "r", "--actor", "a\nb"], "--actor: control characters"),
    (["records", "resolve", "rec_x", "--reason", "r"], "--completed, or --not-executed"),
    (["records", "resolve", "rec_x", "--reason", "r", "--completed", "--not-executed"], "--completed, or --not-executed"),
    (["records", "resolve", "rec_x", "--reason", "r", "--completed"], "--completed needs the --status"),
    (["records", "resolve", "rec_x", "--reason", "r", "--not-executed", "--status", "200"], "has no answer"),
    (["records", "resolve", "rec_x", "--reason", "r", "--not-executed", "--no-body"], "has no answer"),
    (["records", "resolve", "rec_x", "--reason", "r", "--completed", "--status", "201"], "--body-file FILE, or --no-body"),
    (["records", "resolve", "rec_x", "--reason", "r", "--completed", "--status", "201", "--no-body", "--body-file", "x"], "or --no-body"),
    (["records", "resolve", "rec_x", "--reason", "r", "--completed", "--status", "204", "--header", "x"], "'Name: value'"),
    (["records", "resolve", "rec_x", "--reason", "r", "--not-executed", "--retention", "2"], "2 has no unit"),
]


def test_wrong_usage_exits_with_2(desk: Desk) -> None:
    """It says what is wrong, on stderr."""
    for arguments, message in USAGE:
        done = desk.run(*arguments, code=2)
        assert message in done.err, arguments
        assert done.out == ""


def test_a_missing_body_file_exits_with_1(desk: Desk) -> None:
    """It is named, and nothing is changed."""
    (name,) = desk.make(("unknown", "b"))
    done = desk.run("records", "resolve", name, "--completed", "--status", "200", "--body-file", "/none", *REASON, code=1)
    assert done.err == "/none: No such file or directory\n"


def test_without_postgres_exits_with_69(tmp_path: Path, empty_database: str) -> None:
    """A server that is away, and one without the schema."""
    away = Desk(tmp_path, "postgresql://127.0.0.1:1/gateway").run("records", "list", code=69)
    assert away.err == "Postgres is unreachable: refused\n"
    assert "run `migrate`" in Desk(tmp_path, empty_database).run("records", "list", code=69).err


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("n\n", 1)])
def test_a_person_at_a_terminal_is_asked(desk: Desk, said: str, code: int) -> None:
    """The record is shown first; anything but yes changes nothing."""
    (name,) = desk.make(("completed", "a"))
    ours, theirs = pty.openpty()
    command = [*MODULE, "records", "delete", name, *REASON]
    env = {**os.environ, **desk.env}
    with subprocess.Popen(command, env=env, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.write(ours, said.encode())
        _, err = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == code, err
    assert b"Forget it, so that the next request with its key runs? [y/N]" in err
    assert short(name).encode() in err
    assert (desk.find("a") is None) is (code == 0)
