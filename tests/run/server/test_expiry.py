"""The metric of expiring certificates: those in use, at start and after a reload."""

import datetime as dt
from dataclasses import replace
from pathlib import Path

import trustme

from gateway.run.server.expiry import expiries
from tests.config.support import HEAD, ROUTES, read
from tests.support.gateway import Setup, running
from tests.tls.authority import write_authority, write_pair

NEXT_YEAR = dt.datetime(2031, 1, 1, tzinfo=dt.UTC)


def write_until(path: Path, authority: trustme.CA, end: dt.datetime) -> None:
    path.write_bytes(authority.issue_cert("127.0.0.1", not_after=end).private_key_and_cert_chain_pem.bytes())


def test_each_setting_that_names_a_certificate_is_told(tmp_path: Path) -> None:
    """Both listeners and the upstreams, own certificates and authorities; keys and what is not set are left out."""
    authority = trustme.CA()
    write_pair(tmp_path, "own", authority)
    write_authority(tmp_path, "ca", authority)
    write_until(tmp_path / "short.pem", authority, NEXT_YEAR)
    own = "cert_file: own.pem, key_file: own-key.pem"
    text = (HEAD + ROUTES).replace('"http://payments:8000"', '"https://payments:8000", tls: {ca_file: ca.pem, cert_file: short.pem}')
    config = read(tmp_path, f"{text}tls: {{{own}, client_ca_file: ca.pem}}\nadmin: {{listen: '127.0.0.1:1', tls: {{{own}}}}}")
    found = expiries(config)
    assert set(found) == {
        *("tls.cert_file", "tls.client_ca_file", "admin.tls.cert_file"),
        *("upstreams.payments.tls.cert_file", "upstreams.payments.tls.ca_file"),
    }
    assert found["upstreams.payments.tls.cert_file"] == NEXT_YEAR.timestamp()
    (tmp_path / "short.pem").unlink()
    assert "upstreams.payments.tls.cert_file" not in expiries(config)


async def test_a_reload_tells_the_new_certificate(setup: Setup, tmp_path: Path) -> None:
    """A file that was renewed counts when the gateway uses it, not before."""
    authority = trustme.CA()
    file = tmp_path / "listener.pem"
    write_until(file, authority, NEXT_YEAR)
    name = "idempotency_certificate_expiry_timestamp_seconds"
    async with running(replace(setup, more=f"tls: {{cert_file: {file}}}"), tmp_path) as gateway:
        assert await gateway.metric(name, setting="tls.cert_file") == NEXT_YEAR.timestamp()
        later = NEXT_YEAR + dt.timedelta(days=90)
        write_until(file, authority, later)
        assert await gateway.metric(name, setting="tls.cert_file") == NEXT_YEAR.timestamp()
        assert (await gateway.post("/admin/v1/reload"))[0] == 200
        assert await gateway.metric(name, setting="tls.cert_file") == later.timestamp()
