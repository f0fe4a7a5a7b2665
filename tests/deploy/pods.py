"""What a set of Kubernetes objects says of its pods."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.cli import main
from gateway.config import Config, load
from tests.deploy.rendering import Object

SECRETS = {
    "postgres-dsn": "postgresql://gateway:secret@postgres:5432/gateway",
    "redis-url": "redis://redis:6379/0",
    "digest-secret": "0123456789abcdef0123456789abcdef",
    "admin-token": "a-token-of-the-tests-0123456789",
}
"""The Secret that the pages ask for."""

CONFIG_MOUNT, SECRET_MOUNT = "/etc/idempotency-gateway", "/run/secrets/idempotency-gateway"


@dataclass(frozen=True, slots=True)
class Pod:
    """The template of the pods of a workload."""

    owner: str
    labels: dict[str, str]
    spec: dict[str, Any]

    @property
    def containers(self) -> list[dict[str, Any]]:
        """All of them, in the order of their start."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    def container(self, name: str) -> dict[str, Any]:
        (found,) = (one for one in self.containers if one["name"] == name)
        return found


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    return [one for one in objects if one["kind"] in kinds]


def pods(objects: Sequence[Object]) -> Iterator[Pod]:
    for one in of_kind(objects, "Deployment", "Job"):
        template = one["spec"]["template"]
        yield Pod(f"{one['kind']}/{one['metadata']['name']}", template["metadata"]["labels"], template["spec"])


def gateway_pod(objects: Sequence[Object]) -> Pod:
    """The pods that serve."""
    (found,) = (pod for pod in pods(objects) if any(one["name"] == "idempotency-gateway" for one in pod.containers))
    return found


def route_map(objects: Sequence[Object], pod: Pod, folder: Path) -> Config:
    """What a container of the pod finds at its configuration's path, read by the gateway with the Secret's files."""
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    container = next(one for one in pod.containers if any(mount["mountPath"] == CONFIG_MOUNT for mount in one["volumeMounts"]))
    at = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    (config_map,) = (one for one in of_kind(objects, "ConfigMap") if one["metadata"]["name"] == at[CONFIG_MOUNT]["configMap"]["name"])
    assert at[SECRET_MOUNT]["secret"]["secretName"] == "idempotency-gateway"
    command, *arguments = container["args"]
    assert main.commands[command].make_context(command, arguments, resilient_parsing=True).params["config"] == Path(
        CONFIG_MOUNT, "gateway.yaml"
    )
    for name, value in SECRETS.items():
        (folder / name).write_text(value + "\n")
    file = folder / "gateway.yaml"
    file.write_text(config_map["data"]["gateway.yaml"].replace(SECRET_MOUNT, str(folder)))
    return load(file, {})


def mebibytes(quantity: str) -> int:
    found = re.fullmatch(r"(\d+)(Mi|Gi)", quantity)
    assert found is not None, quantity
    return int(found[1]) * (1024 if found[2] == "Gi" else 1)


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return bool(selector) and selector.items() <= labels.items()
