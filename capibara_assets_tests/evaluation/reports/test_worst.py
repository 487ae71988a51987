"""Which examples are the worst, and what is shown of them."""

from dataclasses import replace

from capibara_assets.evaluation.answering.answer import Answer
from capibara_assets.evaluation.grading.grade import Grade
from capibara_assets.evaluation.items.items import Check, Item
from capibara_assets.evaluation.report import SHOWN_CHARACTERS, WorstExample
from capibara_assets.evaluation.reports.worst import Roles, worst_examples
from capibara_assets.evaluation.schema import ExampleLoss
from capibara_assets.storage.records import table

ITEM = Item(
    "a", "g", "python", "solve", "python", ({"role": "user", "content": "Why?"},), "def f(): ...", Check("text"), ()
)
ITEMS = [replace(ITEM, item_id=name) for name in ("a", "b", "c", "d")]


def loss(contender: str, item: str, nll: float) -> ExampleLoss:
    return ExampleLoss(contender=contender, example_id=item, group_id="g", nll=nll, tokens=10)


def said(contender: str, item: str, text: str = "x", sample: int = 0) -> Answer:
    return Answer(contender=contender, item_id=item, sample=sample, text=text, tokens=1, finish="stop")


def graded(contender: str, item: str, verdict: str, sample: int = 0) -> Grade:
    return Grade.model_validate(
        {"contender": contender, "item_id": item, "sample": sample, "verdict": verdict, "detail": "d", "isolation": ""}
    )


LOSSES = table(
    ExampleLoss,
    [
        *(loss("base", item, 20.0) for item in "abcd"),
        *(loss("consensus", item, nll) for item, nll in zip("abcd", (10.0, 30.0, 12.0, 25.0), strict=True)),
    ],
)


def worst(answers: list[Answer], grades: list[Grade], most: int = 9) -> list[WorstExample]:
    return worst_examples(ITEMS, LOSSES, answers, grades, Roles("consensus", "base", ("base", "consensus"), most))


def test_without_answers_the_loss_above_the_references_orders():
    found = worst([], [])
    assert [one.item_id for one in found] == ["b", "d", "c", "a"]
    assert found[0].why == "loss 3.00 nats per token, 1.00 above base's"
    assert found[-1].why == "loss 1.00 nats per token, 1.00 below base's"


def test_what_failed_where_the_reference_passed_comes_first_then_what_failed():
    answers = [said(name, item) for name in ("base", "consensus") for item in "abcd"]
    grades = [
        graded("base", "a", "passed"), graded("consensus", "a", "failed"),
        graded("base", "b", "passed"), graded("consensus", "b", "passed"),
        graded("base", "c", "failed"), graded("consensus", "c", "error"),
        graded("base", "d", "failed"), graded("consensus", "d", "passed"),
    ]  # fmt: skip
    found = worst(answers, grades)
    assert [one.item_id for one in found] == ["a", "c", "b", "d"]
    assert found[0].why.startswith("failed where base passed; loss 1.00")
    assert [(one.contender, one.verdict) for one in found[0].answers] == [("base", "passed"), ("consensus", "failed")]


def test_of_several_samples_the_first_that_failed_is_shown():
    answers = [said("consensus", "a", text, sample) for sample, text in enumerate(("good", "bad", "worse"))]
    grades = [graded("consensus", "a", verdict, s) for s, verdict in enumerate(("passed", "failed", "error"))]
    [shown] = [one for one in worst(answers, grades)[0].answers if one.contender == "consensus"]
    assert (shown.text, shown.verdict) == ("bad", "failed")


def test_refused_and_ungraded_answers_have_not_failed():
    answers = [said("consensus", "a"), said("consensus", "b")]
    found = worst(answers, [graded("consensus", "a", "refused"), graded("consensus", "b", "ungraded")])
    assert [one.item_id for one in found] == ["b", "d", "c", "a"]


def test_endless_answers_are_cut_with_what_is_missing_said():
    [first] = worst([said("consensus", "b", "y" * 10_000)], [], most=1)
    [shown] = [one for one in first.answers if one.contender == "consensus"]
    assert shown.text is not None and len(shown.text) < SHOWN_CHARACTERS + 50
    assert shown.text.endswith("… 8,500 more characters")
