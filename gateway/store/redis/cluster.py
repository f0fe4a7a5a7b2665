"""The way to a Redis Cluster: one `Link` a primary, and a map that says whose slot a key is in.

Theory of operation. A command is queued for the node that the map names; what is queued for one node in one round of the event loop shares
a write, as ever. Each node has its own breaker: one that is away costs nobody else anything, and for its keys Postgres answers until the
map names another. The map is drawn anew when a node says `MOVED`, when one is away, and every `EVERY` seconds. Several nodes are asked,
over connections of their own, and the one that has seen the latest promotion counts: one that was cut off still believes its old map.

What a node of the cluster refuses because the key is another's (`MOVED`, or `ASK` while its slot moves) was not done: the command goes to
the node that is named, at most `_MAX_REDIRECTS` times, and is told as unavailable if there is no connection to that one yet.

A slot that moves, or is taken over, begins a new era (`Topology.era`), and has none that is believed while it moves: a key that was deleted
in one place may still be in the other.
"""

import asyncio
import logging
import random
import sys
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from gateway.core.redis_url import ClusterUrl, Host, spelled
from gateway.ports import StoreObserver, StoreUnavailable
from gateway.store.null_observer import NullObserver
from gateway.store.redis.breaker import Breaker
from gateway.store.redis.codec import entry_key
from gateway.store.redis.connection import STORE, Command, ErrorReply, opener, pack
from gateway.store.redis.kept import Kept
from gateway.store.redis.link import Link
from gateway.store.redis.place import FixedPlace
from gateway.store.redis.server import Answer, Refusal, Server, Unfit, probe_key
from gateway.store.redis.slots import SLOTS, SlotMap, latest, read_map, read_redirect, slot_of
from gateway.store.redis.topology import Eras

EVERY = 10.0
"""Seconds between two looks at the map of a cluster that seems to be well."""

HURRY = 0.5
"""Those while a node is away, or a slot is nobody's or moves."""

_LEAST = 0.25
_ASKED = 3
_MAX_REDIRECTS = 4
_STILL_MOVES = 5.0
"""Seconds after the last `ASK` for a slot, from when on it counts as having stayed where it was."""

_TRIES = 2 * SLOTS

_NEVER = sys.maxsize
"""The era of a slot that moves."""

_ASKING = pack(b"ASKING")

_log = logging.getLogger(__name__)


