"""The atomic steps on one Redis entry, one round trip each.

An entry begins as a lease, set only if the key is free, and changes afterwards only through `settle.lua`, which compares the owner token.
Redis is never asked what is new, only what is known: the authority decides.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from gateway.core.value import value
from gateway.ports import StoreObserver, StoreUnavailable
from gateway.store.null_observer import NullObserver
from gateway.store.redis.codec import entry_key, lease_prefix, quota_keys
from gateway.store.redis.connection import STORE, Command, ErrorReply, pack, pack_acquire
from gateway.store.redis.scripts import ACQUIRE, ADMIT, ADMITTED, SETTLE, Script
from gateway.store.redis.server import REASONS, REDIRECTS
from gateway.store.redis.topology import Topology

T = TypeVar("T")

_SET_NX_GET = (7, 0)
"""The version from which `SET` takes NX and GET together; 6.2 answers a syntax error."""


@value
class Acquired:
    """The key was free and holds our value now."""


@value
class Found:
    """The key was taken; nothing was changed."""

    value: bytes


@value
class Refused:
    """The caller's quota is used up; nothing was changed. `wait`: microseconds until a new key is earned; 0: no place is free."""

    wait: int


class Share(NamedTuple):
    """What one request takes of the quota of its caller, the scope. `interval`: microseconds in which a new key is earned, 0 for none;
    `burst`: how many may be taken at once; `places`: how many there are, 0 for none; `ttl_ms`: after which its place ends by itself.
    """

    scope_id: str
    owner: bytes
    interval: float
    burst: int
    places: int
    ttl_ms: int


_ACQUIRED = Acquired()

Outcome: TypeAlias = bool | StoreUnavailable
"""What a step has done: True, False (the entry was not ours any more), or that it is not known."""

Told: TypeAlias = Callable[[Outcome], None]

TOGETHER = 64
"""Entries that one command changes at most. Each takes Redis some 4 us, in which it serves no other."""

_TOGETHER_BYTES = 64 * 1024
"""Bytes of values from which a command takes no further entry."""


class Change(Protocol):
    """What is to become of an entry that begins as a lease of `owner`: `value` for `ttl_ms`, or nothing where it is None.
    `operation` is what it is counted as.
    """

    operation: str
    lookup: bytes
    owner: bytes
    value: bytes | None
    ttl_ms: int

    def told(self, outcome: Outcome) -> None:
        """What has become of it: False if the entry was not that lease any more. Called from the event loop; raises nothing."""
        ...


