"""A section of the file as it was read: its values, where each stands, and what became of the wrong ones. It becomes
the frozen dataclass that declares it. Sections fill in one another: a route's over `defaults`, both over what its
dialect says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from gateway.config.mistakes import Place
from gateway.core.kinds import Inline, SectionOf
from gateway.core.setting import Form, Setting, declared, setting_of, settings_of, shape_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """A value that was read, and where it stands."""

    value: T
    place: Place


@dataclass(frozen=True, slots=True)
class Section:
    """What the file says in one place of the settings of `of`. `broken` names those whose mistakes were reported
    already.

    A setting is named by its declaration: `section.get(POLICY.lease)` (`gateway.config.names`). `lost` is a section
    that is there and could not be read at all: then every setting counts as broken. `under` holds values that stand in
    for what the file does not give, before the defaults do: it has no say in where something stands, nor in whether it
    is given.
    """

    of: type
    place: Place
    fields: Mapping[str, Found[Any]] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    lost: bool = False
    under: "Section | None" = None

    def given(self, wanted: object) -> bool:
        """Whether the file says something here, right or wrong."""
        name = setting_of(wanted).name
        return self.lost or name in self.fields or name in self.broken

    def sound(self, *wanted: object) -> bool:
        """Whether these settings can be judged further: given and read, or not given."""
        return not self.lost and not any(setting_of(one).name in self.broken for one in wanted)

    def get(self, wanted: T) -> T:
        """The value, or the default where the file gives none or a broken one. Not for sections.

        A setting without a default is None where it is missing: ask whether it is sound.
        """
        value: T = self._get(setting_of(wanted))
        return value

    def each(self, wanted: object) -> tuple["Section", ...]:
        """The sections of a list."""
        found: tuple[Section, ...] | None = self._get(setting_of(wanted))
        return found or ()

    def by_name(self, wanted: object) -> "Mapping[str, Section]":
        """The sections of a mapping with free names."""
        found: Mapping[str, Section] | None = self._get(setting_of(wanted))
        return found or {}

    def has(self, wanted: object) -> bool:
        """Whether there is a value other than the default, or a broken one."""
        one = setting_of(wanted)
        return self.given(one) or (self.under is not None and self._shows_through(one) and self.under.has(one))

    def place_of(self, *wanted: object) -> Place:
        """Where the first of these settings stands that the file gives; of none, where the last one would."""
        names = [setting_of(one).name for one in wanted]
        name = next((name for name in names if name in self.fields or name in self.broken), names[-1])
        return self.fields[name].place if name in self.fields else self.place.child(name)

    def sub(self, wanted: object) -> "Section":
        """A nested section; an empty one where the file gives none."""
        one = setting_of(wanted)
        assert isinstance(one.kind, SectionOf)
        found = self.fields.get(one.name)
        under = self.under.sub(one) if self.under is not None else None
        if found is not None:
            inner: Section = found.value
            return replace(inner, under=under)
        return Section(one.kind.of, self.place.child(one.name), lost=not self.sound(one), under=under)

    def over(self, below: "Section") -> "Section":
        """The same section with `below` filling in what it leaves out, setting by setting, in nested sections too."""
        left_out = self.broken | self._hidden()
        fields = {name: found for name, found in below.fields.items() if name not in left_out}
        for name, found in self.fields.items():
            under = fields.get(name)
            if isinstance(found.value, Section) and under is not None:
                fields[name] = Found(found.value.over(under.value), found.place)
            else:
                fields[name] = found
        broken = self.broken | (below.broken - self.fields.keys() - left_out)
        return replace(self, fields=fields, broken=broken, lost=self.lost or below.lost)

    def make(self, cls: type[T], **known: object) -> T:
        """The value of this section, or of those of its settings that `cls` declares. `known` are fields that something
        else tells.
        """
        values = dict(known)
        for one in declared(cls):
            if one.attribute not in known:
                values[one.attribute] = self._value(one)
        return cls(**values)

    def _value(self, one: Setting) -> Any:
        if isinstance(one.kind, Inline):
            return _unfolded(self.make(one.kind.of))
        if isinstance(one.kind, SectionOf):
            return None if one.optional and not self.has(one) else _plain(self.sub(one))
        value = self._get(one)
        return one.blank if value is None else _plain(value)

    def _get(self, one: Setting) -> Any:
        found = self.fields.get(one.name)
        if found is None and self.under is not None and self._shows_through(one):
            return self.under._get(one)
        return one.default if found is None else found.value

    def _shows_through(self, one: Setting) -> bool:
        return not self.lost and one.name not in self.broken and one.name not in self._hidden()

    def _hidden(self) -> frozenset[str]:
        """The names that a section below must not fill in, since something here stands in their place."""
        names = frozenset(shape_of(self.of).one_of)
        return names if names & (self.fields.keys() | self.broken) else frozenset()


def value_of(section: Section) -> Any:
    """The value of a section, as the class that declares it makes it."""
    return _plain(section)


def _plain(value: Any) -> Any:
    match value:
        case Section():
            return _unfolded(value.make(value.of))
        case tuple():
            return tuple(_plain(one) for one in value)
        case _:
            return value


def _unfolded(made: Any) -> Any:
    return made.value() if isinstance(made, Form) else made


def names_of(cls: type) -> frozenset[str]:
    """Every key of a section."""
    return frozenset(name for one in settings_of(cls) for name in one.names)
