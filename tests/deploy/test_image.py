"""The Dockerfile, as far as it can be judged without building it."""

import json
import os
import re
import sys
import tempfile
import tomllib
from asyncio.subprocess import DEVNULL, create_subprocess_exec

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gateway.cli import main
from gateway.config import TcpListener
from gateway.operate.admin import make_admin, start_admin
from tests.deploy.support import CONFIG_FOLDER, ROOT, final, health_command, silent_ports, stages

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_image_runs_as_a_numeric_user_other_than_root() -> None:
    """Kubernetes' runAsNonRoot can only judge a number."""
    found = re.fullmatch(r"(\d+):(\d+)", final("USER"))
    assert found is not None
    assert int(found[1]) >= 10_000
    assert int(found[2]) >= 10_000


def test_the_base_image_is_pinned_in_one_place() -> None:
    """Both stages start from one argument, whose default names a version: a venv only works on the Python that made it."""
    before, *built = stages()
    (base,) = (one.value for one in before if one.name == "ARG")
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.1[123](\.\d+)?-slim[a-z-]*", base)
    assert [stage[0].value for stage in built] == ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"]


def test_nothing_is_installed_or_fetched_in_the_final_stage() -> None:
    """What is built stays in the build stage: no compiler, no package manager's cache, one copied folder."""
    runs = [one.value for one in stages()[-1] if one.name == "RUN"]
    assert [run.split()[:3] for run in runs] == [["python", "-m", "compileall"]]
    assert [one.value for one in stages()[-1] if one.name == "COPY"] == ["--from=build /opt/gateway /opt/gateway"]


def test_no_secret_is_part_of_the_image() -> None:
    """Secrets come with the container: no argument, variable or copied file of the image holds one."""
    everything = [one for stage in stages() for one in stage]
    words = re.compile(r"secret|token|password|passwd|dsn|credential", re.IGNORECASE)
    assert [one for one in everything if one.name in {"ARG", "ENV", "COPY", "ADD"} and words.search(one.value)] == []
    assert [one for one in everything if one.name == "ADD"] == []


def test_the_build_sees_only_what_it_copies() -> None:
    """The context is a list of what goes in: a data folder, a .env or .git can not slip into a build."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copies = [one.value.split() for one in stages()[1] if one.name == "COPY"]
    assert {source.rstrip("/") for copy in copies for source in copy[:-1]} == allowed
    assert all((ROOT / name).exists() for name in allowed)


def test_the_label_names_the_version_of_the_package() -> None:
    """One argument of the build is the version of the package and of the image; without it both are that of no release."""
    *_, build, image = stages()
    defaults = [one.value for stage in (build, image) for one in stage if one.name == "ARG" and one.value.startswith("VERSION=")]
    assert defaults == ["VERSION=0.1.dev0"] * 2
    assert any('SETUPTOOLS_SCM_PRETEND_VERSION="${VERSION}"' in one.value for one in build)
    assert 'org.opencontainers.image.version="${VERSION}"' in final("LABEL")
    assert f'org.opencontainers.image.licenses="{PROJECT["license"]}"' in final("LABEL")


def locked(name: str) -> dict[str, tuple[str, int]]:
    """The packages of a lock: each one's version, and how many hashes it has."""
    text = (ROOT / "deploy" / "image" / name).read_text().replace("\\\n", " ")
    found = [re.match(r"([\w.-]+)==(\S+)", line) for line in text.splitlines() if line.strip()]
    lines = [line for line in text.splitlines() if line.strip()]
    return {one[1]: (one[2], line.count("--hash=sha256:")) for one, line in zip(found, lines, strict=True) if one is not None}


@pytest.mark.parametrize("name", ["requirements.txt", "build.txt"])
def test_nothing_is_installed_whose_hash_is_unknown(name: str) -> None:
    """Each package of a lock has its hashes, and the Dockerfile installs from the two locks alone."""
    packages = locked(name)
    assert packages
    assert all(hashes > 0 for _, hashes in packages.values())
    installs = re.findall(r"pip (?:--python \S+ )?install (.*?)(?: &&|$)", " ".join(one.value for one in stages()[1] if one.name == "RUN"))
    assert len(installs) == 3
    assert all("--require-hashes --requirement" in one or "--no-index" in one for one in installs)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "requirements.txt",
            [*PROJECT["dependencies"], *(one for extra in ("jwt", "otel", "sealing") for one in PROJECT["optional-dependencies"][extra])],
        ),
        ("build.txt", tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]),
    ],
)
def test_the_locks_are_those_of_the_project(name: str, wanted: list[str]) -> None:
    """Each dependency is locked to a version that pyproject.toml allows; deploy/image/lock makes them anew."""
    packages = locked(name)
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(packages[canonicalize_name(requirement.name)][0]), requirement


def test_the_image_serves_by_default() -> None:
    """The entry point is the package's command, and what it runs by default is one that the command line knows."""
    assert json.loads(final("ENTRYPOINT")) == list(PROJECT["scripts"])
    command, *arguments = json.loads(final("CMD"))
    assert arguments == ["--config", f"{CONFIG_FOLDER}/gateway.yaml"]
    assert main.commands[command].make_context(command, arguments, resilient_parsing=True).params["config"].name == "gateway.yaml"


async def test_the_health_check_tells_a_live_gateway_from_a_dead_one() -> None:
    """The image's own health check, run against a real admin listener: exit 0 while it answers, another code once it is gone."""
    runner = await start_admin(TcpListener("127.0.0.1", 0), make_admin(silent_ports(), "token"))
    try:
        port = runner.addresses[0][1]
        assert await _health(port) == 0
    finally:
        await runner.cleanup()
    assert await _health(port) != 0


def test_the_health_check_asks_whether_it_lives() -> None:
    """Readiness would mark a gateway broken that only lacks its Postgres."""
    assert health_command() == ["idempotency-gateway", "health", "--live"]
    assert final("EXPOSE") == "8080 9464"


async def _health(port: int) -> int:
    program, *arguments = health_command()
    assert [program] == list(PROJECT["scripts"])
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(f'admin: {{listen: "127.0.0.1:{port}", token: a-token-of-the-tests-0123456789}}')
        config.flush()
        command = (sys.executable, "-m", "gateway", *arguments)
        process = await create_subprocess_exec(*command, stdout=DEVNULL, stderr=DEVNULL, env={**os.environ, "GATEWAY_CONFIG": config.name})
        return await process.wait()
