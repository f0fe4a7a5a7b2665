#!/usr/bin/env python3
"""Writes the dashboard as Grafana's JSON to stdout.

    python3 deploy/grafana/generate.py > deploy/grafana/dashboard.json

What it shows is in `rows.py`.
"""

import json
import sys
from typing import Any

from rows import GATEWAY, ROWS, Panel

WIDTH = 24
SOURCE = {"type": "prometheus", "uid": "${source}"}


def panel(made: Panel, number: int, x: int, y: int, width: int) -> dict[str, Any]:
    if made.stat:
        custom: dict[str, Any] = {}
        options = {"colorMode": "background", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "value"}
    else:
        custom = {
            "fillOpacity": 20 if made.stacked else 0,
            "stacking": {"mode": "normal" if made.stacked else "none"},
            "showPoints": "never",
        }
        options = {
            "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc"},
        }
    steps = [{"color": "green", "value": None}, {"color": "red", "value": made.red}]
    return {
        "id": number,
        "title": made.title,
        "description": made.text,
        "type": "stat" if made.stat else "timeseries",
        "datasource": SOURCE,
        "gridPos": {"h": 4 if made.stat else 8, "w": width, "x": x, "y": y},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": expr, "legendFormat": legend or "__auto", "instant": made.stat}
            for index, (expr, legend) in enumerate(made.queries)
        ],
        "fieldConfig": {
            "defaults": {
                "unit": made.unit,
                "min": 0,
                "noValue": "0" if made.stat else "-",
                "custom": custom,
                **({"thresholds": {"mode": "absolute", "steps": steps}} if made.stat else {}),
            },
            "overrides": [],
        },
        "options": options,
    }


def panels() -> list[dict[str, Any]]:
    """All of them, from left to right and from top to bottom."""
    made: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        made.append(
            {
                "id": len(made) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y},
            }
        )
        y += 1
        width, height = (WIDTH // 8, 4) if row.panels[0].stat else (WIDTH // 2, 8)
        for place, one in enumerate(row.panels):
            across = WIDTH // width
            made.append(panel(one, len(made) + 1, place % across * width, y + place // across * height, width))
        y += -(-len(row.panels) // (WIDTH // width)) * height
    return made


def variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def dashboard() -> dict[str, Any]:
    """The document that Grafana imports."""
    return {
        "uid": "idempotency-gateway",
        "title": "Idempotency gateway",
        "tags": ["idempotency-gateway"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}},
                variable("instance", "Gateway", "label_values(idempotency_build_info, instance)"),
                variable("route", "Route", "label_values(idempotency_requests_total, route)"),
            ]
        },
        "annotations": {
            "list": [
                {
                    "name": "Reloads",
                    "datasource": SOURCE,
                    "enable": True,
                    "iconColor": "blue",
                    "expr": f"changes(idempotency_config_last_reload_success_timestamp_seconds{{{GATEWAY}}}[1m]) > 0",
                    "titleFormat": "Reload of {{instance}}",
                }
            ]
        },
        "panels": panels(),
    }


if __name__ == "__main__":
    json.dump(dashboard(), sys.stdout, indent=1)
    sys.stdout.write("\n")
