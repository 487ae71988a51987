"""What a recipe of an evaluation may say."""

from typing import Any

import pytest

from capibara_assets.deployment.declarations import declared, shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.evaluation.decision_rule import DecisionRule
from capibara_assets.evaluation.decoding import Decoding
from capibara_assets.evaluation.recipe import EvaluationRecipe


@pytest.mark.parametrize("name", ["evaluation", "evaluation-demo"])
def test_what_ships_can_decide_by_answers(name: str) -> None:
    recipe = shipped_recipe(name, EvaluationRecipe)
    enough = shipped_recipe("decision", DecisionRule).min_graded
    assert enough <= recipe.generation.max_items and recipe.generation.max_items * recipe.decoding.samples <= 96
    assert {"base", "consensus", "merged"} <= set(recipe.generation.contenders)


def test_an_answers_budget_follows_the_recorded_one() -> None:
    decoding = Decoding(max_new_tokens=100, tokens_per_character=0.5)
    assert [decoding.budget(text) for text in ("", "x", "x" * 61, "x" * 500)] == [100, 17, 47, 100]
    assert Decoding(max_new_tokens=100).budget("x") == 100


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"contenders": ["base", "consensus"]}, "playbook cannot be left out"),
        ({"contenders": ["base", "playbook", "consensus"]}, "consensus\\+playbook are not among the contenders"),
        ({"generation": {"k": [10]}, "decoding": {"samples": 5, "temperature": 0.8}}, "pass@10 needs .*, there are 5"),
        ({"decoding": {"samples": 5}}, "greedy answers are all the same"),
        ({"generation": {"k": []}}, "pass@0"),
        ({"max_test_example": 3}, "did you mean 'max_test_examples'"),
    ],
)
def test_what_cannot_be_measured_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        declared(EvaluationRecipe, values, "evaluation.yaml")


def test_samples_with_a_temperature_give_pass_at_k() -> None:
    values = {"generation": {"k": [1, 10]}, "decoding": {"samples": 10, "temperature": 0.8}}
    recipe = declared(EvaluationRecipe, values, "here")
    assert recipe.generation.k == (1, 10)
