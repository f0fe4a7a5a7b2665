"""Real Redis Sentinels, and a real Redis Cluster, on the loopback."""

import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import redis
from redis.crc import key_slot
from redis.exceptions import RedisError

from gateway.devtools.embedded import RedisServer, start_redis
from gateway.devtools.embedded.launch import Plan, launch
from gateway.devtools.embedded.ports import LOOPBACK, free_port
from gateway.devtools.embedded.process import Child, EmbeddedError, write_private
from gateway.devtools.embedded.redis import START_TIMEOUT, STOP, answers, find_server, quoted

MASTER = "payments"
SLOTS = 16384
BUS = 10_000
"""A cluster's nodes talk to each other at a port so far above their own."""
TRIES = 4
BUS_IS_SAFE = range(20_000, 32_768 - BUS)
T = TypeVar("T")


def server_of_the_path() -> Path:
    """The `redis-server` of the PATH, or else that of the wheel."""
    found = shutil.which("redis-server")
    return find_server() if found is None else Path(found)


def node_port() -> int:
    """A free port for a node of a cluster. The port of its bus is out of the range for outgoing connections, too: one of these
    could take it whenever the node is started.
    """
    while True:
        if (port := free_port()) in BUS_IS_SAFE:
            return port


def with_another_port(start: Callable[[int], T]) -> T:
    """What `start` makes with a port of `node_port`, or with another one if a server elsewhere was faster."""
    for _ in range(TRIES):
        with suppress(EmbeddedError):
            return start(node_port())
    return start(node_port())


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until `condition` holds. A server that does not answer yet says no."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(RedisError, OSError):
            if condition():
                return
        if time.monotonic() > deadline:
            raise TimeoutError("the Redis servers have not come to what was waited for")
        time.sleep(0.02)


@dataclass(slots=True)
class Node:
    """One server, which can be killed and started anew at its port, with what its folder holds."""

    folder: Path
    word: str
    settings: Mapping[str, str]
    binary: Path
    port: int = 0
    server: RedisServer | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_private(self.folder / "redis.password", self.word + "\n")
        if self.port:
            self.server = self._at(self.port)
        else:
            self.server = with_another_port(self._at)
        self.port = self.server.port

    def _at(self, port: int) -> RedisServer:
        return start_redis(self.folder, port=port, binary=self.binary, settings=self.settings)

    def kill(self) -> None:
        if self.server is not None:
            self.server.kill()

    def stop(self) -> None:
        if self.server is not None:
            self.server.stop()

    @property
    def url(self) -> str:
        return f"redis://:{self.word}@{LOOPBACK}:{self.port}/0"

    def ask(self, *command: Any) -> Any:
        """The reply to one command, on a connection of its own."""
        with redis.Redis(LOOPBACK, self.port, password=self.word, socket_timeout=10, protocol=2) as client:
            return client.execute_command(*command)

    @property
    def primary(self) -> bool:
        return bool(self.ask("INFO", "replication")["role"] == "master")


@dataclass(slots=True)
class Sentinels:
    """A primary with replicas, and three Sentinels that know it as `MASTER`."""

    word: str
    nodes: list[Node]
    ports: list[int]
    children: list[Child]

    @property
    def url(self) -> str:
        hosts = ",".join(f"{LOOPBACK}:{port}" for port in self.ports)
        return f"redis+sentinel://:{self.word}@{hosts}/0?master={MASTER}&sentinel_password={self.word}"

    def ask(self, *command: Any, sentinel: int = 0) -> Any:
        """The reply of one Sentinel."""
        with redis.Redis(LOOPBACK, self.ports[sentinel], password=self.word, socket_timeout=10, protocol=2) as client:
            return client.execute_command(*command)

    @property
    def primary(self) -> Node:
        """The one that the first Sentinel names."""
        port = int(self.ask("SENTINEL GET-MASTER-ADDR-BY-NAME", MASTER)[1])
        return next(node for node in self.nodes if node.port == port)

    def settle(self) -> None:
        """Wait until a primary with replicas is there, and all Sentinels agree that it could be replaced."""

        def settled() -> bool:
            named = {tuple(self.ask("SENTINEL GET-MASTER-ADDR-BY-NAME", MASTER, sentinel=number)) for number in range(len(self.ports))}
            replicas = self.ask("SENTINEL SLAVES", MASTER)
            well = [one for one in replicas if one["flags"] == {"slave"} or one["flags"] == "slave"]
            others = int(self.ask("SENTINEL MASTER", MASTER)["num-other-sentinels"])
            return len(named) == 1 and len(well) == len(self.nodes) - 1 and others == len(self.ports) - 1 and self.primary.primary

        until(settled)


