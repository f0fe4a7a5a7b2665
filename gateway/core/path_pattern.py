"""Path patterns of the route map: `/literal/{parameter}/**`."""

import re
from dataclasses import dataclass

_SEGMENT = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%-]*")
_PARAMETER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*\}")
_FOREIGN = re.compile(r":([A-Za-z_]\w*)\??|<(?:\w+:)?(\w+)>|\{(\w+):[^}]*\}|\[(?:\.\.\.)?(\w+)\]|\{(\w+)\.\.\.\}", re.ASCII)
"""Parameters as Express and Rails, Flask and Django, Starlette and ASP.NET, Next.js, and Go write them."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A path pattern. `segments` holds literals, and None for a `{parameter}` (exactly one non-empty segment).

    `rest` is the closing `/**`: zero or more further segments.
    """

    segments: tuple[str | None, ...]
    rest: bool

    def matches(self, segments: tuple[str, ...]) -> bool:
        """Whether a path split at its slashes belongs to this pattern."""
        if len(segments) < len(self.segments) or (len(segments) > len(self.segments) and not self.rest):
            return False
        return all(have != "" if want is None else have == want for want, have in zip(self.segments, segments, strict=False))

    def covers(self, other: "Pattern") -> bool:
        """Whether every path that belongs to `other` belongs to this pattern too."""
        if len(self.segments) > len(other.segments) or ((other.rest or len(other.segments) > len(self.segments)) and not self.rest):
            return False
        pairs = zip(self.segments, other.segments, strict=False)
        return all(theirs is None or theirs != "" if mine is None else mine == theirs for mine, theirs in pairs)

    @property
    def spells_its_end(self) -> bool:
        """Whether the last segment of its paths is written out."""
        return not self.rest and self.segments[-1] is not None


def parse_pattern(text: str) -> Pattern:
    """Read `/literal/{parameter}/**`; a closing slash changes nothing. Raises ValueError with a sentence that says what
    to change.
    """
    if text.startswith("^"):
        raise ValueError("a path is no regular expression; a parameter is written {id}, and what is left of a path /**")
    if not text.startswith("/"):
        raise ValueError(f"a path starts with a slash: /{text}")
    pieces = text[1:].split("/")
    if len(pieces) > 1 and pieces[-1] == "" and pieces[-2] not in {"", "**"}:
        pieces.pop()
    rest = pieces[-1] == "**"
    if rest:
        pieces.pop()
    elif pieces == [""]:
        return Pattern(("",), rest=False)
    return Pattern(tuple(_parse_segment(piece) for piece in pieces), rest)


def pattern_text(pattern: Pattern) -> str:
    """The inverse of `parse_pattern`, but for the names of parameters."""
    return "/" + "/".join((*("{name}" if name is None else name for name in pattern.segments), *(("**",) if pattern.rest else ())))


def _parse_segment(part: str) -> str | None:
    if _PARAMETER.fullmatch(part):
        return None
    if part in {"", ".", ".."}:
        raise ValueError("empty and dot segments never match, since requests are compared in their normal form; remove them")
    if (foreign := _FOREIGN.fullmatch(part)) is not None:
        name = next(filter(None, foreign.groups()))
        raise ValueError(f"{part!r} would be taken literally; a parameter is written {{{name}}}, and what is left of a path /**")
    if "*" in part or "{" in part or "}" in part:
        raise ValueError(f"{part!r}: a parameter fills a whole segment, as in /{{name}}, and ** stands only at the end")
    if "%" in part or not _SEGMENT.fullmatch(part):
        raise ValueError(f"{part!r}: write the path decoded, in letters, digits and -._~!$&'()+,;=:@")
    return part


def path_segments(path: str) -> tuple[str, ...]:
    """A path as patterns match it: split at its slashes, without a closing slash. The root is one empty segment."""
    segments = path[1:].split("/")
    return tuple(segments[:-1] if len(segments) > 1 and segments[-1] == "" else segments)
