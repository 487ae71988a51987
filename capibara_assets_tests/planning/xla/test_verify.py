"""Plans that XLA refuses give way to the next on the front, and what was passed over is said."""

from itertools import islice
from typing import Any

import pytest

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu.configuration import tpu_plans
from capibara_assets.planning.tpu.plan import TpuPlan
from capibara_assets.planning.xla import ask as xla
from capibara_assets.planning.xla import verify
from capibara_assets.planning.xla.verdict import XlaVerdict
from capibara_assets.planning.xla.verify import first_verified
from capibara_assets_tests.planning.shapes import NANO, statistics

RECIPE = shipped_recipe("planning", PlanningRecipe)
COMPILING = RECIPE.model_copy(update={"xla": "compile"})


@pytest.fixture(scope="module")
def front() -> list[TpuPlan]:
    found = list(islice(tpu_plans("sql", statistics(), NANO, find_target("tpu-v5e-64"), RECIPE), 3))
    assert len(found) > 1
    return found


def answering(monkeypatch: pytest.MonkeyPatch, statuses: list[str]) -> None:
    """XLA's answers, one after the other, in place of minutes of compiling."""
    left = iter(statuses)

    def check(plan: TpuPlan, **_: object) -> XlaVerdict:
        return XlaVerdict(status=next(left), detail="used 20G of 15.75G hbm", lowered=True)  # type: ignore[arg-type]

    monkeypatch.setattr(xla, "check_plan", check)


def test_what_does_not_fit_gives_way_to_the_next(front: list[TpuPlan], monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, ["does not fit", "compiled"])
    found = first_verified(front, COMPILING)
    assert found.plan.mesh == front[1].mesh and found.plan.global_batch == front[1].global_batch
    assert found.plan.xla["status"] == "compiled" and found.verdict is not None
    assert len(found.passed_over) == 1 and "used 20G of 15.75G" in found.plan.reasons["passed_over"]


def test_a_front_that_is_refused_whole_is_refused(front: list[TpuPlan], monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, ["does not fit"] * len(front))
    with pytest.raises(InputError, match="XLA refuses every plan on the front"):
        first_verified(front, COMPILING)


def test_not_compiled_is_no_refusal(front: list[TpuPlan], monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, ["not compiled"])
    assert first_verified(front, COMPILING).plan.xla["status"] == "not compiled"


def test_unasked_the_best_plan_stays_not_compiled(front: list[TpuPlan]) -> None:
    found = first_verified(front, RECIPE.model_copy(update={"xla": "skip"}))
    assert found.plan == front[0] and found.verdict is None and found.passed_over == ()
    assert found.plan.xla["status"] == "not compiled"


@pytest.mark.parametrize("there", [True, False])
def test_auto_compiles_wherever_libtpu_can_be_imported(
    front: list[TpuPlan], monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    asked: list[dict[str, Any]] = []

    def check(plan: TpuPlan, **options: Any) -> XlaVerdict:
        asked.append(options)
        return XlaVerdict(status="compiled", detail="compiled", lowered=True)

    monkeypatch.setattr(xla, "check_plan", check)
    monkeypatch.setattr(verify, "find_spec", lambda name: there if name == "libtpu" else None)
    assert RECIPE.xla == "auto"
    found = first_verified(front, RECIPE)
    if there:
        assert found.plan.xla["status"] == "compiled"
        assert asked == [{"compile_program": True, "whole": True, "cache": None}]
    else:
        assert not asked and "pip install 'capibara-assets[aot]'" in found.plan.xla["detail"]
