"""FLOPs as XLA counts them, from two depths, against our count of the same operations."""

import pytest

from capibara_assets.planning.accounting import Method, Optimizer, Remat
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.xla.case import XlaCase
from capibara_assets.planning.xla.flops import StepFlops, _written_out, counted_flops, step_flops, xla_flops
from capibara_assets_tests.late import late
from capibara_assets_tests.planning.shapes import NANO

late("jax", reason="the extra tpu is not installed")
MESH = Mesh(data=1, fsdp=4, tensor=1)
T5 = read_shape("t5_1_1-small")


def case(shape: ModelShape = NANO, **changes: object) -> XlaCase:
    made = XlaCase(shape=shape, topology="v5e:2x2", mesh=MESH, global_batch=8, sequence=256, remat=Remat.FULL, chunks=4)
    return made.model_copy(update=changes)


def flops(one: XlaCase) -> StepFlops:
    from capibara_assets.planning.xla.compile import flops_of

    return flops_of(one)


class NotLowered:
    """In place of what XLA counts, where only our own count is asked for."""

    def cost_analysis(self) -> dict[str, float]:
        return {"flops": 0.0}


@pytest.mark.parametrize(
    ("shape", "remat"),
    [
        pytest.param(read_shape("llama3.1-8b"), Remat.FULL, marks=pytest.mark.extended),
        (NANO, Remat.MINIMAL),
        pytest.param(T5, Remat.NONE, marks=pytest.mark.extended),  # T5's program: `modeling/jax/test_jax_step.py`
    ],
    ids=lambda one: str(getattr(one, "name", one)),
)
def test_xlas_count_is_ours_of_the_same_operations(shape: ModelShape, remat: Remat) -> None:
    found = flops(case(shape, remat=remat, optimizer=Optimizer.ADAFACTOR))
    # XLA counts norms, activations and the update too: little beside products, more the smaller the model is.
    assert found.same <= found.xla <= found.same * (1.12 if shape is NANO else 1.03)
    assert (found.kernel == 0) == (shape.family == "t5")


def test_lora_saves_the_frozen_weights_gradients() -> None:
    lora = {"method": Method.LORA, "lora_rank": 8, "lora_modules": ("q_proj", "v_proj")}
    shape = read_shape("llama2-7b")
    full, adapted = step_flops(case(shape), lambda _: NotLowered()), flops(case(shape, **lora))
    assert adapted.same <= adapted.xla <= 1.03 * adapted.same
    assert adapted.xla < 0.8 * full.same and adapted.model < 0.7 * full.model  # XLA's of the full one is more


def test_what_is_extrapolated_is_what_a_deeper_model_has() -> None:
    from capibara_assets.planning.xla.compile import abstract_mesh, lower

    def lowering(one: XlaCase):  # type: ignore[no-untyped-def]
        return lower(one, abstract_mesh(one))

    three = case(NANO.model_copy(update={"layers": 3}), chunks=1)
    with _written_out():
        deeper = float(lowering(three).cost_analysis()["flops"])
    scanned = float(lowering(three).cost_analysis()["flops"])
    assert xla_flops(three, lowering) == pytest.approx(deeper)
    assert scanned < 0.7 * deeper, "a scanned layer is counted once: that is why"


def test_parts_of_a_batch_are_the_same_work() -> None:
    asked: list[XlaCase] = []

    class Lowered:
        def cost_analysis(self) -> dict[str, float]:
            return {"flops": 100.0 + 10 * asked[-1].shape.layers}

    def lowering(one: XlaCase) -> Lowered:
        asked.append(one)
        return Lowered()

    found = step_flops(case(micro_steps=2), lowering)
    assert found.xla == (100 + 10 * NANO.layers) / 4
    assert {(one.chunks, one.micro_steps) for one in asked} == {(1, 1)}
    assert found.same == counted_flops(case()) / 4


def test_jaxs_scan_is_what_it_was_afterwards() -> None:
    import jax

    scan = jax.lax.scan

    def failing(_: XlaCase) -> None:
        raise ValueError("does not divide")

    with pytest.raises(ValueError, match="does not divide"):
        xla_flops(case(), failing)
    assert jax.lax.scan is scan
