"""TLS in a configuration: files that exist, fit together, and are told apart from their predecessors."""

import json
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.x509 import load_pem_x509_certificate

from gateway.config import Config, TlsClient, TlsServer, redact, settings_table
from tests.config.support import HEAD, ROUTES, mistakes, read
from tests.tls.authority import write_authority, write_locked_key, write_pair

BASE = HEAD + ROUTES
HTTPS = BASE.replace("http://", "https://")
OTHER_FORM = "convert one with: openssl x509 -inform DER -in"
DAMAGED = "-----BEGIN {0}-----\nAAAA\n-----END {0}-----\n"


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def folder(tmp_path: Path, authority: trustme.CA) -> Path:
    """Good files and bad ones, beside the configuration file."""
    cert_file, key_file = write_pair(tmp_path, "good", authority)
    write_pair(tmp_path, "other", authority)
    write_pair(tmp_path, "both", authority, both=True)
    write_authority(tmp_path, "ca", authority, trustme.CA())
    write_locked_key(tmp_path, "locked-key", key_file)
    certificate = load_pem_x509_certificate(cert_file.read_bytes())
    (tmp_path / "der.pem").write_bytes(certificate.public_bytes(serialization.Encoding.DER))
    (tmp_path / "bad.pem").write_text(DAMAGED.format("CERTIFICATE"))
    (tmp_path / "bad-key.pem").write_text(DAMAGED.format("PRIVATE KEY"))
    (tmp_path / "empty.pem").touch()
    return tmp_path


PAIRS = [
    pytest.param("good.pem", "good-key.pem", None, id="two-files"),
    pytest.param("both.pem", None, None, id="one-file"),
    pytest.param("both.pem", "both.pem", None, id="one-file-twice"),
    pytest.param("none.pem", "good-key.pem", "cert_file: cannot read {none.pem}: No such file or directory", id="no-certificate"),
    pytest.param("good.pem", "none.pem", "key_file: cannot read {none.pem}: No such file or directory", id="no-key"),
    pytest.param(".", "good-key.pem", "cert_file: cannot read {.}: Is a directory", id="folder"),
    pytest.param(
        "good.pem",
        None,
        "cert_file: cannot use {good.pem}: it holds no private key in PEM form; name the key's file in `key_file`",
        id="key-not-in-the-same-file",
    ),
    pytest.param(
        "empty.pem",
        "good-key.pem",
        f"cert_file: cannot use {{empty.pem}}: it holds no certificate in PEM form; {OTHER_FORM} {{empty.pem}}",
        id="empty",
    ),
    pytest.param(
        "der.pem",
        "good-key.pem",
        f"cert_file: cannot use {{der.pem}}: it holds no certificate in PEM form; {OTHER_FORM} {{der.pem}}",
        id="der",
    ),
    pytest.param(
        "good.pem",
        "good.pem",
        "cert_file: cannot use {good.pem}: it holds no private key in PEM form; name the key's file in `key_file`",
        id="certificate-for-key",
    ),
    pytest.param(
        "good-key.pem",
        "good-key.pem",
        f"cert_file: cannot use {{good-key.pem}}: it holds no certificate in PEM form; {OTHER_FORM} {{good-key.pem}}",
        id="key-for-certificate",
    ),
    pytest.param(
        "good.pem",
        "empty.pem",
        "key_file: cannot use {empty.pem}: it holds no private key in PEM form; convert one with: openssl pkey -in {empty.pem}",
        id="empty-key",
    ),
    pytest.param(
        "good.pem",
        "other-key.pem",
        "key_file: cannot use {other-key.pem}: its key does not belong to the first certificate of {good.pem}; "
        "one's own certificate comes first, then its issuers",
        id="another-key",
    ),
    pytest.param(
        "good.pem",
        "locked-key.pem",
        "key_file: cannot use {locked-key.pem}: its key needs a passphrase, and nobody is there to type one; "
        "store it without one: openssl pkey -in {locked-key.pem} -out PLAIN",
        id="passphrase",
    ),
    pytest.param(
        "bad.pem",
        "good-key.pem",
        "cert_file: cannot use {bad.pem}: a certificate in it is damaged; copy the file again",
        id="damaged",
    ),
    pytest.param(
        "good.pem", "bad-key.pem", "key_file: cannot use {bad-key.pem}: a key in it is damaged; copy the file again", id="bad-key"
    ),
]


def _expected(folder: Path, text: str | None, path: str) -> list[str]:
    if text is None:
        return []
    for name in [".", *(file.name for file in folder.iterdir()), "none.pem"]:
        text = text.replace(f"{{{name}}}", str(folder / name))
    return [f"{path}.{text}".replace(f"{folder}/", "")]


@pytest.mark.parametrize(("cert", "key", "expected"), PAIRS)
@pytest.mark.parametrize("path", ["tls", "admin.tls", "upstreams.payments.tls"])
def test_a_certificate_and_its_key_must_be_usable(folder: Path, cert: str, key: str | None, expected: str | None, path: str) -> None:
    """Whatever is wrong with a file is told at the setting that names it, with the remedy; on every side in the same words."""
    tls = f"tls: {{cert_file: {cert}" + (f", key_file: {key}}}" if key else "}")
    match path:
        case "tls":
            text = f"{BASE}{tls}\n"
        case "admin.tls":
            text = f"{BASE}admin: {{{tls}}}\n"
        case _:
            text = HTTPS.replace('8000"}', f'8000", {tls}}}')
    found = mistakes(folder, text)
    assert [one.split(": ", 1)[1] for one in found] == _expected(folder, expected, path)


