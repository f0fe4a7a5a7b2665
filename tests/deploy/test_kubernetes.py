"""The chart and the plain manifests, rendered: good by the API's schemas, and true to the gateway that they run."""

import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config import TcpListener
from gateway.core.units import parse_duration
from gateway.operate.admin import make_admin
from gateway.run.server.process import GRACE_SLACK
from gateway.run.server.startup import START_PATIENCE
from tests.deploy.pods import gateway_pod, mebibytes, of_kind, pods, route_map, selects
from tests.deploy.rendering import CHART, OVERLAYS, Object, Refused, Values, chart, example_chart, monitored, needs_tools, overlay
from tests.deploy.support import ROOT, silent_ports

pytestmark = needs_tools

VERSIONS = ("1.30", "1.37")
CUSTOM = {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, of which the API's schemas know nothing."""

ROUTES = {
    "upstreams": {"payments": {"url": "http://payments:8000"}},
    "routes": [
        {"id": "charge", "path": "/v1/charges", "upstream": "payments", "idempotency": {"principal": [{"header": "X-Account-Id"}]}},
        {"id": "rest", "path": "/**", "methods": ["GET"], "upstream": "payments"},
    ],
}
EVERYTHING = {
    "config": ROUTES,
    "autoscaling": {"enabled": True, "cpuUtilization": 70},
    "monitoring": {"serviceMonitor": {"enabled": True, "labels": {"team": "pay"}}, "prometheusRule": {"enabled": True}},
    "networkPolicy": {"clients": [{"namespaceSelector": {}}], "egress": [{"ports": [{"protocol": "TCP", "port": 5432}]}]},
    "service": {"annotations": {"example.com/a": "b"}},
    "serviceAccount": {"annotations": {"example.com/role": "r"}},
    "image": {"digest": "sha256:" + "0" * 64},
    "imagePullSecrets": [{"name": "registry"}],
    "podLabels": {"team": "pay"},
    "podAnnotations": {"example.com/a": "b"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "edge", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "priorityClassName": "high",
    "extraEnv": [{"name": "WEBHOOK_SECRET", "value": "x"}],
    "extraVolumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
    "extraVolumeMounts": [{"name": "tls", "mountPath": "/etc/tls", "readOnly": True}],
}
"""Each value that adds something to the manifests."""


@pytest.fixture(params=["chart", "chart, everything", "chart, sidecar", "overlay edge", "overlay edge, monitored", "overlay sidecar"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Sequence[Object]:
    match request.param:
        case "chart":
            return chart({"config": ROUTES})
        case "chart, everything":
            return chart(EVERYTHING)
        case "chart, sidecar":
            return chart({}, example_chart(tmp_path))
        case "overlay edge, monitored":
            return monitored("edge", tmp_path)
        case name:
            return overlay(name.removeprefix("overlay "))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(objects: Sequence[Object], version: str) -> None:
    """By the schemas of the oldest and the newest Kubernetes that the pages name, and nothing that they do not know."""
    import kubernetes_validate  # noqa: PLC0415 - it may not be there (`needs_tools`)

    for one in objects:
        if one["kind"] not in CUSTOM:
            kubernetes_validate.validate(one, version, strict=True)
    named = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(named) == len(set(named))


def test_the_gateway_reads_its_route_map(objects: Sequence[Object], tmp_path: Path) -> None:
    """What is mounted, with the Secret's files, is a configuration without mistakes and warnings; the migration reads the same."""
    found = [route_map(objects, pod, tmp_path) for pod in pods(objects)]
    assert len(found) == 2
    assert found[0] == found[1]
    assert found[0].warnings == ()
    assert any(route.policy for route in found[0].routes)


def test_its_ports_and_probes_are_the_listeners(objects: Sequence[Object], tmp_path: Path) -> None:
    """The container's ports are what the route map listens on, and probes ask for paths that the admin listener serves without a token."""
    pod = gateway_pod(objects)
    config, container = route_map(objects, pod, tmp_path), pod.container("idempotency-gateway")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (config.listen, config.admin.listen) == (TcpListener("0.0.0.0", ports["http"]), TcpListener("0.0.0.0", ports["admin"]))
    served = {resource.canonical for resource in make_admin(silent_ports(), "token").router.resources()}
    probes = {name: container[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert all(probe["httpGet"]["port"] == "admin" for probe in probes.values())
    assert {probe["httpGet"]["path"] for probe in probes.values()} == {"/livez", "/readyz"} <= served
    assert probes["livenessProbe"]["httpGet"]["path"] == "/livez", "a restart does not bring an absent Postgres back"
    assert probes["startupProbe"]["periodSeconds"] * probes["startupProbe"]["failureThreshold"] > START_PATIENCE
    assert probes["readinessProbe"]["timeoutSeconds"] > config.postgres.timeout


def test_a_stop_leaves_time_to_drain(objects: Sequence[Object], tmp_path: Path) -> None:
    """The kubelet kills what outlives the grace period. A sidecar's API stays until the gateway has drained, and has time of its own."""
    pod = gateway_pod(objects)
    drain = route_map(objects, pod, tmp_path).drain
    needed, grace = drain.delay + drain.timeout + GRACE_SLACK, pod.spec["terminationGracePeriodSeconds"]
    container = pod.container("idempotency-gateway")
    if container.get("restartPolicy") != "Always":
        assert grace >= needed
        assert "lifecycle" not in container
        return
    (api,) = pod.spec["containers"]
    assert needed <= api["lifecycle"]["preStop"]["sleep"]["seconds"] <= grace - 5
    program, option, code = container["lifecycle"]["preStop"]["exec"]["command"]
    assert (program, option) == ("python", "-c")
    stays: list[float] = []
    told: list[tuple[int, int]] = []
    run = code.replace("import os, signal, time; ", "")
    exec(run, {"os": _Os(told), "signal": __import__("signal"), "time": _Time(stays)})
    assert told == [(1, 15)]
    assert stays[0] >= needed


class _Os:
    def __init__(self, told: list[tuple[int, int]]) -> None:
        self._told = told

    def kill(self, pid: int, number: int) -> None:
        self._told.append((pid, number))


class _Time:
    def __init__(self, stays: list[float]) -> None:
        self._stays = stays

    def sleep(self, seconds: float) -> None:
        self._stays.append(seconds)


def test_pods_meet_the_restricted_standard(objects: Sequence[Object]) -> None:
    """Not root, no privileges, a read-only root, the runtime's seccomp profile; no token of the API server."""
    for pod in pods(objects):
        assert pod.spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod.spec)
        assert all(set(volume) - {"name"} <= {"configMap", "secret", "emptyDir", "projected"} for volume in pod.spec["volumes"])
        for one in pod.containers:
            context = {**pod.spec["securityContext"], **one["securityContext"]}
            assert context["runAsNonRoot"] is True
            assert context["runAsUser"] >= 10_000
            assert context["seccompProfile"] == {"type": "RuntimeDefault"}
            assert one["securityContext"]["allowPrivilegeEscalation"] is False
            assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            if one["image"].startswith("idempotency-gateway"):
                assert one["securityContext"]["readOnlyRootFilesystem"] is True
                assert [mount["mountPath"] for mount in one["volumeMounts"] if not mount.get("readOnly")] == ["/tmp"]


def test_volumes_and_their_config_maps_are_there(objects: Sequence[Object]) -> None:
    """Each mount has its volume, and each ConfigMap that a volume names is part of the rendering. Secrets are the user's."""
    maps = {one["metadata"]["name"] for one in of_kind(objects, "ConfigMap")}
    for pod in pods(objects):
        volumes = {volume["name"] for volume in pod.spec["volumes"]}
        mounts = {mount["name"] for one in pod.containers for mount in one.get("volumeMounts", [])}
        assert mounts == volumes
        assert {volume["configMap"]["name"] for volume in pod.spec["volumes"] if "configMap" in volume} <= maps
    assert not of_kind(objects, "Secret")


def test_memory_holds_what_the_gateway_may_take(objects: Sequence[Object], tmp_path: Path) -> None:
    """The limit is more than the bodies of all workers and what the programs take themselves; so much is also asked for."""
    pod = gateway_pod(objects)
    config, resources = route_map(objects, pod, tmp_path), pod.container("idempotency-gateway")["resources"]
    limit = mebibytes(resources["limits"]["memory"])
    assert limit >= config.workers * (config.memory.total / 2**20 + 128)
    assert mebibytes(resources["requests"]["memory"]) == limit
    assert "cpu" not in resources["limits"], "a throttled gateway lets leases lapse"


def test_what_selects_pods_selects_the_gateways(objects: Sequence[Object]) -> None:
    """Services, budgets and policies mean the pods that serve, and no others; the scaler means their Deployment."""
    serving = gateway_pod(objects)
    others = [pod for pod in pods(objects) if pod != serving]
    for one in of_kind(objects, "Service", "PodDisruptionBudget", "NetworkPolicy", "Deployment"):
        spec = one["spec"]
        selector = spec["selector"] if one["kind"] == "Service" else (spec.get("selector") or spec["podSelector"])["matchLabels"]
        assert selects(selector, serving.labels), one["metadata"]["name"]
        assert not any(selects(selector, pod.labels) for pod in others)
    for one in of_kind(objects, "HorizontalPodAutoscaler"):
        assert f"Deployment/{one['spec']['scaleTargetRef']['name']}" == serving.owner


def test_services_lead_to_ports_of_the_container(objects: Sequence[Object]) -> None:
    """Clients get the traffic port alone, never the admin listener; in a sidecar's pod never the API itself."""
    ports = {port["name"]: port["containerPort"] for port in gateway_pod(objects).container("idempotency-gateway")["ports"]}
    names = {**ports, **{number: number for number in ports.values()}}
    for one in of_kind(objects, "Service"):
        targets = [names[port["targetPort"]] for port in one["spec"]["ports"]]
        assert targets == ([ports["admin"]] if one["spec"].get("clusterIP") == "None" else [ports["http"]])
    for one in of_kind(objects, "NetworkPolicy"):
        clients, watchers = one["spec"]["ingress"]
        assert [port["port"] for port in clients["ports"]] == [ports["http"]]
        assert [port["port"] for port in watchers["ports"]] == [ports["admin"]]
        assert watchers["from"]


def test_the_scaler_asks_for_a_metric_that_exists(objects: Sequence[Object]) -> None:
    """The gauge of requests in flight is the gateway's own."""
    from gateway.observe.observer import MetricsObserver  # noqa: PLC0415 - for this one test

    shown = MetricsObserver([]).exposition()[0].decode()
    for one in of_kind(objects, "HorizontalPodAutoscaler"):
        metric = one["spec"]["metrics"][0]["pods"]["metric"]["name"]
        assert f"# TYPE {metric} gauge" in shown


def test_another_route_map_is_a_rolling_update() -> None:
    """A change of the configuration alone changes the pods' template, so that they are replaced, drained one after the other."""
    one, other = ({**ROUTES, "drain": {"delay": delay}} for delay in ("5s", "5000ms"))
    (before,), (after,) = (of_kind(chart({"config": config}), "Deployment") for config in (one, other))
    assert before["spec"]["template"]["spec"] == after["spec"]["template"]["spec"]
    assert before["spec"]["template"] != after["spec"]["template"]
    assert before["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_the_migration_comes_first() -> None:
    """The hook runs before the release's own objects exist: what it needs is a hook, too, and earlier."""
    objects = chart({"config": ROUTES})
    (job,) = of_kind(objects, "Job")
    mounted = {volume["configMap"]["name"] for volume in job["spec"]["template"]["spec"]["volumes"] if "configMap" in volume}
    hooks = {one["metadata"]["name"]: one["metadata"].get("annotations", {}) for one in of_kind(objects, "ConfigMap")}
    for name in mounted:
        assert hooks[name]["helm.sh/hook"] == job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert int(hooks[name]["helm.sh/hook-weight"]) < int(job["metadata"]["annotations"]["helm.sh/hook-weight"])
    assert of_kind(chart({"config": ROUTES, "migrate": {"enabled": False}}), "Job") == []


def test_the_rules_are_those_of_the_project() -> None:
    """The PrometheusRule is what deploy/prometheus has, templates of its own and all; the monitor finds the admin Service."""
    objects = chart(EVERYTHING)
    (rule,), (monitor,) = of_kind(objects, "PrometheusRule"), of_kind(objects, "ServiceMonitor")
    assert rule["spec"]["groups"] == _rules()
    (found,) = (
        one for one in of_kind(objects, "Service") if selects(monitor["spec"]["selector"]["matchLabels"], one["metadata"]["labels"])
    )
    assert [port["name"] for port in found["spec"]["ports"]] == [one["port"] for one in monitor["spec"]["endpoints"]]


def _rules() -> list[Any]:
    files = [yaml.safe_load((ROOT / "deploy" / "prometheus" / name).read_text()) for name in ("alerts.yml", "recording.yml")]
    return [group for file in files for group in file["groups"]]


def test_the_rules_of_the_plain_manifests_are_those_too(tmp_path: Path) -> None:
    """A copy, since kustomize reads nothing outside of a component: it is made anew when the rules change. The monitor finds the port of
    pods, and calls its job by a name that the rules know.
    """
    folder = OVERLAYS.parent / "components" / "monitoring"
    made = subprocess.run([sys.executable, str(folder / "generate.py")], capture_output=True, text=True, check=True).stdout
    assert (folder / "prometheusrule.yaml").read_text() == made, "made anew as generate.py says"
    for name in ("edge", "sidecar"):
        objects = monitored(name, tmp_path)
        (rule,), (monitor,) = of_kind(objects, "PrometheusRule"), of_kind(objects, "PodMonitor")
        assert rule["spec"]["groups"] == _rules()
        ports = {port["name"] for port in gateway_pod(objects).container("idempotency-gateway")["ports"]}
        assert {one["port"] for one in monitor["spec"]["podMetricsEndpoints"]} <= ports
        assert "idempotency-gateway" in monitor["metadata"]["name"], "job, as the operator makes it: namespace/name"


DURATIONS = st.one_of(
    st.integers(0, 999_999).map(lambda count: f"{count}ms"),
    st.integers(0, 5000).map(lambda count: f"{count}s"),
    st.integers(0, 90).map(lambda count: f"{count}m"),
    st.integers(0, 25).map(lambda count: f"{count}h"),
    st.decimals(0, 1000, places=3, allow_nan=False).map(lambda count: f"{count}s"),
    st.decimals(0, 10, places=2, allow_nan=False).map(lambda count: f"{count}m"),
    st.none(),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(delay=DURATIONS, timeout=DURATIONS)
def test_the_grace_period_follows_from_the_configuration(delay: str | None, timeout: str | None) -> None:
    """Whatever `drain` says, or leaves to its defaults: the whole second at or after what the gateway may take."""
    drain = {"delay": delay, "timeout": timeout}
    (deployment,) = of_kind(chart({"config": {**ROUTES, "drain": drain}}), "Deployment")
    needed = parse_duration(delay or "5s") + parse_duration(timeout or "75s") + GRACE_SLACK
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == math.ceil(round(needed, 3))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "config.upstreams: name the API"),
        ({"config": {"upstreams": ROUTES["upstreams"]}}, "config.routes: at least one route is required"),
        ({"config": {**ROUTES, "drain": {"delay": "soon"}}}, "config.drain: soon is no duration such as 250ms, 2s or 5m"),
        ({"config": {**ROUTES, "listen": "0.0.0.0:80"}}, "listen"),
        ({"config": ROUTES, "replica": 3}, "replica"),
        ({"config": ROUTES, "mode": "mesh"}, "mode"),
        ({"config": ROUTES, "mode": "sidecar"}, "the labels of your API's pods are required"),
        ({"config": ROUTES, "autoscaling": {"enabled": True, "inFlight": 0}}, "by inFlight, by cpuUtilization, or by both"),
        ({"config": ROUTES, "image": {"digest": "latest"}}, "digest"),
    ],
)
def test_a_mistake_is_told_before_anything_is_applied(values: Values, words: str) -> None:
    """By the schema of the values or by the templates, in words that name the value."""
    with pytest.raises(Refused) as refused:
        chart(values)
    assert words in str(refused.value)


def test_every_value_is_known_to_the_schema() -> None:
    """A value that the chart has and its schema does not would be refused as a user's mistake."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    schema: dict[str, Any] = yaml.safe_load((CHART / "values.schema.json").read_text())
    assert set(values) | {"global", "enabled"} == set(schema["properties"])
