"""The example route maps that the project ships."""

import re
from http import HTTPStatus
from pathlib import Path
from typing import Any, get_args

import pytest
import trustme
import yaml

from gateway.config import Config, ConfigErrors, Place, UnixListener, load
from gateway.config.reader import Reader
from gateway.config.settings.tls import TlsClient, TlsServer
from gateway.config.source import MapNode, compose
from gateway.core.decision import Complete, Responded, settle
from gateway.core.dialect_model import Situation
from gateway.core.fingerprint_policy import BodyMode
from gateway.core.headers import Forwarding
from gateway.core.key_policy import BodyKey, ForwardKey, HeaderKey
from gateway.core.kinds import DialectName, Kind, ListOf, MapOf, SectionOf
from gateway.core.policy import Execution, Mode, OnUnknown, Policy
from gateway.core.principal_source import Combine, HeaderPrincipal, PrincipalSource
from gateway.core.reconcile.policy import Lookup, Probe, Reconcile, RequestForm, Webhook
from gateway.core.setting import settings_of
from gateway.devtools.dev.route_map import sample_map
from tests.tls.authority import write_authority, write_pair

ACCOUNT = (HeaderPrincipal("X-Account-Id"),)
FOLDER = Path(__file__).parents[2] / "config"
ENV = {"GATEWAY_DIGEST_SECRET": "0123456789abcdef", "GATEWAY_POSTGRES_DSN": "postgresql://gateway@db/gateway"}
CHOSEN = {"scope", "principal", "methods", "circuit"}
"""Fields that have no fixed default: the example shows a value."""
_KEY = ".routes.idempotency.key"
NEEDS_MORE = {
    ".tls",
    ".progress",
    ".tracing",
    ".routes.host",
    ".routes.rewrite",
    ".routes.request_headers",
    ".routes.answer_headers",
    ".routes.cors",
    ".admin.tls",
    ".admin.oidc",
    ".admin.url",
    ".admin.second_approval",
    ".upstreams.tls",
    ".upstreams.targets",
    f"{_KEY}.query",
    f"{_KEY}.json_pointer",
    f"{_KEY}.form",
    f"{_KEY}.pattern",
} | {
    ".routes.idempotency.forward_key_in",
    ".routes.idempotency.webhook",
    ".routes.idempotency.quota",
    ".former_encryption_key_files",
    *(f".routes.idempotency.reconcile.{name}" for name in ("upstream", "request", "rules")),
}
"""What needs files, or stands in place of something else: the example mentions it in a comment, and another one shows it."""
EXAMPLES = {
    "accepted.yaml",
    "edge.yaml",
    "gateway.yaml",
    "minimal.yaml",
    "observe.yaml",
    "principals.yaml",
    "providers.yaml",
    "reconcile.yaml",
    "sidecar.yaml",
    "streaming.yaml",
    "webhook-receiver.yaml",
}


def test_no_example_is_left_out() -> None:
    """Each file of the folder is loaded by a test here, the dialect through the route that names it."""
    assert {path.name for path in FOLDER.iterdir()} == EXAMPLES | {"dialects"}
    assert {path.name for path in (FOLDER / "dialects").iterdir()} == {"house.yaml"}


@pytest.mark.parametrize("name", ["gateway.yaml", "minimal.yaml"])
def test_an_example_needs_two_variables(name: str) -> None:
    """The secret and the database are all that must be set; nothing is warned about."""
    config = load(FOLDER / name, ENV)
    assert [(route.id, route.policy is not None) for route in config.routes] == [("create-charge", True), ("rest", False)]
    assert config.warnings == ()


def test_the_full_example_means_the_same_as_the_least() -> None:
    """Spelling every default out changes nothing: both guard the same route with the same policy."""
    full, least = load(FOLDER / "gateway.yaml", ENV), load(FOLDER / "minimal.yaml", ENV)
    assert full.routes[0].policy == least.routes[0].policy
    assert (full.listen, full.admin, full.workers, full.postgres, full.redis, full.drain, full.problem_base, full.access_log) == (
        least.listen, least.admin, least.workers, least.postgres, least.redis, least.drain, least.problem_base, least.access_log
    )  # fmt: skip


