"""The overlays of docker-compose.yml, its tour, and what every container has in common, without Docker."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config import Config, load
from gateway.core.redis_url import SentinelUrl, parse_redis_url
from gateway.devtools.embedded.ports import free_port
from gateway.devtools.embedded.redis import find_server
from tests.deploy.support import IMAGE, ROOT, compose, filled, route_map, services
from tests.devtools.dev.running import Dev

FOLDER = ROOT / "deploy" / "compose"
OVERLAYS = ["accepted", "balanced", "secret-files", "sentinel", "standby"]
haproxy = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")

Services = dict[str, dict[str, Any]]


def overlay(name: str) -> dict[str, Any]:
    document: dict[str, Any] = filled((FOLDER / f"{name}.yml").read_text())
    return document


def new_of(name: str) -> Services:
    """The containers that an overlay adds."""
    return {one: service for one, service in overlay(name)["services"].items() if one not in services()}


ALL = {**services(), **{name: service for one in OVERLAYS for name, service in new_of(one).items()}}


@pytest.mark.parametrize("name", ALL)
def test_no_container_takes_the_whole_machine(name: str) -> None:
    """Memory and processes are limited, and logs are rotated: the default keeps them until the disk is full."""
    service = ALL[name]
    assert re.fullmatch(r"\d+m", service["mem_limit"])
    assert service["pids_limit"] <= 256
    assert service["logging"] == {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}


@pytest.mark.parametrize("name", [name for one in OVERLAYS for name in new_of(one)])
def test_containers_of_overlays_are_as_hardened(name: str) -> None:
    """As those of the file itself, with images that are pinned by a version."""
    service = ALL[name]
    assert (service["read_only"], service["cap_drop"], service["security_opt"]) == (True, ["ALL"], ["no-new-privileges:true"])
    assert set(service.get("cap_add", [])) <= set(services()["postgres"]["cap_add"] if name == "standby" else [])
    assert service["image"] == IMAGE or re.fullmatch(r"[a-z/]+:v?\d+(\.\d+)*", service["image"])


@pytest.mark.parametrize("name", [name for name, service in ALL.items() if "user" in service])
def test_a_server_that_is_not_root_can_write_where_it_has_to(name: str) -> None:
    """Root owns what is mounted, with the mode of the folder in the image, whatever mode is asked for (runc before 1.2): `/tmp` it is."""
    assert ALL[name]["tmpfs"] == ["/tmp"]


def test_images_can_be_pinned_by_digest() -> None:
    """Each public image, the base of ours among them, is a variable, whose default is the version."""
    digest = "registry.example/one@sha256:" + "0" * 64
    for name, service in ALL.items():
        if service["image"] != IMAGE:
            of_others = {"standby": "POSTGRES", "balancer": "HAPROXY", **dict.fromkeys(new_of("sentinel"), "REDIS")}
            variable = f"{of_others.get(name, name.upper())}_IMAGE"
            texts = [(ROOT / "docker-compose.yml").read_text(), *((FOLDER / f"{one}.yml").read_text() for one in OVERLAYS)]
            assert any(digest in str(filled(text, {variable: digest})) for text in texts), variable
    build = compose({"PYTHON_IMAGE": digest})["services"]["migrate"]["build"]
    assert build["args"]["PYTHON_IMAGE"] == digest
    declared = {name.partition("=")[0] for name in re.findall(r"^ARG (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)}
    assert set(build["args"]) == declared
    defaults = dict(one.split("=", 1) for one in re.findall(r"^ARG (\S+=\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert {name: compose()["services"]["migrate"]["build"]["args"][name] for name in defaults} == defaults


# ---- balanced


def test_the_second_gateway_is_the_first() -> None:
    """Nothing differs but the ports, which the balancer has in their place."""
    first = {name: value for name, value in services()["gateway"].items() if name != "ports"}
    assert new_of("balanced")["gateway-2"] == first
    assert list(new_of("balanced")) == ["gateway-2", "balancer"]


def test_prometheus_sees_both_gateways() -> None:
    """Its configuration differs in the targets alone, and takes the place of the other one."""
    alone, both = (yaml.safe_load((FOLDER / name).read_text()) for name in ("prometheus.yml", "prometheus-balanced.yml"))
    (config,) = both["scrape_configs"][0].pop("static_configs")
    assert config["targets"] == ["gateway:9464", "gateway-2:9464"]
    alone["scrape_configs"][0].pop("static_configs")
    assert alone == both
    (mount,) = overlay("balanced")["services"]["prometheus"]["volumes"]
    assert mount.split(":")[1] in [one.split(":")[1] for one in services()["prometheus"]["volumes"]]


def seconds(name: str) -> float:
    found = re.search(rf"^\s*timeout {name} (\d+)s$", (FOLDER / "haproxy.cfg").read_text(), re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_the_balancer_waits_for_the_gateway_and_not_the_other_way_round() -> None:
    """It waits longer than an answer may take, and leaves idle connections before the gateway does; it never repeats what was sent."""
    config = route_map()
    slowest = max(upstream.timeouts.total for upstream in config.upstreams.values())
    assert seconds("server") > slowest + max(route.policy.settle_timeout + route.policy.wait for route in config.routes if route.policy)
    assert seconds("http-keep-alive") < config.client.idle_timeout
    text = (FOLDER / "haproxy.cfg").read_text()
    assert re.findall(r"^\s*retry-on (.*)$", text, re.MULTILINE) == ["conn-failure"]
    assert re.findall(r"^\s*server (\S+) (\S+)$", text, re.MULTILINE) == [("gateway", "gateway:8080"), ("gateway-2", "gateway-2:8080")]
    bound = re.findall(r"^\s*bind :(\d+)$", text, re.MULTILINE)
    assert new_of("balanced")["balancer"]["ports"] == [f"{port}:{port}" for port in bound]


@pytest.mark.skipif(haproxy is None, reason="no haproxy here: apt-get install haproxy")
def test_haproxy_takes_its_configuration() -> None:
    done = subprocess.run([str(haproxy), "-c", "-f", str(FOLDER / "haproxy.cfg")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---- secret files


def loaded(file: Path, folder: Path) -> Config:
    """A route map of the compose file with the same secrets, from files or from variables."""
    values = {name: str(value) for name, value in services()["gateway"]["environment"].items()}
    given = {"postgres-dsn": "GATEWAY_POSTGRES_DSN", "digest-secret": "GATEWAY_DIGEST_SECRET", "admin-token": "GATEWAY_ADMIN_TOKEN"}
    for name, variable in given.items():
        (folder / name).write_text(values[variable] + "\n")
    copy = folder / "gateway.yaml"
    copy.write_text(file.read_text().replace("/run/secrets", str(folder)))
    return load(copy, values)


def test_charges_are_accepted_and_kept_under_a_key_from_a_file(tmp_path: Path) -> None:
    """The route map of the overlay is the other one but for `execution` and its key, and the image has what encrypts."""
    (tmp_path / "encryption-key").write_text("0123456789abcdef0123456789abcdef\n")
    accepting, plain = loaded(FOLDER / "accepted" / "gateway.yaml", tmp_path), loaded(FOLDER / "gateway.yaml", tmp_path)
    assert accepting.encryption_keys != plain.encryption_keys
    policies = {route.id: route.policy for route in accepting.routes if route.policy is not None}
    assert [name for name, policy in policies.items() if policy.accepts] == ["create-charge"]
    assert replace(accepting, encryption_keys=plain.encryption_keys, routes=plain.routes, warnings=plain.warnings) == plain
    document = overlay("accepted")
    assert all(document["services"][name]["secrets"] == ["encryption-key"] for name in ("gateway", "migrate"))
    assert "cryptography==" in (ROOT / "deploy" / "image" / "requirements.txt").read_text()


def test_secrets_from_files_are_all_that_differs(tmp_path: Path) -> None:
    """The route map of the overlay is the other one, read from files; no container gets the secret in a variable besides."""
    assert loaded(FOLDER / "secret-files" / "gateway.yaml", tmp_path) == loaded(FOLDER / "gateway.yaml", tmp_path)
    document = overlay("secret-files")
    for name in ("gateway", "migrate"):
        service = document["services"][name]
        named = set(re.findall(r"/run/secrets/([\w-]+)", (FOLDER / "secret-files" / "gateway.yaml").read_text()))
        assert set(service["secrets"]) == named
        secret = {one for one, value in services()[name]["environment"].items() if "dev-only" in str(value)}
        assert dict.fromkeys(secret, "") == service["environment"]
    assert document["services"]["postgres"]["environment"]["POSTGRES_PASSWORD"] == "", "the image refuses both"
    assert {one["file"] for one in document["secrets"].values()} == {f"./secrets/{name}" for name in document["secrets"]}
    assert "/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


# ---- standby


def test_the_primary_waits_for_the_standby() -> None:
    """The standby says the name that the primary waits for, waits for none itself, and everybody knows both servers."""
    (standby,) = new_of("standby").values()
    script = standby["entrypoint"][-1]
    waited = re.search(r"synchronous_standby_names = '(\w+)'", (FOLDER / "replication.sh").read_text())
    assert waited is not None
    assert f"application_name={waited[1]}'" in script
    assert "synchronous_standby_names = ''" in script, "a promoted server would wait for itself"
    subprocess.run(["bash", "-n", "-c", script.replace("$$", "$")], check=True)
    subprocess.run(["bash", "-n", str(FOLDER / "replication.sh")], check=True)
    assert standby["image"] == services()["postgres"]["image"]
    document = overlay("standby")["services"]
    for name in ("gateway", "migrate"):
        dsn = services()[name]["environment"]["GATEWAY_POSTGRES_DSN"]
        assert document[name]["environment"] == {"GATEWAY_POSTGRES_DSN": dsn.replace("@postgres:5432/", "@postgres:5432,standby:5432/")}
    assert document["migrate"]["depends_on"] == {"standby": {"condition": "service_healthy"}}


# ---- sentinel


def test_the_gateway_knows_all_sentinels_and_their_name_of_the_primary() -> None:
    """Most of the Sentinels can promote the replica, which is started like the primary and says its own name."""
    added = new_of("sentinel")
    replica, *watchers = added
    text = (FOLDER / "sentinel.yml").read_text()
    monitored = re.search(r"sentinel monitor (\w+) redis 6379 (\d)", text)
    assert monitored is not None
    assert len(watchers) // 2 < int(monitored[2]) <= len(watchers)
    document = overlay("sentinel")["services"]
    for name in ("gateway", "migrate"):
        url = parse_redis_url(document[name]["environment"]["GATEWAY_REDIS_URL"])
        assert isinstance(url, SentinelUrl)
        assert (url.master, [host for host, _ in url.hosts]) == (monitored[1], watchers)
    assert list(document["gateway"]["depends_on"]) == watchers
    base = services()["redis"]["command"]
    assert document["redis"]["command"] == [*base, "--replica-announce-ip", "redis"]
    assert added[replica]["command"] == [*base, "--replica-announce-ip", replica, "--replicaof", "redis", "6379"]


def test_a_sentinel_takes_its_file(tmp_path: Path) -> None:
    """What its entry point writes, with a primary that can be found here."""
    script = new_of("sentinel")["sentinel-1"]["entrypoint"][-1].replace("/tmp", str(tmp_path)).replace("redis 6379", "localhost 6379")
    script = script.replace("port 26379", f"port {free_port()}").replace("redis-server ", f"{find_server()} ")
    with subprocess.Popen(["sh", "-ec", script], stdout=subprocess.PIPE, text=True) as sentinel:
        assert sentinel.stdout is not None
        try:
            assert any("+monitor master gateway" in line for line in sentinel.stdout)
        finally:
            sentinel.terminate()


# ---- the tour


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here: apt-get install curl")
def test_the_tour_is_true(data_folder: Path, tmp_path: Path) -> None:
    """Every answer is the one that it promises, of the sample under the same routes with shorter times."""
    command = tmp_path / "gateway"
    with Dev(data_folder).ready() as dev:
        command.write_text(f'#!/bin/sh\nset -a\n. {data_folder}/env\nexec {sys.executable} -P -m gateway "$@"\n')
        command.chmod(0o755)
        env = {**os.environ, "GATEWAY_COMMAND": str(command)}
        done = subprocess.run([str(FOLDER / "tour"), dev.gateway], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.rstrip().endswith("All as promised.\x1b[0m")
        dev.interrupt()
        assert dev.ends() == 0
