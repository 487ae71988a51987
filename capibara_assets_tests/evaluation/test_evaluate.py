"""A whole evaluation: graded by running, decided, resumed; leaks refused, crashed arms named."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import Example
from capibara_assets.deployment.declarations import declared, shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.evaluation.answering.answer import Answer
from capibara_assets.evaluation.decision_rule import DecisionRule
from capibara_assets.evaluation.evaluate import ARMS, GRADES, Terms, evaluate_domain, grade_and_score, judge
from capibara_assets.evaluation.items.items import Check, Item
from capibara_assets.evaluation.measuring.domain import DomainModels
from capibara_assets.evaluation.measuring.measured import ANSWERS, Measurements, items_to_answer
from capibara_assets.evaluation.recipe import EvaluationRecipe
from capibara_assets.evaluation.schema import ExampleLoss
from capibara_assets.evaluation.tables import documents_of, report_of, tables_of, validity_problems
from capibara_assets.metadata.evaluation_page import page
from capibara_assets.modeling.base import Base
from capibara_assets.storage.digests import sha256_bytes
from capibara_assets.storage.records import table
from capibara_assets_tests.evaluation.contenders.test_contenders import adapter, example

RULE = declared(DecisionRule, {"default": {"metric": "pass@1", "min_score": 0.6}, "resamples": 1_000}, "here")
LOSS_RULE = DecisionRule.model_validate(
    {
        "default": {"metric": "loss_per_assistant_token", "direction": "lower", "range": [0, "base"], "min_score": 0.1},
        "resamples": 1_000,
    }
)
RECIPE = EvaluationRecipe(worst_examples=2)
NEAR = shipped_recipe("dataset", DatasetRecipe).near_duplicates
NO_LOSSES = table(ExampleLoss, [])


def item(number: int, **changes: object) -> Item:
    found = Item(
        f"i{number:02}", f"g{number:02}", "python", "solve", "python",
        ({"role": "user", "content": f"Write a function add{number} that adds {number + 5}."},),
        f"def add{number}(x):\n    return x + {number + 5}",
        Check("assertions", tests=f"assert add{number}(1) == {number + 6}", timeout_s=5.0), (f"x{number}",),
    )  # fmt: skip
    return replace(found, **changes)


ITEMS = [item(number) for number in range(12)]


def answer(contender: str, of: Item, text: str | None = None, sample: int = 0) -> Answer:
    said = f"```python\n{of.reference if text is None else text}\n```"
    return Answer(contender=contender, item_id=of.item_id, sample=sample, text=said, tokens=9, finish="stop")


def measured(**changes: object) -> Measurements:
    """The base passes two of twelve, the consensus eleven, the playbook arm three."""
    wrong = "def add(x):\n    return 0"
    answers = [
        answer(name, one, None if number < right else wrong)
        for name, right in (("base", 2), ("playbook", 3), ("consensus", 11))
        for number, one in enumerate(ITEMS)
    ]
    return replace(Measurements(("base", "playbook", "consensus"), NO_LOSSES, answers), **changes)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def graded(work: Path):
    return grade_and_score(ITEMS, measured(), RECIPE, work=work)


def test_references_and_wrong_answers_as_models_are_told_apart_and_decided(graded):
    found = judge("python", ITEMS, measured(), graded, Terms(RECIPE, RULE))
    passed = {name: row["pass@1"] for name, row in found.figures.items()}
    assert {name: (round(12 * one.estimate), one.n) for name, one in passed.items()} == {
        "base": (2, 12),
        "playbook": (3, 12),
        "consensus": (11, 12),
    }
    assert found.decision is not None and found.decision.verdict == "promote"
    gain = next(one for one in found.comparisons if (one.candidate, one.reference) == ("consensus", "base"))
    assert gain.difference.estimate == pytest.approx(9 / 12) and gain.difference.p_value == pytest.approx(2 * 0.5**9)
    assert gain.adjusted is not None and gain.adjusted >= (gain.difference.p_value or 0)


def test_the_worst_example_is_the_one_that_failed(graded):
    found = judge("python", ITEMS, measured(), graded, Terms(RECIPE, RULE))
    worst = found.worst[0]
    assert worst.item_id == "i11" and worst.why == "failed"
    assert [one.contender for one in worst.answers] == ["base", "playbook", "consensus"]
    assert {one.verdict for one in worst.answers} == {"error"}  # the function that is asked for is not there
    text = page(report_of(found, "python", Terms(RECIPE, RULE)))
    assert "promote" in text and "i11" in text and "assert add11(1) == 17" in text


def test_what_is_published_is_valid_and_typed(graded):
    found = judge("python", ITEMS, measured(), graded, Terms(RECIPE, RULE))
    tables, documents = tables_of(found), documents_of(found)
    assert {name: frame.height for name, (_, frame) in tables.items()} == {
        "losses": 0, "answers": 36, "grades": 36, "scores": 36,
    }  # fmt: skip
    json.dumps(documents, allow_nan=False)
    frames = {name: frame for name, (_, frame) in tables.items()}
    assert validity_problems(frames, documents["metrics"], documents["decision"]) == []
    short = frames | {"grades": frames["grades"].head(30)}
    assert "6 answers have no grade" in validity_problems(short, documents["metrics"], documents["decision"])[0]


def test_a_crashed_arm_is_named_and_never_promoted(graded):
    crashed = measured(crashed={"consensus": "its weights are not finite"})
    crashed = replace(crashed, answers=[one for one in crashed.answers if one.contender != "consensus"])
    scores = replace(graded, scores=graded.scores.filter(pl.col("contender") != "consensus"))
    found = judge("python", ITEMS, crashed, scores, Terms(RECIPE, RULE))
    assert found.decision is not None and (found.decision.outcome, found.decision.verdict) == ("crashed_arm", "reject")
    assert any("its weights are not finite" in note for note in found.notes)
    documents = documents_of(found)
    frames = {name: frame for name, (_, frame) in tables_of(found).items()}
    assert "crashed" in validity_problems(frames, documents["metrics"], documents["decision"])[0]


def test_an_arm_that_was_scored_on_other_items_has_crashed(graded):
    lost = graded.scores.filter(~((pl.col("contender") == "consensus") & (pl.col("item_id") == "i03")))
    found = judge("python", ITEMS, measured(), replace(graded, scores=lost), Terms(RECIPE, RULE))
    assert found.decision is not None and found.decision.outcome == "crashed_arm" and "consensus" in found.crashed


def test_a_metric_that_nobody_has_is_refused_with_those_there_are(graded):
    with pytest.raises(InputError, match=r"loss_per_assistant_token.*there are: pass@1"):
        judge("python", ITEMS, measured(), graded, Terms(RECIPE, LOSS_RULE))


def test_stored_scores_are_a_reference_on_the_items_they_hold(graded, work: Path):
    held = {one.item_id: float(number % 2) for number, one in enumerate(ITEMS[:10])}
    stored = measured(contenders=("base", "playbook", "consensus", "former"), stored={"former": ("pass@1", held)})
    again = grade_and_score(ITEMS, stored, RECIPE, work=work)  # the same answers: none runs again
    found = judge("python", ITEMS, stored, again, Terms(RECIPE, RULE))
    assert {row["pass@1"].n for row in found.figures.values()} == {10}
    assert found.figures["former"]["pass@1"].estimate == 0.5


def test_training_items_are_refused_by_name():
    training = table(Example, [example(7, split="train", execution_ids=["x3"])])
    with pytest.raises(InputError, match="i03 shares an execution"):
        evaluate_domain(None, ITEMS, training, Terms(RECIPE, RULE), near=NEAR)  # type: ignore[arg-type]


def test_what_is_asked_stays_as_items_are_added():
    few = {one.item_id for one in items_to_answer(ITEMS[:8], 4)}
    more = {one.item_id for one in items_to_answer(ITEMS, 4)}
    new = {one.item_id for one in ITEMS[8:]}
    assert len(few) == len(more) == 4 and more - new <= few
    assert [one.item_id for one in items_to_answer(ITEMS, 99)] == [one.item_id for one in ITEMS]


def test_items_that_run_are_asked_first_each_kind_family_and_group_in_turn():
    prose = [item(n, check=Check("text"), kind="explain") for n in range(20, 30)]
    seen = [item(n, seen=True, group_id="g1") for n in range(30, 50)]
    unseen = [item(n, seen=False, kind="repair", group_id=f"g{n % 3}") for n in range(50, 54)]
    drawn = items_to_answer([*prose, *seen, *unseen], 8)
    assert [one.is_graded for one in drawn] == [True] * 8
    assert sum(one.seen is True for one in drawn) == sum(one.seen is False for one in drawn) == 4
    assert {one.group_id for one in items_to_answer([*prose, *seen, *unseen], 6) if not one.seen} == {"g0", "g1", "g2"}
    assert len(items_to_answer([*prose, *seen, *unseen], 30)) == 30  # with room for all that run, prose is asked, too


def test_of_equal_outputs_one_is_asked():
    same = [item(n, kind="predict", check=Check("exact", expected=f"{n % 2}\n")) for n in range(20, 40)]
    assert len(items_to_answer(same, 20)) == 2


# --- with models -----------------------------------------------------------------------------------------------------

BRIEF = declared(
    EvaluationRecipe,
    {"generation": {"max_items": 3}, "decoding": {"max_new_tokens": 6}, "max_length": 256, "worst_examples": 2},
    "here",
)


def models(base: Base, **changes: object) -> DomainModels:
    found = DomainModels(
        "python", base, "Check the type of every argument.", adapter(1), {"voter-0": adapter(2)}, {"sql": adapter(3)}
    )
    return replace(found, **changes)


def evaluated(base: Base, work: Path):
    return evaluate_domain(models(base), ITEMS[:7], table(Example, []), Terms(BRIEF, LOSS_RULE), near=NEAR, work=work)


def digests(found) -> dict[str, str]:
    tables = {name: sha256_bytes(frame.write_csv().encode()) for name, (_, frame) in tables_of(found).items()}
    documents = {name: sha256_bytes(json.dumps(one).encode()) for name, one in documents_of(found).items()}
    return tables | {name: one for name, one in documents.items() if name != "usage"}


@pytest.fixture(scope="module")
def whole(base: Base, tmp_path_factory: pytest.TempPathFactory):
    """A whole evaluation and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    return evaluated(base, folder), folder


