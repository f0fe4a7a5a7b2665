"""What `dev` prints once everything runs."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from gateway.core.accepted import operation_id

AMOUNT = 100
OPENING_BALANCE = 100_000
ENV = "env"
"""The file in the data folder that holds what commands need in the environment, a `NAME=value` a line."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are: URLs of the gateway, of its admin listener and of the upstream, if we know it, and the data folder."""

    gateway: str
    admin: str
    upstream: str | None
    data: Path


def sample_tour(places: Places, name: str) -> str:
    """The tour of the sample API. `name` must be new: its keys and its account are then unused."""

    def fields(number: int, *extra: str) -> str:
        lines = ["Authorization: Bearer alice", "Content-Type: application/json", f"Idempotency-Key: {name}-{number}", *extra]
        return " ".join(f"-H '{line}'" for line in lines)

    def charge(number: int, *extra: str, amount: int = AMOUNT) -> str:
        body = f'{{"account":"{name}","amount":{amount},"currency":"EUR"}}'
        return f"curl -i {places.gateway}/v1/charges {fields(number, *extra)} -d '{body}'"

    def ride(number: int, *extra: str) -> str:
        return f'curl -i {places.gateway}/v1/rides {fields(number, *extra)} -d \'{{"rider":"{name}-rider","amount":{AMOUNT}}}\''

    operation = f"{places.gateway}/.idempotency/operations/{operation_id('create-charge', f'{name}-7')}"
    refund = f'curl -i {places.gateway}/v1/refunds {fields(4)} -d \'{{"charge":"ch_000001","amount":1}}\''
    left = OPENING_BALANCE - AMOUNT
    steps = [
        (f"A first request: the API runs it. 201, the balance is {left}.", [charge(1)]),
        ("The same again: the stored answer, byte for byte, with Idempotent-Replayed: true. The API is not asked.", [charge(1)]),
        ("Another amount under the used key: 422 key-reused, never somebody else's answer.", [charge(1, amount=999)]),
        (
            "A retry while the first is still running: 409 request-in-progress at once; the first gets its 201.",
            [charge(2, "X-Sample-Delay: 2s") + " &", "sleep 1; " + charge(2), "wait"],
        ),
        (
            "The API does not answer within 3 s: 504 outcome-unknown. It may have charged, so a retry is 409 and never runs it again.",
            [charge(3, "X-Sample-Delay: 5s"), charge(3)],
        ),
        (
            f"What was booked: 3 charges, a balance of {left - 2 * AMOUNT}. The one with the unknown outcome had gone through.",
            [f"curl -s {places.gateway}/v1/accounts/{name}"],
        ),
        (
            "Once the API has surely finished, the gateway looked the key up there (`reconcile` in its map): the retry gets the charge.",
            ["sleep 15; " + charge(3)],
        ),
        (
            "Where nobody can be asked (refunds, here) a person decides: what waits for one, how it came to that, and the verdict. "
            "It is in the books, so a retry gets 201 from then on.",
            [
                f"{refund} -H 'X-Sample-Fail: drop'",
                command(places, "dead-letters list"),
                command(places, f"records show --key {name}-4"),
                command(places, f"records resolve --key {name}-4 --completed --status 201 --no-body --reason 'it is in the books'"),
                refund,
            ],
        ),
        (
            "An API that takes part books a ride: ride, charge at the payments API, receipt. Its worker is killed between charge and "
            "receipt: 502 outcome-unknown. Once that has surely ended, the retry goes on behind the charge: 201.",
            [ride(5, "X-Sample-Die: after-charge-point"), "sleep 11; " + ride(5)],
        ),
        (
            "What was booked: one ride, one receipt, and the second attempt resumed at charge_created. One charge: a balance of "
            f"{OPENING_BALANCE - AMOUNT}.",
            [
                f"curl -s '{places.gateway}/v1/rides?idempotency_key={name}-5'",
                f"curl -s {places.gateway}/v1/accounts/{name}-rider",
            ],
        ),
        (
            "The worker is killed after its commit, which holds the answer too: 201 all the same, and replayed to a retry.",
            [ride(6, "X-Sample-Die: after-commit"), ride(6)],
        ),
        (
            "A client that should not wait prefers it (Prefer: respond-async): 202 as soon as it is sure that the charge will be run, with "
            "a Location. How it stands, at the latest after 10 s: completed. Its answer, 201, as a retry gets it.",
            [
                charge(7, "Prefer: respond-async", "X-Sample-Delay: 2s"),
                f"curl -s '{operation}?wait=10' -H 'Authorization: Bearer alice'",
                f"curl -i {operation}/response -H 'Authorization: Bearer alice'",
            ],
        ),
        ("What the gateway counted.", [f"curl -s {places.admin}/metrics | grep -E '^idempotency_(requests|settlements)_total.* [1-9]'"]),
    ]
    lines = [heading(places, "a sample payments API"), "Try, in another shell:", ""]
    for number, (title, commands) in enumerate(steps, 1):
        lines += [f"{number}. {title}", "", *(f"   {command}" for command in commands), ""]
    return "\n".join([*lines, footer(places)])


def own_tour(places: Places) -> str:
    """For the user's own API: what is guarded, and how to see it."""
    lines = [
        heading(places, "your API"),
        "Every POST and PATCH that carries an Idempotency-Key is guarded, for each Authorization apart. Send one twice:",
        "",
        f"   curl -i -X POST {places.gateway}/YOUR/PATH -H 'Authorization: Bearer me' -H 'Idempotency-Key: first' -d ''",
        "",
        "The second answer is the first one, byte for byte, with Idempotent-Replayed: true; your API saw one request.",
        "",
    ]
    return "\n".join([*lines, footer(places)])


def plain_tour(places: Places, file: Path) -> str:
    """For a configuration of the user's own."""
    first = f"\nThe gateway is on {places.gateway}, as {file} says. GATEWAY_UPSTREAM_URL, for its use, is {places.upstream}.\n"
    return first + "\n" + footer(places) + "Commands also need whatever other variables your file uses.\n"


def heading(places: Places, what: str) -> str:
    behind = f" on {places.upstream}" if places.upstream else ""
    return f"\nThe gateway is on {places.gateway}, in front of {what}{behind}.\n"


def command(places: Places, words: str) -> str:
    """A command of ours, with the configuration and the databases of this run, in whatever folder the reader's shell is."""
    return f"(set -a; . {shlex.quote(str(places.data / ENV))}; {shlex.quote(sys.executable)} -m gateway {words})"


def footer(places: Places) -> str:
    return (
        f"Console: {places.admin}/console   Metrics: {places.admin}/metrics   Readiness: {places.admin}/readyz\n"
        f"Logs, the databases, and their addresses and passwords ({ENV}): {places.data}\n"
        f"Commands: {command(places, '--help')}\n"
        "Ctrl-C stops everything; the data stays.\n"
    )
