"""What the dashboard shows, and the queries behind it.

Rows follow the questions of the person who looks: is something wrong, what do clients get, are operations safe, what is in doubt, which
store or upstream is slow, how full is it.
"""

from dataclasses import dataclass, field

ROUTE = 'route=~"$route"'
GATEWAY = 'instance=~"$instance"'
BOTH = f"{GATEWAY},{ROUTE}"
RATE = "[$__rate_interval]"

Query = tuple[str, str]
"""An expression, and the legend of its series."""


@dataclass(frozen=True)
class Panel:
    """A graph, or a figure (`stat`) that turns red from `red` on."""

    title: str
    text: str
    queries: list[Query]
    unit: str = "short"
    stat: bool = False
    red: float = 1
    stacked: bool = False


@dataclass(frozen=True)
class Row:
    title: str
    panels: list[Panel] = field(default_factory=list)


def rate(metric: str, labels: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) (rate(idempotency_{metric}{{{labels}}}{RATE}))"


def quantile(share: float, metric: str, labels: str, *by: str) -> str:
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', labels, 'le', *by)})"


def increase(metric: str, labels: str, by: str = "") -> str:
    over = f" by ({by})" if by else ""
    return f"sum{over} (increase(idempotency_{metric}{{{labels}}}[$__range]))"


