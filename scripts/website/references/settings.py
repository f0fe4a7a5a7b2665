"""Every setting, by the sections of the file. Made of the declarations that the reader reads by (`gateway.core.setting`)."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson

from gateway.config.model import Config
from gateway.core.kinds import (
    Choice,
    DialectName,
    Duration,
    Flag,
    FromFile,
    Kind,
    ListOf,
    MapOf,
    Named,
    NoneOr,
    OneOrMany,
    ScalarKind,
    SectionOf,
    Size,
    Whole,
    Yes,
)
from gateway.core.policy import Policy
from gateway.core.setting import Setting, settings_of, shape_of
from scripts.website.references.markdown import anchor, code, prose, table
from scripts.website.references.markdown import page as whole

_INTRODUCTION = """
Every setting of the configuration file, with its default. [config/gateway.yaml](../../config/gateway.yaml) shows them in
use, and `idempotency-gateway schema` prints the JSON Schema for an editor. An unknown key is an error, and so is a value
that cannot be meant: `idempotency-gateway check` names all of them at once, each with its line.
"""
_VALUES = """
Durations are written as in `250ms`, `2s`, `5m`, `24h`, `7d`; sizes as in `512B`, `8KiB`, `1MiB` (1024), `512KB`, `10MB`
(1000). In values, `${VAR}` is a variable that must be set, `${VAR:-default}` one with a default, `${VAR:?message}` one
with a message for the case that it is not set; `$$` is a dollar sign, and `$VAR` alone is refused. A secret has a twin whose
name ends in `_file`: the path of a file that holds it, relative to this file. Keys that begin with `x-` at the top of the
file hold anchors of yours.
"""
_POLICY = "idempotency"
"""What guards a route. It stands in each route, and as `defaults` for all."""


@dataclass(slots=True)
class _Sections:
    """The sections of the file, each dataclass once, with all the places where it stands."""

    places: dict[type, list[str]] = field(default_factory=dict)

    def walk(self, of: type, place: str) -> None:
        first = of not in self.places
        known = self.places.setdefault(of, [])
        if place not in known:
            known.append(place)
        if first:
            for one in settings_of(of):
                for inner, suffix in _inner(one.kind):
                    self.walk(inner, _POLICY if inner is Policy else f"{place}.{one.name}{suffix}".removeprefix("."))

    def heading(self, of: type) -> str:
        return code(self.places[of][0])


def page() -> str:
    """The page."""
    sections = _Sections()
    sections.walk(Config, "")
    parts = [whole("Settings", prose(_INTRODUCTION), prose(_VALUES), "## The file", _table(Config, sections))]
    for of, places in sections.places.items():
        if of is not Config:
            also = f"\nAlso in {', '.join(map(code, places[1:]))}.\n" if places[1:] else ""
            if of is Policy:
                also = "\nIn a route; and as `defaults`, for all routes that do not say otherwise.\n"
            parts.append(f"## {sections.heading(of)}\n{also}{_shape(of)}\n{_table(of, sections)}")
    return "\n".join(parts)


def _table(of: type, sections: _Sections) -> str:
    return table(("setting", "value", "default", "meaning"), (_row(one, sections) for one in settings_of(of)))


def _row(one: Setting, sections: _Sections) -> tuple[str, str, str, str]:
    text = one.text if one.twin is None else f"{one.text} Or {code(one.twin)}."
    return code(one.name), _words(one.kind, sections), _default(one), text


def _default(one: Setting) -> str:
    if one.required:
        return "required"
    written = one.write(one.default)
    if written is None or written == "":
        return ""
    return code(written if isinstance(written, str) else orjson.dumps(written).decode().replace(",", ", "))


def _shape(of: type) -> str:
    shape = shape_of(of)
    if shape.one_of:
        return f"\n{'Exactly' if shape.required else 'At most'} one of {', '.join(map(code, shape.one_of))}.\n"
    return f"\nAt least one of {', '.join(map(code, shape.some))}.\n" if shape.some else ""


def _inner(kind: Kind) -> Iterator[tuple[type, str]]:
    """The sections that a value of this kind holds, and how their place is written."""
    match kind:
        case SectionOf():
            yield kind.of, ""
        case MapOf():
            yield kind.of, ".NAME"
        case ListOf() | NoneOr():
            for inner, suffix in _inner(kind.item):
                yield inner, f"[]{suffix}"
        case _:
            pass


def _words(kind: Kind, sections: _Sections) -> str:
    match kind:
        case ScalarKind():
            return _scalar(kind)
        case SectionOf():
            heading = sections.heading(kind.of)
            return f"a section: [{heading}](#{anchor(heading)})"
        case MapOf():
            heading = sections.heading(kind.of)
            return f"sections by name: [{heading}](#{anchor(heading)})"
        case OneOrMany():
            return f"{_words(kind.item, sections)}, or a list"
        case NoneOr():
            return f"`none`, or a list of {kind.noun}: {_words(kind.item, sections)}"
        case ListOf():
            return f"a list: {_words(kind.item, sections)}"
        case Named():
            return f"by name: {_words(kind.item, sections)}"
        case _:
            raise AssertionError(f"no words for {kind}")


def _scalar(kind: ScalarKind) -> str:
    match kind:
        case Duration() | Size():
            return f"{code(kind.minimum)} to {code(kind.maximum)}"
        case Whole():
            return f"{kind.minimum} to {kind.maximum}"
        case Flag():
            return "`true`, `false`"
        case Yes():
            return "`true`"
        case Choice():
            return ", ".join(map(code, kind.words))
        case FromFile():
            return "a file path"
        case DialectName():
            return f"{kind.noun} ([dialects](../meaning.md#the-language-dialect))"
        case _:
            return kind.wants()
