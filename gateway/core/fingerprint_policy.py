"""What a request means on a route: what its `fingerprint:` section says. `gateway.core.fingerprint` computes it."""

import enum
from dataclasses import dataclass
from typing import Annotated

from gateway.core import texts
from gateway.core.kinds import ListOf, Text

_NAMES = ListOf(Text("the name of a parameter", texts.parameter))
_POINTERS = ListOf(Text("a JSON pointer", texts.pointer, texts.POINTER_PATTERN))


class BodyMode(enum.StrEnum):
    """Which part of the body the fingerprint covers; see `gateway.core.fingerprint`."""

    AUTO = "auto"
    JSON = "json"
    FORM = "form"
    MULTIPART = "multipart"
    BYTES = "bytes"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class FingerprintPolicy:
    """What a request means on a route. `headers` are lower-case names; `ignore` and `only` are JSON pointers (RFC 6901)
    in which a `*` segment stands for every index of an array or every member of an object. `only` non-empty: nothing
    else of a JSON body counts. `ignore_query` and `ignore_form` are decoded names of parameters and of form fields that
    do not count, `ignore_headers` lower-case names of what would count without being asked to
    (`gateway.core.field_names.DROPPABLE`).
    """

    body: Annotated[
        BodyMode, "Which part of the body counts; auto: JSON by its meaning, forms by their fields, everything else by its bytes."
    ] = BodyMode.AUTO
    headers: Annotated[
        tuple[str, ...],
        ListOf(Text("a header name", texts.lower_header_name, texts.HEADER_PATTERN)),
        "Header fields that are part of what a request means.",
    ] = ()
    ignore: Annotated[
        tuple[str, ...], _POINTERS, "JSON pointers (RFC 6901) to what may change between attempts; a * stands for every index or member."
    ] = ()
    only: Annotated[
        tuple[str, ...], _POINTERS, "JSON pointers to what counts of a JSON body, in place of the whole; * as in `ignore`."
    ] = ()
    ignore_headers: Annotated[
        tuple[str, ...],
        ListOf(Text("a header name", texts.droppable, texts.HEADER_PATTERN)),
        "What does not count although it would by itself: Host, and fields that select the operation, such as If-Match.",
    ] = ()
    ignore_query: Annotated[
        tuple[str, ...], _NAMES, "Query parameters, decoded, that may change between attempts, such as a signature's."
    ] = ()
    ignore_form: Annotated[tuple[str, ...], _NAMES, "The same for fields of a form body."] = ()
