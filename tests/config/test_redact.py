"""A configuration shown to people."""

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import ConfigErrors, redact, settings_table
from tests.config.support import HEAD, ROUTES, read
from tests.config.test_load import FULL

URLS = {
    "postgresql://gateway:hunter2@db:5432/gateway?password=hunter2#hunter2": "postgresql://***@db:5432/gateway",
    "postgresql://db/gateway?user=u&password=hunter2": "postgresql://db/gateway",
    "postgresql:///gateway?host=/run/postgresql": "postgresql:///gateway",
    "postgresql://u:1/hunter2@db/gateway": "***",
    "postgresql://u:1?hunter2@db/gateway": "***",
    "postgresql://u:1#hunter2@db/gateway": "***",
    "postgresql://u:hunter2@hunter2@db/gateway": "***",
}


def test_it_is_plain_data(tmp_path: Path) -> None:
    """The whole configuration can be written as JSON, with words instead of objects and without secrets."""
    shown = json.loads(json.dumps(redact(read(tmp_path, FULL))))
    assert shown["listen"] == "unix:/run/gateway.sock"
    assert {name: shown["admin"][name] for name in ("listen", "token", "tls")} == {"listen": "[::]:9000", "token": "***", "tls": None}
    assert shown["trusted_proxies"] == ["10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32"]
    assert shown["postgres"]["dsn"] == "postgresql://***@db/gateway"
    assert shown["postgres"]["allow_unsafe"] == ["fsync_off", "in_recovery"]
    assert shown["redis"]["url"] == "rediss://cache:6380/1"
    assert shown["digest_secret"] == "***"
    assert shown["upstreams"]["payments"]["max_execution"] == 180.0
    assert shown["routes"][0]["methods"] == ["POST", "PUT"]
    assert shown["routes"][0]["policy"]["key"]["mode"] == "strict"
    assert shown["warnings"] == []


@pytest.mark.parametrize(("url", "shown"), URLS.items())
def test_a_url_keeps_what_is_surely_no_secret(tmp_path: Path, url: str, shown: str) -> None:
    """Scheme, host and path stay; where a password could be mistaken for them, nothing does."""
    postgres = redact(read(tmp_path, HEAD.replace("postgresql://db/gateway", url) + ROUTES))["postgres"]
    assert isinstance(postgres, dict)
    assert postgres["dsn"] == shown


PROBE = """\
      reconcile:
        probe: lookup
        request: {path: "/c/{key}", headers: {Authorization: "Bearer SECRET1"}, headers_file: {X-Key: key}}
        rules: [{status: [200], verdict: executed}]
      webhook:
        path: /w
        signature: {stripe: {secrets: [SECRET2, SECRET3]}}
        event_id: /id
        find: /k
        rules: [{when: [{pointer: /t, exists: true}], verdict: executed, answer: {status: 201}}]
"""


def test_a_probe_and_a_webhook_keep_their_secrets(tmp_path: Path) -> None:
    """Names of header fields stay, their values do not; nor do secrets of signatures and encryption keys."""
    (tmp_path / "key").write_text("SECRET4")
    head = HEAD.replace('8000"}', '8000", max_execution: 1m}')
    config = read(tmp_path, f"encryption_key: SECRET{'5' * 32}\nformer_encryption_keys: [SECRET{'6' * 32}]\n{head}{ROUTES}{PROBE}")
    shown = redact(config)
    assert "SECRET" not in json.dumps(shown) + repr(config)
    assert shown["encryption_keys"] == ["***", "***"]
    policy = json.loads(json.dumps(shown))["routes"][0]["policy"]
    probe = policy["reconcile"]["probe"]
    assert (probe["kind"], probe["request"]["headers"]) == ("lookup", [["Authorization", "***"], ["X-Key", "***"]])
    assert policy["webhook"]["signature"] == {"secrets": ["***", "***"], "tolerance": 300.0}


def test_a_key_in_the_query_of_a_probe_is_not_shown(tmp_path: Path) -> None:
    """Neither in the configuration for people nor in the table of `check`: the history of a record stars it out, too."""
    probe = PROBE.replace('"/c/{key}"', '"/c?key={key}&api_key=SECRET7&Token=SECRET8"')
    (tmp_path / "key").write_text("SECRET4")
    config = read(tmp_path, HEAD.replace('8000"}', '8000", max_execution: 1m}') + ROUTES + probe)
    shown = json.dumps(redact(config))
    assert "/c?key={key}&api_key=***&Token=***" in shown
    assert "/c?key={key}&api_key=***&Token=***" in settings_table(config)
    assert "SECRET" not in shown + settings_table(config)


@given(st.text(alphabet="abc019:/?#@%&=+ ", max_size=12), st.booleans())
def test_no_password_is_ever_shown(tmp_path_factory: pytest.TempPathFactory, text: str, quoted: bool) -> None:
    """However a password is spelled, and wherever its odd characters would split the URL, no part of it is shown."""
    password = f"SECRET{text}SECRET"
    dsn = f"postgresql://user:{quote(password, safe='') if quoted else password}@db:5432/gateway"
    folder = tmp_path_factory.mktemp("redact")
    try:
        config = read(folder, HEAD.replace("postgresql://db/gateway", "${DSN}") + ROUTES, {"DSN": dsn})
    except ConfigErrors as errors:
        shown = str(errors)
    else:
        shown = json.dumps(redact(config)) + repr(config)
    assert "SECRET" not in shown
