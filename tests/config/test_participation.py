"""Upstreams that take part: what a configuration may say of them."""

from pathlib import Path

import pytest

from gateway.config import TcpListener
from gateway.core.policy import OnUnknown, Participate
from tests.config.support import HEAD, ROUTES, mistakes, read

LISTENER = "progress: {listen: 127.0.0.1:9465}\n"
BASE = HEAD + ROUTES


def route(*lines: str) -> str:
    return BASE + "".join([f"      {line}\n" for line in lines])


def test_the_settings(tmp_path: Path) -> None:
    """Off where the file says nothing."""
    config = read(tmp_path, route("participate: {progress: true, co_commit: true}", "on_unknown: resume") + LISTENER)
    policy = config.routes[0].policy
    assert policy is not None
    assert (policy.participate, policy.on_unknown) == (Participate(progress=True, co_commit=True), OnUnknown.RESUME)
    assert policy.takes_part
    assert policy.reconcilable
    assert config.progress is not None
    assert config.progress.listen == TcpListener("127.0.0.1", 9465)
    plain = read(tmp_path, BASE)
    assert plain.progress is None
    assert plain.routes[0].policy is not None
    assert not plain.routes[0].policy.takes_part


PLACE = "gateway.yaml:11:{}: routes[0].idempotency.{}"
MISTAKES = [
    pytest.param(
        ("participate: {co_commit: true}",),
        "encryption: {answers: true}\nencryption_key: 0123456789abcdef0123456789abcdef\n",
        PLACE.format(
            32,
            "participate.co_commit: an upstream commits its answer in clear: SQL has no key; remove this, or "
            "`encryption: {{answers: true}}`",
        ),
        id="sealed",
    ),
    pytest.param(
        ("participate: {progress: true}",),
        "",
        PLACE.format(31, "participate.progress: needs `progress: {{listen: 127.0.0.1:9465}}`, where the upstream tells it"),
        id="no listener",
    ),
    pytest.param(
        ("on_unknown: resume",),
        "",
        PLACE.format(19, "on_unknown: resume needs an upstream that tells how far it has come: write `participate: {{progress: true}}`"),
        id="nothing to resume",
    ),
    pytest.param(
        ("participate: {co_commit: true}", "stream: true"),
        "",
        PLACE.format(
            32,
            "participate.co_commit: an answer that streams has left before it is known what is stored; remove this, or `stream`",
        ),
        id="streams",
    ),
]


@pytest.mark.parametrize(("lines", "more", "expected"), MISTAKES)
def test_what_cannot_work(tmp_path: Path, lines: tuple[str, ...], more: str, expected: str) -> None:
    assert mistakes(tmp_path, route(*lines) + more) == [expected.replace("{{", "{").replace("}}", "}")]


@pytest.mark.parametrize("word", ["resume"])
def test_all_that_is_true_of_reexecute(tmp_path: Path, word: str) -> None:
    """The upstream must see the key, must have a time limit, and nobody cancels."""
    found = mistakes(tmp_path, route("participate: {co_commit: true}", f"on_unknown: {word}", "forward_key: none"))
    assert [one.partition(": routes")[2] for one in found] == [
        "[0].idempotency.on_unknown: resume needs an upstream that deduplicates by key, and the upstream never sees the key, since "
        "`forward_key: none`"
    ]


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("0.0.0.0:8080", "0.0.0.0:8080 is the address of `listen` too; upstreams have a listener of their own"),
        ("127.0.0.1:9464", "127.0.0.1:9464 is the address of `admin.listen` too; upstreams have a listener of their own"),
        ("unix:/nowhere/a.sock", "/nowhere does not exist; make it (mkdir -p) for the user of the gateway, or name another"),
    ],
)
def test_a_listener_of_its_own(tmp_path: Path, listen: str, expected: str) -> None:
    text = route("participate: {progress: true}") + f'progress: {{listen: "{listen}"}}\n'
    assert mistakes(tmp_path, text) == [f"gateway.yaml:12:20: progress.listen: {expected}"]


def test_an_address_is_required(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, route("participate: {progress: true}") + "progress: {}\n")
    assert "progress.listen: is required" in found


def test_warnings(tmp_path: Path) -> None:
    """What has no effect, and what the upstream must be able to do."""
    observed = read(tmp_path, route("mode: observe", "participate: {co_commit: true}"))
    assert ["has no effect with `mode: observe`" in warning.message for warning in observed.warnings].count(True) == 1
    idle = read(tmp_path, BASE + LISTENER)
    assert ["no route has `participate: {progress: true}`" in warning.message for warning in idle.warnings].count(True) == 1
    resuming = read(tmp_path, route("participate: {progress: true}", "on_unknown: resume") + LISTENER)
    assert ["go on from its last recovery point" in warning.message for warning in resuming.warnings].count(True) == 1
