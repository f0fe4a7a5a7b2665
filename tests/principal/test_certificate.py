"""A subject is the same as long as its attributes are, however a certificate spells them, and no two share their bytes."""

import asyncio
import datetime as dt
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
import trustme
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from gateway.principal import certificate_subject
from gateway.principal.certificate import subject_of
from tests.principal.tokens import private_key

CN, ORG, UNIT = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def certificate(subject: x509.Name, issuer: str = "issuer", serial: int = 1) -> bytes:
    """A DER certificate with this subject."""
    key = private_key("ES256", 0)
    builder = x509.CertificateBuilder(
        issuer_name=x509.Name([x509.NameAttribute(CN, issuer)]),
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=serial,
        not_valid_before=START,
        not_valid_after=START + dt.timedelta(days=serial),
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def name(*attributes: tuple[x509.ObjectIdentifier, str], kind: _ASN1Type | None = None) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, text, kind) for oid, text in attributes])


def test_renewal_keeps_the_subject() -> None:
    """Another serial number, validity, issuer or type of string is the same subject; another text or order is not."""
    plain = subject_of(certificate(name((ORG, "Shop"), (CN, "till"))))
    assert plain is not None
    for kind in (_ASN1Type.PrintableString, _ASN1Type.UTF8String, _ASN1Type.BMPString, _ASN1Type.T61String):
        assert subject_of(certificate(name((ORG, "Shop"), (CN, "till"), kind=kind), issuer="other", serial=9)) == plain
    for other in (
        name((ORG, "Shop"), (CN, "Till")),
        name((CN, "till"), (ORG, "Shop")),
        name((ORG, "Shop")),
        name((UNIT, "Shop"), (CN, "till")),
    ):
        assert subject_of(certificate(other)) != plain


def test_attributes_of_one_relative_name() -> None:
    """Attributes that form one relative name are a set, and not the same as one after the other."""
    one, two = x509.NameAttribute(CN, "till"), x509.NameAttribute(UNIT, "shop")
    together = subject_of(certificate(x509.Name([x509.RelativeDistinguishedName([one, two])])))
    assert together == subject_of(certificate(x509.Name([x509.RelativeDistinguishedName([two, one])])))
    assert together != subject_of(certificate(x509.Name([one, two])))


def test_an_empty_subject_is_none() -> None:
    """A certificate without a subject (its names are elsewhere) identifies nobody, rather than all of its kind as one."""
    assert subject_of(certificate(x509.Name([]))) is None


attributes = st.lists(st.tuples(st.sampled_from([CN, ORG, UNIT]), st.text("ab,=+\\ü", min_size=1, max_size=3)), min_size=1, max_size=3)


@given(attributes, attributes)
def test_subjects_are_injective(
    one: Sequence[tuple[x509.ObjectIdentifier, str]], other: Sequence[tuple[x509.ObjectIdentifier, str]]
) -> None:
    """No choice of texts makes one subject look like another."""
    assert (subject_of(certificate(name(*one))) == subject_of(certificate(name(*other)))) == (list(one) == list(other))


WHOLE = certificate(name((ORG, "Shop"), (CN, "till")))


@given(st.binary(max_size=40) | st.integers(0, len(WHOLE)).map(lambda end: WHOLE[:end]))
def test_broken_certificates_are_none(data: bytes) -> None:
    """No bytes are an error; those that were cut have no subject, or the one that is still whole."""
    found = subject_of(data)
    assert found is None or data == WHOLE


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_connection_has_a_subject(new_loop: object, version: ssl.TLSVersion, tmp_path: Path) -> None:
    """The subject of a client's certificate is found on a real connection; a server that demands none finds none."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(server)
    authority.configure_trust(client)
    issued = authority.issue_cert("till@shop.test", common_name="till", organization_name="Shop")
    issued.configure_cert(client)
    server.maximum_version = version
    expected = subject_of(x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes()).public_bytes(Encoding.DER))
    assert expected is not None
    assert callable(new_loop)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        server.verify_mode = ssl.CERT_REQUIRED
        assert runner.run(seen_by_server(server, client)) == expected
        server.verify_mode = ssl.CERT_NONE
        assert runner.run(seen_by_server(server, client)) is None
        assert runner.run(seen_by_server(None, None)) is None


async def seen_by_server(server: ssl.SSLContext | None, client: ssl.SSLContext | None) -> bytes | None:
    seen: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        seen.set_result(certificate_subject(writer.get_extra_info("ssl_object")))
        writer.close()

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=server)
    async with listener, asyncio.timeout(10):
        port = listener.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname="localhost" if client else None)
        writer.write(b"x")
        found = await seen
        writer.close()
        await writer.wait_closed()
    return found
