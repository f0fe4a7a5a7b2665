"""`idempotency-gateway dev`: one command runs everything, its tour is true, and nothing of it stays behind."""

import json
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from gateway.devtools.embedded.ports import free_port
from tests.devtools.dev.running import Answer, Curl, Dev, curls, wait_for
from tests.devtools.embedded.leftovers import gone


def charge(url: str, key: str | None, *, delay: str = "0s") -> Curl:
    headers = {"Authorization": "Bearer alice", "Content-Type": "application/json", "X-Sample-Delay": delay}
    if key is not None:
        headers["Idempotency-Key"] = key
    return Curl("POST", url + "/v1/charges", headers, b'{"account":"acme","amount":100,"currency":"EUR"}')


def account(url: str, name: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(Curl("GET", f"{url}/v1/accounts/{name}", {}, None).send().body)
    return found


def problem(answer: Answer) -> str:
    """The last word of a problem document's type."""
    assert answer.headers["content-type"] == "application/problem+json"
    kind: str = json.loads(answer.body)["type"]
    return kind.replace(":", "/").rpartition("/")[2]


def answer_of(command: str, folder: Path) -> str:
    """What a command line of the tour prints, in a shell that has nothing of this environment's."""
    done = subprocess.run(["/bin/sh", "-c", command], cwd=folder, env={"PATH": os.defpath}, capture_output=True, text=True, check=True)
    return done.stdout


def in_background(request: Curl) -> tuple[threading.Thread, list[Answer]]:
    answers: list[Answer] = []

    def send() -> None:
        try:
            answers.append(request.send())
        except OSError:
            return

    thread = threading.Thread(target=send)
    thread.start()
    return thread, answers


def test_the_tour_shows_what_it_says(data_folder: Path) -> None:
    """Every command of the tour gets the answer that the tour names, and Ctrl-C then ends everything with 0."""
    with Dev(data_folder).ready() as dev:
        first, same, other, slow, meanwhile, late, retry, books, found, refund, refunded, *rides, deferred, standing, stored, metrics = (
            curls(dev.output)
        )
        executed = first.send()
        assert (executed.status, json.loads(executed.body)["balance"]) == (201, 99_900)
        replayed = same.send()
        assert (replayed.status, replayed.body, replayed.headers["idempotent-replayed"]) == (201, executed.body, "true")
        refused = other.send()
        assert (refused.status, problem(refused)) == (422, "key-reused")

        name = json.loads(executed.body)["account"]
        thread, answers = in_background(slow)
        wait_for(lambda: account(dev.sample, name)["charges"] == 2)
        conflict = meanwhile.send()
        assert (conflict.status, problem(conflict)) == (409, "request-in-progress")
        thread.join()
        assert [answer.status for answer in answers] == [201]

        unknown = late.send()
        assert (unknown.status, problem(unknown)) == (504, "outcome-unknown")
        again = retry.send()
        assert (again.status, problem(again)) == (409, "outcome-unknown")

        booked = json.loads(books.send().body)
        assert (booked["charges"], booked["balance"]) == (3, 99_700)
        wait_for(lambda: found.send().status == 201)
        assert found.send().headers["idempotent-replayed"] == "true"
        lost = refund.send()
        assert (lost.status, problem(lost)) == (502, "outcome-unknown")
        listing, showing, resolving, help_ = [line.partition("(set")[2] for line in dev.output.splitlines() if "(set -a" in line]
        waiting = answer_of("(set" + listing, data_folder.parent).splitlines()[-1].split()
        assert waiting[:3] == ["dead_letter", "create-refund", f"{name}-4"]
        assert "upstream_disconnected" in answer_of("(set" + showing, data_folder.parent)
        assert "completed" in answer_of("(set" + resolving, data_folder.parent)
        resolved = refunded.send()
        assert (resolved.status, resolved.headers["idempotent-replayed"]) == (201, "true")
        assert "Usage:" in answer_of("(set" + help_, data_folder.parent)
        killed, resumed, booked_rides, rider, lost_answer, told_again = rides
        doubtful = killed.send()
        assert (doubtful.status, problem(doubtful)) == (502, "outcome-unknown")
        wait_for(lambda: resumed.send().status == 201)
        ride = json.loads(booked_rides.send().body)
        assert (len(ride["rides"]), len(ride["receipts"])) == (1, 1)
        assert [attempt["resumed_at"] for attempt in ride["attempts"]] == [None, "charge_created"]
        assert json.loads(rider.send().body)["balance"] == 99_900
        committed, repeated = lost_answer.send(), told_again.send()
        assert (committed.status, repeated.body, repeated.headers["idempotent-replayed"]) == (201, committed.body, "true")
        accepted = deferred.send()
        assert accepted.status == 202
        assert standing.url.endswith(accepted.headers["location"] + "?wait=10")
        wait_for(lambda: json.loads(standing.send().body)["status"] == "completed")
        answer = stored.send()
        assert (answer.status, json.loads(answer.body)["balance"]) == (201, 99_601)  # one was refunded
        counted = metrics.send().body.decode()
        assert 'idempotency_requests_total{decision="replay",mode="enforce",route="create-charge"} 4.0' in counted
        dev.interrupt()
        assert dev.ends() == 0


def test_a_killed_run_is_picked_up(data_folder: Path) -> None:
    """After kill -9 the next start on the same folder and ports ends what was left, and still knows every key."""
    port, admin_port = free_port(), free_port()
    with Dev(data_folder, port=port, admin_port=admin_port).ready() as killed:
        executed = charge(killed.gateway, "kept").send()
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait()
        with Dev(data_folder, port=port, admin_port=admin_port).ready() as dev:
            assert all(gone(pid) for pid in killed.pids)
            replayed = charge(dev.gateway, "kept").send()
            assert (replayed.body, replayed.headers["idempotent-replayed"]) == (executed.body, "true")
            assert account(dev.gateway, "acme")["charges"] == 1
            dev.process.send_signal(signal.SIGTERM)
            assert dev.ends() == 0


def test_a_second_one_on_the_same_folder_or_port_says_so(data_folder: Path, tmp_path: Path) -> None:
    """The folder in use and the port in use are named, the latter with its flag; the first one is not disturbed."""
    with Dev(data_folder).ready() as first:
        with Dev(data_folder) as second:
            assert second.ends() == 1
            assert f"{data_folder} is in use by process {first.process.pid}" in second.said()
        with Dev(tmp_path / "other", port=first.port) as third:
            assert third.ends() == 1
            assert f"127.0.0.1:{first.port} cannot be listened on (Address already in use): name another port with --port" in third.said()
        assert charge(first.gateway, "still").send().status == 201
        first.interrupt()
        assert first.ends() == 0


def test_a_part_that_dies_ends_everything(data_folder: Path) -> None:
    """When a part ends by itself, `dev` names it, shows its log, stops the others and exits with 1."""
    with Dev(data_folder).ready() as dev:
        os.kill(dev.pid_of("gateway"), signal.SIGKILL)
        assert dev.ends() == 1
        assert "the gateway ended unexpectedly (exit code -9); the end of " in dev.said()


def test_a_second_signal_does_not_wait_for_the_drain(data_folder: Path) -> None:
    """The first Ctrl-C drains running requests, the second one ends everything at once, with 1."""
    with Dev(data_folder).ready() as sample, Dev(data_folder / "own", "--upstream", sample.sample).ready() as dev:
        thread, _ = in_background(charge(dev.gateway, "slow", delay="60s"))
        wait_for(lambda: account(sample.sample, "acme")["charges"] == 1)
        dev.interrupt()
        wait_for(lambda: "stopping" in dev.said() and "Draining" in (dev.data / "gateway.log").read_text())
        dev.interrupt()
        assert dev.ends() == 1
        thread.join()


def test_an_api_that_is_not_there_is_told_of(data_folder: Path) -> None:
    """Its user learns it from the start, not from a 502; the gateway runs all the same, since the API may come."""
    nobody = f"http://127.0.0.1:{free_port()}"
    with Dev(data_folder, "--upstream", nobody).ready() as dev:
        assert f"nothing listens on {nobody} yet: requests fail until your API is there" in dev.said()
        assert charge(dev.gateway, "early").send().status == 502
        dev.interrupt()
        assert dev.ends() == 0


def test_an_api_of_the_users_own_is_guarded(data_folder: Path) -> None:
    """With --upstream a POST with a key is answered once and replayed, one without a key passes."""
    with Dev(data_folder).ready() as sample, Dev(data_folder / "own", "--upstream", sample.sample + "/").ready() as dev:
        assert "nothing listens" not in dev.said()
        executed, replayed = charge(dev.gateway, "once").send(), charge(dev.gateway, "once").send()
        assert (executed.status, replayed.body) == (201, executed.body)
        assert account(sample.sample, "acme")["charges"] == 1
        assert charge(dev.gateway, None).send().status == 201
        assert account(dev.gateway, "acme")["charges"] == 2
        dev.interrupt()
        assert dev.ends() == 0


def test_a_configuration_of_the_users_own_is_served(data_folder: Path, tmp_path: Path) -> None:
    """With --config the file finds databases, secret and sample in the environment."""
    file = tmp_path / "own.yaml"
    file.write_text(
        f"""
        listen: 127.0.0.1:{free_port()}
        admin: {{listen: 127.0.0.1:{free_port()}}}
        postgres: {{dsn: "${{GATEWAY_POSTGRES_DSN}}"}}
        redis: {{url: "${{GATEWAY_REDIS_URL}}"}}
        digest_secret: "${{GATEWAY_DIGEST_SECRET}}"
        drain: {{delay: 0s}}
        upstreams: {{sample: {{url: "${{GATEWAY_UPSTREAM_URL}}"}}}}
        routes:
          - {{id: all, methods: [POST], path: /**, upstream: sample, idempotency: {{principal: none}}}}
        """
    )
    with Dev(data_folder, "--config", str(file)).ready() as dev:
        assert f"as {file} says" in dev.output
        executed, replayed = charge(dev.gateway, "once").send(), charge(dev.gateway, "once").send()
        assert (executed.status, replayed.body) == (201, executed.body)
        dev.interrupt()
        assert dev.ends() == 0


def test_only_the_command_line_names_a_configuration(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that has read the `env` file of one run gets a run of its own from the next; and a file says itself where to listen."""
    monkeypatch.setenv("GATEWAY_CONFIG", "/none/gateway.yaml")
    with Dev(data_folder).ready() as dev:
        assert "a sample payments API" in dev.output
        assert f"GATEWAY_CONFIG={data_folder}/gateway.yaml" in (data_folder / "env").read_text().splitlines()
        dev.interrupt()
        assert dev.ends() == 0
    with Dev(data_folder, "--config", "own.yaml", "--port", "8080") as dev:
        assert dev.ends() == 2
        assert "change own.yaml" in dev.said()


def test_mistakes_are_named_and_nothing_is_left(data_folder: Path, tmp_path: Path) -> None:
    """A URL that is none is 2, a wrong configuration 78, both with the reason and without a traceback."""
    with Dev(data_folder, "--upstream", "localhost:3000") as dev:
        assert dev.ends() == 2
        assert "--upstream: an upstream is http://host:port" in dev.said()
    file = tmp_path / "own.yaml"
    file.write_text("listen: nowhere\n")
    with Dev(data_folder, "--config", str(file)) as dev:
        assert dev.ends() == 78
        assert "own.yaml:1:9: listen:" in dev.said()
        assert "Traceback" not in dev.said()
    for name in ("redis.pid", "sample.pid"):
        assert gone(int((data_folder / name).read_text().split()[0]))
