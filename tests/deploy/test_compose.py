"""docker-compose.yml and the route map it mounts, without Docker."""

import re
import shlex
from urllib.parse import urlsplit

import pytest
import yaml

from gateway.config import Config, TcpListener
from gateway.devtools.sample.variants import LONGEST_DELAY
from tests.deploy.support import COMPOSE, CONFIG_FOLDER, IMAGE, ROOT, compose, final, route_map, seconds, services

SERVICES = ["postgres", "redis", "migrate", "sample", "gateway", "prometheus", "grafana"]


@pytest.fixture
def config() -> Config:
    """The route map as the gateway's container reads it."""
    return route_map()


def test_old_and_new_compose_read_the_file() -> None:
    """No top-level key that either docker-compose 1.29 (`name`) or compose v2 (`version`) objects to."""
    assert {key for key in compose() if not key.startswith("x-")} == {"services", "volumes"}
    assert list(services()) == SERVICES


def test_every_image_is_pinned_by_a_version() -> None:
    """No image floats on `latest`; what is built here carries this project's own name."""
    images = {name: service["image"] for name, service in services().items() if service["image"] != IMAGE}
    assert set(images) == {"postgres", "redis", "prometheus", "grafana"}
    assert all(re.fullmatch(r"[a-z/]+:v?\d+(\.\d+)*", image) for image in images.values()), images