@contextmanager
def sentinels(folder: Path, *, binary: Path | None = None, down_after_ms: int = 500) -> Iterator[Sentinels]:
    """All up, and agreed."""
    program, word = binary or server_of_the_path(), secrets.token_hex(8)
    with ExitStack() as stack:
        nodes: list[Node] = []
        for number in range(3):
            settings = {"masterauth": word, "repl-diskless-sync-delay": "0"}
            if nodes:
                settings["replicaof"] = f"{LOOPBACK} {nodes[0].port}"
            nodes.append(Node(folder / f"server-{number}", word, settings, program))
            nodes[-1].start()
            stack.callback(nodes[-1].stop)
        ports, children = [], []
        for number in range(3):
            port, child = _sentinel(folder / f"sentinel-{number}", program, word, nodes[0].port, down_after_ms)
            stack.callback(child.end, STOP)
            ports.append(port)
            children.append(child)
        made = Sentinels(word, nodes, ports, children)
        made.settle()
        yield made


@contextmanager
def lone_sentinel(folder: Path, word: str, primary: int, *more: str) -> Iterator[int]:
    """The port of one Sentinel that knows a primary of this machine. `more`: lines of its configuration."""
    port, child = _sentinel(folder, server_of_the_path(), word, primary, 5000, "1", more)
    try:
        yield port
    finally:
        child.end(STOP)


def _sentinel(
    folder: Path, program: Path, word: str, primary: int, down_after_ms: int, quorum: str = "2", more: Sequence[str] = ()
) -> tuple[int, Child]:
    folder.mkdir(parents=True)
    configuration = folder / "sentinel.conf"
    lock = (folder / "lock").open("wb")

    def command(port: int) -> list[str]:
        lines = [
            f"port {port}",
            f"bind {LOOPBACK}",
            f"dir {quoted(folder)}",
            f"requirepass {word}",
            f"sentinel sentinel-pass {word}",
            f"sentinel monitor {MASTER} {LOOPBACK} {primary} {quorum}",
            f"sentinel auth-pass {MASTER} {word}",
            f"sentinel down-after-milliseconds {MASTER} {down_after_ms}",
            f"sentinel failover-timeout {MASTER} 3000",
            *more,
        ]
        write_private(configuration, "\n".join(lines) + "\n")
        return [str(program), str(configuration), "--sentinel"]

    plan = Plan(
        name="a Sentinel",
        command=command,
        ready=lambda _, port: answers(port, word),
        stop=STOP,
        log=folder / "sentinel.log",
        account=None,
        port_taken="Address already in use",
        timeout=START_TIMEOUT,
    )
    process, port = launch(plan, None)
    return port, Child(process, lock)