def test_the_sidecar_example_takes_its_secret_from_a_file(tmp_path: Path) -> None:
    """The sidecar listens on a Unix socket and on loopback alone."""
    (tmp_path / "secret").write_text("0123456789abcdef\n")
    listen = UnixListener(str(tmp_path / "gateway.sock"))
    env = {**ENV, "GATEWAY_DIGEST_SECRET_FILE": str(tmp_path / "secret"), "GATEWAY_LISTEN": str(listen)}
    config = load(FOLDER / "sidecar.yaml", env)
    assert config.listen == listen
    assert config.admin.listen.loopback
    assert [route.policy.principal if route.policy else None for route in config.routes] == [ACCOUNT, ACCOUNT, None]
    assert config.warnings == ()


def test_the_edge_example_speaks_tls_on_every_side(tmp_path: Path) -> None:
    """With the files that it names it loads, and each setting arrives; nothing is warned about."""
    authority = trustme.CA()
    write_pair(tmp_path, "gateway", authority)
    write_pair(tmp_path, "upstream-client", authority, "gateway@payments.example", both=True)
    clients, internal = write_authority(tmp_path, "clients", authority), write_authority(tmp_path, "internal-ca", authority)
    config = load(FOLDER / "edge.yaml", {**ENV, "GATEWAY_ADMIN_TOKEN": "token", "GATEWAY_TLS": str(tmp_path)})
    assert config.tls is not None
    assert config.admin.tls is not None
    assert (config.tls.cert_file, config.tls.client_ca_file, config.tls.min_version) == (str(tmp_path / "gateway.pem"), str(clients), "1.3")
    assert (config.admin.tls.cert_file, config.admin.tls.client_ca_file) == (config.tls.cert_file, None)
    payments = config.upstreams["payments"]
    assert payments.targets == ("https://10.1.0.11:8443", "https://10.1.0.12:8443")
    assert payments.tls is not None
    assert (payments.tls.ca_file, payments.tls.key_file) == (str(internal), payments.tls.cert_file)
    assert (config.name, config.forwarded, config.proxy_status) == ("edge-1", Forwarding.BOTH, True)
    assert config.warnings == ()


def test_the_edge_example_without_its_files_names_each_of_them(tmp_path: Path) -> None:
    """What is missing is told for every file at its place."""
    with pytest.raises(ConfigErrors) as caught:
        load(FOLDER / "edge.yaml", {**ENV, "GATEWAY_ADMIN_TOKEN": "token", "GATEWAY_TLS": str(tmp_path)})
    paths = [one.place.path for one in caught.value.mistakes if one.place is not None and "No such file" in one.message]
    assert paths == [
        "tls.cert_file",
        "tls.client_ca_file",
        "admin.tls.cert_file",
        "upstreams.payments.tls.ca_file",
        "upstreams.payments.tls.cert_file",
    ]


def test_the_streaming_example_uses_sockets_on_both_sides(tmp_path: Path) -> None:
    """Listener and target are Unix sockets, the route streams, and nothing is warned about."""
    listen = UnixListener(str(tmp_path / "gateway.sock"))
    config = load(FOLDER / "streaming.yaml", {**ENV, "GATEWAY_SPILL": str(tmp_path), "GATEWAY_LISTEN": str(listen)})
    assert config.listen == listen
    assert config.upstreams["model"].targets == ("unix:/run/model/model.sock",)
    assert config.memory.spill_directory == str(tmp_path)
    assert config.routes[0].policy is not None
    assert config.routes[0].policy.stream
    assert config.warnings == ()


