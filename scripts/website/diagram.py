"""The states of a record as a picture (SVG), drawn from the table of changes: a page needs no program to show it."""

from dataclasses import dataclass
from html import escape

from gateway.core.model import Status
from gateway.core.transitions import CHANGES

_WIDTH, _HEIGHT = 172, 46


@dataclass(frozen=True, slots=True)
class _Arrow:
    """How a change is drawn: its path, and where its text begins, is centred or ends. Texts of several reasons have a line each."""

    path: str
    at: tuple[int, int]
    anchor: str = "start"


_PLACES: dict[Status, tuple[int, int]] = {
    Status.PENDING: (470, 60),
    Status.IN_PROGRESS: (470, 260),
    Status.COMPLETED: (850, 260),
    Status.FAILED_RETRYABLE: (120, 260),
    Status.UNKNOWN: (470, 460),
}
_ARROWS: dict[tuple[Status | None, Status | None], _Arrow] = {
    (None, Status.IN_PROGRESS): _Arrow("M258 122 L392 231", (296, 180), "end"),
    (Status.IN_PROGRESS, Status.COMPLETED): _Arrow("M556 260 L758 260", (600, 252), "middle"),
    (Status.IN_PROGRESS, Status.FAILED_RETRYABLE): _Arrow("M384 252 L212 252", (298, 244), "middle"),
    (Status.FAILED_RETRYABLE, Status.IN_PROGRESS): _Arrow("M206 270 L378 270", (292, 288), "middle"),
    (Status.IN_PROGRESS, Status.UNKNOWN): _Arrow("M460 283 L460 431", (450, 352), "end"),
    (Status.UNKNOWN, Status.IN_PROGRESS): _Arrow("M484 437 L484 289", (494, 352)),
    (Status.IN_PROGRESS, Status.PENDING): _Arrow("M460 237 L460 89", (450, 128), "end"),
    (Status.PENDING, Status.IN_PROGRESS): _Arrow("M484 83 L484 231", (494, 140)),
    (Status.PENDING, Status.COMPLETED): _Arrow("M556 68 C700 84 800 140 836 231", (742, 98)),
    (Status.UNKNOWN, Status.COMPLETED): _Arrow("M556 452 C700 436 800 380 836 289", (650, 408)),
    (Status.UNKNOWN, Status.FAILED_RETRYABLE): _Arrow("M384 452 C250 440 160 380 134 289", (232, 400)),
    (Status.UNKNOWN, Status.PENDING): _Arrow("M546 437 C690 340 690 180 552 88", (664, 334)),
    (Status.FAILED_RETRYABLE, Status.COMPLETED): _Arrow("M108 283 C108 580 862 580 862 289", (485, 528), "middle"),
    (Status.COMPLETED, None): _Arrow("M936 260 L978 260", (966, 246), "middle"),
    (Status.FAILED_RETRYABLE, None): _Arrow("M110 237 L110 176", (120, 206)),
}
_ENDS = ((990, 260), (110, 164))


def picture() -> str:
    """The picture, as one piece of HTML without an empty line. A change that no arrow shows is an error."""
    reasons: dict[tuple[Status | None, Status | None], list[str]] = {}
    for change in CHANGES:
        reasons.setdefault((change.source, change.target), []).append(change.why)
    parts = [
        '<svg class="states" viewBox="0 0 1010 530" role="img" aria-label="The states of a record and their changes">',
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L10 5 L0 10 z" fill="currentColor"/></marker></defs>',
        '<circle cx="250" cy="116" r="8" fill="currentColor"/>',
        *(f'<circle cx="{x}" cy="{y}" r="9" class="end"/><circle cx="{x}" cy="{y}" r="4" fill="currentColor"/>' for x, y in _ENDS),
        *(_arrow(_ARROWS[change], whys) for change, whys in reasons.items()),
        *(_state(status, x, y) for status, (x, y) in _PLACES.items()),
        "</svg>",
    ]
    return "\n".join(parts)


def _arrow(arrow: _Arrow, whys: list[str]) -> str:
    x, y = arrow.at
    words = [part.strip() for why in dict.fromkeys(whys) for part in why.split(";")]
    lines = "".join(f'<tspan x="{x}" dy="{16 if number else 0}">{escape(text)}</tspan>' for number, text in enumerate(words))
    return f'<path d="{arrow.path}" marker-end="url(#tip)"/><text x="{x}" y="{y}" text-anchor="{arrow.anchor}">{lines}</text>'


def _state(status: Status, x: int, y: int) -> str:
    box = f'<rect x="{x - _WIDTH // 2}" y="{y - _HEIGHT // 2}" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>'
    return f'{box}<text x="{x}" y="{y + 5}" text-anchor="middle" class="name">{status.value}</text>'