@dataclass(slots=True)
class ClusterNodes:
    """Primaries, each with a replica behind it: `nodes[i + 3]` begins as the replica of `nodes[i]`."""

    word: str
    nodes: list[Node]
    ids: dict[int, str] = field(default_factory=dict)
    """By port."""

    @property
    def url(self) -> str:
        return self.url_of(*self.nodes[:3])

    def url_of(self, *nodes: Node) -> str:
        return f"redis+cluster://:{self.word}@{','.join(f'{LOOPBACK}:{node.port}' for node in nodes)}"

    def owner(self, slot: int, asked: Node | None = None) -> Node:
        """The primary of a slot, as one node sees it."""
        for first, last, port in self.ranges(asked or self.alive()[0]):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == port)
        raise LookupError(slot)

    def owner_of(self, key: bytes) -> Node:
        return self.owner(key_slot(key))

    def alive(self) -> list[Node]:
        return [node for node in self.nodes if node.server is not None and node.server.returncode() is None]

    def ranges(self, asked: Node) -> tuple[tuple[int, int, int], ...]:
        """First slot, last slot and the port of their primary, as one node sees it."""
        return tuple(sorted((first, last, primary[1]) for first, last, primary, *_ in asked.ask("CLUSTER SLOTS")))

    def settle(self) -> None:
        """Wait until all nodes that run see the cluster as whole, with the same owners, and each primary has a replica that follows it."""

        def settled() -> bool:
            alive = self.alive()
            infos = [node.ask("CLUSTER INFO") for node in alive]
            maps = {self.ranges(node) for node in alive}
            whole = all(info["cluster_state"] == "ok" and info["cluster_slots_ok"] == str(SLOTS) for info in infos)
            following = [node.ask("INFO", "replication") for node in alive]
            joined = all(one["role"] == "master" or one["master_link_status"] == "up" for one in following)
            return whole and joined and len(maps) == 1

        until(settled)

    def move(self, slot: int, source: Node, target: Node) -> None:
        """A slot with its keys, as a resharding moves it."""
        self.begin_move(slot, source, target)
        while keys := source.ask("CLUSTER GETKEYSINSLOT", slot, 100):
            source.ask("MIGRATE", LOOPBACK, target.port, "", 0, 5000, "AUTH", self.word, "KEYS", *keys)
        self.end_move(slot, source, target)

    def begin_move(self, slot: int, source: Node, target: Node) -> None:
        target.ask("CLUSTER SETSLOT", slot, "IMPORTING", self.ids[source.port])
        source.ask("CLUSTER SETSLOT", slot, "MIGRATING", self.ids[target.port])

    def end_move(self, slot: int, source: Node, target: Node) -> None:
        for node in (target, source):
            node.ask("CLUSTER SETSLOT", slot, "NODE", self.ids[target.port])


@contextmanager
def cluster(folder: Path, *, binary: Path | None = None, node_timeout_ms: int = 1000) -> Iterator[ClusterNodes]:
    """Six nodes, all up, and agreed."""
    program, word = binary or server_of_the_path(), secrets.token_hex(8)
    settings = {
        "masterauth": word,
        "cluster-enabled": "yes",
        "cluster-node-timeout": str(node_timeout_ms),
        "cluster-replica-validity-factor": "0",
        "repl-diskless-sync-delay": "0",
    }
    with ExitStack() as stack:
        nodes = [Node(folder / f"node-{number}", word, settings, program) for number in range(6)]
        for node in nodes:
            node.start()
            stack.callback(node.stop)
        made = ClusterNodes(word, nodes)
        made.ids.update({node.port: _text(node.ask("CLUSTER MYID")) for node in nodes})
        bounds = [0, SLOTS // 3, 2 * SLOTS // 3, SLOTS]
        for number, node in enumerate(nodes):
            node.ask("CLUSTER SET-CONFIG-EPOCH", number + 1)
            if number < 3:
                node.ask("CLUSTER ADDSLOTS", *range(bounds[number], bounds[number + 1]))
            if number:
                nodes[0].ask("CLUSTER MEET", LOOPBACK, node.port)
        until(lambda: all(node.ask("CLUSTER INFO")["cluster_known_nodes"] == "6" for node in nodes))
        for number in range(3):
            until(lambda at=number: bool(nodes[at + 3].ask("CLUSTER REPLICATE", made.ids[nodes[at].port])))  # type: ignore[misc]
        made.settle()
        yield made


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
