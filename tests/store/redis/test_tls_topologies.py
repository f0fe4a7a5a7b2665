"""TLS to Sentinels and to a cluster, with certificates on both sides, and users that differ."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from gateway.devtools.embedded.ports import LOOPBACK, free_port
from gateway.store.redis.hotpath import Acquired, HotPath
from gateway.store.redis.server import CLUSTER_RIGHTS, RIGHTS
from gateway.store.redis.servers import faults_of, topology_of
from tests.store.redis.support import digest
from tests.support.redis_topologies import MASTER, SLOTS, Node, lone_sentinel, server_of_the_path, until, with_another_port

WORD = "a-word-of-the-tests"


@dataclass(frozen=True, slots=True)
class Papers:
    """Certificates as files: of an authority, of the servers, of the gateway; and an authority that signed none of these."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> "Papers":
        authority, other = trustme.CA(), trustme.CA()
        authority.cert_pem.write_to_path(folder / "ca.pem")
        other.cert_pem.write_to_path(folder / "other.pem")
        for name in ("server", "client"):
            made = authority.issue_cert(LOOPBACK)
            made.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
            made.private_key_pem.write_to_path(folder / f"{name}.key")
        return cls(folder)

    def server(self, port: int) -> dict[str, str]:
        """Settings of a server that lets in who shows a certificate."""
        files = {"cert-file": "server.pem", "key-file": "server.key", "ca-cert-file": "ca.pem"}
        return {"tls-port": str(port), "tls-auth-clients": "yes", **{f"tls-{name}": str(self.folder / one) for name, one in files.items()}}

    def options(self) -> str:
        """The query of a URL."""
        paths = {"ssl_ca_certs": "ca.pem", "ssl_certfile": "client.pem", "ssl_keyfile": "client.key"}
        return "&".join(f"{name}={self.folder / one}" for name, one in paths.items())


@pytest.fixture
def papers(tmp_path: Path) -> Papers:
    return Papers.made(tmp_path)


@contextmanager
def server(folder: Path, papers: Papers, *settings: str) -> Iterator[tuple[Node, int]]:
    """A server with these settings set to yes, and its port for TLS."""

    def started(port: int) -> tuple[Node, int]:
        node = Node(folder, WORD, {**papers.server(port), **dict.fromkeys(settings, "yes")}, server_of_the_path())
        node.start()
        return node, port

    node, port = with_another_port(started)
    try:
        yield node, port
    finally:
        node.stop()


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[HotPath]:
    """A gateway's way to the servers of a URL, once it is there."""
    topology = topology_of(url, lambda: 0.5, timeout=5)
    await topology.start()
    try:
        async with asyncio.timeout(20):
            while topology.open:
                await asyncio.sleep(0.05)
        yield HotPath(topology)
    finally:
        await topology.close()


async def serves_those_it_knows(url: str, stranger: str) -> None:
    """A lease is taken by the one URL; of the other, whose authority is not that of the servers, the fault is told."""
    async with serving(url) as hot:
        assert await hot.acquire(digest(), b"lease", 5000) == Acquired()
    assert await faults_of(url) == []
    (fault, *_) = await faults_of(stranger)
    assert "CERTIFICATE_VERIFY_FAILED" in fault


async def test_sentinels_under_tls(papers: Papers, tmp_path: Path) -> None:
    """The primary's user and the Sentinels' password are two. A server of another authority is told at once, in a sentence."""
    watching = free_port()
    with server(tmp_path / "redis", papers, "tls-replication") as (node, port):
        node.ask("ACL", "SETUSER", "app", "on", ">app-word", *RIGHTS.split())
        lines = [f"{name} {value}" for name, value in {**papers.server(watching), "tls-replication": "yes"}.items()]
        with lone_sentinel(tmp_path / "sentinel", WORD, port, *lines):
            hosts = f"{LOOPBACK}:{watching}/0?master={MASTER}&sentinel_password={WORD}"
            url = f"rediss+sentinel://app:app-word@{hosts}&{papers.options()}"
            await serves_those_it_knows(url, url.replace("ca.pem", "other.pem"))


async def test_a_cluster_under_tls(papers: Papers, tmp_path: Path) -> None:
    """Nodes are found by the ports that they have for TLS; a user of its own rights is enough."""
    with server(tmp_path / "redis", papers, "tls-cluster", "cluster-enabled") as (node, port):
        node.ask("ACL", "SETUSER", "app", "on", ">app-word", *CLUSTER_RIGHTS.split())
        node.ask("CLUSTER", "ADDSLOTS", *range(SLOTS))
        until(lambda: bool(node.ask("CLUSTER INFO")["cluster_state"] == "ok"))
        url = f"rediss+cluster://app:app-word@{LOOPBACK}:{port}?{papers.options()}"
        await serves_those_it_knows(url, url.replace("ca.pem", "other.pem"))
