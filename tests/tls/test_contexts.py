"""What the contexts of both edges accept and refuse, over real connections."""

import ssl
from pathlib import Path

import pytest
import trustme

from gateway.config import TlsClient, TlsServer
from gateway.tls import TlsError, client_context, reload_server_context, server_context
from tests.tls.authority import write_authority, write_pair
from tests.tls.peers import client, connected, refused, serving


def server_settings(folder: Path, authority: trustme.CA, clients: trustme.CA | None = None, version: str = "1.2") -> TlsServer:
    cert_file, key_file = write_pair(folder, "server", authority)
    client_ca_file = None if clients is None else str(write_authority(folder, "clients", clients))
    return TlsServer(str(cert_file), str(key_file), client_ca_file, version, "")


def client_settings(
    ca_file: Path | None = None, pair: Path | None = None, name: str | None = None, version: str = "1.2", *, verify: bool = True
) -> TlsClient:
    own = None if pair is None else str(pair)
    return TlsClient(None if ca_file is None else str(ca_file), own, own, name, version, verify, "")


async def test_a_listener_speaks_http_1_1_over_tls(tmp_path: Path, authority: trustme.CA) -> None:
    """The certificate is verified, ALPN picks http/1.1, and what is agreed on is TLS 1.3."""
    wishes = client(authority)
    wishes.set_alpn_protocols(["h2", "http/1.1"])
    async with serving(server_context(server_settings(tmp_path, authority))) as port, connected(port, wishes) as link:
        assert (link.tls.selected_alpn_protocol(), link.tls.version(), link.tls.compression()) == ("http/1.1", "TLSv1.3", None)


@pytest.mark.parametrize(("least", "most", "fine"), [("1.2", "1.2", True), ("1.3", "1.2", False), ("1.3", "1.3", True)])
async def test_the_oldest_version_is_a_bound(tmp_path: Path, authority: trustme.CA, least: str, most: str, fine: bool) -> None:
    """A client that speaks nothing newer is refused, on a listener and toward an upstream alike."""
    versions = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
    old = client(authority)
    old.maximum_version = versions[most]
    async with serving(server_context(server_settings(tmp_path, authority, version=least))) as port:
        assert await refused(port, old) is not fine
    server = server_context(server_settings(tmp_path, authority))
    server.maximum_version = versions[most]
    wishes = client_settings(write_authority(tmp_path, "ca", authority), version=least)
    async with serving(server) as port:
        assert await refused(port, client_context(wishes)) is not fine


def test_nothing_below_tls_1_2_is_spoken(tmp_path: Path, authority: trustme.CA) -> None:
    """Neither side would fall back."""
    for context in (server_context(server_settings(tmp_path, authority)), client_context(None), client_context(client_settings())):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_client_authorities_demand_a_certificate(tmp_path: Path, authority: trustme.CA, stranger: trustme.CA) -> None:
    """A client without a certificate, or with a stranger's, gets no connection."""
    clients = trustme.CA()
    async with serving(server_context(server_settings(tmp_path, authority, clients))) as port:
        assert await refused(port, client(authority))
        assert await refused(port, client(authority, stranger.issue_cert("a@client.example")))
        assert not await refused(port, client(authority, clients.issue_cert("a@client.example")))


async def test_an_intermediate_authority_can_be_the_one_that_is_trusted(tmp_path: Path, authority: trustme.CA) -> None:
    """A file of authorities need not go up to a root, which may stand for more than it should."""
    middle = authority.create_child_ca()
    async with serving(server_context(server_settings(tmp_path, authority, middle))) as port:
        assert not await refused(port, client(authority, middle.issue_cert("a@client.example")))
        assert await refused(port, client(authority, authority.issue_cert("a@client.example")))


async def test_an_upstream_is_verified(tmp_path: Path, authority: trustme.CA, stranger: trustme.CA) -> None:
    """By the system's authorities, or by those of a file alone, and by the name that was asked for."""
    ca_file, other = write_authority(tmp_path, "ca", authority), write_authority(tmp_path, "other", stranger)
    async with serving(server_context(server_settings(tmp_path, authority))) as port:
        for wishes in (None, client_settings(), client_settings(other)):
            assert await refused(port, client_context(wishes))
        context = client_context(client_settings(ca_file))
        async with connected(port, context) as link:
            assert link.tls.selected_alpn_protocol() == "http/1.1"
        with pytest.raises(ssl.SSLCertVerificationError):
            async with connected(port, context, "elsewhere.example"):
                pass


async def test_verification_can_be_given_up(tmp_path: Path, authority: trustme.CA) -> None:
    """`verify: false` takes any certificate under any name."""
    trusting = client_context(client_settings(verify=False))
    server = server_context(server_settings(tmp_path, authority))
    async with serving(server) as port, connected(port, trusting, "elsewhere.example") as link:
        assert link.certificate


async def test_an_upstream_may_ask_for_a_certificate(tmp_path: Path, authority: trustme.CA) -> None:
    """Certificate and key may stand in one file."""
    clients = trustme.CA()
    ca_file, (own, _) = write_authority(tmp_path, "ca", authority), write_pair(tmp_path, "own", clients, "a@client.example", both=True)
    async with serving(server_context(server_settings(tmp_path, authority, clients))) as port:
        assert await refused(port, client_context(client_settings(ca_file)))
        assert not await refused(port, client_context(client_settings(ca_file, own)))


def test_the_environment_cannot_have_session_keys_written(tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch) -> None:
    """SSLKEYLOGFILE is not heeded."""
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    for context in (server_context(server_settings(tmp_path, authority)), client_context(None)):
        assert context.keylog_filename is None


def test_bad_files_are_told_in_a_sentence(tmp_path: Path, authority: trustme.CA) -> None:
    """Files may go bad between a configuration's check and its use; the error names the file."""
    good = server_settings(tmp_path, authority, authority)
    context = server_context(good)
    Path(good.key_file).write_text("nothing")
    for fails in (lambda: server_context(good), lambda: reload_server_context(context, good)):
        with pytest.raises(TlsError, match=f"^cannot use {good.key_file}: it holds no private key in PEM form; convert one with: openssl"):
            fails()
    with pytest.raises(TlsError, match=f"^cannot read {tmp_path}/none.pem: No such file or directory$"):
        client_context(client_settings(tmp_path / "none.pem"))
    with pytest.raises(TlsError, match=f"^cannot use {good.key_file}: it holds no certificate in PEM form"):
        client_context(client_settings(pair=Path(good.key_file)))