def test_accepted_work_is_promised_and_shown() -> None:
    """One route always answers 202, one when it is asked to; nothing is warned about."""
    config = load(FOLDER / "accepted.yaml", {**ENV, "GATEWAY_ENCRYPTION_KEY": "0123456789abcdef" * 2})
    policies = [route.policy for route in config.routes if route.policy is not None]
    assert [policy.execution for policy in policies] == [Execution.ASYNC, Execution.PREFER]
    assert config.warnings == ()


@pytest.mark.parametrize("name", ["sidecar.yaml", "streaming.yaml"])
def test_an_example_says_that_its_folder_is_missing(name: str, tmp_path: Path) -> None:
    """Without its folder for the socket an example does not load, and says what to make."""
    folder = tmp_path / "run"
    with pytest.raises(ConfigErrors) as caught:
        load(FOLDER / name, {**ENV, "GATEWAY_DIGEST_SECRET_FILE": __file__, "GATEWAY_LISTEN": f"unix:{folder}/gateway.sock"})
    assert any(f"listen: {folder} does not exist; make it (mkdir -p)" in str(one) for one in caught.value.mistakes)


def test_the_principals_example_shows_every_source() -> None:
    """Each kind of source, alone or combined, and nothing is warned about."""
    config = load(FOLDER / "principals.yaml", ENV)
    sources = [source for route in config.routes if route.policy for source in route.policy.principal]
    assert {type(source) for source in sources} == set(get_args(PrincipalSource))
    assert {route.policy.combine for route in config.routes if route.policy} == set(Combine)
    assert config.warnings == ()


def test_the_providers_example_speaks_three_dialects() -> None:
    """Two that come with the gateway and one of the user's own; `defaults` and routes have the last word."""
    config = load(FOLDER / "providers.yaml", ENV)
    policies = [route.policy for route in config.routes if route.policy]
    assert [policy.dialect.name for policy in policies] == ["stripe-v1", "square", "house"]
    assert [policy.key.place for policy in policies] == [
        HeaderKey("Idempotency-Key"), BodyKey("/idempotency_key"), HeaderKey("X-Request-Key")
    ]  # fmt: skip
    assert [(policy.key.required, policy.key.max_length) for policy in policies] == [(True, 255), (True, 45), (True, 255)]
    assert policies[2].dialect.answers[Situation.EXPIRED].status == 410
    assert config.warnings == ()


SECRETS = {
    "GATEWAY_ENCRYPTION_KEY": "0" * 32,
    "PAYMENTS_API_KEY": "key",
    "PAYMENTS_WEBHOOK_SECRET": "whsec_0123456789abcdef",
    "PARTNER_WEBHOOK_SECRET": "0123456789abcdef",
}


def test_the_reconcile_example_shows_every_way_to_find_out() -> None:
    """Each kind of probe, two webhooks, and running again; what leans on the upstream's own deduplication is warned about."""
    config = load(FOLDER / "reconcile.yaml", ENV | SECRETS)
    policies = {route.id: route.policy for route in config.routes if route.policy}
    assert all(policy.reconcilable for policy in policies.values())
    assert {type(policy.reconcile.probe) for policy in policies.values()} == set(get_args(Probe))
    assert [name for name, policy in policies.items() if policy.webhook] == ["create-charge", "create-order"]
    assert [name for name, policy in policies.items() if policy.on_unknown is OnUnknown.REEXECUTE] == ["create-subscription"]
    assert [str(one).partition("idempotency.")[2].partition(": ")[0] for one in config.warnings] == ["reconcile.probe", "on_unknown"]
    assert all("the upstream must deduplicate by key" in one.message for one in config.warnings)


