"""What each feature of a route costs: calls and CPU of a route that uses it, against one that uses none.

The other half, that a feature costs a route nothing that does not use it, is in the first line: it is the route with all of them off. Every
gateway counts, logs and forwards as usual. Calls are the same on every run; CPU is measured in turns.
"""

import statistics
import sys
from dataclasses import dataclass

import uvloop

from benchmarks.calls import count
from benchmarks.rounds import in_turns, ratio
from benchmarks.systems import POLICY, Settings, Stage, System, start_gateway

PLAIN = "none"


@dataclass(frozen=True, slots=True)
class Feature:
    """Settings that turn it on: in the route's `idempotency`, in the route, in the upstream, in the file."""

    policy: str = ""
    route: str = ""
    target: str = ""
    more: str = ""


RECONCILE = (
    "reconcile: {probe: lookup, caller_bound: upstream, request: {path: '/v1/charges?key={key}'}, "
    "rules: [{status: [201], verdict: executed}]%s}"
)
LATEST = ", max_execution: 2m"
FEATURES = {
    PLAIN: Feature(),
    "access_log: false": Feature(more="access_log: false"),
    "notice: false": Feature(policy="key: {notice: false}"),
    "duplicates": Feature(policy="duplicates: 60s"),
    "duplicates, mark_duplicates": Feature(policy="duplicates: 60s, mark_duplicates: true"),
    "status_fields": Feature(policy="status_fields: true"),
    "status_fields, expose_headers": Feature(policy="status_fields: true, expose_headers: true"),
    "cors": Feature(route="cors: {origins: ['https://shop.example']}"),
    "hints": Feature(policy="hints: [{header: X-Not-Executed, statuses: [503], outcome: not-executed}]"),
    "proxy_status": Feature(more="proxy_status: true"),
    "forwarded: both": Feature(more="forwarded: both"),
    "forward_key: derived": Feature(policy="forward_key: derived"),
    "reconcile": Feature(policy=RECONCILE % "", target=LATEST),
    "reconcile, capture": Feature(policy=RECONCILE % ", capture: {account: /account}", target=LATEST),
    "resend (the request is sealed)": Feature(
        policy="reconcile: {probe: resend}", more="encryption_key: a-key-of-the-benchmark-0123456789-0123456789"
    ),
    "encryption: answers": Feature(more="encryption_key: a-key-of-the-benchmark-0123456789-0123456789\nencryption: {answers: true}"),
    "quota: new_keys": Feature(policy="quota: {new_keys: {rate: 10000/s, burst: 1000000}}"),
    "quota: new_keys, in_flight": Feature(policy="quota: {in_flight: 100000, new_keys: {rate: 10000/s, burst: 1000000}}"),
    "in_flight: wait": Feature(policy="in_flight: wait"),
    "fingerprint.ignore": Feature(policy="fingerprint: {ignore: [/description]}"),
    "participate: progress": Feature(policy="participate: {progress: true}", more="progress: {listen: 127.0.0.1:0}"),
    "participate: co_commit (the upstream commits nothing)": Feature(policy="participate: {co_commit: true}"),
    "stream": Feature(policy="stream: true"),
}


def run(on: Stage, requests: int, rounds: int) -> str:
    """A table in Markdown: calls of one new key and one replay, then CPU of a new key."""
    counted: dict[str, tuple[int, int]] = {}
    systems: list[System] = []
    for number, (name, feature) in enumerate(FEATURES.items()):
        policy = POLICY + (f", {feature.policy}" if feature.policy else "")
        settings = Settings(policy=policy, route=feature.route, target=feature.target, more=feature.more)
        try:
            database = on.database(f"feature-{number}")
            system = start_gateway(on, f"feature-{number}", dsn=database, settings=settings)
            figures = count(on.folder, database, on.redis, on.upstream, settings=settings)
        except Exception as error:  # the others are still worth their figures
            print(f"{name} is left out: {str(error)[-400:]}", file=sys.stderr)
            continue
        counted[name] = figures["new key"]["calls"], figures["replay"]["calls"]
        systems.append(System(name, system.port, system.pid))
    samples = uvloop.run(in_turns(systems, 64, requests, rounds))
    base = samples[PLAIN]
    lines = ["| used | calls, new key | more | calls, replay | more | CPU us, new key | x none |", "| --- |" + " ---: |" * 6]
    for name, (new, replay) in counted.items():
        cpu = statistics.median(one.cpu for one in samples[name]) * 1e6
        more = new - counted[PLAIN][0], replay - counted[PLAIN][1]
        lines.append(
            f"| {name} | {new} | {more[0]:+} | {replay} | {more[1]:+} | {cpu:.0f} | {ratio(samples[name], base, lambda one: one.cpu):.2f} |"
        )
    return "\n".join(lines)
