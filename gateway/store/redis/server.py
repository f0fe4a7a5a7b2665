"""What a Redis server must be to serve, found out when a connection opens; and what its refusals mean.

What a server says of itself is not enough: a replica, a node of a cluster and a user without rights all answer PING. So
the link tries once what entries need, with a key of its own: set, prolong, delete, by the command and by the script.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from gateway.store.redis.codec import lease_prefix
from gateway.store.redis.scripts import SETTLE

PROBE_TTL = 1000
"""Milliseconds after which a probe's key is gone, whatever happens."""

RIGHTS = "~idem:* +get +set +del +pexpire +eval +evalsha +info +role +cluster|info"
"""The Redis permissions that we need. `+info`, `+role` and `+cluster|info` only tell more."""

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

_REMEDIES: Mapping[str, str] = {
    "replica": "it is a replica and takes no writes; redis.url must lead to the primary",
    "cluster": "it is one node of a Redis Cluster, which is not supported; redis.url must name a server that stands alone",
    "no_permission": f"the user of redis.url must be known there and have the rights {RIGHTS}",
    "writes_refused": "it takes no writes; look at its maxmemory and maxmemory-policy, its disk, and min-replicas-to-write",
    "not_ready": "it is loading its data, or runs a script; it will serve by itself",
}


class Unfit(Exception):
    """The server answers and cannot serve. `reason` is a word of `REFUSALS`; `str()` says what it is and what to do, in
    one sentence.
    """

    def __init__(self, reason: str, said: str) -> None:
        super().__init__(f"{said}: {_REMEDIES[reason]}")
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


def questions() -> list[tuple[bytes | int, ...]]:
    """The commands whose replies `judge` takes, in order; to be sent in one write. None of them changes anything that
    lasts.
    """
    owner = secrets.token_bytes(16)
    key, value = b"idem:{probe-%b}" % owner.hex().encode(), lease_prefix(owner)
    return [
        (b"INFO", b"server"),
        (b"INFO", b"replication"),
        (b"CLUSTER", b"INFO"),
        (b"SET", key, value, b"NX", b"PX", PROBE_TTL),
        (b"EVAL", SETTLE.text, b"1", key, value, b"extend", PROBE_TTL),
        (b"EVALSHA", SETTLE.sha, b"1", key, value, b"delete"),
        (b"DEL", key),
    ]


def judge(answers: list[Answer]) -> Server:
    """What the replies to `questions` tell. Raises `Unfit`."""
    about, replication, cluster = map(_fields, answers[:3])
    if replication.get(b"role") == b"slave":
        primary = b"%b:%b" % (replication.get(b"master_host", b"?"), replication.get(b"master_port", b"?"))
        raise Unfit("replica", f"its primary is {primary.decode('ascii', 'replace')}")
    if int(cluster.get(b"cluster_size", b"0")) > 1:
        raise Unfit("cluster", f"its cluster has {int(cluster[b'cluster_size'])} primaries")
    for answer in answers[3:]:
        if isinstance(answer, Refusal):
            raise Unfit(REFUSALS.get(answer.code, "no_permission"), answer.text)
    run, history = about.get(b"run_id"), replication.get(b"master_replid")
    instance = run + history if run and history else secrets.token_bytes(16)
    return Server(_version(about.get(b"redis_version", b"")), instance)


def _fields(answer: Answer) -> dict[bytes, bytes]:
    """The lines `name:value` of an INFO; none of a refusal."""
    lines = answer.splitlines() if isinstance(answer, bytes) else ()
    return {name: value for name, colon, value in (line.partition(b":") for line in lines) if colon}


def _version(text: bytes) -> tuple[int, int]:
    major, _, rest = text.partition(b".")
    minor = rest.partition(b".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)