class Cluster:
    """A `Topology`. `breaker` makes one for each node, and for the looks at the map. ValueError if the URL cannot be used."""

    def __init__(
        self,
        url: ClusterUrl,
        breaker: Callable[[], Breaker],
        *,
        timeout: float = 0.1,
        connect_timeout: float = 1.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        observer: StoreObserver | None = None,
    ) -> None:
        opener(url.node.at(url.hosts[0]))  # says what is wrong with the options
        self.spread = True
        self.server = Server()
        self.eras = Eras()
        self._url = url
        self._breaker = breaker
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._sleep = sleep
        self._observer = observer or NullObserver()
        self._pace = breaker()
        self._links: dict[Host, Link] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._used: dict[Host, float] = {}
        """When a node without slots was last named."""
        self._owners: list[Link | None] = [None] * SLOTS
        self._eras = [0] * SLOTS
        self._moving: dict[int, float] = {}
        """Slots that move, and when a node last said so."""
        self._map: SlotMap | None = None
        """The last one that was drawn; None once a node has said otherwise."""
        self._sources: dict[Host, Kept] = {}
        self._wanted = asyncio.Event()
        self._told = False
        self._task: asyncio.Task[None] | None = None

    @property
    def open(self) -> bool:
        """As `Topology.open`: whether no node answers."""
        return all(link.open for link in self._links.values())

    async def start(self) -> None:
        """As `Topology.start`."""
        self._observer.redis_breaker(is_open=True)
        pause = await self._look_again()
        if self._starting:
            await asyncio.wait(self._starting)
        self._task = asyncio.get_running_loop().create_task(self._run(pause), name="redis-cluster")

    async def close(self) -> None:
        """As `Topology.close`."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for starting in self._starting:
            starting.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(link.close() for link in self._links.values()), *(kept.close() for kept in self._sources.values()))

    def send(self, command: Command) -> None:
        """As `Topology.send`."""
        link = self._owners[slot_of(command.key)]
        if link is None:
            raise StoreUnavailable(STORE, "not_ready", may_have_landed=False)
        link.send(command)

    def redirect(self, command: Command, error: ErrorReply) -> None:
        """As `Topology.redirect`."""
        command.redirects += 1
        redirect = read_redirect(str(error))
        if redirect is None or command.redirects > _MAX_REDIRECTS:
            self._wanted.set()
            raise StoreUnavailable(STORE, "not_ready", may_have_landed=False)
        slot, host = redirect
        link = self._link_to(host, slot)
        if error.code == "MOVED":
            self._give(slot, link)
            self._map = None
            self._wanted.set()
        else:
            self._moving[slot] = asyncio.get_running_loop().time()
            self._eras[slot] = _NEVER
            link.send(_Asking(_ASKING))
        link.send(command)

    def era(self, lookup: bytes) -> int:
        """As `Topology.era`."""
        slot = slot_of(entry_key(lookup))
        link = self._owners[slot]
        return _NEVER if link is None else max(self._eras[slot], link.era(lookup))

    # ---- the nodes

    def _link_to(self, host: Host, slot: int) -> Link:
        """The link to a node that another one has named."""
        owner = self._owners[slot]
        if not host[0] and owner is not None:
            host = (next(known for known, link in self._links.items() if link is owner)[0], host[1])
        self._used[host] = asyncio.get_running_loop().time()
        return self._links.get(host) or self._begin(host)

    def _begin(self, host: Host) -> Link:
        """Begin to connect to a node. Until that is done, its keys are for Postgres alone."""
        link = Link(
            FixedPlace(self._url.node.at(host)),
            self._breaker(),
            timeout=self._timeout,
            connect_timeout=self._connect_timeout,
            sleep=self._sleep,
            observer=_Node(self._observer, self._node_changed),
            eras=self.eras,
            probe=partial(self._probe, host),
        )
        self._links[host] = link
        starting = asyncio.get_running_loop().create_task(link.start(), name="redis-node")
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        return link

    def _probe(self, host: Host) -> bytes | None:
        """A `Probe`."""
        link = self._links.get(host)
        return probe_of(lambda slot: self._owners[slot] is link) if link in self._owners else None

    def _node_changed(self) -> None:
        """A node is away, or back."""
        well = [link for link in self._links.values() if not link.open]
        self.server = Server(min((link.server.version for link in well), default=(0, 0)))
        self._observer.redis_breaker(is_open=self._troubled)
        if self._troubled:
            self._wanted.set()

    @property
    def _troubled(self) -> bool:
        """Whether some keys are for Postgres alone."""
        return any(owner is None or owner.open for owner in {*self._owners})

    # ---- the map

    async def _run(self, pause: float) -> None:
        while True:
            await self._sleep(pause)
            try:
                async with asyncio.timeout(HURRY if self._troubled or self._moving else EVERY):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            pause = await self._look_again()

    async def _look_again(self) -> float:
        try:
            return await self._look()
        except Exception:
            _log.exception("The map of the Redis Cluster could not be drawn")
            return self._pace.trip()

    async def _look(self) -> float:
        """Draw the map anew; returns the seconds before which there is no other look."""
        self._wanted.clear()
        primaries = [host for host, link in self._links.items() if not link.open]
        found, failed = await self._ask(random.sample(primaries, min(_ASKED, len(primaries))))
        if found is None or not found.ok:
            again, failed = await self._ask([*dict.fromkeys((*self._url.hosts, *self._links))])
            found = latest(one for one in (found, again) if one is not None)
        if found is None:
            return self._unknown(failed)
        if self._told:
            _log.warning("The Redis Cluster has a map again")
            self._told = False
        self._pace.close()
        self._pace.served()
        await self._adopt(found)
        return _LEAST

    async def _ask(self, hosts: Iterable[Host]) -> tuple[SlotMap | None, list[Exception]]:
        """The latest map that any of these nodes has, and what the others said."""
        deadline = asyncio.get_running_loop().time() + self._connect_timeout
        answers = await asyncio.gather(*(self._ask_one(host, deadline) for host in hosts))
        return latest(one for one in answers if isinstance(one, SlotMap)), [one for one in answers if isinstance(one, Exception)]

    async def _ask_one(self, host: Host, deadline: float) -> SlotMap | Exception:
        source = self._sources.get(host)
        if source is None:
            source = self._sources[host] = Kept(opener(self._url.node.at(host)), member=True)
        answers = await source.ask([(b"CLUSTER", b"INFO"), (b"CLUSTER", b"SLOTS")], deadline)
        return answers if isinstance(answers, Exception) else map_of(answers, host)

    def _unknown(self, failed: list[Exception]) -> float:
        """No node has a map: go on with the old one, if there is one."""
        cause = next((error for error in failed if isinstance(error, Unfit)), None) or next(iter(failed), None)
        reason = cause.reason if isinstance(cause, Unfit) else "refused"
        self._observer.store_error(STORE, "connect", reason)
        if not self._told:
            nodes = ", ".join(map(spelled, self._url.hosts))
            _log.warning(
                "No node of the Redis Cluster at %s has a map (%s: %s): slower until one has", nodes, reason, cause or "none answers"
            )
            self._told = True
        return self._pace.trip()

    async def _adopt(self, found: SlotMap) -> None:
        now = asyncio.get_running_loop().time()
        if self._map is None or found.ranges != self._map.ranges:
            self._map = found
            self._used |= {host: now for _, _, host in found.ranges}
            for slot, host in enumerate(found.owners()):
                self._give(slot, None if host is None else self._links.get(host) or self._begin(host))
        for slot in [slot for slot, asked in self._moving.items() if now > asked + _STILL_MOVES]:
            del self._moving[slot]
            self._eras[slot] = self.eras.begin()
        self._observer.redis_breaker(is_open=self._troubled)
        await self._let_go({host for _, _, host in found.ranges}, now)

    def _give(self, slot: int, link: Link | None) -> None:
        """A slot is this node's."""
        if self._owners[slot] is not link:
            self._owners[slot] = link
            self._eras[slot] = self.eras.begin()
            self._moving.pop(slot, None)

    async def _let_go(self, owners: set[Host], now: float) -> None:
        """Close what leads to nodes that have no slots any more, once what was sent to them has had its time."""
        self._used |= dict.fromkeys(owners, now)
        unused = [host for host in self._links if host not in owners and now > self._used.get(host, 0.0) + EVERY]
        unasked = [host for host in self._sources if host not in owners and host not in self._url.hosts]
        links, sources = [self._links.pop(host) for host in unused], [self._sources.pop(host) for host in unasked]
        for host in unused:
            self._used.pop(host, None)
        await asyncio.gather(*(link.close() for link in links), *(source.close() for source in sources))


