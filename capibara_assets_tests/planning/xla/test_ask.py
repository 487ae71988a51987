"""XLA on plans: lowered without devices, compiled where libtpu is, called "not compiled" in so many words elsewhere."""

import subprocess
import sys
from functools import cache
from importlib.util import find_spec

import pytest

from benchmarks.planning.xla_cases import known_cases, step_of
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Remat
from capibara_assets.planning.hardware.targets import GIB, find_target
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu.configuration import plan_tpu
from capibara_assets.planning.tpu.memory import tpu_memory
from capibara_assets.planning.tpu.plan import TpuPlan
from capibara_assets.planning.xla import ask as xla
from capibara_assets.planning.xla.case import XlaCase, case_of
from capibara_assets.planning.xla.compile import (
    abstract_mesh,
    count_collectives,
    lower,
    lower_case,
    read_report,
    shortage,
)
from capibara_assets_tests.late import late
from capibara_assets_tests.planning.shapes import NANO, statistics

late("jax", reason="the extra tpu is not installed")
needs_libtpu = pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not installed (extra aot)")


@cache  # a plan is frozen
def plan(base: ModelShape = NANO, target: str = "tpu-v5e-64") -> TpuPlan:
    return plan_tpu("python", statistics(), base, find_target(target), shipped_recipe("planning", PlanningRecipe))


def test_a_plan_lowers_for_its_slice_in_a_process_of_its_own() -> None:
    jax_was_loaded = "jax" in sys.modules
    assert plan().mesh.tensor == 1, "the other kind of mesh than below"
    verdict = xla.check_plan(plan(), compile_program=False)
    assert verdict.lowered
    assert verdict.status == "not compiled"
    assert verdict.detail.startswith("not compiled: ")
    assert "every sharding divides" in verdict.detail
    assert jax_was_loaded == ("jax" in sys.modules), "the caller stays free of jax"


def test_without_libtpu_the_plan_says_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = xla.XlaVerdict(status="not compiled", lowered=True, detail="every sharding divides")
    monkeypatch.setattr(xla, "_run_xla", lambda case, action, timeout_s: {"lower": lowered}[action])  # as above
    monkeypatch.setattr(xla, "libtpu_is_there", lambda: False)
    verdict = xla.check_plan(plan())
    assert (verdict.status, verdict.lowered, verdict.fits) == ("not compiled", True, None)
    assert "libtpu is not installed" in verdict.detail
    with pytest.raises(InputError, match=r"capibara-assets\[aot\]"):
        xla.check_plan(plan(), compile_program=True)


def test_what_the_step_does_not_have_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(plan())
    for change, words in (
        ({"shape": NANO.model_copy(update={"experts": 8})}, "mixtures"),
        ({"mesh": Mesh(data=8, fsdp=2, tensor=1, pipeline=4)}, "pipeline 4"),
        ({"mesh": Mesh(data=8, fsdp=2, tensor=1, expert=4)}, "expert 4"),
        ({"mesh": Mesh(data=1, fsdp=64, tensor=1, slices=2)}, "slices 2"),
    ):
        verdict = xla.check_case(case.model_copy(update=change))
        assert (verdict.status, verdict.lowered) == ("not compiled", False)
        assert verdict.detail.startswith("not compiled, not even lowered: ") and words in verdict.detail


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("llama2-7b", Mesh(data=1, fsdp=2, tensor=32)),
        pytest.param("llama2-7b", Mesh(data=8, fsdp=8, tensor=1), marks=pytest.mark.extended),
        pytest.param("t5_1_1-small", Mesh(data=8, fsdp=8, tensor=1), marks=pytest.mark.extended),
    ],
)
def test_larger_models_lower_over_every_kind_of_mesh(name: str, mesh: Mesh) -> None:
    case = case_of(plan(read_shape(name))).model_copy(update={"mesh": mesh, "global_batch": 64})
    case = case.model_copy(update={"packed": name == "llama2-7b"})
    assert lower(case, abstract_mesh(case)).as_text()  # raises where an axis does not divide


def test_a_sharding_that_does_not_divide_is_named() -> None:
    broken = plan().model_copy(update={"mesh": Mesh(data=1, fsdp=1, tensor=64)})
    verdict = lower_case(case_of(broken.model_copy(update={"shape": NANO.model_copy(update={"intermediate": 100})})))
    assert verdict.status == "does not lower"
    assert "100" in verdict.detail and "divide" in verdict.detail


