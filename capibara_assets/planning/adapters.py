"""The LoRA plan of a domain on any target: of a TPU slice it is read off the slice's plan, so that both agree."""

from collections.abc import Mapping
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Remat
from capibara_assets.planning.hardware.targets import HardwareTarget
from capibara_assets.planning.lora.recipe import LoraPlan, plan_lora
from capibara_assets.planning.models import ModelShape
from capibara_assets.planning.recipe import LevelName, PlanningRecipe
from capibara_assets.planning.tpu.configuration import plan_tpu
from capibara_assets.planning.tpu.plan import TpuPlan


def plan_adapters(
    domain: str,
    statistics: Mapping[str, Any],
    base: ModelShape,
    target: HardwareTarget,
    recipe: PlanningRecipe,
    voters: int = 1,
) -> LoraPlan:
    """The LoRA recipe for one domain; arguments and errors are those of `plan_lora` and `plan_tpu`."""
    if target.kind != "tpu":
        return plan_lora(domain, statistics, base, target, recipe, voters)
    return adapter_of(plan_tpu(domain, statistics, base, target, recipe), recipe.level)


def adapter_of(plan: TpuPlan, level: LevelName) -> LoraPlan:
    """What a TPU plan trains, as the LoRA plan that a training reads.

    Raises:
        InputError: the plan trains every weight.
    """
    if plan.lora is None:
        raise InputError(
            f"{plan.model} on {plan.target}: the plan trains every weight, not an adapter: set tpu.method: lora in"
            " the planning recipe, and take a decoder as base"
        )
    mesh = plan.mesh
    return LoraPlan(
        domain=plan.domain,
        model=plan.model,
        target=plan.target,
        level=level,
        rank=plan.lora.rank,
        alpha=plan.lora.alpha,
        dropout=0.0,
        modules=plan.lora.modules,
        use_rslora=plan.lora.rslora,
        quantization="none",
        precision="bf16",
        micro_batch=plan.global_batch // mesh.batch_shards,
        accumulation=1,
        global_batch=plan.examples_per_step,
        max_length=plan.sequence,
        packing=plan.packed,
        packing_length=plan.sequence if plan.packed else None,
        learning_rate=plan.learning_rate,
        epochs=plan.epochs,
        zero_stage=0,
        gradient_checkpointing=plan.remat is Remat.FULL,
        estimates=_estimates(plan),
        reasons={
            **plan.reasons,
            "dropout": "the JAX step has none",
            "global_batch": f"{plan.global_batch} rows of {plan.examples_per_row:.3g} examples over {plan.mesh}",
            "micro_batch": f"rows of a batch shard: {plan.global_batch} over {mesh.batch_shards}",
            "max_length": plan.reasons["sequence"],
            "gradient_checkpointing": plan.reasons["remat"],
        },
    )


def _estimates(plan: TpuPlan) -> dict[str, Any]:
    tokens = plan.steps * plan.global_batch * plan.sequence
    return {
        "parameters": plan.shape.parameters,
        "trainable_parameters": plan.trained_parameters,
        "adapter_bytes": 4 * plan.trained_parameters,
        "memory_bytes_per_device": plan.memory,
        "memory_budget_bytes": plan.memory_budget,
        "steps_per_epoch": -(-plan.steps // plan.epochs),
        "optimizer_steps": plan.steps,
        "tokens_at_most": tokens,
        "flops_convention": "4 x weights in matrix products + 6 x adapter, attention in full, no recomputation",
        "flops_per_token": plan.flops_per_token,
        "seconds": list(plan.seconds),
        "seconds_note": "predicted step time of tpu_config x steps; start and compilation are not in it",
        "usd": None if plan.usd is None else list(plan.usd),
        "usd_note": plan.usd_note,
    }
