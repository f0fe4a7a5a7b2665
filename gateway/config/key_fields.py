"""The part of the table about keys: where one is, and which are good."""

from gateway.config import policy_texts, texts
from gateway.config.alternatives import Alternatives
from gateway.config.kinds import Choice, Flag, Text, Whole
from gateway.config.one_or_many import OneOrMany
from gateway.config.shapes import Field, Struct
from gateway.core.policy import KeyMode, KeyPolicy

_KEY = KeyPolicy()
HEADER = Text("a header name", texts.header_name, texts.HEADER_PATTERN)
_QUERY = Text("the name of a query parameter", policy_texts.parameter)
_POINTER = Text("a JSON pointer", policy_texts.member_pointer, texts.POINTER_PATTERN)
_FORM = Text("the name of a form field", policy_texts.parameter)
_PLACES = ("header", "query", "json_pointer", "form")
_MEANT = {"name": "header", "parameter": "query", "pointer": "json_pointer", "body": "json_pointer", "field": "json_pointer"}


class KeyFields:
    """`routes[].idempotency.key`."""

    HEADER = Field(
        "header",
        OneOrMany(HEADER),
        "The header field that holds the key; of a list, one of them may be there, or several that are equal. Either this or `query`, "
        "`json_pointer` or `form`.",
        _KEY.headers,
    )
    QUERY = Field("query", _QUERY, "The query parameter that holds the key.")
    JSON_POINTER = Field("json_pointer", _POINTER, "Where in the JSON body the key is (RFC 6901), text or whole number; bodies up to 1MiB.")
    FORM = Field("form", _FORM, "The field of a form body (application/x-www-form-urlencoded) that holds the key; bodies up to 1MiB.")
    REQUIRED = Field("required", Flag(), "Whether a request without a key is refused (400) or passed through unguarded.", _KEY.required)
    MODE = Field(
        "mode",
        Choice({mode.value: mode for mode in KeyMode}),
        "lenient: a quoted string or a bare token; strict: a quoted string; raw: visible ASCII.",
        _KEY.mode,
    )
    MIN_LENGTH = Field("min_length", Whole(1, 255), "The least number of characters of a key.", _KEY.min_length)
    MAX_LENGTH = Field("max_length", Whole(1, 255), "The greatest number of characters of a key.", _KEY.max_length)
    PATTERN = Field(
        "pattern", Text("a regular expression", policy_texts.expression), "A regular expression that the whole key must match besides."
    )
    FOLD_CASE = Field("fold_case", Flag(), "Whether keys that differ in letter case alone are one key.", _KEY.fold_case)
    NOTICE = Field("notice", Flag(), "Count and log, by digest, keys that look guessable or personal.", _KEY.notice)


class PlaceFields:
    """`routes[].idempotency.forward_key_in`."""

    HEADER = Field("header", HEADER, "A header field. Either this or `query`, `json_pointer` or `form`.")
    QUERY = Field("query", _QUERY, "A query parameter.")
    JSON_POINTER = Field("json_pointer", _POINTER, "A member of the JSON body (RFC 6901). Nothing else of the body changes.")
    FORM = Field("form", _FORM, "A field of the form body. Nothing else of the body changes.")


KEY = Struct.of(KeyFields, Alternatives(_PLACES), _MEANT)
PLACE = Struct.of(PlaceFields, Alternatives(_PLACES, required=True), _MEANT)