def test_the_verdict_joins_the_plan_without_its_timing() -> None:
    verdict = xla.XlaVerdict(status="compiled", detail="x", lowered=True, compile_seconds=12.3, host_peak_bytes=7)
    joined = xla.with_verdict(plan(), verdict)
    assert joined.xla["status"] == "compiled"
    assert not {"compile_seconds", "host_peak_bytes", "cached", "note"} & set(joined.xla)
    assert TpuPlan.model_validate_json(joined.model_dump_json()) == joined


def test_planning_does_not_import_jax_or_torch() -> None:
    code = (
        "import sys, capibara_assets.planning.xla.ask, capibara_assets.planning.tpu.memory;"
        "print({'jax', 'torch', 'transformers', 'dagster', 'scipy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_both_ways_of_not_fitting_are_read() -> None:
    early = "the total memory required for HLO temporaries (83.11G) exceeds available HBM (31.24G). HLO module: step."
    assert shortage(early) == {"needed_temporaries": round(83.11 * GIB), "available": round(31.24 * GIB)}
    placed = "Ran out of memory in memory space hbm. Used 33.27G of 30.75G hbm. Exceeded hbm capacity by 2.52G."
    assert shortage(placed) == {"needed": round(33.27 * GIB), "available": round(30.75 * GIB)}
    assert shortage("something else") == {}


def test_collectives_are_counted_once_each() -> None:
    program = """
      %a = bf16[8] all-gather(%x), dimensions={0}
      %b = (bf16[8], bf16[8]) all-gather-start(%x)
      %c = bf16[8] all-gather-done(%b)
      %d = f32[4] all-reduce(%y), to_apply=%add
    """
    assert count_collectives(program) == {"all-gather": 2, "all-reduce": 1}


def test_a_report_that_is_not_whole_is_none(tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert read_report(tmp_path) is None
    (tmp_path / "m.after_optimizations_after_buffer_assignment.txt").write_text("HloModule m\nENTRY")
    assert read_report(tmp_path) is None, "the other reports are not there yet"
    (tmp_path / "m.after_optimizations-buffer-assignment.txt").write_text(
        "allocation 0: size 8, page 0, parameter 0,\n"
    )
    usage = "Memory Space: default (color=0)\nTotal bytes: 24 (24B)\n"
    (tmp_path / "m.after_optimizations-memory-usage-report.txt").write_text(usage)
    assert read_report(tmp_path) is None
    (tmp_path / "m.after_optimizations_after_buffer_assignment.txt").write_text("HloModule m\nENTRY {\n}\n")
    found = read_report(tmp_path)
    assert found is not None
    assert found.memory() == {"arguments": 8, "temporaries": 16, "allotted": 24}


def toy(**changes: object) -> XlaCase:
    case = XlaCase(
        shape=NANO.model_copy(update={"layers": 2}),
        topology="v5e:2x2",
        mesh=Mesh(data=1, fsdp=4, tensor=1),
        global_batch=4,
        sequence=128,
        remat=Remat.FULL,
    )
    return case.model_copy(update=changes)


@needs_libtpu
def test_the_real_compiler_places_the_buffers() -> None:
    case = toy()
    verdict = xla.check_case(case, whole=False, compile_program=True)
    assert verdict.status == "fits"
    ours = tpu_memory(case.shape, case.mesh, step_of(case))
    assert verdict.memory["arguments"] == pytest.approx(ours.weights + ours.optimizer, abs=2**16)
    assert verdict.collectives


@needs_libtpu
def test_the_real_compiler_refuses_what_does_not_fit() -> None:
    huge = toy(shape=read_shape("llama2-7b"), mesh=Mesh(data=4, fsdp=1, tensor=1))
    verdict = xla.check_case(huge, whole=False, compile_program=True)
    assert verdict.status == "does not fit"
    assert verdict.memory["available"] == pytest.approx(15.75 * GIB, rel=1e-3)
    assert max(verdict.memory.values()) > 15.75 * GIB


@needs_libtpu
@pytest.mark.extended
def test_a_whole_compile_allots_what_placing_the_buffers_said() -> None:
    placed, whole = (xla.check_case(toy(), whole=whole, compile_program=True) for whole in (False, True))
    assert whole.status == "compiled"
    assert whole.memory["allotted"] == pytest.approx(placed.memory["allotted"], rel=0.01)


@needs_libtpu
@pytest.mark.extended
def test_the_shipped_answers_are_still_the_compilers() -> None:
    smallest = sorted(known_cases().of("judged"), key=lambda one: one.case.shape.parameters)[:3]
    for known in smallest:
        verdict = xla.check_case(known.case, whole=False, compile_program=True)
        assert verdict.memory["allotted"] == pytest.approx(known.memory["allotted"], rel=1e-3), known.name
