"""Settings and schedule: the recipe wins, the plan fills in, known values of warm-up and cosine."""

from typing import Any

import pytest

from capibara_assets.errors import InputError
from capibara_assets.training.step.settings import learning_rate, resolve, total_steps
from capibara_assets_tests.training.conftest import MakeRequest

PLAN: dict[str, Any] = {
    "rank": 16, "alpha": 32, "dropout": 0.05, "modules": ["v_proj", "q_proj"], "use_rslora": True, "global_batch": 32,
    "max_length": 1024, "learning_rate": 1e-4, "epochs": 3, "quantization": "none", "gradient_checkpointing": True,
}  # fmt: skip
OPEN = {"lora": {}, "epochs": None, "global_batch": None, "max_length": None, "learning_rate": None}


def test_the_plan_fills_in_what_the_recipe_leaves_open(make_request: MakeRequest) -> None:
    settings = resolve(make_request(**OPEN).recipe, PLAN, fastest="fp32")
    assert (settings.rank, settings.alpha, settings.modules) == (16, 32.0, ("q_proj", "v_proj"))
    assert (settings.global_batch, settings.learning_rate, settings.epochs) == (32, 1e-4, 3.0)
    assert settings.use_rslora and settings.gradient_checkpointing
    settings = resolve(make_request(**(OPEN | {"lora": {"rank": 4}, "epochs": 1})).recipe, PLAN, fastest="fp32")
    assert (settings.rank, settings.alpha, settings.epochs) == (4, 32.0, 1.0)


def test_what_nobody_gives_is_named_and_the_plan_says_how_the_base_is_held(make_request: MakeRequest) -> None:
    recipe = make_request(**OPEN).recipe
    with pytest.raises(InputError, match="gives learning_rate"):
        resolve(recipe, PLAN | {"learning_rate": None}, fastest="fp32")
    assert resolve(recipe, PLAN | {"learning_rate": 1.0, "quantization": "nf4"}, fastest="fp32").quantization == "nf4"


@pytest.mark.parametrize(
    ("precision", "fast", "expected"),
    [("auto", True, "bf16"), ("auto", False, "fp32"), ("bf16", False, "bf16"), ("fp32", True, "fp32")],
)
def test_bf16_only_where_the_processor_has_it_or_the_recipe_insists(
    make_request: MakeRequest, precision: str, fast: bool, expected: str
) -> None:
    assert (
        resolve(make_request(precision=precision).recipe, PLAN, fastest="bf16" if fast else "fp32").precision
        == expected
    )


def test_the_schedule_warms_up_peaks_and_ends_at_its_share(make_request: MakeRequest) -> None:
    recipe = make_request(warmup=0.1, final_learning_rate=0.2, learning_rate=1.0).recipe
    rates = [learning_rate(step, 100, 1.0, recipe) for step in range(100)]
    assert rates[0] == pytest.approx(0.1) and rates[4] == pytest.approx(0.5) and rates[9] == pytest.approx(1.0)
    assert rates[54] == pytest.approx(0.6)  # half of the cosine: midway between 1 and 0.2
    assert rates[-1] == pytest.approx(0.2)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert learning_rate(0, 1, 1.0, recipe) > 0


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"epochs": 2, "max_steps": None}, 34),  # 17 steps of 6 an epoch, the last of 4
        ({"epochs": 0.5, "max_steps": None}, 9),
        ({"epochs": 2, "max_steps": 10}, 10),
        ({"epochs": 2, "max_steps": None, "max_tokens": 3000}, 10),  # 6 examples x 50 tokens a step
        ({"epochs": 2, "max_steps": None, "max_tokens": 1}, 1),
    ],
)
def test_total_steps(make_request: MakeRequest, changes: dict[str, Any], steps: int) -> None:
    recipe = make_request(**changes).recipe
    assert total_steps([40, 60] * 50, resolve(recipe, PLAN, fastest="fp32"), recipe) == steps
