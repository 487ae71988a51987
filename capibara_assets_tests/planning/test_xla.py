"""XLA on plans: lowered without devices, compiled where libtpu is, called "not compiled" in so many words elsewhere."""

import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from capibara_assets.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning import jax_step, xla
from capibara_assets.planning.accounting import Remat
from capibara_assets.planning.hardware import GIB, find_target
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu import TpuPlan, plan_tpu
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


def test_encoder_decoders_have_no_step_and_say_so() -> None:
    verdict = xla.check_plan(plan(read_shape("t5_1_1-small")))
    assert (verdict.status, verdict.lowered) == ("not compiled", False)
    assert verdict.detail.startswith("not lowered and not compiled: ")


@pytest.mark.parametrize("mesh", [Mesh(data=1, fsdp=1, tensor=64), Mesh(data=8, fsdp=8, tensor=1)])
def test_larger_models_lower_over_every_kind_of_mesh(mesh: Mesh) -> None:
    base = read_shape("llama2-7b").model_copy(update={"heads": 64, "kv_heads": 64, "head_dim": 64})
    verdict = xla.lower_plan(plan(base).model_copy(update={"mesh": mesh, "global_batch": 64}))
    assert verdict.lowered


def test_a_sharding_that_does_not_divide_is_named() -> None:
    broken = plan().model_copy(update={"mesh": Mesh(data=1, fsdp=1, tensor=64)})
    verdict = xla.lower_plan(broken.model_copy(update={"shape": NANO.model_copy(update={"intermediate": 100})}))
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


@pytest.mark.parametrize("tied", [True, False])
def test_the_jax_step_computes_the_loss_of_the_pytorch_model(tied: bool) -> None:
    import jax
    import jax.numpy as jnp
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = ModelShape(
        name="parity",
        architecture="llama",
        layers=3,
        hidden=64,
        heads=4,
        kv_heads=2,
        head_dim=16,
        intermediate=96,
        vocabulary=128,
        context=64,
        tied=tied,
        norm_epsilon=1e-5,
    )
    config = LlamaConfig(
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=96,
        vocab_size=128,
        tie_word_embeddings=tied,
        rms_norm_eps=1e-5,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.0 if parameter.ndim > 1 else 1.0, std=0.2)
    tokens = torch.randint(0, 128, (4, 32))
    mask = (torch.rand(4, 32) < 0.5).float()
    labels = torch.where(mask.bool(), tokens, -100)
    expected = model(input_ids=tokens, labels=labels).loss.item()
    weights = {name: jnp.asarray(value) for name, value in stacked(model.state_dict(), shape).items()}
    assert {name: value.shape for name, value in weights.items()} == jax_step.parameter_shapes(shape)
    for remat, chunks in ((Remat.NONE, 1), (Remat.FULL, 4)):
        compute = jax.jit(partial(jax_step.loss, shape, remat=remat, chunks=chunks))
        assert float(compute(weights, jnp.asarray(tokens.numpy()), jnp.asarray(mask.numpy()))) == pytest.approx(
            expected, abs=1e-4
        )


def test_a_step_lowers_the_loss() -> None:
    import jax
    import jax.numpy as jnp

    shape = NANO.model_copy(update={"layers": 1, "hidden": 64, "intermediate": 64, "vocabulary": 64})
    generator = np.random.default_rng(0)
    weights = {
        name: jnp.asarray(generator.normal(0, 0.05, size).astype(np.float32))
        for name, size in jax_step.parameter_shapes(shape).items()
    }
    moments = {
        f"{moment}.{name}": jnp.zeros_like(value) for moment in ("first", "second") for name, value in weights.items()
    }
    tokens, mask, count = jnp.asarray(generator.integers(0, 64, (2, 16))), jnp.ones((2, 16)), jnp.zeros(())
    step = jax.jit(partial(jax_step.train_step, shape, learning_rate=1e-2))
    losses = []
    for _ in range(5):
        weights, moments, count, loss = step(weights, moments, count, tokens, mask)
        losses.append(float(loss))
    assert losses == sorted(losses, reverse=True)


def stacked(state: dict[str, Any], shape: ModelShape) -> dict[str, np.ndarray]:
    """A Transformers Llama's weights as the JAX step names and lays them out: (in, out), layers stacked."""
    names = {
        "attention_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
        **{short: f"self_attn.{short}_proj" for short in "qkvo"},
        **{short: f"mlp.{short}_proj" for short in ("gate", "up", "down")},
    }
    weights = {"embedding": state["model.embed_tokens.weight"].numpy(), "norm": state["model.norm.weight"].numpy()}
    for ours, theirs in names.items():
        layers = [state[f"model.layers.{index}.{theirs}.weight"].numpy() for index in range(shape.layers)]
        weights[f"layers.{ours}"] = np.stack([layer.T if layer.ndim > 1 else layer for layer in layers])
    if not shape.tied:
        weights["head"] = state["lm_head.weight"].numpy()
    return weights


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
