"""The placeholders of probes, and of the answers that rules build: `{key}`, `{principal}`, `{request_id}`, `{captured.NAME}`,
`{found:/json/pointer}`.

Other people choose their values: the client its key, the upstream what was found. So they are filled in by `template.fill`, which refuses a
value rather than change it.
"""

from gateway.core.model import Headers
from gateway.core.pointers import split_pointer
from gateway.core.template import PLACEHOLDER, Place, Slot, Values, compile_body, compile_header, content_type_of, fill

FOUND = "found:"
CAPTURED = "captured."
PRINCIPAL = "principal"
REQUEST_ID = "request_id"
OWN = frozenset({"key", REQUEST_ID, PRINCIPAL})


def placeholder(name: str, place: Place) -> Slot:
    """The `Vocabulary` of probes and rules. Raises ValueError."""
    found = name.startswith(FOUND)
    if found:
        split_pointer(name.removeprefix(FOUND))
    elif name not in OWN and not (name.startswith(CAPTURED) and len(name) > len(CAPTURED)):
        known = "{key}, {principal}, {request_id}, {captured.NAME} and, in answers, {found:/json/pointer}"
        raise ValueError(f"there is no placeholder `{{{name}}}`; there are {known}")
    if place in {Place.NOWHERE, Place.XML, Place.PLAIN}:
        raise ValueError(f"`{{{name}}}` cannot be escaped in this media type; placeholders work in JSON and in urlencoded forms")
    if place is Place.JSON_VALUE and name in OWN:
        raise ValueError(f'`{{{name}}}` stands outside of a string; put it in quotes, as in "{{{name}}}"')
    return Slot(name, place, of_json=found)


def fill_fields(fields: tuple[tuple[str, str], ...], values: Values) -> Headers:
    """The header fields of a template. Raises `Unfillable`."""
    return tuple([(name.encode("ascii"), fill(compile_header(text, placeholder), values).encode("ascii")) for name, text in fields])


def fill_body(text: str, fields: tuple[tuple[str, str], ...], values: Values) -> bytes:
    """The body of a template, by the Content-Type among its fields. Raises `Unfillable`."""
    return fill(compile_body(text, content_type_of(fields), placeholder), values).encode()


def same_as(text: str) -> str:
    """The placeholder of a comparison: `{principal}`, `{key}`, `{request_id}` or `{captured.NAME}`, and nothing else."""
    found = PLACEHOLDER.fullmatch(text)
    if found is None or found[1].startswith(FOUND):
        raise ValueError("write one placeholder, as in '{principal}' or '{captured.account}'")
    return placeholder(found[1], Place.QUERY).name
