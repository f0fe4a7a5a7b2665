"""Mistakes about pages of other origins, and what is rarely meant."""

from collections.abc import Iterator, Sequence

from gateway.config.cors_fields import CorsFields
from gateway.config.fields import ConfigFields, RouteFields
from gateway.config.kinds import Reader
from gateway.config.mistakes import Place
from gateway.config.resolve import ResolvedRoute
from gateway.config.shapes import Section
from gateway.core.routes import parse_pattern, path_segments

_N = CorsFields


def check_cors(reader: Reader, root: Section, routes: Sequence[ResolvedRoute]) -> None:
    whole = root.sub(ConfigFields.CORS)
    _check(reader, whole)
    for one in routes:
        if one.section.given(RouteFields.CORS):
            _check(reader, one.section.sub(RouteFields.CORS).over(whole))


def warn_of_cors(root: Section, routes: Sequence[ResolvedRoute]) -> Iterator[tuple[Place, str]]:
    whole = root.sub(ConfigFields.CORS)
    if whole.get(_N.HEADERS) and whole.get(_N.PREFLIGHT) != "answer":
        yield whole.place_of(_N.HEADERS), "has no effect: preflights go upstream; write `preflight: answer`"
    for one in routes:
        cors = one.route.cors
        if cors is not None and not cors.answers and one.route.methods and not _takes_options(one, routes):
            section = one.section.sub(RouteFields.CORS).over(whole)
            words = f"no route takes OPTIONS at {one.route.path}: preflights get 404, and no page of another origin can send there"
            yield section.place_of(_N.ORIGINS), f"{words}; write `preflight: answer`, or add a route"


def _check(reader: Reader, section: Section) -> None:
    if not section.sound(_N.ORIGINS, _N.CREDENTIALS):
        return
    origins: tuple[str, ...] = section.get(_N.ORIGINS)
    if "*" in origins and len(origins) > 1:
        reader.report(section.place_of(_N.ORIGINS), "`*` is any origin already; name it alone, or leave it out")
    if "*" in origins and section.get(_N.CREDENTIALS):
        reader.report(section.place_of(_N.CREDENTIALS), "any page could act for who is logged in, and browsers refuse it; name the origins")


def _takes_options(one: ResolvedRoute, routes: Sequence[ResolvedRoute]) -> bool:
    sample = path_segments(one.route.path.removesuffix("/**").replace("{", "").replace("}", "") or "/")
    taking = [other.route for other in routes if not other.route.methods or "OPTIONS" in other.route.methods]
    return any(parse_pattern(route.path).matches(sample) for route in taking)
