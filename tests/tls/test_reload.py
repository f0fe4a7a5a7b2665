"""A live listener gets other certificates and authorities, and nobody who is connected notices."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
import trustme

from gateway.config import TlsServer
from gateway.tls import TlsError, reload_server_context, server_context
from tests.tls.authority import write_authority, write_pair
from tests.tls.peers import client, connected, refused, serving

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def settings(folder: Path, authority: trustme.CA, *clients: trustme.CA, hosts: tuple[str, ...] = (), version: str = "1.2") -> TlsServer:
    """A new certificate in the same files."""
    cert_file, key_file = write_pair(folder, "server", authority, *hosts)
    client_ca_file = str(write_authority(folder, "clients", *clients)) if clients else None
    return TlsServer(str(cert_file), str(key_file), client_ca_file, version, "")


def spoil(path: str) -> None:
    Path(path).write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_new_handshakes_see_the_new_certificate(tmp_path: Path, authority: trustme.CA, version: ssl.TLSVersion, name: str) -> None:
    """With a server name and without one (an address has none), again and again; an open connection lives on under its own."""
    hosts = ("localhost", "127.0.0.1")
    context = server_context(settings(tmp_path, authority, hosts=hosts))
    wishes = client(authority)
    wishes.maximum_version = version
    async with serving(context) as port, connected(port, wishes, name) as old:
        seen = {old.certificate}
        for round_ in range(1, 4):
            reload_server_context(context, settings(tmp_path, authority, hosts=hosts))
            async with connected(port, wishes, name) as new:
                seen.add(new.certificate)
                assert len(seen) == round_ + 1
                assert await new.echo(b"new" * 50_000) == b"new" * 50_000
        assert await old.echo(b"old" * 50_000) == b"old" * 50_000


async def test_another_kind_of_key_leaves_nothing_of_the_old_one(tmp_path: Path, authority: trustme.CA) -> None:
    """After RSA an ECDSA certificate replaces it, also for a client that would rather have RSA."""

    def of(kind: trustme.KeyType) -> TlsServer:
        issued = authority.issue_cert("localhost", key_type=kind)
        path = tmp_path / "server.pem"
        path.write_bytes(issued.private_key_and_cert_chain_pem.bytes())
        return TlsServer(str(path), str(path), None, "1.2", "")

    context = server_context(of(trustme.KeyType.RSA))
    rsa_only = client(authority)
    rsa_only.maximum_version = ssl.TLSVersion.TLSv1_2
    rsa_only.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
    async with serving(context) as port:
        async with connected(port, client(authority)) as first:
            before = first.certificate
        assert not await refused(port, rsa_only)
        reload_server_context(context, of(trustme.KeyType.ECDSA))
        async with connected(port, client(authority)) as second:
            assert second.certificate != before
        assert await refused(port, rsa_only)


@pytest.mark.parametrize("broken", ["cert_file", "key_file", "client_ca_file"])
async def test_bad_files_change_nothing(tmp_path: Path, authority: trustme.CA, broken: str) -> None:
    """Whichever file is bad, the old certificate and the old authorities go on serving."""
    clients = trustme.CA()
    first = settings(tmp_path, authority, clients)
    context = server_context(first)
    known = client(authority, clients.issue_cert("a@client.example"))
    async with serving(context) as port:
        async with connected(port, known) as link:
            before = link.certificate
        renewed = settings(tmp_path, authority, clients, version="1.3")
        spoil(getattr(renewed, broken))
        with pytest.raises(TlsError):
            reload_server_context(context, renewed)
        known.maximum_version = ssl.TLSVersion.TLSv1_2
        async with connected(port, known) as link:
            assert link.certificate == before
        assert await refused(port, client(authority))


async def test_authorities_are_replaced_and_not_added_to(tmp_path: Path, authority: trustme.CA) -> None:
    """A removed authority vouches for nobody any more; none at all lets everybody in, and some again do not."""
    one, two = trustme.CA(), trustme.CA()
    first, second = (client(authority, clients.issue_cert("a@client.example")) for clients in (one, two))
    nobody = client(authority)
    context = server_context(settings(tmp_path, authority, one))

    async def let_in(port: int) -> list[bool]:
        return [not await refused(port, wishes) for wishes in (first, second, nobody)]

    async with serving(context) as port, connected(port, first) as old:
        assert await let_in(port) == [True, False, False]
        reload_server_context(context, settings(tmp_path, authority, one, two))
        assert await let_in(port) == [True, True, False]
        reload_server_context(context, settings(tmp_path, authority, two))
        assert await let_in(port) == [False, True, False]
        reload_server_context(context, settings(tmp_path, authority))
        assert await let_in(port) == [True, True, True]
        reload_server_context(context, settings(tmp_path, authority, two))
        assert await let_in(port) == [False, True, False]
        assert await old.echo() == b"hello"


async def test_the_oldest_version_changes_too(tmp_path: Path, authority: trustme.CA) -> None:
    """Up and down again."""
    old = client(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    context = server_context(settings(tmp_path, authority))
    async with serving(context) as port:
        for version, fine in (("1.3", False), ("1.2", True)):
            reload_server_context(context, settings(tmp_path, authority, version=version))
            assert await refused(port, old) is not fine


# ---- sessions: only a blocking client can offer one


@contextmanager
def accepting(context: ssl.SSLContext) -> Iterator[int]:
    """A blocking server that greets whoever gets through its handshake, until the end."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            try:
                with plain, context.wrap_socket(plain, server_side=True) as link:
                    link.sendall(b"hi")
                    link.recv(1)
            except OSError:
                continue

    thread = Thread(target=run)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def visit(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool]:
    """One connection: the session that it leaves, and whether it resumed the given one. Raises SSLError if refused."""
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost", session=session) as link,
    ):
        assert link.recv(2) == b"hi"
        left, reused = link.session, bool(link.session_reused)
        link.sendall(b"x")
        return left, reused


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_is_resumed_until_its_authority_is_removed(tmp_path: Path, authority: trustme.CA, version: ssl.TLSVersion) -> None:
    """A session from before would be a way around the new authorities; a renewed certificate alone ends none.

    With TLS 1.3 there is none to begin with where certificates are demanded.
    """
    one, two = trustme.CA(), trustme.CA()
    wishes = client(authority, one.issue_cert("a@client.example"))
    wishes.maximum_version = version
    context = server_context(settings(tmp_path, authority, one))
    resumes = version is ssl.TLSVersion.TLSv1_2
    with accepting(context) as port:
        session, _ = visit(port, wishes, None)
        assert visit(port, wishes, session)[1] is resumes
        cert_file, key_file = write_pair(tmp_path, "server", authority)
        reload_server_context(context, TlsServer(str(cert_file), str(key_file), str(tmp_path / "clients.pem"), "1.2", ""))
        assert visit(port, wishes, session)[1] is resumes
        reload_server_context(context, settings(tmp_path, authority, two))
        with pytest.raises(ssl.SSLError):
            visit(port, wishes, session)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_from_before_certificates_were_demanded_is_not_resumed(
    tmp_path: Path, authority: trustme.CA, version: ssl.TLSVersion
) -> None:
    """Demanding certificates on a live listener demands them of everybody; later sessions are resumed again."""
    clients = trustme.CA()
    nobody, known = client(authority), client(authority, clients.issue_cert("a@client.example"))
    nobody.maximum_version = known.maximum_version = version
    context = server_context(settings(tmp_path, authority))
    with accepting(context) as port:
        session, _ = visit(port, nobody, None)
        assert visit(port, nobody, session)[1]
        reload_server_context(context, settings(tmp_path, authority, clients))
        with pytest.raises(ssl.SSLError):
            visit(port, nobody, session)
        first = latest = visit(port, known, None)[0]
        assert first is not None
        # A session is from before or after a whole second, and the two sides may have stamped it on either side of its end.
        while latest is None or latest.time < first.time + 2:
            latest, _ = visit(port, known, None)
        assert visit(port, known, latest)[1] is (version is ssl.TLSVersion.TLSv1_2)
