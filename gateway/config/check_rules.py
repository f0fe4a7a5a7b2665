"""Mistakes in rules, of probes and of webhooks alike: what an answer or an event is taken to mean."""

from collections.abc import Collection, Sequence

from gateway.config.kinds import Reader
from gateway.config.reconcile_fields import ConditionFields, RuleFields
from gateway.config.shapes import Section
from gateway.core.reconcile.placeholders import CAPTURED
from gateway.core.reconcile.policy import Rule, Test, Verdict
from gateway.core.reconcile.request import check_plan

_SAYS_NOTHING = (
    frozenset(range(300, 400))
    | frozenset({400, 401, 403, 405, 406, 407, 408, 411, 413, 414, 415, 416, 417, 421, 425, 426, 428, 429, 431, 451})
    | frozenset(range(500, 600))
)
"""Statuses about the asking, not about what was asked for: a redirect to a login page, a question that is not taken, an error."""


def check_rules(reader: Reader, sections: Sequence[Section], rules: Sequence[Rule], captured: Collection[str], *, event: bool) -> None:
    """`sections` and `rules` belong together, one by one; `captured` are the names that placeholders may use. `event`: of a webhook."""
    for index, (section, rule) in enumerate(zip(sections, rules, strict=True)):
        names = RuleFields
        if not section.sound(names.STATUS, names.WHEN, names.VERDICT, names.ANSWER) or any(one.broken for one in section.get(names.WHEN)):
            continue
        covering = next((at for at, earlier in enumerate(rules[:index]) if covers(earlier, rule)), None)
        if covering is not None:
            reader.report(section.place, f"never applies: all that it takes goes to rule {covering + 1}; put this one first, or remove it")
        if event and rule.statuses:
            reader.report(section.place_of(names.STATUS), "an event has no status; say with `when` which events are meant")
            continue
        conditions: tuple[Section, ...] = section.get(names.WHEN)
        for one, condition in zip(conditions, rule.when, strict=True):
            named = str(condition.values[0]) if condition.test is Test.SAME_AS and condition.values else ""
            if named.startswith(CAPTURED) and named.removeprefix(CAPTURED) not in captured:
                reader.report(one.place_of(ConditionFields.SAME_AS), f"`{{{named}}}` is not captured; name it in `reconcile.capture`")
        _check_verdict(reader, section, rule, event=event)
        _check_answer(reader, section, rule, captured, event=event)


def covers(earlier: Rule, later: Rule) -> bool:
    """Whether `earlier` surely applies to all that `later` applies to."""
    statuses = not earlier.statuses or (bool(later.statuses) and later.statuses <= earlier.statuses)
    return statuses and set(map(repr, earlier.when)) <= set(map(repr, later.when))


def _check_verdict(reader: Reader, section: Section, rule: Rule, *, event: bool) -> None:
    place = section.place_of(RuleFields.VERDICT)
    if rule.verdict is Verdict.NOT_YET_KNOWN or rule.when:
        return
    if not rule.statuses:
        what = "any event at all" if event else "any answer at all, an error or a login page too,"
        remedy = "`when`" if event else "`status` or `when`"
        reader.report(place, f"{what} would mean {rule.verdict}; say with {remedy} which ones do")
    elif silent := sorted(rule.statuses & _SAYS_NOTHING):
        reader.report(
            section.place_of(RuleFields.STATUS),
            f"{silent[0]} says that the question was not answered, and nothing about the operation; "
            "leave it out (it is not yet known then), or say with `when` what its body has",
        )


def _check_answer(reader: Reader, section: Section, rule: Rule, captured: Collection[str], *, event: bool) -> None:
    place = section.place_of(RuleFields.ANSWER)
    if rule.verdict is not Verdict.EXECUTED:
        if section.given(RuleFields.ANSWER):
            reader.report(place, f"an answer is that of an executed operation, and this rule says {rule.verdict}; remove it")
        return
    if section.sub(RuleFields.ANSWER).broken:
        return
    try:
        check_plan(rule.answer, captured, event=event)
    except ValueError as problem:
        reader.report(place, str(problem))
