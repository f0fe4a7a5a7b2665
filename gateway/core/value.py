"""Values that are made for every request."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """A frozen dataclass with slots, of which the type checker alone sees to it that nobody assigns to its fields.

    For what is made for every request: a dataclass that Python keeps frozen sets each field by a call of
    `object.__setattr__`, and takes five times as long to make. Two equal values have one hash, as those of frozen
    dataclasses.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
