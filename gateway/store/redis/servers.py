"""The servers of a Redis URL: the way to them, and what is wrong with them."""

import asyncio
from collections.abc import Callable
from typing import assert_never

from gateway.core.redis_url import ClusterUrl, Host, OneServer, SentinelUrl, parse_redis_url, spelled
from gateway.ports import StoreObserver
from gateway.store.redis.breaker import Breaker
from gateway.store.redis.cluster import Cluster, map_of, probe_of
from gateway.store.redis.connection import ErrorReply, Opener, Wire, address_of, opener
from gateway.store.redis.kept import Kept
from gateway.store.redis.link import Link
from gateway.store.redis.sentinel import SentinelPlace
from gateway.store.redis.server import Probe, Unfit, judge_trial, probe_key, quota_questions
from gateway.store.redis.slots import SLOTS, SlotMap, latest
from gateway.store.redis.topology import Topology

_NODE_LIMIT = 1.0
"""Seconds between two tries to reach one node of a cluster, at most: whether it is worth the while, its map says."""

PATIENCE = 2.0


def topology_of(url: str, jitter: Callable[[], float], *, timeout: float = 0.1, observer: StoreObserver | None = None) -> Topology:
    """The way to the servers of a URL, not yet begun. `timeout` is for one command. ValueError if the URL cannot be used."""
    match parse_redis_url(url):
        case OneServer(one):
            return Link(one, Breaker(jitter), timeout=timeout, observer=observer)
        case SentinelUrl() as sentinels:
            return Link(SentinelPlace(sentinels), Breaker(jitter), timeout=timeout, observer=observer)
        case ClusterUrl() as cluster:
            return Cluster(cluster, lambda: Breaker(jitter, limit=_NODE_LIMIT), timeout=timeout, observer=observer)
        case other:
            assert_never(other)


async def faults_of(url: str, *, quotas: bool = False) -> list[str]:
    """What keeps the servers of a URL from serving, or will do so soon, as sentences; what entries need, and quotas if there are some, is
    tried with keys of our own.
    """
    deadline = asyncio.get_running_loop().time() + PATIENCE
    match parse_redis_url(url):
        case OneServer(one):
            return await _of_one(address_of(one), opener(one), deadline, quotas=quotas)
        case SentinelUrl() as sentinels:
            return await _of_sentinels(sentinels, deadline, quotas=quotas)
        case ClusterUrl() as cluster:
            return await _of_cluster(cluster, deadline, quotas=quotas)
        case other:
            assert_never(other)


async def _of_one(address: str, make: Opener, deadline: float, probe: Probe | None = None, *, quotas: bool) -> list[str]:
    try:
        wire = await Wire.open(make, deadline, probe)
        try:
            if quotas:
                judge_trial(await wire.ask(quota_questions(probe or probe_key), deadline), member=probe is not None)
        finally:
            wire.close()
    except TimeoutError:
        return [f"{address}: no answer within {PATIENCE:g}s"]
    except (Unfit, ErrorReply, OSError) as error:
        return [f"{address}: {error}"]
    return []


async def _of_sentinels(url: SentinelUrl, deadline: float, *, quotas: bool) -> list[str]:
    place = SentinelPlace(url)
    try:
        faults = await place.check(deadline)
        if len(faults) < len(url.hosts):
            make = await place.find(deadline)
            faults += await _of_one(place.address, make, deadline, quotas=quotas)
    except (Unfit, OSError) as error:
        return [str(error)]
    finally:
        await place.close()
    return faults


async def _of_cluster(url: ClusterUrl, deadline: float, *, quotas: bool) -> list[str]:
    maps = dict(zip(url.hosts, await asyncio.gather(*(_map_of(url, host, deadline) for host in url.hosts)), strict=True))
    faults = [f"{spelled(host)}: {found or 'no answer'}" for host, found in maps.items() if isinstance(found, Exception)]
    found = latest(one for one in maps.values() if isinstance(one, SlotMap))
    if found is None:
        return faults
    owners = found.owners()
    if (nobodys := owners.count(None)) or not found.ok:
        faults.append(f"the cluster is not whole: {nobodys} of {SLOTS} slots are nobody's")
    nodes = {owner for owner in owners if owner is not None}
    for one in await asyncio.gather(*(_of_node(url, host, owners, deadline, quotas=quotas) for host in nodes)):
        faults += one
    return faults


async def _of_node(url: ClusterUrl, host: Host, owners: list[Host | None], deadline: float, *, quotas: bool) -> list[str]:
    def probe() -> bytes | None:
        return probe_of(lambda slot: owners[slot] == host)

    return await _of_one(spelled(host), opener(url.node.at(host)), deadline, probe, quotas=quotas)


async def _map_of(url: ClusterUrl, host: Host, deadline: float) -> SlotMap | Exception:
    source = Kept(opener(url.node.at(host)), member=True)
    try:
        answers = await source.ask([(b"CLUSTER", b"INFO"), (b"CLUSTER", b"SLOTS")], deadline)
        return answers if isinstance(answers, Exception) else map_of(answers, host)
    finally:
        await source.close()