ROWS = [
    Row(
        "Is something wrong?",
        [
            Panel(
                "Alerts",
                "Alerts that fire.",
                [('count(ALERTS{alertname=~"Idempotency.*",alertstate="firing"}) or vector(0)', "")],
                stat=True,
            ),
            Panel(
                "Gateways down",
                "Gateways that Prometheus cannot read.",
                [(f'sum(1 - up{{job=~".*idempotency-gateway.*",{GATEWAY}}})', "")],
                stat=True,
            ),
            Panel(
                "Executed twice",
                "Evidence, within the shown time, that an operation ran twice.",
                [(increase("conflicting_executions_total", BOTH), "")],
                stat=True,
            ),
            Panel(
                "Records lost",
                "Records that Postgres had lost, within the shown time.",
                [(increase("lost_records_total", GATEWAY), "")],
                stat=True,
            ),
            Panel(
                "Dead letters",
                "Operations that wait for a person.",
                [(f"sum(max by (route) (idempotency_route_dead_letters{{{BOTH}}}))", "")],
                stat=True,
            ),
            Panel(
                "Oldest doubt",
                "Age of the oldest record with an unknown outcome.",
                [(f"max(idempotency_route_unknown_oldest_age_seconds{{{BOTH}}})", "")],
                "s",
                stat=True,
                red=900,
            ),
            Panel(
                "Refused for a store",
                "Share of guarded requests that got 503, since Postgres could not be asked.",
                [
                    (
                        f'sum(rate(idempotency_requests_total{{decision="store_unavailable",{BOTH}}}{RATE}))'
                        f' / sum(rate(idempotency_requests_total{{mode!="off",{BOTH}}}{RATE}))',
                        "",
                    )
                ],
                "percentunit",
                stat=True,
                red=0.01,
            ),
            Panel(
                "Targets down",
                "Targets of upstreams that are left alone.",
                [(f"sum(1 - min by (upstream, target) (idempotency_upstream_target_up{{{GATEWAY}}}))", "")],
                stat=True,
            ),
        ],
    ),
    Row(
        "What clients get",
        [
            Panel(
                "Requests by decision",
                "Finished requests.",
                [(rate("requests_total", BOTH, "decision"), "{{decision}}")],
                "reqps",
                stacked=True,
            ),
            Panel("Requests by route", "Finished requests.", [(rate("requests_total", BOTH, "route"), "{{route}}")], "reqps", stacked=True),
            Panel(
                "Duration by decision",
                "From a request's head to the end of its answer: 99 in a hundred are at least as fast.",
                [(quantile(0.99, "request_duration_seconds", BOTH, "decision"), "{{decision}}")],
                "s",
            ),
            Panel(
                "Answers",
                "Answers to clients, by class of status.",
                [(rate("responses_total", BOTH, "code_class"), "{{code_class}}")],
                "reqps",
                stacked=True,
            ),
            Panel(
                "Server errors",
                "Share of answers with a status of 500 or above.",
                [
                    (
                        f'sum by (route) (rate(idempotency_responses_total{{code_class="5xx",{BOTH}}}{RATE}))'
                        f" / sum by (route) (rate(idempotency_responses_total{{{BOTH}}}{RATE}))",
                        "{{route}}",
                    )
                ],
                "percentunit",
            ),
            Panel(
                "Share of replays",
                "Of requests with a key: answers that cost the upstream nothing.",
                [
                    (
                        f'sum by (route) (rate(idempotency_requests_total{{decision=~"replay|replay_without_body",{BOTH}}}{RATE}))'
                        f' / sum by (route) (rate(idempotency_requests_total{{mode!="off",{BOTH}}}{RATE}))',
                        "{{route}}",
                    )
                ],
                "percentunit",
            ),
        ],
    ),
    Row(
        "Are operations safe?",
        [
            Panel(
                "Attempts by what they came to",
                "complete: stored; release: proved not executed; doubt: found out later.",
                [(rate("settlements_total", BOTH, "settlement", "reason"), "{{settlement}} {{reason}}")],
                "ops",
            ),
            Panel(
                "Signs of trouble",
                "Lapsed leases, second executions, lost records.",
                [
                    (rate("zombies_total", BOTH, "route"), "lease lapsed {{route}}"),
                    (rate("conflicting_executions_total", BOTH, "route"), "executed twice {{route}}"),
                    (f"sum(rate(idempotency_lost_records_total{{{GATEWAY}}}{RATE}))", "records lost"),
                    (rate("stale_writes_total", GATEWAY, "operation"), "stale {{operation}}"),
                ],
                "ops",
            ),
            Panel(
                "Keys",
                "Keys of other operations, keys that look guessable, equal requests under different keys.",
                [
                    (rate("requests_total", f'decision="key_misuse",{BOTH}', "route"), "misuse {{route}}"),
                    (rate("key_notices_total", BOTH, "route", "kind"), "{{kind}} {{route}}"),
                    (rate("duplicates_total", BOTH, "route"), "duplicates {{route}}"),
                ],
                "ops",
            ),
            Panel(
                "The database's clock",
                "Steps, and what is not judged by it meanwhile.",
                [
                    (rate("clock_steps_total", GATEWAY, "direction"), "step {{direction}}"),
                    (f"max by (judgement) (idempotency_clock_suspended{{{GATEWAY}}})", "suspended: {{judgement}}"),
                ],
            ),
        ],
    ),
    Row(
        "What is in doubt?",
        [
            Panel(
                "Unknown records",
                "By route; of them dead letters, which wait for a person.",
                [
                    (f"max by (route) (idempotency_route_unknown{{{BOTH}}})", "{{route}}"),
                    (f"max by (route) (idempotency_route_dead_letters{{{BOTH}}})", "dead letters {{route}}"),
                ],
            ),
            Panel(
                "Age of the oldest",
                "How long the oldest unknown record has waited.",
                [(f"max by (route) (idempotency_route_unknown_oldest_age_seconds{{{BOTH}}})", "{{route}}")],
                "s",
            ),
            Panel(
                "Accepted operations that wait",
                "Pending: promised and not sent; and those that were given up.",
                [
                    (f"max by (route) (idempotency_route_pending{{{BOTH}}})", "{{route}}"),
                    (rate("abandoned_total", BOTH, "route"), "given up {{route}}"),
                ],
            ),
            Panel(
                "How long they wait",
                "The oldest, and from acceptance to sending: 99 in a hundred wait no longer.",
                [
                    (f"max by (route) (idempotency_route_pending_oldest_age_seconds{{{BOTH}}})", "oldest {{route}}"),
                    (quantile(0.99, "accepted_wait_seconds", BOTH, "route"), "sent {{route}}"),
                ],
                "s",
            ),
            Panel(
                "Looks",
                "What asking the upstream gave.",
                [(rate("reconcile_total", BOTH, "route", "result"), "{{result}} {{route}}")],
                "ops",
            ),
            Panel(
                "Events",
                "What became of webhook events.",
                [(rate("webhook_events_total", BOTH, "route", "result"), "{{result}} {{route}}")],
                "ops",
            ),
        ],
    ),
    Row(
        "Stores",
        [
            Panel(
                "Duration of store operations",
                "99 in a hundred are at least as fast.",
                [(quantile(0.99, "store_duration_seconds", GATEWAY, "store", "operation"), "{{store}} {{operation}}")],
                "s",
            ),
            Panel(
                "Store operations",
                "local: replays from a process's own memory.",
                [(rate("store_duration_seconds_count", GATEWAY, "store", "operation"), "{{store}} {{operation}}")],
                "ops",
            ),
            Panel(
                "Errors of stores",
                "By reason; and whether Redis counts as away.",
                [
                    (rate("store_errors_total", GATEWAY, "store", "operation", "reason"), "{{store}} {{operation}} {{reason}}"),
                    (f"max(idempotency_redis_breaker_open{{{GATEWAY}}})", "Redis is away"),
                ],
                "ops",
            ),
            Panel(
                "Rows a round trip",
                "The mean: grows with load.",
                [
                    (
                        f"{rate('store_batch_size_sum', GATEWAY, 'operation')} / {rate('store_batch_size_count', GATEWAY, 'operation')}",
                        "{{operation}}",
                    )
                ],
            ),
            Panel("Records", "In the store, by state.", [(f"max by (status) (idempotency_records{{{GATEWAY}}})", "{{status}}")]),
            Panel(
                "Background work",
                "Seconds since it last went round, where that is longest ago; failures.",
                [
                    (f"time() - min by (task) (idempotency_background_last_round_timestamp_seconds{{{GATEWAY}}})", "{{task}}"),
                    (rate("background_failures_total", GATEWAY, "task"), "failures of {{task}}"),
                    (f"sum(rate(idempotency_reaped_total{{{GATEWAY}}}{RATE}))", "records deleted a second"),
                ],
            ),
        ],
    ),
    Row(
        "Upstreams and capacity",
        [
            Panel(
                "Duration of upstream exchanges",
                "99 in a hundred are at least as fast; none: no answer.",
                [(quantile(0.99, "upstream_duration_seconds", BOTH, "route", "code_class"), "{{route}} {{code_class}}")],
                "s",
            ),
            Panel(
                "Upstream answers",
                "By class of status.",
                [(rate("upstream_duration_seconds_count", BOTH, "code_class"), "{{code_class}}")],
                "reqps",
                stacked=True,
            ),
            Panel(
                "Targets",
                "1: it is asked.",
                [(f"min by (upstream, target) (idempotency_upstream_target_up{{{GATEWAY}}})", "{{upstream}} {{target}}")],
            ),
            Panel(
                "In flight",
                "Requests that are being served.",
                [(f"sum by (route) (idempotency_in_flight{{{BOTH}}})", "{{route}}")],
                stacked=True,
            ),
            Panel(
                "Bodies in memory",
                "Of memory.total.",
                [(f"sum by (instance) (idempotency_memory_held_bytes{{{GATEWAY}}})", "{{instance}}")],
                "bytes",
            ),
            Panel(
                "Refused before they had a route",
                "Connections and malformed requests; lines of the log that were dropped.",
                [
                    (rate("refused_connections_total", GATEWAY, "reason"), "{{reason}}"),
                    (f"sum(rate(idempotency_malformed_requests_total{{{GATEWAY}}}{RATE}))", "malformed"),
                    (f"sum(rate(idempotency_access_log_dropped_lines_total{{{GATEWAY}}}{RATE}))", "log lines dropped"),
                ],
                "ops",
            ),
            Panel(
                "Processes",
                "Workers that run, and how often one was started again; what runs.",
                [
                    (f"sum by (instance) (idempotency_workers{{{GATEWAY}}})", "workers of {{instance}}"),
                    (f"sum by (instance) (increase(idempotency_worker_restarts_total{{{GATEWAY}}}{RATE}))", "restarts of {{instance}}"),
                    (f"count by (version) (idempotency_build_info{{{GATEWAY}}})", "version {{version}}"),
                ],
            ),
            Panel(
                "Configuration",
                "Whether the last reload was accepted; days until a certificate expires; scopes that were left behind.",
                [
                    (f"min by (instance) (idempotency_config_last_reload_successful{{{GATEWAY}}})", "accepted by {{instance}}"),
                    (
                        f"(min by (setting) (idempotency_certificate_expiry_timestamp_seconds{{{GATEWAY}}}) - time()) / 86400",
                        "days of {{setting}}",
                    ),
                    (f"max by (instance) (idempotency_scopes_differ{{{GATEWAY}}})", "scopes left behind by {{instance}}"),
                ],
            ),
        ],
    ),
]