def test_one_service_builds_the_image_and_it_comes_first() -> None:
    """docker-compose 1.29 takes services in file order and would pull an image that nobody has built; two builds of one tag collide."""
    users = [name for name, service in services().items() if service["image"] == IMAGE]
    assert [name for name in users if "build" in services()[name]] == users[:1]


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_can_do_no_more_than_it_needs(name: str) -> None:
    """A read-only root, no capabilities (Postgres: those of its entry point), no new privileges, no host namespace."""
    service = services()[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert set(service.get("cap_add", [])) <= ({"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"} if name == "postgres" else set())
    assert not {"privileged", "network_mode", "pid", "ipc", "devices"} & set(service)


@pytest.mark.parametrize("name", ["migrate", "sample", "gateway"])
def test_our_containers_run_as_the_user_of_the_image(name: str) -> None:
    """Nothing overrides the user, and /tmp, in memory, is all that they can write to."""
    service = services()[name]
    assert "user" not in service
    assert [mount.partition(":")[0] for mount in service["tmpfs"]] == ["/tmp"]
    assert all(mount.endswith(":ro") for mount in service.get("volumes", []))


def test_only_the_gateway_and_the_eyes_are_published() -> None:
    """The API can be reached through the gateway alone; admin, Prometheus and the dashboard answer this machine only."""
    published = {name: service["ports"] for name, service in services().items() if "ports" in service}
    eyes = {"prometheus": ["127.0.0.1:9090:9090"], "grafana": ["127.0.0.1:3000:3000"]}
    assert published == {"gateway": ["8080:8080", "127.0.0.1:9464:9464"], **eyes}


def test_what_is_mounted_exists() -> None:
    """Docker would make an empty folder of a missing file. Data lives in volumes that the file declares."""
    mounts = [mount.split(":") for service in services().values() for mount in service.get("volumes", [])]
    files = {source for source, *_ in mounts if source.startswith(".")}
    rules = {"./deploy/prometheus/alerts.yml", "./deploy/prometheus/recording.yml"}
    shown = {"./deploy/grafana/provisioning", "./deploy/grafana/dashboard.json"}
    assert files == {"./deploy/compose", "./deploy/compose/prometheus.yml"} | rules | shown
    assert all((ROOT / file).exists() for file in files)
    assert {source for source, *_ in mounts} - files == set(compose()["volumes"])


def test_the_route_map_is_where_the_image_looks_for_it() -> None:
    """The image's default command finds the mounted file, and the migration reads the same one."""
    for name in ("gateway", "migrate"):
        assert services()[name]["volumes"] == [f"./deploy/compose:{CONFIG_FOLDER}:ro"]
    assert services()["migrate"]["command"] == ["migrate", "--config", f"{CONFIG_FOLDER}/gateway.yaml"]
    assert f"{CONFIG_FOLDER}/gateway.yaml" in final("CMD")
    assert "command" not in services()["gateway"]


def test_the_route_map_guards_the_sample(config: Config) -> None:
    """Charges and refunds are guarded, everything else passes through."""
    assert {route.id: route.policy is not None for route in config.routes} == {"create-charge": True, "create-refund": True, "rest": False}
    assert config.workers == 1


def test_every_variable_of_the_route_map_is_given() -> None:
    """The containers that read the route map get exactly the variables that it names."""
    text = (ROOT / "deploy" / "compose" / "gateway.yaml").read_text()
    named = set(re.findall(r"\$\{([A-Z_]+)", text))
    for name in ("gateway", "migrate"):
        assert set(services()[name]["environment"]) == named


def test_secrets_come_from_the_environment_and_their_defaults_say_what_they_are() -> None:
    """A default that gets into production is recognised by its name; the files hold no other secret."""
    defaults = dict(re.findall(r"\$\{([A-Z_]*(?:SECRET|TOKEN|PASSWORD)):-([^}]*)\}", COMPOSE.read_text()))
    assert set(defaults) == {"GATEWAY_POSTGRES_PASSWORD", "GATEWAY_DIGEST_SECRET", "GATEWAY_ADMIN_TOKEN"}
    assert all(value.startswith("dev-only-") for value in defaults.values())
    given = {name: f"given-{name.lower().replace('_', '-')}" for name in defaults}
    filled = yaml.safe_dump(compose(given))
    assert "dev-only" not in filled
    assert all(value in filled for value in given.values())


def test_the_gateway_finds_its_neighbours(config: Config) -> None:
    """Hosts and ports of the route map are those of services of the file, and Postgres makes the user and database it names."""
    found = services()
    dsn, redis = urlsplit(config.postgres.dsn), urlsplit(config.redis.url if config.redis else "")
    upstream = urlsplit(config.upstreams["sample"].targets[0])
    assert (dsn.hostname, dsn.port, redis.hostname, redis.port) == ("postgres", 5432, "redis", 6379)
    made = found["postgres"]["environment"]
    assert (dsn.username, dsn.password, dsn.path) == (made["POSTGRES_USER"], made["POSTGRES_PASSWORD"], f"/{made['POSTGRES_DB']}")
    assert upstream.hostname == "sample"
    assert found["sample"]["entrypoint"][-2:] == ["--port", str(upstream.port)]
    assert f"{upstream.port}, timeout" in found["sample"]["healthcheck"]["test"][-1]


def test_the_published_ports_are_listened_on(config: Config) -> None:
    """The container's side of each published port is one that the gateway listens on, on every interface."""
    assert (config.listen, config.admin.listen) == (TcpListener("0.0.0.0", 8080), TcpListener("0.0.0.0", 9464))
    assert [int(port.rpartition(":")[2]) for port in services()["gateway"]["ports"]] == [8080, 9464]
    assert services()["gateway"]["healthcheck"]["test"] == ["CMD", "idempotency-gateway", "health"]


def test_migrations_come_first_and_everything_waits_for_health() -> None:
    """Postgres, then its schema, then the gateway, then Prometheus; whoever is waited for can tell that it is healthy."""
    waits = {
        name: {other: wait["condition"] for other, wait in service.get("depends_on", {}).items()} for name, service in services().items()
    }
    healthy = "service_healthy"
    assert waits["migrate"] == {"postgres": healthy}
    assert waits["gateway"] == {
        "migrate": "service_completed_successfully", "postgres": healthy, "redis": healthy, "sample": healthy
    }  # fmt: skip
    assert waits["prometheus"] == {"gateway": healthy}
    assert services()["migrate"]["restart"] == "no"
    assert all("test" in services()[other]["healthcheck"] for wait in waits.values() for other, word in wait.items() if word == healthy)


@pytest.mark.parametrize("name", ["sample"])
def test_a_health_check_in_python_compiles(name: str) -> None:
    """The one-liners are good Python, which nobody would notice before a container is unhealthy."""
    test: list[str] = services()[name]["healthcheck"]["test"]
    assert test[:3] == ["CMD", "python", "-Ic"]
    compile(test[3], shlex.join(test), "exec")


def test_a_stop_leaves_time_to_drain(config: Config) -> None:
    """Compose kills what outlives the grace period: it is longer than the drain and what the supervisor adds to it."""
    assert seconds(services()["gateway"]["stop_grace_period"]) > config.drain.delay + config.drain.timeout + 5


def test_the_sample_has_answered_before_max_execution_is_over(config: Config) -> None:
    """The upstream's max_execution covers the longest delay that a request can ask the sample for."""
    assert config.upstreams["sample"].max_execution >= LONGEST_DELAY
