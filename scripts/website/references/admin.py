"""The admin API, made of its OpenAPI document (`gateway.operate.admin.openapi`)."""

from collections.abc import Iterator
from typing import Any

from gateway.operate.admin.openapi import document
from scripts.website.references.markdown import anchor, code, prose, table
from scripts.website.references.markdown import page as whole

_INTRODUCTION = """
What the admin listener answers. A running gateway gives the whole document, with every schema, at
`GET /admin/v1/openapi.json`; this page is its short form. [incident.md](../incident.md#over-http) shows it in use.
"""
_METHODS = ("get", "put", "post", "patch", "delete")


def page() -> str:
    """The page."""
    made = document()
    return whole(
        "The admin API",
        prose(_INTRODUCTION),
        prose(made["info"]["description"]),
        "## Operations",
        table(
            ("operation", "what it does"), ((f"[{code(title)}](#{anchor(title)})", one["summary"]) for title, one, _ in _operations(made))
        ),
        *(_operation(title, one, shared, made) for title, one, shared in _operations(made)),
        "## Refusals",
        table(
            ("status", "means"),
            sorted((name.removeprefix("Problem"), one["description"]) for name, one in made["components"]["responses"].items()),
        ),
        "## Schemas",
        *(f"### {code(name)}\n\n{_members(schema)}" for name, schema in made["components"]["schemas"].items()),
    )


def _operations(made: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    for path, item in made["paths"].items():
        for method in _METHODS:
            if method in item:
                yield f"{method.upper()} {path}", item[method], item.get("parameters", [])


def _operation(title: str, one: dict[str, Any], shared: list[dict[str, Any]], made: dict[str, Any]) -> str:
    parameters = [_resolved(each, made) for each in (*shared, *one.get("parameters", []))]
    parts = [f"### {code(title)}\n", prose(f"{one['summary'].rstrip('.')}.")]
    if parameters:
        rows = (
            (code(each["name"]), each["in"], _kind(each["schema"]), _needed(each.get("required", False)), _said(each))
            for each in parameters
        )
        parts.append(table(("parameter", "in", "value", "", "means"), rows))
    body = one.get("requestBody", {}).get("content", {})
    bodies = ", ".join(f"{_kind(content['schema'])} as {code(kind)}" for kind, content in body.items())
    answers = "; ".join(
        f"{status} {_answer(_resolved(answer, made))}" for status, answer in one["responses"].items() if not _refused(answer)
    )
    refusals = ", ".join(status for status, answer in one["responses"].items() if _refused(answer))
    parts.append(prose(f"{f'Body: {bodies}. ' if bodies else ''}Answers: {answers}{f'; refusals {refusals}' if refusals else ''}."))
    return "\n".join(parts)


def _refused(answer: dict[str, Any]) -> bool:
    return "/responses/Problem" in str(answer.get("$ref", ""))


def _answer(answer: dict[str, Any]) -> str:
    kinds = [f"{_kind(content['schema'])} as {code(kind)}" for kind, content in answer.get("content", {}).items()]
    return ", ".join(kinds) or answer["description"].rstrip(".")


def _members(schema: dict[str, Any]) -> str:
    if "properties" not in schema:
        return prose(_kind(schema))
    required = schema.get("required", ())
    rows = ((code(name), _kind(one), _needed(name in required), _said(one)) for name, one in schema["properties"].items())
    return table(("member", "value", "", "means"), rows)


def _needed(required: bool) -> str:  # noqa: FBT001 - the schema's own word
    return "required" if required else ""


def _said(one: dict[str, Any]) -> str:
    return str(one.get("description") or one.get("schema", {}).get("description", ""))


def _kind(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    match schema:
        case {"$ref": str(name)}:
            word = name.rpartition("/")[2]
            return f"[{word}](#{anchor(word)})"
        case {"anyOf": choices} | {"oneOf": choices}:
            return " or ".join(dict.fromkeys(map(_kind, choices)))
        case {"enum": words}:
            return ", ".join("null" if word is None else code(word) for word in words)
        case {"type": "array", "items": items}:
            return f"a list: {_kind(items)}"
        case {"type": [*kinds]}:
            return " or ".join(map(str, kinds))
        case {"type": "object", "additionalProperties": {"type": kind}}:
            return f"by name: {_kind({'type': kind})}"
        case {"type": str(kind)}:
            return f"{kind} ({schema['format']})" if "format" in schema else kind
        case _:
            return "anything"


def _resolved(one: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in one:
        return one
    found: Any = made
    for word in one["$ref"].removeprefix("#/").split("/"):
        found = found[word]
    return dict(found)
