"""What a Redis server must be to serve, found out when a connection opens; and what its refusals mean.

What a server says of itself is not enough: a replica, a node of a cluster and a user without rights all answer PING. So
the link tries once what entries need, with a key of its own: set, prolong, delete, by the command and by the script.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.store.redis.codec import lease_prefix
from gateway.store.redis.scripts import ADMIT, ADMITTED, SETTLE

PROBE_TTL = 1000
"""Milliseconds after which a probe's key is gone, whatever happens."""

RIGHTS = "~idem:* +get +set +del +pexpire +eval +evalsha +info +role +cluster|info"
"""The Redis permissions that we need. `+info`, `+role` and `+cluster|info` only tell more."""

CLUSTER_RIGHTS = f"{RIGHTS} +cluster|slots +asking"
"""Those that we need in a cluster: all of them."""

QUOTA_RIGHTS = "+time +zadd +zcard +zrem +zremrangebyscore +pttl"
"""Those that quotas need besides."""

REFUSALS: Mapping[str, str] = {
    "READONLY": "replica",
    "MASTERDOWN": "replica",
    "MOVED": "cluster",
    "ASK": "cluster",
    "CLUSTERDOWN": "cluster",
    "NOPERM": "no_permission",
    "NOAUTH": "no_permission",
    "WRONGPASS": "no_permission",
    "OOM": "writes_refused",
    "MISCONF": "writes_refused",
    "NOREPLICAS": "writes_refused",
    "LOADING": "not_ready",
    "BUSY": "not_ready",
}
"""Error codes that are about the server and not about one command, and the closed-set word of each. Redis counts as
away after one.
"""

MEMBER_REFUSALS: Mapping[str, str] = {code: word for code, word in REFUSALS.items() if word != "cluster"} | {"CLUSTERDOWN": "not_ready"}
"""Those of one node of a cluster that was found as such: `MOVED` and `ASK` are about one key."""

REDIRECTS = frozenset({"MOVED", "ASK"})
"""A node's word that a key is another's."""

REASONS: Mapping[str, str] = {**REFUSALS, "TRYAGAIN": "not_ready"}
"""What refusals of a command are called."""

_FOR_QUOTAS = f"for quotas {QUOTA_RIGHTS}, too"
_REMEDIES: Mapping[str, str] = {
    "replica": "it is a replica and takes no writes; redis.url must lead to the primary",
    "cluster": "it is one node of a Redis Cluster; write redis+cluster://host1,host2 as redis.url",
    "sentinel": "it is a Sentinel and holds no entries; write redis+sentinel://host1,host2/0?master=name as redis.url",
    "no_sentinel": "redis+sentinel:// must name Sentinels (port 26379, usually)",
    "no_primary": "the name in ?master= must be one that the Sentinels monitor",
    "no_cluster": "redis+cluster:// must name nodes of a Redis Cluster; of a server that stands alone write redis://",
    "no_permission": f"the user of redis.url must be known there and have the rights {RIGHTS}; {_FOR_QUOTAS}",
    "writes_refused": "it takes no writes; look at its maxmemory and maxmemory-policy, its disk, and min-replicas-to-write",
    "not_ready": "it is loading its data, or runs a script; it will serve by itself",
}

_MEMBERS_REMEDIES: Mapping[str, str] = {
    **_REMEDIES,
    "replica": "it is a replica now; who has its slots will be asked for",
    "no_permission": f"the user of redis.url must be known on all nodes and have the rights {CLUSTER_RIGHTS}; {_FOR_QUOTAS}",
    "not_ready": "it is loading its data, or its cluster is about to change; it will serve by itself",
}