def test_every_contender_is_scored_and_those_of_the_recipe_answer(whole):
    found, _ = whole
    assert found.measured.contenders == ["base", "playbook", "consensus", "consensus+playbook", "voter-0", "expert:sql"]
    assert set(found.measured.losses["contender"]) == set(found.measured.contenders)
    assert {one.contender for one in found.measured.answers} == {"base", "playbook", "consensus", "consensus+playbook"}
    assert len(found.measured.answers) == 12 and set(found.measured.usage) == {
        one.contender for one in found.measured.answers
    }
    assert found.decision is not None and found.decision.metric == "loss_per_assistant_token"
    assert found.decision.verdict in ("reject", "inconclusive")  # a random adapter


def test_a_killed_evaluation_goes_on_and_gives_the_same_bytes(whole, base: Base, tmp_path: Path):
    first, folder = whole
    journal = (folder / ANSWERS).read_bytes()
    lines = journal.splitlines(keepends=True)
    assert len(lines) == 12
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ANSWERS).write_bytes(b"".join(lines[:7]) + lines[7][:20])  # torn in the middle of a line
    resumed = evaluated(base, tmp_path / "killed")
    assert digests(resumed) == digests(first)
    assert sum(one.answers for one in resumed.measured.usage.values()) == 5
    again = evaluated(base, tmp_path / "killed")
    assert again.measured.usage == {} and digests(again) == digests(first)
    assert (folder / GRADES).exists()


def test_no_playbook_means_no_such_arms(base: Base, tmp_path: Path):
    found = evaluate_domain(
        models(base, playbook=""), ITEMS[:7], table(Example, []), Terms(BRIEF, LOSS_RULE), near=NEAR, work=tmp_path
    )
    assert found.measured.contenders == ["base", "consensus", "voter-0", "expert:sql"]
    assert found.decision is not None and found.decision.gain_over_playbook is None


def test_the_arms_are_those_of_the_decision():
    assert (ARMS.base, ARMS.playbook, ARMS.tuned, ARMS.tuned_playbook) == (
        "base", "playbook", "consensus", "consensus+playbook",
    )  # fmt: skip