def probe_of(has: Callable[[int], bool]) -> bytes | None:
    """A key in a slot that a node has; None if it has so few that none is found."""
    return next((key for key in (probe_key() for _ in range(_TRIES)) if has(slot_of(key))), None)


def map_of(answers: list[Answer], asked: Host) -> SlotMap | Exception:
    """What a node says of the cluster, or why it does not serve."""
    for answer in answers:
        if isinstance(answer, Refusal):
            if answer.code in {"NOPERM", "NOAUTH"}:
                return Unfit("no_permission", answer.text, member=True)
            return Unfit("no_cluster", answer.text)
    about, slots = answers
    drawn = read_map(about, slots, asked)
    if drawn is None or not drawn.ranges:
        return ConnectionError(f"{spelled(asked)} knows no slots of its cluster")
    return drawn


class _Asking(Command):
    """ASKING: the next command on this connection is about a slot that the node is about to get."""

    __slots__ = ()

    def take(self, reply: object) -> None:
        """Nobody waits for it: the command behind it hears what is wrong."""


class _Node(NullObserver):
    """What is heard of one node. `changed` is called when it is away, or back."""

    def __init__(self, observer: StoreObserver, changed: Callable[[], None]) -> None:
        self._observer = observer
        self._changed = changed

    def store_error(self, store: str, operation: str, reason: str) -> None:
        self._observer.store_error(store, operation, reason)

    def store_batch(self, operation: str, size: int) -> None:
        self._observer.store_batch(operation, size)

    def redis_breaker(self, *, is_open: bool) -> None:
        self._changed()
