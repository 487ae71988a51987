"""Claims about the shipped presets: Mistral 7B on a CPU and on eight GPUs, and 120 B."""

from capibara_assets.planning.accounting import DeviceStep, Method, Remat, Sharding, flops_per_token, training_memory
from capibara_assets.planning.claims.claim import Claim, how
from capibara_assets.planning.claims.measured import MeasuredRatios
from capibara_assets.planning.hardware.declaration import GIB
from capibara_assets.planning.hardware.targets import HardwareTarget, find_target
from capibara_assets.planning.lora.preset_plans import plan_preset
from capibara_assets.planning.lora.recipe import LoraPlan
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.prediction.step_time import predict
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.workload import EVERYTHING, NOTHING, Workload

EXAMPLES = 50_000  # a large dataset, so that a time computed for it is a long one
# Of the claim about a CPU: examples, epochs, tokens of each and hours; with one example to a micro-step.
CPU_RUN = (98, 3, 2048, 73.5)
# A published run to compare with the claim, and its source.
PUBLISHED_TOKENS = (24_824, "NVIDIA NeMo 24.12: Llama 2 7B, LoRA, 8 GPUs, FP8, packed to 4,096")


def cpu_memory(recipe: PlanningRecipe, measured: MeasuredRatios | None) -> Claim:
    """Claim: Mistral-7B on a CPU in about 13 GB."""
    plan = plan_preset("mistral7b_cpu", recipe, examples=EXAMPLES)
    memory = plan.estimates["memory_bytes_per_device"]
    gib, gb = memory["total"] / GIB, memory["total"] / 1e9
    return Claim(
        claim="Mistral-7B on a CPU in about 13 GB",
        ours=f"{gib:.1f} GiB ({gb:.1f} GB), of which weights {memory['weights'] / GIB:.1f} GiB",
        how="computed",
        verdict="holds" if gib <= 13.5 else "holds in part" if memory["weights"] / GIB <= 13.5 else "does not hold",
        why=f"mistral7b_cpu (bf16, rank {plan.rank} on q and v, 1 x {plan.max_length}, layers recomputed):"
        f" {plan.reasons['quantization']}. Python and the libraries need additional memory",
        values={"gib": gib, "weights_gib": memory["weights"] / GIB},
    )


def cpu_hours(recipe: PlanningRecipe, measured: MeasuredRatios | None) -> Claim:
    """Claim: Mistral-7B on a CPU in 73.5 h: 98 examples x 3 epochs = 294 micro-steps of 15 minutes."""
    examples, epochs, tokens, hours = CPU_RUN
    plan = plan_preset("mistral7b_cpu", recipe, examples=examples)
    shape = read_shape(plan.model)
    trained = shape.lora_parameters(plan.rank, plan.modules)
    lora = flops_per_token(shape, tokens, method=Method.LORA, lora_parameters=trained)
    per_token = lora + flops_per_token(shape, tokens) / 3  # layers are computed twice
    micro_steps = examples * epochs
    minutes = hours * 60 / micro_steps
    needed = per_token * tokens / (60 * minutes)  # FLOP/s
    found = {"micro_steps": float(micro_steps), "minutes": minutes, "gflops_needed": needed / 1e9}
    ours = (
        f"{micro_steps} micro-steps of {minutes:.0f} minutes at {tokens:,} tokens are {needed / 1e9:,.0f} GFLOP/s"
        " sustained"
    )
    if measured is not None:
        here = hours * needed / (measured.gflops * 1e9)
        found |= {"hours_here": here, "gflops_here": measured.gflops}
        ours += f"; here ({measured.gflops:,.0f} GFLOP/s in matrix products, {measured.threads} threads) at least"
        ours += f" {here:,.1f} h"
    return Claim(
        claim="Mistral-7B on a CPU in 73.5 h",
        ours=ours,
        how=how(measured),
        verdict="holds in part" if measured is None or found["hours_here"] > hours else "holds",
        why=f"{examples} examples x {epochs} epochs, one to a micro-step: {per_token:.3g} FLOPs a token (4 a weight, 2"
        f" for recomputation, attention) x {tokens:,} tokens are {per_token * tokens:.3g} FLOPs. A processor that"
        " sustains the rate takes that long, a faster one less; the specification names none. The dataset is small:"
        f" each further {examples} examples take the same time again",
        values=found,
    )


