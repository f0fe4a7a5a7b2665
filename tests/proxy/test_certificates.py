"""Callers by the certificate that they show in the gateway's own TLS."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme

from tests.proxy.house import House, Plan, fresh, post, refusal, replayed
from tests.support.client import Answer, Client
from tests.tls.authority import write_authority, write_pair

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUTES = """
  - {id: shown, path: /shown, upstream: payments, methods: [POST], idempotency: {principal: [{client_certificate: {}}]}}
  - id: told
    path: /told
    upstream: payments
    methods: [POST]
    idempotency: {principal: [{client_certificate: {header: X-Client-Subject}}]}
  - id: both
    path: /both
    upstream: payments
    methods: [POST]
    idempotency: {principal: [{client_certificate: {}}, {header: X-Account}]}
"""


@dataclass(frozen=True, slots=True)
class Authority:
    """Who signs certificates of both sides."""

    ca: trustme.CA
    folder: Path

    def client(self, subject: str, authority: trustme.CA | None = None) -> ssl.SSLContext:
        """A client that shows a new certificate of this subject."""
        issuer = authority or self.ca
        issued = issuer.issue_cert(common_name=subject, organization_name="Shop", organization_unit_name="Till")
        context = self.bare()
        issued.configure_cert(context)
        return context

    def bare(self) -> ssl.SSLContext:
        """A client without a certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.ca.configure_trust(context)
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(trustme.CA(), tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def plan(authority: Authority) -> Plan:
    cert, key = write_pair(authority.folder, "server", authority.ca)
    clients = write_authority(authority.folder, "clients", authority.ca)
    tls = f"tls: {{cert_file: {cert}, key_file: {key}, client_ca_file: {clients}}}\ntrusted_proxies: [192.0.2.0/24]"
    return Plan(ROUTES, more=tls, defaults="{lease: 2s}")


async def ask(house: House, context: ssl.SSLContext, raw: bytes) -> Answer:
    opened = await asyncio.open_connection("127.0.0.1", house.gateway.port, ssl=context, server_hostname="localhost")
    async with asyncio.timeout(10), Client(*opened) as client:
        return await client.request(raw)


async def test_a_renewed_certificate_keeps_its_keys(house: House, authority: Authority) -> None:
    """The subject is the caller: another certificate of it replays, one of another subject runs."""
    key = fresh()
    first = await ask(house, authority.client("a"), post(b"/shown", key))
    again = await ask(house, authority.client("a"), post(b"/shown", key))
    other = await ask(house, authority.client("b"), post(b"/shown", key))
    assert (again.status, again.body) == (first.status, first.body) == (201, first.body)
    assert replayed(again)
    assert not replayed(other)
    assert len(house.seen) == 2


async def test_connections_are_told_apart(house: House, authority: Authority) -> None:
    """Several requests on one connection are its certificate's, whatever others are open."""
    key, contexts = fresh(), (authority.client("c"), authority.client("d"))
    opened = [
        Client(*await asyncio.open_connection("127.0.0.1", house.gateway.port, ssl=one, server_hostname="localhost")) for one in contexts
    ]
    try:
        firsts = [await client.request(post(b"/shown", key)) for client in opened]
        again = [await client.request(post(b"/shown", key)) for client in reversed(opened)]
    finally:
        for client in opened:
            client.close()
    assert [one.body for one in reversed(again)] == [one.body for one in firsts]
    assert firsts[0].body != firsts[1].body
    assert len(house.seen) == 2


async def test_together_with_a_field(house: House, authority: Authority) -> None:
    """Certificate and field both count."""
    key, client = fresh(), authority.client("a")
    assert (await ask(house, client, post(b"/both", key, account=b"1"))).status == 201
    assert replayed(await ask(house, client, post(b"/both", key, account=b"1")))
    assert not replayed(await ask(house, client, post(b"/both", key, account=b"2")))
    assert refusal(await ask(house, client, post(b"/both", key, account=None))) == (401, "principal-missing")


async def test_a_word_that_no_trusted_proxy_said(house: House, authority: Authority) -> None:
    """Anybody can write the field: it is believed from trusted proxies alone."""
    told = post(b"/told", fresh(), more=(b"X-Client-Subject: CN=a",))
    assert refusal(await ask(house, authority.client("a"), told)) == (401, "principal-missing")
    assert not house.seen


@pytest.mark.parametrize("stranger", [True, False])
async def test_no_certificate_or_a_strangers(house: House, authority: Authority, stranger: bool) -> None:
    """No request gets in."""
    context = authority.client("a", trustme.CA()) if stranger else authority.bare()
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await ask(house, context, post(b"/shown", fresh()))
    assert not house.seen