class Unfit(Exception):
    """The server answers and cannot serve. `reason` is a word of `REFUSALS`, or `sentinel`, `no_sentinel`, `no_primary`, `no_cluster`;
    `str()` says what it is and what to do, in one sentence. `member`: it was found as a node of a cluster.
    """

    def __init__(self, reason: str, said: str, *, member: bool = False) -> None:
        super().__init__(f"{said}: {(_MEMBERS_REMEDIES if member else _REMEDIES)[reason]}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Server:
    """What a server that can serve says of itself.

    `version` is (major, minor), (0, 0) when it would not tell. `instance` names this run of it and the history of its
    data: with the same one, nothing that was acknowledged has been taken back. One that would not tell is another
    instance at each connection.
    """

    version: tuple[int, int] = (0, 0)
    instance: bytes = b""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error reply: its first word, and the whole of it."""

    code: str
    text: str


Answer = object | Refusal


Probe = Callable[[], bytes | None]
"""Of a node of a cluster: a key of its own, to try what entries need. None: it has none, and nothing can be tried."""

_ABOUT: tuple[tuple[bytes | int, ...], ...] = ((b"INFO", b"server"), (b"INFO", b"replication"), (b"CLUSTER", b"INFO"))


def probe_key() -> bytes:
    """The key of an entry that nobody else has."""
    return b"idem:{probe-%b}" % secrets.token_hex(16).encode()


def questions(probe: Probe = probe_key) -> list[tuple[bytes | int, ...]]:
    """The commands whose replies `judge` takes, in order; to be sent in one write. None of them changes anything that
    lasts.
    """
    key, value = probe(), lease_prefix(secrets.token_bytes(16))
    if key is None:
        return [*_ABOUT]
    return [
        *_ABOUT,
        (b"SET", key, value, b"NX", b"PX", PROBE_TTL),
        (b"EVAL", SETTLE.text, b"1", key, value, b"extend", PROBE_TTL, b""),
        (b"EVALSHA", SETTLE.sha, b"1", key, value, b"delete", 0, b""),
        (b"DEL", key),
    ]


def quota_questions(probe: Probe = probe_key) -> list[tuple[bytes | int, ...]]:
    """Commands that try what quotas need, for `judge_trial`. None of them changes anything that lasts."""
    key, owner = probe(), secrets.token_bytes(16)
    if key is None:
        return []
    of_quota = (b"2", key + b":k", key + b":p")
    return [
        (b"EVAL", ADMIT.text, *of_quota, 1000 * PROBE_TTL, 2, 1, owner, PROBE_TTL),
        (b"EVAL", ADMITTED.text, *of_quota, b"hold", owner, PROBE_TTL),
        (b"EVALSHA", ADMITTED.sha, *of_quota, b"undo", owner, 1000 * PROBE_TTL),
        (b"DEL", *of_quota[1:]),
    ]


def judge_trial(answers: list[Answer], *, member: bool = False) -> None:
    """What the replies to commands that try something tell. Raises `Unfit`."""
    for answer in answers:
        if isinstance(answer, Refusal):
            raise Unfit(_why_not(answer.code, member=member), answer.text, member=member)


def judge(answers: list[Answer], *, member: bool = False) -> Server:
    """What the replies to `questions` tell; `member`: of a node of a cluster. Raises `Unfit`."""
    about, replication, cluster = map(fields, answers[:3])
    if is_sentinel(answers[0]):
        raise Unfit("sentinel", "it answers SENTINEL alone", member=member)
    if replication.get(b"role") == b"slave":
        primary = b"%b:%b" % (replication.get(b"master_host", b"?"), replication.get(b"master_port", b"?"))
        raise Unfit("replica", f"its primary is {primary.decode('ascii', 'replace')}", member=member)
    if not member and int(cluster.get(b"cluster_size", b"0")) > 1:
        raise Unfit("cluster", f"its cluster has {int(cluster[b'cluster_size'])} primaries")
    judge_trial(answers[3:], member=member)
    run, history = about.get(b"run_id"), replication.get(b"master_replid")
    instance = run + history if run and history else secrets.token_bytes(16)
    return Server(_version(about.get(b"redis_version", b"")), instance)


def is_sentinel(about: Answer) -> bool:
    """Whether `INFO server` was answered by a Sentinel."""
    return fields(about).get(b"redis_mode") == b"sentinel"


def _why_not(code: str, *, member: bool) -> str:
    if not member:
        return REFUSALS.get(code, "no_permission")
    # It was one of its keys a moment ago.
    return "not_ready" if code in REDIRECTS else MEMBER_REFUSALS.get(code, "no_permission")


def fields(answer: Answer) -> dict[bytes, bytes]:
    """The lines `name:value` of an INFO; none of a refusal."""
    lines = answer.splitlines() if isinstance(answer, bytes) else ()
    return {name: value for name, colon, value in (line.partition(b":") for line in lines) if colon}


def _version(text: bytes) -> tuple[int, int]:
    major, _, rest = text.partition(b".")
    minor = rest.partition(b".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