def test_the_maps_of_dev_and_compose_ask_by_keys_that_are_one_callers_own(tmp_path: Path) -> None:
    """Of what they find out nothing is warned about: what is told of one caller's key is no other caller's."""
    url = {"GATEWAY_UPSTREAM_URL": "http://sample:8000", "GATEWAY_RIDES_URL": "http://sample:8001", "GATEWAY_REDIS_URL": ""}
    url |= {"GATEWAY_ADMIN_TOKEN": "token", "GATEWAY_ENCRYPTION_KEY": "0123456789abcdef0123456789abcdef"}
    written = tmp_path / "gateway.yaml"
    written.write_text(sample_map(8080, 9464, 9465))
    for file in (written, FOLDER.parent / "deploy" / "compose" / "gateway.yaml"):
        config = load(file, ENV | url)
        policies = [route.policy for route in config.routes if route.policy]
        assert [policy.forward_key for policy in policies if isinstance(policy.reconcile.probe, Lookup)] == [ForwardKey.DERIVED]
        assert [str(one) for one in config.warnings if "reconcile" in str(one)] == []


def test_the_receiver_example_is_keyed_by_events() -> None:
    """One route takes the event's id from the body, the other from a header field, and nothing is warned about."""
    config = load(FOLDER / "webhook-receiver.yaml", ENV)
    policies = [route.policy for route in config.routes if route.policy]
    assert [policy.key.place for policy in policies] == [BodyKey("/id"), HeaderKey("webhook-id")]
    for policy in policies:
        _keeps_only_what_was_taken(policy)
    assert [policy.fingerprint.body for policy in policies] == [BodyMode.NONE, BodyMode.NONE]
    assert config.warnings == ()


def test_what_the_full_example_comments_out_about_probes_is_all_there_is_and_good(tmp_path: Path) -> None:
    """With the comments of `reconcile` and `webhook` made settings, and the derived key that they ask for, it loads and names each field of
    theirs.
    """
    lines = (FOLDER / "gateway.yaml").read_text().splitlines()
    begin, end = lines.index("      # webhook:".ljust(38) + "# where the provider tells what became of operations"), len(lines)
    end = next(index for index in range(begin, end) if not lines[index].startswith("      # "))
    first = next(index for index, line in enumerate(lines) if line.startswith("      reconcile:"))
    text = "\n".join(
        line.replace("# ", "", 1) if line.startswith(("        # ", "      # ")) and first < index < end else line
        for index, line in enumerate(lines)
    )
    text = text.replace("probe: manual ", "probe: lookup ").replace("upstream: reports", "upstream: payments")
    text = text.replace("forward_key: as_received ", "forward_key: derived ")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "api-key").write_text("key")
    (tmp_path / "gateway.yaml").write_text(text)
    config = load(tmp_path / "gateway.yaml", {**ENV, "API_KEY": "key", "WEBHOOK_SECRET": "0123456789abcdef"})
    assert config.warnings == ()
    shown = yaml.safe_load(text)["routes"][0]["idempotency"]
    for section, part in ((Reconcile, shown["reconcile"]), (Webhook, shown["webhook"])):
        assert set(part) == {one.name for one in settings_of(section)}
    assert set(shown["reconcile"]["request"]) == {one.name for one in settings_of(RequestForm)}


def test_the_observe_example_enforces_nothing() -> None:
    """Every guarded route is observed only."""
    config = load(FOLDER / "observe.yaml", ENV)
    assert {route.policy.mode for route in config.routes if route.policy} == {Mode.OBSERVE}
    assert config.warnings == ()


def test_what_the_full_example_only_mentions_is_shown_elsewhere() -> None:
    """Every field of TLS, the list of targets and other places of a key are in use in another example or in a comment of the full one."""
    full, edge = (FOLDER / "gateway.yaml").read_text(), yaml.safe_load((FOLDER / "edge.yaml").read_text())
    assert set(edge["tls"]) == {one.name for one in settings_of(TlsServer)}
    assert all(f"#   {name}: " in full for name in edge["tls"])
    payments = edge["upstreams"]["payments"]
    assert set(payments["tls"]) | {"key_file", "verify"} == {one.name for one in settings_of(TlsClient)}
    assert all(f"#   {one.name}: " in full for one in settings_of(TlsClient))
    assert len(payments["targets"]) > 1
    assert all(len(route["host"]) > 1 for route in edge["routes"])
    assert "    # host: " in full
    assert all(f"{name}: " in full for name in ("query", "json_pointer", "form", "# pattern", "# forward_key_in"))


