"""How sections fill in one another: route over `defaults` over dialect."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gateway.config.mistakes import Place
from gateway.config.names import KEY, KEY_SOURCE
from gateway.config.reader import Reader
from gateway.config.section import Section
from gateway.config.source import compose
from gateway.core.key_policy import KeyPolicy
from gateway.core.kinds import SectionOf
from gateway.core.setting import settings_of

_PLACES = st.sampled_from(["", "header: A", "query: b", "json_pointer: /c", "form: d"])
_REST = st.sets(st.sampled_from(["required: false", "mode: raw", "max_length: 9", "fold_case: true"]), max_size=4)
_SETTINGS = st.tuples(_PLACES, _REST).map(lambda one: [line for line in (one[0], *sorted(one[1])) if line])


def section(lines: list[str], line: int) -> Section:
    node = compose("\n" * line + "{" + ", ".join(lines) + "}")
    assert node is not None
    reader = Reader({}, Path())
    found = reader.read(SectionOf(KeyPolicy), node, Place(node.line, node.column))
    assert found is not None
    assert not reader.mistakes
    read: Section = found.value
    return read


def value(one: Section, name: str) -> object:
    return one.get(next(field for field in settings_of(KeyPolicy) if field.name == name))


@given(_SETTINGS, _SETTINGS, _SETTINGS)
def test_the_upper_section_wins_field_by_field(route: list[str], defaults: list[str], dialect: list[str]) -> None:
    """The highest level that names a field gives its value; of fields that stand in place of each other, the highest that names any."""
    levels = [dict(line.split(": ") for line in lines) for lines in (route, defaults, dialect)]
    merged = section(route, 0).over(section(defaults, 1))
    merged = Section(KeyPolicy, merged.place, merged.fields, merged.broken, merged.lost, section(dialect, 2))
    places = {"header", "query", "json_pointer", "form"}
    chosen = next((level for level in levels if places & level.keys()), {})
    for field in settings_of(KeyPolicy):
        if field.name in places:
            expected = chosen.get(field.name, field.default)
            expected = (expected,) if field.name == "header" and field.name in chosen else expected
        else:
            text = next((level[field.name] for level in levels if field.name in level), None)
            expected = field.default if text is None else section([f"{field.name}: {text}"], 0).get(field)
        assert value(merged, field.name) == expected
        assert merged.given(field) == (
            field.name in {*levels[0], *levels[1]} and (field.name not in places or merged.fields.keys() >= {field.name})
        )


def test_a_broken_field_hides_what_is_below() -> None:
    """A mistake in a route is not papered over by `defaults`, nor is another place of the key taken for the one that was meant."""
    broken = Section(KeyPolicy, Place(1, 1), broken=frozenset({"query"}))
    merged = Section(KeyPolicy, Place(1, 1), broken=broken.broken, under=section(["header: A", "mode: raw"], 2))
    assert broken.over(section(["header: A"], 1)).get(KEY_SOURCE.header) == ("Idempotency-Key",)
    assert (merged.get(KEY_SOURCE.header), merged.get(KEY.mode)) == (("Idempotency-Key",), "raw")
    assert not merged.sound(KEY_SOURCE.query)
