"""The part of the table about pages of other origins: `cors`, of the file and of a route, which fills in its own from the file's."""

from gateway.config import cors_texts, texts
from gateway.config.kinds import Choice, Duration, Flag, Text
from gateway.config.shapes import Field, ListOf, Section, Struct
from gateway.core.cors import Cors

_CORS = Cors()
_NAMES = ListOf(Text("a header name", texts.header_name, texts.HEADER_PATTERN))


class CorsFields:
    """`cors` and `routes[].cors`."""

    ORIGINS = Field(
        "origins",
        ListOf(Text("an origin", cors_texts.origin, cors_texts.ORIGIN_PATTERN)),
        "Whose pages may read answers: origins such as https://shop.example, or * for any. None: the gateway says nothing.",
        (),
    )
    CREDENTIALS = Field("credentials", Flag(), "Whether they may with cookies and the like.", _CORS.credentials)
    EXPOSE = Field("expose", _NAMES, "Fields that their scripts may read, beside the gateway's own.", _CORS.expose)
    PREFLIGHT = Field(
        "preflight",
        Choice({word: word for word in ("upstream", "answer")}),
        "Who answers preflights: upstream, by whatever route takes OPTIONS; or the gateway.",
        "upstream",
    )
    HEADERS = Field("headers", _NAMES, "Fields that requests may have, where the gateway answers. None: any.", _CORS.headers)
    MAX_AGE = Field("max_age", Duration("0s", "1d"), "How long browsers may keep that answer.", _CORS.max_age)


CORS = Struct.of(CorsFields, meant={"allow_origins": "origins", "allow_credentials": "credentials", "expose_headers": "expose"})


def resolve_cors(section: Section) -> Cors | None:
    """None where no origin is named."""
    names = CorsFields
    origins: tuple[str, ...] = section.get(names.ORIGINS)
    if not origins:
        return None
    expose, headers = section.get(names.EXPOSE), section.get(names.HEADERS)
    return Cors(
        frozenset(origins),
        section.get(names.CREDENTIALS),
        expose,
        section.get(names.PREFLIGHT) == "answer",
        headers,
        section.get(names.MAX_AGE),
    )
