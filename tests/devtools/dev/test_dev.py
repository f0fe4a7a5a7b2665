"""`idempotency-gateway dev`: one command runs everything, its tour is true, and nothing of it stays behind."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.devtools.embedded.ports import free_port
from tests.devtools.dev.running import Answer, Curl, Dev, House, curls, sample_alone, wait_for
from tests.devtools.embedded.leftovers import gone
from tests.support.services import new_root, remove_data

LONG_PAUSE = 0.5
"""Seconds between two looks at what takes a quarter of a minute."""


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """The one folder that is empty at first. The shell has read the `env` file of another run."""
    folder = new_root()
    house = House(folder, {"GATEWAY_CONFIG": "/none/gateway.yaml"})
    yield house
    house.close()
    remove_data(folder)


@pytest.fixture(scope="module")
def own_api() -> Iterator[str]:
    """The URL of an API of the user's own."""
    with sample_alone() as url:
        yield url


def charge(url: str, key: str | None, *, account: str = "acme", delay: str = "0s") -> Curl:
    headers = {"Authorization": "Bearer alice", "Content-Type": "application/json", "X-Sample-Delay": delay}
    if key is not None:
        headers["Idempotency-Key"] = key
    return Curl("POST", url + "/v1/charges", headers, b'{"account":"%b","amount":100,"currency":"EUR"}' % account.encode())


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


def test_the_tour_shows_what_it_says(house: House) -> None:
    """Every command of the tour gets the answer that the tour names. What it is told to wait for is waited for at the end, all at once."""
    dev = house.dev()
    first, same, other, slow, meanwhile, late, retry, books, found, refund, refunded, *rides, deferred, standing, stored, metrics = curls(
        dev.output
    )
    killed, resumed, booked_rides, rider, lost_answer, told_again = rides
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
    doubtful = killed.send()
    assert (doubtful.status, problem(doubtful)) == (502, "outcome-unknown")
    lost = refund.send()
    assert (lost.status, problem(lost)) == (502, "outcome-unknown")
    listing, showing, resolving, help_ = [line.partition("(set")[2] for line in dev.output.splitlines() if "(set -a" in line]
    waiting = answer_of("(set" + listing, dev.data.parent).splitlines()[-1].split()
    assert waiting[:3] == ["dead_letter", "create-refund", f"{name}-4"]
    assert "upstream_disconnected" in answer_of("(set" + showing, dev.data.parent)
    assert "completed" in answer_of("(set" + resolving, dev.data.parent)
    resolved = refunded.send()
    assert (resolved.status, resolved.headers["idempotent-replayed"]) == (201, "true")
    assert "Usage:" in answer_of("(set" + help_, dev.data.parent)
    accepted = deferred.send()
    assert accepted.status == 202
    assert standing.url.endswith(accepted.headers["location"] + "?wait=10")
    wait_for(lambda: json.loads(standing.send().body)["status"] == "completed")
    answer = stored.send()
    assert (answer.status, json.loads(answer.body)["balance"]) == (201, 99_601)  # one was refunded
    wait_for(lambda: found.send().status == 201, LONG_PAUSE)
    assert found.send().headers["idempotent-replayed"] == "true"
    wait_for(lambda: resumed.send().status == 201, LONG_PAUSE)
    ride = json.loads(booked_rides.send().body)
    assert (len(ride["rides"]), len(ride["receipts"])) == (1, 1)
    assert [attempt["resumed_at"] for attempt in ride["attempts"]] == [None, "charge_created"]
    assert json.loads(rider.send().body)["balance"] == 99_900
    committed, repeated = lost_answer.send(), told_again.send()
    assert (committed.status, repeated.body, repeated.headers["idempotent-replayed"]) == (201, committed.body, "true")
    counted = metrics.send().body.decode()
    assert 'idempotency_requests_total{decision="replay",mode="enforce",route="create-charge"} 4.0' in counted


def test_a_second_one_on_the_same_folder_or_port_says_so(house: House, tmp_path: Path) -> None:
    """The folder in use and the port in use are named, the latter with its flag; the first one is not disturbed."""
    first = house.dev()
    with Dev(first.data) as second:
        assert second.ends() == 1
        assert f"{first.data} is in use by process {first.process.pid}" in second.said()
    with Dev(tmp_path / "other", port=first.port) as third:
        assert third.ends() == 1
        assert f"127.0.0.1:{first.port} cannot be listened on (Address already in use): name another port with --port" in third.said()
        assert "starting" not in third.said()
    assert charge(first.gateway, "still").send().status == 201


