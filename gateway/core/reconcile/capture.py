"""Values of the original request that are kept with its record, for probes and webhooks to find it by."""

import re
from collections.abc import Sequence

from gateway.core.pointers import Json, at, split_pointer
from gateway.core.strict_json import AS_TEXTS, read
from gateway.core.template import is_json

MAX_LENGTH = 255
"""In characters. A longer value is left out whole: a part of it would name something else."""

_NOT_KEPT = re.compile("[\0\ud800-\udfff]")
"""What Postgres keeps in no text."""


def capture(body: bytes | None, content_type: bytes | None, wanted: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The values that `wanted` (name and JSON pointer, as `Reconcile.capture`) names in a JSON request: texts, and whole numbers as text.

    Left out is what is missing, empty, of another kind, a number that readers read differently, or longer than `MAX_LENGTH`; all of it, if
    the request is not strict JSON under a JSON media type: the upstream may then read another value, or none, and a look for this one would
    find nothing. Raises nothing, if the pointers are pointers.
    """
    if not wanted or not body or content_type is None or not is_json(content_type.decode("latin-1")):
        return {}
    try:
        document = read(body, AS_TEXTS)
    except ValueError:
        return {}
    values = {name: _text(at(document, split_pointer(pointer))) for name, pointer in wanted}
    return {name: text for name, text in values.items() if text}


def _text(value: Json) -> str | None:
    if not isinstance(value, str) or len(value) > MAX_LENGTH:
        return None
    return value if keepable(value) else None


def keepable(text: str) -> bool:
    """Whether a store can keep the text as it is."""
    return _NOT_KEPT.search(text) is None