AUTHORITIES = [
    pytest.param("ca.pem", None, id="good"),
    pytest.param("good.pem", None, id="a-certificate-itself"),
    pytest.param("none.pem", "cannot read {none.pem}: No such file or directory", id="missing"),
    pytest.param(
        "good-key.pem",
        "cannot use {good-key.pem}: it holds no certificate in PEM form; put one or more authorities into it",
        id="no-certificate",
    ),
    pytest.param("bad.pem", "cannot use {bad.pem}: a certificate in it is damaged; copy the file again", id="damaged"),
]


@pytest.mark.parametrize(("name", "expected"), AUTHORITIES)
def test_authorities_must_be_usable(folder: Path, name: str, expected: str | None) -> None:
    """A file of authorities holds one certificate or more; both sides say so in the same words."""
    server = f"{BASE}tls: {{cert_file: both.pem, client_ca_file: {name}}}\n"
    client = HTTPS.replace('8000"}', f'8000", tls: {{ca_file: {name}}}}}')
    for text, path in ((server, "tls.client_ca_file"), (client, "upstreams.payments.tls.ca_file")):
        whole = None if expected is None else f": {expected}"
        assert [one.split(": ", 1)[1].removeprefix(path) for one in mistakes(folder, text)] == [
            one.removeprefix(".") for one in _expected(folder, whole, "")
        ]


def test_every_mistake_of_a_section_is_told_at_once(folder: Path) -> None:
    """A bad key does not hide a bad authority."""
    text = f"{BASE}tls: {{cert_file: good.pem, key_file: other-key.pem, client_ca_file: none.pem, min_version: 1}}\n"
    assert [one.split(": ")[1] for one in mistakes(folder, text)] == ["tls.key_file", "tls.client_ca_file", "tls.min_version"]


def loaded(folder: Path) -> Config:
    tls = "tls: {ca_file: ca.pem, cert_file: both.pem, server_name: api.example, verify: false}"
    text = HTTPS.replace('8000"}', f'8000", {tls}}}')
    return read(folder, f"{text}tls: {{cert_file: good.pem, key_file: good-key.pem, client_ca_file: ca.pem, min_version: 1.3}}\n")


def test_tls_arrives_with_absolute_paths(folder: Path) -> None:
    """Relative paths start at the configuration file's folder."""
    config = loaded(folder)
    good, key, both, ca = (str(folder / name) for name in ("good.pem", "good-key.pem", "both.pem", "ca.pem"))
    client = config.upstreams["payments"].tls
    assert config.tls is not None
    assert client is not None
    assert config.tls == TlsServer(good, key, ca, "1.3", config.tls.stamp)
    assert client == TlsClient(ca, both, both, "api.example", "1.2", verify=False, stamp=client.stamp)


@pytest.mark.parametrize(("name", "side"), [("good", "server"), ("both", "client")])
def test_a_renewed_certificate_is_another_configuration(folder: Path, authority: trustme.CA, name: str, side: str) -> None:
    """Settings compare equal while the files stay the same, and differ once any of them is renewed under its name."""

    def settings() -> TlsServer | TlsClient | None:
        config = loaded(folder)
        return config.tls if side == "server" else config.upstreams["payments"].tls

    before = settings()
    assert settings() == before
    write_pair(folder, name, authority, both=name == "both")
    assert settings() != before


def test_what_is_shown_holds_paths_and_no_keys(folder: Path) -> None:
    """The redacted configuration and the listing name the files and show nothing of what a key holds."""
    config = loaded(folder)
    shown = redact(config)
    assert isinstance(shown["tls"], dict)
    assert shown["tls"]["key_file"] == str(folder / "good-key.pem")
    everything = json.dumps(shown) + settings_table(config) + repr(config)
    for name in ("good-key.pem", "both.pem"):
        secret = (folder / name).read_text().splitlines()[1]
        assert secret not in everything


def test_the_listing_shows_what_the_file_changes(folder: Path) -> None:
    """One line a setting, by its path, as the file would say it; without changes there is none."""
    text = (
        HEAD.replace('{url: "http://payments:8000"}', '{targets: ["http://a", "unix:/b"], health: {failures: 3}, host: api.example}')
        + ROUTES
    )
    text += "trusted_proxies: [10.0.0.0/8, 192.0.2.1]\nproxy_status: true\nadmin: {tls: {cert_file: both.pem}}\n"
    text += "client: {idle_timeout: 90s, max_header_size: 32KiB}\nmemory: {total: 64MiB}\nforwarded: none\n"
    assert settings_table(read(folder, BASE)) == ""
    rows = [line.split(maxsplit=1) for line in settings_table(read(folder, text)).splitlines()]
    assert rows == [
        ["SETTING", "VALUE"],
        ["trusted_proxies", "10.0.0.0/8 192.0.2.1/32"],
        ["forwarded", "none"],
        ["proxy_status", "true"],
        ["admin.tls.cert_file", str(folder / "both.pem")],
        ["admin.tls.key_file", str(folder / "both.pem")],
        ["admin.tls.min_version", "1.2"],
        ["client.idle_timeout", "90s"],
        ["client.max_header_size", "32KiB"],
        ["memory.total", "64MiB"],
        ["upstreams.payments.targets", "http://a unix:/b"],
        ["upstreams.payments.host", "api.example"],
        ["upstreams.payments.health.failures", "3"],
    ]