def test_only_the_command_line_names_a_configuration(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that has read the `env` file of one run gets a run of its own from the next; and a file says itself where to listen."""
    dev = house.dev()
    assert "a sample payments API" in dev.output
    assert f"GATEWAY_CONFIG={dev.data}/gateway.yaml" in (dev.data / "env").read_text().splitlines()
    monkeypatch.setenv("GATEWAY_CONFIG", "/none/gateway.yaml")
    with Dev(tmp_path, "--config", "own.yaml", "--port", "8080") as refused:
        assert refused.ends() == 2
        assert "change own.yaml" in refused.said()


def test_ctrl_c_ends_everything(house: House) -> None:
    dev = house.dev()
    dev.interrupt()
    assert dev.ends() == 0


def test_a_killed_run_is_picked_up(house: House) -> None:
    """After kill -9 the next start on the same folder and ports ends what was left, and still knows every key."""
    killed = house.dev()
    executed = charge(killed.gateway, "kept", account="kept").send()
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait()
    dev = house.dev()
    assert all(gone(pid) for pid in killed.pids)
    assert dev.gateway == killed.gateway
    replayed = charge(dev.gateway, "kept", account="kept").send()
    assert (replayed.body, replayed.headers["idempotent-replayed"]) == (executed.body, "true")
    assert account(dev.gateway, "kept")["charges"] == 1


def test_a_part_that_dies_ends_everything(house: House) -> None:
    """When a part ends by itself, `dev` names it, shows its log, stops the others and exits with 1."""
    dev = house.dev()
    os.kill(dev.pid_of("gateway"), signal.SIGKILL)
    assert dev.ends() == 1
    assert "the gateway ended unexpectedly (exit code -9); the end of " in dev.said()


def test_a_second_signal_does_not_wait_for_the_drain(used_folder: Path, own_api: str) -> None:
    """The first Ctrl-C drains running requests, the second one ends everything at once, with 1."""
    with Dev(used_folder, "--upstream", own_api).ready() as dev:
        thread, _ = in_background(charge(dev.gateway, "slow", account="slow", delay="60s"))
        wait_for(lambda: account(own_api, "slow")["charges"] == 1)
        dev.interrupt()
        wait_for(lambda: "stopping" in dev.said() and "Draining" in (dev.data / "gateway.log").read_text())
        dev.interrupt()
        assert dev.ends() == 1
        thread.join()


def test_an_api_that_is_not_there_is_told_of(used_folder: Path) -> None:
    """Its user learns it from the start, not from a 502; the gateway runs all the same, since the API may come."""
    nobody = f"http://127.0.0.1:{free_port()}"
    with Dev(used_folder, "--upstream", nobody).ready() as dev:
        assert f"nothing listens on {nobody} yet: requests fail until your API is there" in dev.said()
        assert charge(dev.gateway, "early").send().status == 502
        dev.interrupt()
        assert dev.ends() == 0


def test_an_api_of_the_users_own_is_guarded(used_folder: Path, own_api: str) -> None:
    """With --upstream a POST with a key is answered once and replayed, one without a key passes."""
    with Dev(used_folder, "--upstream", own_api + "/").ready() as dev:
        assert "nothing listens" not in dev.said()
        executed, replayed = charge(dev.gateway, "once").send(), charge(dev.gateway, "once").send()
        assert (executed.status, replayed.body) == (201, executed.body)
        assert account(own_api, "acme")["charges"] == 1
        assert charge(dev.gateway, None).send().status == 201
        assert account(dev.gateway, "acme")["charges"] == 2
        dev.interrupt()
        assert dev.ends() == 0


def test_a_configuration_of_the_users_own_is_served(used_folder: Path, tmp_path: Path) -> None:
    """With --config the file finds databases, secret and sample in the environment. SIGTERM is as good as Ctrl-C."""
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
    with Dev(used_folder, "--config", str(file)).ready() as dev:
        assert f"as {file} says" in dev.output
        executed, replayed = charge(dev.gateway, "once").send(), charge(dev.gateway, "once").send()
        assert (executed.status, replayed.body) == (201, executed.body)
        dev.process.send_signal(signal.SIGTERM)
        assert dev.ends() == 0


def test_mistakes_are_named_and_nothing_is_left(used_folder: Path, tmp_path: Path) -> None:
    """A URL that is none is 2, a wrong configuration 78, both with the reason and without a traceback."""
    with Dev(used_folder, "--upstream", "localhost:3000") as dev:
        assert dev.ends() == 2
        assert "--upstream: an upstream is http://host:port" in dev.said()
    file = tmp_path / "own.yaml"
    file.write_text("listen: nowhere\n")
    with Dev(used_folder, "--config", str(file)) as dev:
        assert dev.ends() == 78
        assert "own.yaml:1:9: listen:" in dev.said()
        assert "Traceback" not in dev.said()
    for name in ("redis.pid", "sample.pid"):
        assert gone(int((used_folder / name).read_text().split()[0]))
