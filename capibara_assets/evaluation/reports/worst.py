"""The items on which the judged model did worst, with the answers and grades of every contender."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from capibara_assets.evaluation.answering.answer import Answer
from capibara_assets.evaluation.grading.grade import Grade
from capibara_assets.evaluation.items.items import Check, Item
from capibara_assets.evaluation.report import ShownAnswer, WorstExample, shown

FAILED = frozenset({"failed", "error", "timeout"})


@dataclass(frozen=True)
class _Standing:
    """The judged model's result on an item, by which items are sorted, worst first."""

    regressed: bool
    failed: bool
    above: float | None
    loss: float | None

    @property
    def order(self) -> tuple[bool, bool, float, float]:
        return (not self.regressed, not self.failed, -(self.above or 0.0), -(self.loss or 0.0))


@dataclass(frozen=True)
class Roles:
    """The contenders of the list of worst examples.

    Attributes:
        contenders: whose answers are shown, in this order.
        most: how many examples.
    """

    judged: str
    reference: str
    contenders: Sequence[str]
    most: int


def worst_examples(
    items: Sequence[Item],
    losses: pl.DataFrame,
    answers: Sequence[Answer],
    grades: Sequence[Grade],
    roles: Roles,
) -> list[WorstExample]:
    """The worst items: first failed where the reference passed, then failed, then by loss above the reference's.

    Args:
        losses: rows of `ExampleLoss`.
        roles: the judged model, its reference, and the contenders shown.

    Of several samples the first failed one is shown, else the first.
    """
    nats = {(row["contender"], row["example_id"]): row["nll"] / row["tokens"] for row in losses.iter_rows(named=True)}
    told = _told(answers, grades)
    standings = {item.item_id: _standing(item.item_id, nats, told, roles.judged, roles.reference) for item in items}
    ordered = sorted(items, key=lambda item: (*standings[item.item_id].order, item.item_id))
    return [
        _example(item, standings[item.item_id], nats, told, roles.reference, roles.contenders)
        for item in ordered[: roles.most]
    ]


_Told = Mapping[tuple[str, str], tuple[Answer, Grade | None]]


def _told(answers: Sequence[Answer], grades: Sequence[Grade]) -> _Told:
    graded = {(one.contender, one.item_id, one.sample): one for one in grades}
    shown_answers: dict[tuple[str, str], tuple[Answer, Grade | None]] = {}
    for answer in sorted(answers, key=lambda one: one.sample):
        key, grade = (answer.contender, answer.item_id), graded.get((answer.contender, answer.item_id, answer.sample))
        before = shown_answers.get(key)
        if before is None or (not _failed(before) and grade is not None and grade.verdict in FAILED):
            shown_answers[key] = (answer, grade)
    return shown_answers


def _failed(told: tuple[Answer, Grade | None] | None) -> bool:
    return told is not None and told[1] is not None and told[1].verdict in FAILED


def _standing(
    item_id: str, nats: Mapping[tuple[str, str], float], told: _Told, judged: str, reference: str
) -> _Standing:
    own, other = told.get((judged, item_id)), told.get((reference, item_id))
    passed = other is not None and other[1] is not None and other[1].verdict == "passed"
    loss, before = nats.get((judged, item_id)), nats.get((reference, item_id))
    above = None if loss is None or before is None else loss - before
    return _Standing(_failed(own) and passed, _failed(own), above, loss)


def _example(
    item: Item,
    standing: _Standing,
    nats: Mapping[tuple[str, str], float],
    told: _Told,
    reference: str,
    contenders: Sequence[str],
) -> WorstExample:
    answers = []
    for contender in contenders:
        loss, answered = nats.get((contender, item.item_id)), told.get((contender, item.item_id))
        if loss is None and answered is None:
            continue
        grade = answered[1] if answered else None
        answers.append(
            ShownAnswer(
                contender,
                loss,
                shown(answered[0].text) if answered else None,
                grade.verdict if grade else None,
                shown(grade.detail, 300) if grade else "",
            )
        )
    return WorstExample(
        item.item_id,
        item.kind,
        _why(standing, reference),
        shown("\n\n".join(f"{one['role']}: {one['content']}" for one in item.prompt)),
        shown(item.reference),
        shown(_check_words(item.check)),
        tuple(answers),
    )


def _why(standing: _Standing, reference: str) -> str:
    said = []
    if standing.regressed:
        said.append(f"failed where {reference} passed")
    elif standing.failed:
        said.append("failed")
    if standing.loss is not None:
        words = f"loss {standing.loss:.2f} nats per token"
        if standing.above is not None:
            words += f", {abs(standing.above):.2f} {'above' if standing.above > 0 else 'below'} {reference}'s"
        said.append(words)
    return "; ".join(said) or "not scored"


def _check_words(check: Check) -> str:
    parts = []
    if check.tests:
        parts.append(check.tests)
    if check.expected and check.kind == "output":
        parts.append(f"expected output:\n{check.expected}")
    elif check.kind == "exact":
        parts.append("the text has to be equal")
    return "\n\n".join(parts)
