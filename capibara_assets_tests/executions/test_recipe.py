"""The experience recipe: shipped defaults, and clear words about what does not fit."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from capibara_assets.deployment.declarations import read_declared, shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.executions.recipe import ExperienceRecipe


def test_the_shipped_recipe_is_the_default_one() -> None:
    assert shipped_recipe("experience", ExperienceRecipe) == ExperienceRecipe()
    recipe = shipped_recipe("experience", ExperienceRecipe)
    assert (recipe.time_range_days, recipe.languages, recipe.min_success_rate, recipe.min_quality_score) == (
        30,
        ("python", "javascript", "sql"),
        0.7,
        0.6,
    )
    assert recipe.agent_filter() == {"min_graduation_score": 0.85, "min_interactions": 100, "min_success_rate": 0.85}
    assert (recipe.top_k, recipe.playbook_budget_tokens) == (5000, 512)


@pytest.mark.parametrize(
    "text",
    [
        "time_range_day: 3",
        "time_range_days: 999999999999",
        "as_of: 0001-01-01T00:00:00Z",
        "min_quality_score: 2",
        "as_of: 2026-10-01 00:00:00",
        "[1]",
        "a: b: c",
    ],
)
def test_a_recipe_that_does_not_fit_names_its_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "experience.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"experience\.yaml"):
        read_declared(path, ExperienceRecipe)


def test_an_empty_recipe_is_the_default_one(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("# nothing\n")
    assert read_declared(tmp_path / "r.yaml", ExperienceRecipe) == ExperienceRecipe()


def test_a_date_without_a_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="time zone"):
        ExperienceRecipe.model_validate({"as_of": "2026-10-01T00:00:00"})


def test_top_k_may_be_a_preset_and_expertise_may_be_asked_for() -> None:
    recipe = ExperienceRecipe.model_validate({"top_k": "large", "domain_expertise": ["sql"]})
    assert recipe.top_k == 7000
    assert recipe.agent_filter()["domain_expertise"] == ["sql"]
    with pytest.raises(ValidationError):
        ExperienceRecipe.model_validate({"top_k": "huge"})