def test_the_full_example_shows_every_field_with_its_default() -> None:
    """No setting is missing from the commented example, and none is shown with another value than its default."""
    shown = yaml.safe_load((FOLDER / "gateway.yaml").read_text())
    _compare(Config, shown, "")


def _compare(section: type, shown: dict[str, Any], path: str) -> None:
    table = [field for field in settings_of(section) if f"{path}.{field.name}" not in NEEDS_MORE]
    assert set(shown) == {field.name for field in table}, path
    for field in table:
        value, here = shown[field.name], f"{path}.{field.name}"
        match field.kind:
            case SectionOf() if here == ".defaults":
                assert value == {}
            case SectionOf(of=inner):
                _compare(inner, value, here)
            case ListOf(item=SectionOf()) if value == []:
                assert field.default == (), here
            case ListOf(item=SectionOf(of=inner)):
                _compare(inner, value[0], here)
            case MapOf(of=inner):
                _compare(inner, next(iter(value.values())), here)
            case _ if here == ".upstreams.url":
                assert value.startswith("${GATEWAY_UPSTREAM_URL:-http://")
            case DialectName():
                assert value == field.write(field.default)
            case kind if not field.required and field.name not in CHOSEN:
                if here != ".digest_secret":
                    meaning = _meaning(kind, value)
                    assert (field.blank if meaning is None else meaning) == field.default, here
            case _:
                pass


def _meaning(kind: Kind, value: Any) -> object:
    """What a value of the example means without any variable set."""
    text = yaml.safe_dump({"value": value}, default_flow_style=True)
    node = compose(text)
    assert isinstance(node, MapNode)
    reader = Reader({}, FOLDER)
    found = reader.read(kind, node.entries[0].value, Place(1, 1))
    assert not reader.mistakes
    return None if found is None else found.value


def test_the_page_on_unknown_outcomes_shows_a_configuration(tmp_path: Path) -> None:
    """Its two blocks are one file, with a probe and a webhook for the same route; nothing is warned about."""
    probe, webhook = re.findall(r"```yaml\n(.*?)```", (FOLDER.parent / "docs" / "unknown.md").read_text(), re.DOTALL)
    head = 'postgres: {dsn: "${GATEWAY_POSTGRES_DSN}"}\ndigest_secret: ${GATEWAY_DIGEST_SECRET}\n'
    file = tmp_path / "gateway.yaml"
    file.write_text(head + probe + webhook)
    config = load(file, {**ENV, "PAYMENTS_LOOKUP_KEY": "lookup-key", "PAYMENTS_WEBHOOK_SECRET": "whsec_" + "0123456789" * 4})
    (policy,) = [route.policy for route in config.routes if route.policy is not None]
    assert isinstance(policy.reconcile.probe, Lookup)
    assert policy.webhook is not None
    assert config.warnings == ()


def _keeps_only_what_was_taken(policy: Policy) -> None:
    """A sender of events repeats one until it gets a 2xx: anything else that is kept loses the event."""
    for status in HTTPStatus:
        kept = isinstance(settle(Responded(status), policy), Complete)
        assert kept is (status < 300), status


def test_a_dialect_of_deliveries_keeps_only_what_was_taken(tmp_path: Path) -> None:
    """Twilio is the client there."""
    file = tmp_path / "gateway.yaml"
    route = "{id: a, path: /a, upstream: a, idempotency: {principal: none, dialect: twilio-webhook}}"
    file.write_text(f"postgres: {{dsn: postgresql://db}}\nupstreams: {{a: {{url: 'http://a'}}}}\nroutes: [{route}]\n")
    policy = load(file, ENV).routes[0].policy
    assert policy is not None
    _keeps_only_what_was_taken(policy)
