"""The configuration file as JSON Schema, for editors. Made from the declarations that the reader reads by."""

from itertools import combinations
from typing import TypeAlias

from gateway.config.model import Config
from gateway.config.reader import FREE, INCLUDE, spellings
from gateway.core.kinds import (
    Choice,
    DialectName,
    Duration,
    Flag,
    JsonScalar,
    Kind,
    ListOf,
    MapOf,
    Named,
    NoneOr,
    OneOrMany,
    RateWord,
    ScalarKind,
    SectionOf,
    Size,
    Text,
    Whole,
    Yes,
)
from gateway.core.setting import settings_of, shape_of
from gateway.core.units import parse_size
from gateway.dialects import names as dialect_names

Schema: TypeAlias = dict[str, object]

_INTERPOLATED: Schema = {"$ref": "#/$defs/interpolated"}

_INCLUDE: Schema = {
    "type": "object",
    "additionalProperties": False,
    "properties": {INCLUDE: {"type": "string", "description": "A file with a list of these, relative to this file."}},
    "required": [INCLUDE],
}


def json_schema() -> Schema:
    """JSON Schema draft 2020-12 of the file as written, variables included.

    It accepts every file that `load` accepts, and also some that `load` refuses: what spans several values is left to
    `load`.
    """
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of the idempotency gateway",
        "$defs": {"interpolated": {"type": "string", "pattern": r"\$\{", "description": "${VAR}, ${VAR:-default} or ${VAR:?message}"}},
        **_section(Config),
        "patternProperties": {f"^{FREE}": {"description": "Yours: a place for anchors, of which nothing is read but by their aliases."}},
    }


def _schema(kind: Kind) -> Schema:
    match kind:
        case ScalarKind():
            return _scalar(kind)
        case ListOf():
            least = {"minItems": kind.at_least} if kind.at_least else {}
            item = {"anyOf": [_schema(kind.item), _INCLUDE]} if kind.include else _schema(kind.item)
            return {"type": "array", "items": item, **least, **({"uniqueItems": True} if kind.unique else {})}
        case OneOrMany():
            return {"anyOf": [_schema(kind.item), _schema(kind.several)]}
        case NoneOr():
            return {"anyOf": [{"const": "none"}, _schema(kind.several)]}
        case Named():
            return _mapping(kind.name, _schema(kind.item))
        case MapOf():
            return {**_mapping(kind.name, _section(kind.of)), "minProperties": 1}
        case SectionOf():
            return _section(kind.of)
        case _:
            raise AssertionError(f"{kind} has no schema of its own")


def _scalar(kind: ScalarKind) -> Schema:
    bounds: Schema = {}
    match kind:
        case Text(pattern=str() as pattern):
            forms: list[Schema] = [{"type": "string", "pattern": pattern}]
        case Whole():
            forms = [{"type": "integer", "minimum": kind.minimum, "maximum": kind.maximum}]
        case Flag():
            forms = [{"type": "boolean"}]
        case Yes():
            forms = [{"const": True}]
        case Choice():
            forms = [{"enum": kind.spellings()}]
        case DialectName():
            forms = [{"enum": list(dialect_names())}, {"type": "string", "pattern": r"/|\.ya?ml$"}]
        case Duration():
            forms = [{"type": "string", "pattern": r"^[0-9]{1,12}(\.[0-9]{1,3})?(ms|s|m|h|d)$"}]
            bounds = {"x-minimum": kind.minimum, "x-maximum": kind.maximum}
        case RateWord():
            forms = [{"type": "string", "pattern": r"^[0-9]{1,9}/(s|min|h|d)$"}]
            bounds = {"x-maximum": kind.maximum}
        case Size():
            plain: Schema = {"type": "integer", "minimum": parse_size(kind.minimum), "maximum": parse_size(kind.maximum)}
            forms = [{"type": "string", "pattern": r"^[0-9]{1,15}(B|KB|MB|GB|KiB|MiB|GiB)?$"}, plain]
            bounds = {"x-minimum": kind.minimum, "x-maximum": kind.maximum}
        case JsonScalar():
            return {"anyOf": [{"type": name} for name in ("string", "number", "boolean", "null")]}
        case _:
            return {"type": "string"}
    return {"anyOf": [*forms, _INTERPOLATED], **bounds}


def _mapping(name: Text, items: Schema) -> Schema:
    return {"type": "object", "propertyNames": {"pattern": name.pattern or ""}, "additionalProperties": items}


def _section(of: type) -> Schema:
    properties: Schema = {}
    for one in settings_of(of):
        written = one.write(one.default)
        properties[one.name] = {"description": one.text, **_schema(one.kind), **({} if written is None else {"default": written})}
        if one.twin:
            properties[one.twin] = {"type": "string", "description": f"A file that holds `{one.name}`, relative to this file."}
    settings = [one for one in settings_of(of) if one.required]
    required = [one.name for one in settings if one.twin is None]
    twins = [{"anyOf": [{"required": [name]} for name in one.names]} for one in settings if one.twin]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        **({"required": required} if required else {}),
        **_alternatives(of),
        **({"allOf": twins} if twins else {}),
    }


def _alternatives(of: type) -> Schema:
    shape, names = shape_of(of), spellings(of)
    if shape.required:
        return {"oneOf": [{"required": [name]} for name in names]}
    if names:
        return {"not": {"anyOf": [{"required": list(pair)} for pair in combinations(names, 2)]}}
    return {"anyOf": [{"required": [name]} for name in shape.some]} if shape.some else {}