def gpu_hours(recipe: PlanningRecipe, measured: MeasuredRatios | None) -> Claim:
    """Claim: Mistral-7B on 8xH100 in 2-3 h."""
    low, middle, high = (8 * rate for rate in _mistral_rates(recipe))
    tokens = (2 * 3600 * 1000, 3 * 3600 * 1500)
    minutes = (tokens[0] / high / 60, tokens[1] / low / 60)
    plan = plan_preset("mistral7b_8xh100", recipe, examples=EXAMPLES)
    hours = plan.estimates["tokens_at_most"] / middle / 3600
    return Claim(
        claim="Mistral-7B on 8xH100 in 2-3 h",
        ours="2-3 h at the specification's own 1,000-1,500 tokens/s give a number of tokens that takes"
        f" {minutes[0]:.1f} to {minutes[1]:.1f} minutes; {EXAMPLES:,} examples filled to {plan.max_length} tokens,"
        f" {plan.epochs} epochs, {hours:.1f} h",
        how="computed",
        verdict="holds" if hours <= 3 else "holds in part",
        why=f"{tokens[0] / 1e6:.1f} to {tokens[1] / 1e6:.1f} M tokens; predicted {low:,.0f} to {high:,.0f} tokens/s on"
        " eight GPUs. The time depends on the dataset, which the specification does not name",
        values={"minutes_low": minutes[0], "minutes_high": minutes[1], "hours_of_50000_examples": hours},
    )


def gpu_memory(recipe: PlanningRecipe, measured: MeasuredRatios | None) -> Claim:
    """Claim: 60-70 GB per GPU."""
    plan = plan_preset("mistral7b_8xh100", recipe, examples=EXAMPLES)
    large = plan_preset("120b", recipe, examples=EXAMPLES)
    shape = read_shape(plan.model)
    values = {
        "mistral_gb": plan.estimates["memory_bytes_per_device"]["total"] / 1e9,
        "mistral_kept_gb": training_memory(shape, step_of(plan, Remat.NONE)).total / 1e9,
        "120b_gb": large.estimates["memory_bytes_per_device"]["total"] / 1e9,
        "120b_weights_gb": large.estimates["memory_bytes_per_device"]["weights"] / 1e9,
    }
    return Claim(
        claim="60-70 GB per GPU",
        ours=f"mistral7b_8xh100 {values['mistral_gb']:.1f} GB ({values['mistral_kept_gb']:.1f} without checkpointing);"
        f" 120b {values['120b_gb']:.1f} GB, of which weights {values['120b_weights_gb']:.1f}",
        how="computed",
        verdict="holds"
        if 60 <= values["mistral_gb"] <= 70
        else "holds in part"
        if 60 <= values["120b_weights_gb"] <= 70
        else "does not hold",
        why=f"mistral7b_8xh100: {plan.reasons['quantization']}. 120b: {large.reasons['quantization']}. An allocator"
        " that keeps freed memory reports more than is needed",
        values=values,
    )


def gpu_throughput(recipe: PlanningRecipe, measured: MeasuredRatios | None) -> Claim:
    """Claim: Mistral-7B on 8xH100 at 1,000-1,500 tokens/s."""
    low, middle, high = _mistral_rates(recipe)
    published, source = PUBLISHED_TOKENS
    return Claim(
        claim="Mistral-7B on 8xH100: 1,000-1,500 tokens/s",
        ours=f"{low:,.0f} to {high:,.0f} tokens/s a GPU predicted ({middle:,.0f} in the middle)",
        how="computed",
        verdict="holds" if low <= 1500 else "does not hold",
        why=f"the prediction is {low / 1500:.1f} to {high / 1000:.1f} times the claim, a GPU. Published runs reach"
        f" {published:,} tokens/s a GPU ({source})",
        values={"low": low, "middle": middle, "high": high, "published": published},
    )


def _mistral_rates(recipe: PlanningRecipe) -> tuple[float, float, float]:
    """Predicted tokens/s per GPU of the preset mistral7b_8xh100: (low, middle, high)."""
    plan = plan_preset("mistral7b_8xh100", recipe, examples=EXAMPLES)
    target = find_target(plan.target)
    load = Workload(
        shape=read_shape(plan.model),
        sequence=plan.max_length,
        global_batch=plan.global_batch,
        micro_steps=plan.accumulation,
        mesh=Mesh(data=target.chips, fsdp=1, tensor=1),
        recompute=EVERYTHING if plan.gradient_checkpointing else NOTHING,
        weight_bytes=2,
        method=Method.LORA,
        lora_rank=plan.rank,
        lora_modules=plan.modules,
        software="torch",
        eager=True,
    )
    return tokens_per_gpu(load, target)


def tokens_per_gpu(load: Workload, target: HardwareTarget) -> tuple[float, float, float]:
    """Predicted tokens/s per GPU: (low, middle, high)."""
    low, middle, high = (rate / target.chips for rate in predict(load, target).tokens_per_second)
    return low, middle, high


def step_of(plan: LoraPlan, remat: Remat) -> DeviceStep:
    """One GPU's share of a plan's training step, with another recomputation policy."""
    target = find_target(plan.target)
    return DeviceStep(
        plan.micro_batch,
        plan.max_length,
        2,
        2,
        Method.LORA,
        lora_rank=plan.rank,
        lora_modules=plan.modules,
        lora_dropout=plan.dropout > 0,
        nf4=plan.quantization == "nf4",
        remat=remat,
        logit_chunks=64,
        layout=Sharding.zero(plan.zero_stage, target.chips),
    )
