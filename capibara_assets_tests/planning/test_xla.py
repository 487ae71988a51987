"""XLA on plans: lowered without devices, compiled where libtpu is, called "not compiled" in so many words elsewhere."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from capibara_assets.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning import xla
from capibara_assets.planning.hardware import GIB, find_target
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu import TpuPlan, plan_tpu
from capibara_assets.planning.xla_case import case_of
from capibara_assets.planning.xla_compile import lower_case
from capibara_assets_tests.planning.shapes import NANO, statistics

pytestmark = pytest.mark.slow

pytest.importorskip("jax")
needs_libtpu = pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not installed (extra aot)")


def plan(base: ModelShape = NANO, target: str = "tpu-v5e-64") -> TpuPlan:
    return plan_tpu("python", statistics(), base, find_target(target), shipped_recipe("planning", PlanningRecipe))


def test_a_plan_lowers_for_its_slice_in_a_process_of_its_own() -> None:
    jax_was_loaded = "jax" in sys.modules
    verdict = xla.check_plan(plan(), compile_program=False)
    assert verdict.lowered
    assert verdict.status == "not compiled"
    assert verdict.detail.startswith("not compiled: ")
    assert "every sharding divides" in verdict.detail
    assert jax_was_loaded == ("jax" in sys.modules), "the caller stays free of jax"


def test_without_libtpu_the_plan_says_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla, "find_spec", lambda name: None if name == "libtpu" else find_spec(name))
    verdict = xla.check_plan(plan())
    assert (verdict.status, verdict.lowered) == ("not compiled", True)
    assert "libtpu is not installed" in verdict.detail
    with pytest.raises(InputError, match=r"capibara-assets\[aot\]"):
        xla.check_plan(plan(), compile_program=True)


def test_encoder_decoders_lower_too() -> None:
    verdict = xla.check_plan(plan(read_shape("t5_1_1-small")), compile_program=False)
    assert (verdict.status, verdict.lowered) == ("not compiled", True)


@pytest.mark.parametrize("mesh", [Mesh(data=1, fsdp=1, tensor=64), Mesh(data=8, fsdp=8, tensor=1)])
def test_larger_models_lower_over_every_kind_of_mesh(mesh: Mesh) -> None:
    base = read_shape("llama2-7b").model_copy(update={"heads": 64, "kv_heads": 64, "head_dim": 64})
    verdict = lower_case(case_of(plan(base).model_copy(update={"mesh": mesh, "global_batch": 64})))
    assert verdict.lowered


def test_a_sharding_that_does_not_divide_is_named() -> None:
    broken = plan().model_copy(update={"mesh": Mesh(data=1, fsdp=1, tensor=64)})
    verdict = lower_case(case_of(broken.model_copy(update={"shape": NANO.model_copy(update={"intermediate": 100})})))
    assert verdict.status == "does not lower"
    assert "100" in verdict.detail and "divide" in verdict.detail


def test_the_verdict_joins_the_plan_without_its_timing() -> None:
    verdict = xla.XlaVerdict(status="compiled", detail="x", lowered=True, compile_seconds=12.3)
    joined = xla.with_verdict(plan(), verdict)
    assert joined.xla["status"] == "compiled"
    assert "compile_seconds" not in joined.xla
    assert TpuPlan.model_validate_json(joined.model_dump_json()) == joined


def test_planning_does_not_import_jax_or_torch() -> None:
    code = (
        "import sys, capibara_assets.planning.xla; print({'jax', 'torch', 'transformers', 'dagster'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@needs_libtpu
def test_the_real_compiler_takes_the_plan_and_gives_its_memory() -> None:
    verdict = xla.check_plan(plan(), compile_program=True)
    assert verdict.status == "compiled"
    assert 0 < verdict.memory["peak"] < find_target("tpu-v5e-64").memory.usable_gib * GIB
    assert verdict.collectives


@needs_libtpu
def test_the_real_compiler_refuses_what_does_not_fit() -> None:
    huge = plan(read_shape("llama2-7b")).model_copy(
        update={"mesh": Mesh(data=64, fsdp=1, tensor=1), "global_batch": 64, "sequence": 128}
    )
    verdict = xla.check_plan(huge, compile_program=True)
    assert verdict.status == "does not fit"
    assert "hbm" in verdict.detail.lower()
