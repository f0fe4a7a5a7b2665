"""Writes the PrometheusRule: the rules of deploy/prometheus, word for word.

    python3 deploy/kubernetes/components/monitoring/generate.py > deploy/kubernetes/components/monitoring/prometheusrule.yaml

kustomize reads no file outside of a component's folder, so these are a copy. The project's tests compare the two.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

RULES = Path(__file__).parents[3] / "prometheus"
HEAD = """\
# Made by generate.py of deploy/prometheus/alerts.yml and recording.yml: change those.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: idempotency-gateway
spec:
  groups:
"""


def groups(file: Path) -> Iterator[str]:
    """The lines below `groups:`, two columns further in."""
    _, _, inside = file.read_text("utf-8").partition("\ngroups:\n")
    for line in inside.splitlines():
        yield f"  {line}".rstrip()


if __name__ == "__main__":
    sys.stdout.write(HEAD)
    for name in ("alerts.yml", "recording.yml"):
        for line in groups(RULES / name):
            sys.stdout.write(f"{line}\n")
