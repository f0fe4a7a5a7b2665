"""What a setting is. Each is declared once: as an annotated field of the frozen dataclass that the program reads.

    lease: Annotated[float, Duration("100ms", "1h"), "How long a crashed process keeps a key; running ones renew it."] = 30.0

The field's name is the key in the file, its default is the default, the kind (`gateway.core.kinds`) says which values
are good, and the text explains it. From this declaration `gateway.config` derives the reader with its messages, the
JSON Schema and the table of settings. Where the type says it all, the kind is left out: `bool` is true or false, an
enum is one of its values, a dataclass is a section of the file. A field that is not annotated is no setting: the
program computes it.
"""

import dataclasses
import enum
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Generic, TypeVar, Union, cast, get_args, get_origin

from gateway.core.kinds import Choice, Flag, Inline, Kind, ScalarKind, SectionOf

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Key:
    """The key in the file, where the field has another name."""

    name: str


@dataclass(frozen=True, slots=True)
class Shape:
    """What a dataclass says, as its `SHAPE`, of the section as a whole.

    At most one setting of `one_of` is given; exactly one, if `required`. Where one section fills in another, any of
    these above hides all of them below. Of `some`, at least one is given. `meant` maps keys that people write by
    mistake to those that they mean. `layered`: several sections fill in one another, so that no setting is required of
    any single one.
    """

    one_of: tuple[str, ...] = ()
    required: bool = False
    some: tuple[str, ...] = ()
    meant: Mapping[str, str] = dataclasses.field(default_factory=dict)
    layered: bool = False


class Form(Generic[T_co]):
    """A dataclass of settings that stand for a value of another shape."""

    __slots__ = ()

    def value(self) -> T_co:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Setting:
    """One declaration. `attribute` is the field of the dataclass, `name` the key; `default` None: there is none that
    the file could say.

    `optional`: the value is None where the file says nothing. `blank` stands for what is missing where it was reported,
    or is still to be.
    """

    attribute: str
    name: str
    kind: Kind
    text: str
    default: Any
    required: bool
    optional: bool
    blank: Any

    @property
    def twin(self) -> str | None:
        """The key of the file that may hold the value instead."""
        return f"{self.name}_file" if isinstance(self.kind, ScalarKind) and self.kind.secret else None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,) if self.twin is None else (self.name, self.twin)

    def write(self, value: Any) -> object:
        """`value` as the file would say it; None for what is not said, or is a section's to say."""
        return None if value is None else self.kind.write(value)


def declared(cls: type) -> tuple[Setting, ...]:
    """The settings of a dataclass, in order, those of other dataclasses that stand among them as one each."""
    return _declarations(cls)


@cache
def _declarations(cls: type) -> tuple[Setting, ...]:
    if not dataclasses.is_dataclass(cls):
        return ()
    layered = shape_of(cls).layered
    return tuple(_declared(field, layered=layered) for field in dataclasses.fields(cls) if get_origin(field.type) is Annotated)


@cache
def settings_of(cls: type) -> tuple[Setting, ...]:
    """The keys of the section that a dataclass declares, in order."""
    each = (settings_of(one.kind.of) if isinstance(one.kind, Inline) else (one,) for one in declared(cls))
    return tuple(one for several in each for one in several)


@cache
def shape_of(cls: type) -> Shape:
    """The shape of the section that a dataclass declares. At most one of it and of those that stand within it has
    alternatives.
    """
    own: Shape = getattr(cls, "SHAPE", Shape())
    for field in dataclasses.fields(cls):
        inner = next((part.of for part in getattr(field.type, "__metadata__", ()) if isinstance(part, Inline)), None)
        if inner is not None and not own.one_of:
            within = shape_of(inner)
            own = dataclasses.replace(own, one_of=within.one_of, required=within.required, meant={**within.meant, **own.meant})
    return own


def names(cls: type[T]) -> T:
    """The declarations of a dataclass, each as the attribute of its field: `names(Policy).lease`.

    To a type checker they are the values, so that it knows which there are, and the type of each. `setting_of` tells
    what they are.
    """
    return cast("T", types.SimpleNamespace(**{one.attribute: one for one in declared(cls)}))


def setting_of(named: object) -> Setting:
    """The declaration that `names` gives."""
    assert isinstance(named, Setting), "what names gives"
    return named


def _declared(field: "dataclasses.Field[Any]", *, layered: bool) -> Setting:
    annotated: Any = field.type
    base, optional = _bare(annotated.__origin__)
    parts: tuple[object, ...] = annotated.__metadata__
    kind = next((part for part in parts if isinstance(part, Kind)), None) or _kind_of(base)
    name = next((part.name for part in parts if isinstance(part, Key)), field.name)
    none = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    default = None
    if not none and not isinstance(kind, SectionOf | Inline):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return Setting(
        field.name,
        name,
        kind,
        text="".join(part for part in parts if isinstance(part, str)),
        default=default,
        required=none and not (layered or optional or isinstance(kind, Inline)),
        optional=optional,
        blank={str: "", tuple: ()}.get(get_origin(base) or base) if none and not optional else default,
    )


def _bare(annotation: Any) -> tuple[Any, bool]:
    """A type without None, and whether None was among it."""
    if get_origin(annotation) not in {Union, types.UnionType}:
        return annotation, False
    left = [one for one in get_args(annotation) if one is not type(None)]
    return (left[0] if len(left) == 1 else annotation), len(left) < len(get_args(annotation))


def _kind_of(base: Any) -> Kind:
    if base is bool:
        return Flag()
    if isinstance(base, type) and issubclass(base, enum.StrEnum):
        return Choice.of(base)
    assert dataclasses.is_dataclass(base), f"the kind of {base} cannot be told from its type"
    return SectionOf(base if isinstance(base, type) else type(base))