class HotPath:
    """Steps on entries named by a record's lookup digest (32 bytes). Each has queued its command when it returns.

    Those that are awaited raise `StoreUnavailable` and no other error, at the call or at the await; the others tell it, and raise nothing.
    Needs the Redis permissions of `server.RIGHTS`; `+info` is for the faster form of `acquire`.
    """

    def __init__(self, link: Topology, observer: StoreObserver | None = None) -> None:
        self.link = link
        self.observer = observer or NullObserver()

    @property
    def open(self) -> bool:
        """Whether Redis is away, so that every step fails at once."""
        return self.link.open

    def era(self, lookup: bytes) -> int:
        """`Topology.era` of an entry."""
        return self.link.era(lookup)

    def acquire(self, lookup: bytes, value: bytes, ttl_ms: int) -> Awaitable[Acquired | Found]:
        """Set `value` for `ttl_ms` if the key is free, else report what is there. A loser changes neither the value nor its TTL."""
        key = entry_key(lookup)
        if self.link.server.version >= _SET_NX_GET:
            return self._wait("acquire", key, pack_acquire(key, value, ttl_ms), _as_acquired)
        arguments = (b"1", key, value, ttl_ms)
        return self._wait("acquire", key, pack(b"EVALSHA", ACQUIRE.sha, *arguments), _as_acquired, ACQUIRE, arguments)

    def admit(self, share: Share, entry: tuple[bytes, bytes, int] | None = None) -> "Awaitable[Acquired | Found | Refused]":
        """As `acquire` of this `entry` (lookup digest, value, TTL), for a request that takes its share of a quota where it takes the lease.
        Without an entry the quota alone counts; so it must be where keys are on several servers (`Topology.spread`).
        """
        keys, limits = quota_keys(share.scope_id), (b"%.17g" % share.interval, share.burst, share.places, share.owner, share.ttl_ms)
        arguments: tuple[bytes | int, ...] = (b"2", *keys, *limits)
        if entry is not None:
            lookup, value, ttl_ms = entry
            arguments = (b"3", *keys, entry_key(lookup), *limits, value, ttl_ms)
        return self._wait("admit", keys[0], pack(b"EVALSHA", ADMIT.sha, *arguments), _as_admitted, ADMIT, arguments)

    def hold(self, share: Share) -> Awaitable[bool]:
        """Let the request's place end `ttl_ms` from now, also where it was lost."""
        keys = quota_keys(share.scope_id)
        arguments = (b"2", *keys, b"hold", share.owner, share.ttl_ms)
        return self._wait("hold", keys[0], pack(b"EVALSHA", ADMITTED.sha, *arguments), _as_bool, ADMITTED, arguments)

    def leave(self, share: Share, told: Told) -> None:
        """The request's place is free."""
        self._admitted(b"leave", share, told)

    def undo(self, share: Share, told: Told) -> None:
        """The request took nothing, as it has turned out."""
        self._admitted(b"undo", share, told)

    def _admitted(self, operation: bytes, share: Share, told: Told) -> None:
        keys = quota_keys(share.scope_id)
        arguments = (b"2", *keys, operation, share.owner, b"%.17g" % share.interval)
        step = _Told(self, operation.decode(), keys[0], pack(b"EVALSHA", ADMITTED.sha, *arguments), ADMITTED, arguments)
        step.told = told
        self._send(step)

    def get(self, lookup: bytes) -> Awaitable[bytes | None]:
        """What is there. Changes nothing."""
        key = entry_key(lookup)
        return self._wait("get", key, pack(b"GET", key), _as_value)

    def extend(self, lookup: bytes, owner: bytes, ttl_ms: int) -> Awaitable[bool]:
        """Let the lease of `owner` end `ttl_ms` from now. False: it is gone."""
        key = entry_key(lookup)
        arguments = (b"1", key, lease_prefix(owner), b"extend", ttl_ms, b"")
        return self._wait("extend", key, pack(b"EVALSHA", SETTLE.sha, *arguments), _as_changed, SETTLE, arguments)

    def settle(self, changes: Sequence[Change]) -> None:
        """Make these changes as they are now, in their order; each is told. Where one server has all keys, those of an
        operation that follow each other share commands. A command that fails is told to all that share it, and may have
        changed some of them. An entry that a shared command does not find is told as not known: it may be on another
        server, and a command of its own will say.
        """
        most = 1 if self.link.spread else TOGETHER
        together: list[Change] = []
        size = 0
        for change in changes:
            if together and (len(together) >= most or size >= _TOGETHER_BYTES or change.operation != together[0].operation):
                self._settle(together)
                together, size = [], 0
            together.append(change)
            size += 0 if change.value is None else len(change.value)
        if together:
            self._settle(together)

    def forget(self, lookup: bytes) -> Awaitable[bool]:
        """Delete whatever is there: for operators, after the authority's record is gone. False: nothing was there."""
        key = entry_key(lookup)
        return self._wait("forget", key, pack(b"DEL", key), _as_bool)

    def _wait(
        self,
        operation: str,
        key: bytes,
        packed: bytes,
        read: Callable[[object], T],
        script: Script | None = None,
        arguments: tuple[bytes | int, ...] = (),
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        step = _Waited(self, operation, key, packed, script, arguments)
        step.future = future
        step.read = read
        try:
            self.link.send(step)
        except StoreUnavailable as error:
            self.observer.store_error(STORE, operation, error.reason)
            raise
        return future

    def _settle(self, changes: list[Change]) -> None:
        keys: list[bytes] = []
        words: list[bytes | int] = []
        for change in changes:
            keys.append(entry_key(change.lookup))
            value = change.value
            words += (lease_prefix(change.owner), *((b"delete", 0, b"") if value is None else (b"complete", change.ttl_ms, value)))
        arguments = (b"%d" % len(keys), *keys, *words)
        step = _Settle(self, changes[0].operation, keys[0], pack(b"EVALSHA", SETTLE.sha, *arguments), SETTLE, arguments)
        step.changes = changes
        self._send(step)

    def _send(self, step: "_Told | _Settle") -> None:
        try:
            self.link.send(step)
        except StoreUnavailable as error:
            step.fail(error)


class _Step(Command):
    """A command of ours. `script` and `arguments`: what it runs, for a server that does not know the script yet."""

    __slots__ = ("_arguments", "_hot", "_script", "_started", "operation")

    def __init__(
        self,
        hot: HotPath,
        operation: str,
        key: bytes,
        packed: bytes,
        script: Script | None,
        arguments: tuple[bytes | int, ...],
    ) -> None:  # without its base's, which does no more: there are two for each new key
        self.packed = packed
        self.future = None
        self.key = key
        self.redirects = 0
        self.operation = operation
        self._hot = hot
        self._script = script
        self._arguments = arguments
        self._started = perf_counter()

    def take(self, reply: object) -> None:
        try:
            if not isinstance(reply, Exception):
                self._hot.observer.store_operation(STORE, self.operation, perf_counter() - self._started)
                self.end(reply)
            elif isinstance(reply, ErrorReply):
                self._refused(reply)
            else:
                raise reply
        except (ErrorReply, StoreUnavailable) as failure:
            self.fail(failure)

    def _refused(self, error: ErrorReply) -> None:
        """Go where the error leads. Raises it, or as `Topology.send`."""
        if error.code in REDIRECTS:
            self._hot.link.redirect(self, error)
            return
        if error.code == "CROSSSLOT":  # a cluster of one node, which takes keys of one slot only, too
            self._hot.link.spread = True
        script, self._script = self._script, None
        if error.code != "NOSCRIPT" or script is None:
            raise error
        # EVAL also loads it, and needs no permission for SCRIPT LOAD.
        self.packed = pack(b"EVAL", script.text, *self._arguments)
        self._hot.link.send(self)

    def fail(self, error: StoreUnavailable | ErrorReply) -> None:
        """It has failed: counted, and told whatever counting meets."""
        if isinstance(error, ErrorReply):  # Redis itself says that it did nothing
            error = StoreUnavailable(STORE, REASONS.get(error.code, "error"), may_have_landed=False)
        try:
            self._hot.observer.store_error(STORE, self.operation, error.reason)
        finally:
            self.end(error.with_traceback(None))  # its frames lead to this step, and so in a circle

    @abstractmethod
    def end(self, reply: object) -> None:
        """The reply, or the `StoreUnavailable` that came instead. Raises `StoreUnavailable` of a reply that means nothing."""


class _Waited(_Step):
    """A step that its caller awaits. `read` says what a reply means, or raises `StoreUnavailable`."""

    __slots__ = ("read",)
    read: Callable[[object], object]

    def end(self, reply: object) -> None:
        future = self.future
        # A caller that was cancelled has only dropped its own waiting.
        if future is None or future.done():
            return
        if isinstance(reply, StoreUnavailable):
            future.set_exception(reply)
        else:
            future.set_result(self.read(reply))


class _Told(_Step):
    """A step that is not awaited: `told` hears what it has done."""

    __slots__ = ("told",)
    told: Told

    def end(self, reply: object) -> None:
        self.told(reply if isinstance(reply, StoreUnavailable) else _as_bool(reply))


class _Settle(_Step):
    """Changes that share a command."""

    __slots__ = ("changes",)
    changes: list[Change]

    def end(self, reply: object) -> None:
        changes = self.changes
        outcome: Outcome
        if isinstance(reply, StoreUnavailable):
            # An error within the script leaves what came before it.
            outcome = reply if len(changes) == 1 else StoreUnavailable(STORE, reply.reason, may_have_landed=True)
            for change in changes:
                change.told(outcome)
        elif isinstance(reply, list) and len(reply) == len(changes) and all(map((0, 1).__contains__, reply)):
            # A proxy that spreads keys brings all to the first one's server, where the others are not: those are asked for by themselves.
            missing = False if len(changes) == 1 else StoreUnavailable(STORE, "error", may_have_landed=False)
            for change, changed in zip(changes, reply, strict=True):
                change.told(True if changed else missing)
        else:
            raise StoreUnavailable(STORE, "error", may_have_landed=True)


def _as_acquired(reply: object) -> Acquired | Found:
    if reply is None:
        return _ACQUIRED
    if isinstance(reply, bytes):
        return Found(reply)
    raise StoreUnavailable(STORE, "error", may_have_landed=True)


def _as_admitted(reply: object) -> Acquired | Found | Refused:
    match reply:
        case [int(wait)]:
            return Refused(wait)
        case _:
            return _as_acquired(reply)


def _as_value(reply: object) -> bytes | None:
    if reply is None or isinstance(reply, bytes):
        return reply
    raise StoreUnavailable(STORE, "error", may_have_landed=False)


def _as_changed(reply: object) -> bool:
    return _as_bool(reply[0] if isinstance(reply, list) and len(reply) == 1 else None)


def _as_bool(reply: object) -> bool:
    match reply:
        case 1:
            return True
        case 0:
            return False
        case _:
            raise StoreUnavailable(STORE, "error", may_have_landed=True)
