"""Fields of a section that stand in place of each other."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations

from gateway.config.kinds import Schema


@dataclass(frozen=True, slots=True)
class Alternatives:
    """At most one of the fields `names` is given; with `required`, exactly one. `twins` names the fields that have a `_file` twin.

    Where one section fills in another, any of these fields above hides all of them below.
    """

    names: tuple[str, ...]
    required: bool = False
    twins: frozenset[str] = frozenset()

    def words(self) -> str:
        """The names as the object of a sentence, twins included."""
        return ", ".join(f"`{name}`" for name in self._spellings())

    def among(self, given: Collection[str]) -> list[str]:
        """Which of these fields are given."""
        return [name for name in self.names if name in given]

    def schema(self) -> Schema:
        if self.required:
            return {"oneOf": [{"required": [name]} for name in self._spellings()]}
        return {"not": {"anyOf": [{"required": list(pair)} for pair in combinations(self._spellings(), 2)]}}

    def _spellings(self) -> list[str]:
        return [spelling for name in self.names for spelling in ((name, f"{name}_file") if name in self.twins else (name,))]


NONE = Alternatives(())


def hidden(alternatives: Alternatives, above: Mapping[str, object], broken: frozenset[str]) -> frozenset[str]:
    """The names that a section below must not fill in, given what the section above says."""
    names = frozenset(alternatives.names)
    return names if names & (above.keys() | broken) else frozenset()
