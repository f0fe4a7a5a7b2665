"""Mistakes about pages of other origins, and what is rarely meant."""

from collections.abc import Sequence

from gateway.config.checks.common import Findings, ResolvedRoute
from gateway.config.names import CONFIG, CORS, ROUTE
from gateway.config.section import Section
from gateway.core.path_pattern import parse_pattern, path_segments


def check_cors(root: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    whole = root.sub(CONFIG.cors)
    yield from _check(whole)
    for one in routes:
        if one.section.given(ROUTE.cors):
            yield from _check(one.section.sub(ROUTE.cors).over(whole))


def warn_of_cors(root: Section, routes: Sequence[ResolvedRoute]) -> Findings:
    whole = root.sub(CONFIG.cors)
    if whole.get(CORS.headers) and not whole.get(CORS.answers):
        yield whole.place_of(CORS.headers), "has no effect: preflights go upstream; write `preflight: answer`"
    for one in routes:
        cors = one.route.cors
        if cors is not None and not cors.answers and one.route.methods and not _takes_options(one, routes):
            section = one.section.sub(ROUTE.cors).over(whole)
            words = f"no route takes OPTIONS at {one.route.path}: preflights get 404, and no page of another origin can send there"
            yield section.place_of(CORS.origins), f"{words}; write `preflight: answer`, or add a route"


def _check(section: Section) -> Findings:
    if not section.sound(CORS.origins, CORS.credentials):
        return
    origins = section.get(CORS.origins)
    if "*" in origins and len(origins) > 1:
        yield section.place_of(CORS.origins), "`*` is any origin already; name it alone, or leave it out"
    if "*" in origins and section.get(CORS.credentials):
        words = "any page could act for who is logged in, and browsers refuse it; name the origins"
        yield section.place_of(CORS.credentials), words


def _takes_options(one: ResolvedRoute, routes: Sequence[ResolvedRoute]) -> bool:
    sample = path_segments(one.route.path.removesuffix("/**").replace("{", "").replace("}", "") or "/")
    taking = [other.route for other in routes if not other.route.methods or "OPTIONS" in other.route.methods]
    return any(parse_pattern(route.path).matches(sample) for route in taking)
