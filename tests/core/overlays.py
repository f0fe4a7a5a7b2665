"""What it takes to see an overlay work: applying it to a description (OpenAPI Overlay 1.0), and judging values by a schema."""

import copy
import re
from typing import Any

Json = Any

_STEP = re.compile(r"\['((?:[^'\\]|\\.)*)'\]|\.(\*|[A-Za-z_][A-Za-z0-9_]*)")
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def select(document: Json, target: str) -> list[Json]:
    """The nodes of a JSONPath (RFC 9535) of names and wildcards."""
    assert target.startswith("$")
    nodes, at = [document], 1
    while at < len(target):
        step = _STEP.match(target, at)
        assert step, f"{target} at {at}"
        at = step.end()
        if step[2] == "*":
            nodes = [child for node in nodes for child in (node.values() if isinstance(node, dict) else node)]
        else:
            name = step[2] or re.sub(r"\\(.)", r"\1", step[1])
            nodes = [node[name] for node in nodes if isinstance(node, dict) and name in node]
    return nodes


def apply(overlay: Json, document: Json) -> Json:
    """The description with all actions carried out, in order; the one given is not changed."""
    result = copy.deepcopy(document)
    for action in overlay["actions"]:
        for node in select(result, action["target"]):
            if isinstance(node, list):
                node.append(copy.deepcopy(action["update"]))
            else:
                _merge(node, action["update"])
    return result


def _merge(node: Json, update: Json) -> None:
    for name, value in update.items():
        if isinstance(value, dict) and isinstance(node.get(name), dict):
            _merge(node[name], value)
        elif isinstance(value, list) and isinstance(node.get(name), list):
            node[name] += copy.deepcopy(value)
        else:
            node[name] = copy.deepcopy(value)


def valid(value: Json, schema: Json) -> bool:
    """Whether a value fits a schema made of the words that the gateway's schemas are made of; other words are a failure."""
    assert schema.keys() <= {
        *("type", "enum", "required", "properties", "minimum", "maximum", "minLength", "maxLength", "pattern"),
        *("format", "description"),
    }
    kind = schema.get("type")
    if kind is not None and (not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        return False
    checks = [
        value in schema.get("enum", [value]),
        not isinstance(value, int) or schema.get("minimum", value) <= value <= schema.get("maximum", value),
        not isinstance(value, str) or schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)),
        not isinstance(value, str) or re.search(schema.get("pattern", ""), value) is not None,
        not isinstance(value, dict) or set(schema.get("required", [])) <= value.keys(),
        not isinstance(value, dict)
        or all(valid(value[name], part) for name, part in schema.get("properties", {}).items() if name in value),
    ]
    return all(checks)
