"""Certificates whose time is over."""

import datetime as dt
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.certificates import expiry_of, first_expiry
from tests.config.support import HEAD, ROUTES, read
from tests.tls.authority import write_authority, write_pair

NOW = dt.datetime.now(dt.UTC)  # noqa: TID251 - certificates go by the time of day
DAY = dt.timedelta(days=1)
_KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(begin: dt.datetime, end: dt.datetime) -> bytes:
    """PEM of a certificate that counts between these, signed by itself."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "api.example")])
    builder = x509.CertificateBuilder(name, name, _KEY.public_key(), 1, begin, end)
    return builder.sign(_KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@settings(max_examples=50)
@given(
    st.datetimes(dt.datetime(1950, 1, 1), dt.datetime(2200, 1, 1)),  # noqa: DTZ001 - given a zone below
    st.timedeltas(dt.timedelta(hours=1), 20000 * DAY),
)
def test_dates_are_read_as_others_read_them(tmp_path_factory: pytest.TempPathFactory, begin: dt.datetime, length: dt.timedelta) -> None:
    """Of the last century and of the next: what is said of a certificate is what its dates say."""
    begin = begin.replace(tzinfo=dt.UTC, microsecond=0)
    path = tmp_path_factory.mktemp("expiry") / "a.pem"
    path.write_bytes(certificate(begin, begin + length))
    found = expiry_of(str(path))
    end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    assert first_expiry(str(path)) == end.timestamp()
    if end < NOW:
        assert found is not None
        assert f"expired on {end:%Y-%m-%d}" in found
    elif begin > NOW + DAY:
        assert found is not None
        assert f"is not valid before {begin:%Y-%m-%d}" in found
    elif begin < NOW < end - DAY:
        assert found is None


@given(st.binary(max_size=80), st.integers(0, 300))
def test_damage_is_no_finding(tmp_path_factory: pytest.TempPathFactory, junk: bytes, cut: int) -> None:
    """Whatever a file holds, nothing is raised: others say that it cannot be used."""
    path = tmp_path_factory.mktemp("expiry") / "a.pem"
    whole = certificate(NOW - DAY, NOW + DAY)
    path.write_bytes(whole[:cut] + junk + whole[cut + 5 :])
    assert expiry_of(str(path)) is None or "a.pem" in str(expiry_of(str(path)))
    assert expiry_of(str(path.parent)) is None
    assert first_expiry(str(path)) in (None, (NOW + DAY).replace(microsecond=0).timestamp())
    assert first_expiry(str(path.parent)) is None


def test_a_chain_is_as_old_as_its_oldest(tmp_path: Path) -> None:
    """One certificate that is over spoils the file."""
    path = tmp_path / "chain.pem"
    path.write_bytes(certificate(NOW - DAY, NOW + DAY) + certificate(NOW - 3 * DAY, NOW - 2 * DAY))
    assert expiry_of(str(path)) == f"a certificate in {path} expired on {NOW - 2 * DAY:%Y-%m-%d}, and is refused since; renew it"
    assert first_expiry(str(path)) == (NOW - 2 * DAY).replace(microsecond=0).timestamp()


@pytest.mark.parametrize("side", ["tls", "admin.tls", "upstreams.payments.tls"])
def test_an_expired_certificate_is_a_warning(tmp_path: Path, side: str) -> None:
    """On every side, at the setting that names the file; the configuration loads, so that a gateway may start and be renewed."""
    authority = trustme.CA()
    write_pair(tmp_path, "good", authority, both=True)
    write_authority(tmp_path, "ca", authority)
    old = authority.issue_cert("api.example", not_after=NOW - DAY)
    (tmp_path / "old.pem").write_bytes(old.private_key_and_cert_chain_pem.bytes())
    tls = "tls: {cert_file: old.pem}"
    match side:
        case "tls":
            text = HEAD + ROUTES + tls
        case "admin.tls":
            text = f"{HEAD}{ROUTES}admin: {{{tls}}}"
        case _:
            text = (HEAD + ROUTES).replace("http://", "https://").replace('8000"}', f'8000", {tls}}}')
    found = [(one.place.path if one.place else "", one.message) for one in read(tmp_path, text).warnings]
    words = f"a certificate in {tmp_path}/old.pem expired on {NOW - DAY:%Y-%m-%d}, and is refused since; renew it"
    assert found == [(f"{side}.cert_file", words)]
    assert read(tmp_path, text.replace("old.pem", "good.pem")).warnings == ()
