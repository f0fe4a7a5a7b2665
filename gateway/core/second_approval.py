"""When a person's verdict needs a second one. Pure, and declared as settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated, ClassVar

from gateway.core import texts
from gateway.core.kinds import Text, Whole
from gateway.core.reconcile.capture import is_unread
from gateway.core.setting import Shape

_CAPTURED = Text("the name of a captured value", texts.captured, texts.CAPTURED_PATTERN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Above:
    """Records whose captured value is a greater number."""

    capture: Annotated[str, _CAPTURED, "The captured value that counts, such as `amount`, by its name in `reconcile.capture`."]
    value: Annotated[
        int,
        Whole(0, 10**15),
        "Verdicts about records with more than this need a second approval; in the unit in which requests write it, e.g. cents.",
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondApproval:
    """Which verdicts of people another user must confirm."""

    SHAPE: ClassVar = Shape(some=("above", "not_executed_within_max_execution"))

    above: Annotated[Above | None, "Verdicts about large amounts."] = None
    not_executed_within_max_execution: Annotated[
        bool,
        "A *not executed* that comes too early is kept as a proposal, and can be confirmed once the upstream has surely finished.",
    ] = False


def needs_second(rule: SecondApproval | None, captured: Mapping[str, str], *, too_early: bool) -> bool:
    """Whether a verdict is to be a proposal. `too_early`: it is a *not executed*, said while the upstream may still execute.

    A value that is no number counts as a large one, and so do values that could not be captured, or that nothing opens: else a client
    would choose by a spelling that one person is enough. A record without the value is another kind of operation.
    """
    if rule is None:
        return False
    if too_early:
        return rule.not_executed_within_max_execution
    return rule.above is not None and _is_above(rule.above, captured)


def _is_above(above: Above, captured: Mapping[str, str]) -> bool:
    if "" in captured or is_unread(above.capture, captured):  # "": sealed, and its key is gone
        return True
    text = captured.get(above.capture)
    amount = None if text is None else amount_of(text)
    return text is not None and (amount is None or amount > above.value)


def amount_of(text: str) -> Decimal | None:
    """A captured value as a number; None if it is none, or no finite one."""
    try:
        amount = Decimal(text)
    except InvalidOperation:
        return None
    return amount if amount.is_finite() else None
