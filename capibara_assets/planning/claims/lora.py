"""Claims about LoRA, recomputation and mixed precision."""

from dataclasses import replace

from capibara_assets.planning.accounting import DeviceStep, Method, Remat, flops_per_token, training_memory
from capibara_assets.planning.claims.claim import Claim, how, in_words, values
from capibara_assets.planning.claims.measured import MeasuredRatios
from capibara_assets.planning.claims.mistral import EXAMPLES, step_of, tokens_per_gpu
from capibara_assets.planning.hardware.targets import HardwareTarget, find_target
from capibara_assets.planning.lora.preset_plans import plan_preset
from capibara_assets.planning.mesh import Mesh
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.workload import EVERYTHING, NOTHING, Recompute, Workload

MODEL, GPUS = "mistral-7b", "h100-8"
RANK, LENGTH = 16, 2048
EVERY_SECOND = Recompute(qkv=0.5, output=0.5, mlp=0.5, scores=0.5, elementwise=0.5)  # half of the layers
ABOUT_20 = 0.25  # what "20 %" is taken to cover
# A published ratio to compare with the claim, and its source.
PUBLISHED_LORA_GAIN = (1.47, "NVIDIA NeMo 24.12: Llama 2 7B, LoRA 24,824 against SFT 16,891 tokens/s a GPU")


def less_memory(recipe: PlanningRecipe, measured: MeasuredRatios | None) -> Claim:
    """Claim: LoRA needs 90 % less memory than full fine-tuning."""
    shape = read_shape(MODEL)
    full = DeviceStep(1, LENGTH, 2, 2, Method.FULL, remat=Remat.FULL, accumulates=False)
    lora = replace(full, method=Method.LORA, lora_rank=RANK, lora_modules=_every(shape))
    sums = [training_memory(shape, step) for step in (full, lora, replace(lora, nf4=True))]
    saved = [1 - one.total / sums[0].total for one in sums[1:]]
    return Claim(
        claim="LoRA needs 90 % less memory than full fine-tuning",
        ours=f"LoRA {saved[0]:.1%} less, QLoRA (4 bits) {saved[1]:.1%} less" + in_words(measured, "lora_memory_saved"),
        how=how(measured),
        verdict="holds" if saved[0] >= 0.9 else "holds in part" if saved[1] >= 0.9 else "does not hold",
        why=f"{MODEL}, 1 x {LENGTH} tokens, AdamW, layers recomputed, rank {RANK}: full {sums[0].arithmetic()};"
        f" LoRA {sums[1].arithmetic()}; QLoRA {sums[2].arithmetic()}. Frozen weights in 16 bits alone are"
        f" {sums[1].weights / sums[0].total:.1%} of full fine-tuning: 90 % less needs them quantised",
        values={"lora": saved[0], "qlora": saved[1]} | values(measured, "lora_memory_saved"),
    )


def faster_than_full(recipe: PlanningRecipe, measured: MeasuredRatios | None) -> Claim:
    """Claim: LoRA trains 3x faster than full fine-tuning."""
    shape = read_shape(MODEL)
    flops = _flops(shape, Method.FULL) / _flops(shape, Method.LORA)
    target = find_target(GPUS)
    rates = [_predicted(shape, target, method) for method in (Method.LORA, Method.FULL)]
    gain, (published, source) = rates[0][1] / rates[1][1], PUBLISHED_LORA_GAIN
    return Claim(
        claim="LoRA trains 3x faster than full fine-tuning",
        ours=f"{flops:.2f}x fewer FLOPs, {gain:.2f}x predicted on {GPUS}" + in_words(measured, "lora_speed_up", "x"),
        how=how(measured),
        verdict="holds" if gain >= 3 else "does not hold",
        why=f"{MODEL} at {LENGTH} tokens: full 6 FLOPs a weight and token, LoRA 4 (no gradients for the frozen"
        f" weights) and 6 for the adapter, so at most 1.5x if compute is the bottleneck; published runs: {published}x"
        f" ({source}). More is possible only if full fine-tuning does not fit and offloads",
        values={"flops_ratio": flops, "predicted": gain, "published": published} | values(measured, "lora_speed_up"),
    )


def checkpointing_memory(recipe: PlanningRecipe, measured: MeasuredRatios | None) -> Claim:
    """Claim: gradient checkpointing saves 50 % of the memory."""
    plan = plan_preset("mistral7b_8xh100", recipe, examples=EXAMPLES)
    shape = read_shape(plan.model)
    kept, again = (training_memory(shape, step_of(plan, remat)) for remat in (Remat.NONE, Remat.FULL))
    parts = [one.activations + one.temporaries for one in (kept, again)]
    total, activations = 1 - again.total / kept.total, 1 - parts[1] / parts[0]
    return Claim(
        claim="Gradient checkpointing: 50 % less memory",
        ours=f"{total:.1%} less in all, {activations:.1%} less activations"
        + in_words(measured, "checkpointing_memory_saved"),
        how=how(measured),
        verdict="holds" if total >= 0.5 else "holds in part" if activations >= 0.5 else "does not hold",
        why=f"mistral7b_8xh100 a GPU: {kept.arithmetic()}; with every layer recomputed {again.arithmetic()}. The"
        " saving grows with batch and length; the memory of the weights stays the same",
        values={"total": total, "activations": activations} | values(measured, "checkpointing_memory_saved"),
    )


def checkpointing_compute(recipe: PlanningRecipe, measured: MeasuredRatios | None) -> Claim:
    """Claim: gradient checkpointing costs 20 % more compute."""
    shape, target = read_shape(MODEL), find_target(GPUS)
    # A second forward pass: 2 of the 6 FLOPs a weight of full fine-tuning, 2 of LoRA's 4.
    forward = _flops(shape, Method.FULL) / 3
    flops = {method.value: forward / _flops(shape, method) for method in (Method.FULL, Method.LORA)}
    none, second, every = (
        _predicted(shape, target, Method.LORA, recompute)[1] for recompute in (NOTHING, EVERY_SECOND, EVERYTHING)
    )
    predicted, halved = none / every - 1, none / second - 1
    return Claim(
        claim="Gradient checkpointing: 20 % more compute",
        ours=f"{flops['full']:.0%} more FLOPs in full fine-tuning, {flops['lora']:.0%} in LoRA;"
        f" {predicted:.0%} more time predicted for LoRA on {GPUS}"
        + in_words(measured, "checkpointing_time_added")
        + f". Every second layer alone: {halved:.0%} more time predicted"
        + in_words(measured, "second_layers_time_added"),
        how=how(measured),
        verdict="holds" if predicted <= ABOUT_20 else "holds in part" if halved <= ABOUT_20 else "does not hold",
        why="recomputing every layer is a second forward pass: 2 FLOPs a weight and token on top of 6 (full) or 4"
        " (LoRA). 20 % is about what recomputing every second layer costs (`hardware.gradient_checkpointing: 2`), which"
        f" saves {_saved_by_second_layers(recipe):.0%} of the memory of mistral7b_8xh100"
        + in_words(measured, "second_layers_memory_saved"),
        values={**flops, "predicted": predicted, "second_layers": halved}
        | values(measured, "checkpointing_time_added"),
    )


def _saved_by_second_layers(recipe: PlanningRecipe) -> float:
    """Share of a GPU's memory that recomputing every second layer saves: half of the layers keep everything."""
    plan = plan_preset("mistral7b_8xh100", recipe, examples=EXAMPLES)
    shape = read_shape(plan.model)
    kept, again = (training_memory(shape, step_of(plan, remat)) for remat in (Remat.NONE, Remat.FULL))
    return (kept.activations - again.activations) / 2 / kept.total


def mixed_precision(recipe: PlanningRecipe, measured: MeasuredRatios | None) -> Claim:
    """Claim: mixed precision is 2-3x faster."""
    peaks = find_target(GPUS).peaks
    against = {name: peaks["bf16"].tflops / peaks[name].tflops for name in ("tf32", "fp32") if name in peaks}
    return Claim(
        claim="Mixed precision: 2-3x faster",
        ours=", ".join(f"at most {ratio:.1f}x over {name}" for name, ratio in against.items())
        + in_words(measured, "bf16_speed_up", "x"),
        how=how(measured),
        verdict="holds"
        if min(against.values()) > 2
        else "holds in part"
        if max(against.values()) > 2
        else "does not hold",
        why=f"matrix peaks of {GPUS}: bf16 {peaks['bf16'].tflops:g} TFLOP/s against "
        + ", ".join(f"{name} {peaks[name].tflops:g}" for name in against)
        + ". Over TF32, which PyTorch's float32 matrix products use if allowed, 2x is the limit, and norms, softmax"
        " and the optimizer gain nothing; over plain float32 units the limit is higher. A CPU without bf16 units is"
        " slower in bf16",
        values=against | values(measured, "bf16_speed_up"),
    )


def _every(shape: ModelShape) -> tuple[str, ...]:
    return tuple(module.name for module in shape.linear_modules)


def _flops(shape: ModelShape, method: Method) -> float:
    adapter = shape.lora_parameters(RANK, _every(shape)) if method is Method.LORA else 0
    return flops_per_token(shape, LENGTH, method=method, lora_parameters=adapter)


def _predicted(
    shape: ModelShape, target: HardwareTarget, method: Method, recompute: Recompute = NOTHING
) -> tuple[float, float, float]:
    """Predicted tokens/s per GPU (low, middle, high): LoRA replicated, full fine-tuning sharded (FSDP)."""
    lora = method is Method.LORA
    mesh = Mesh(data=target.chips, fsdp=1, tensor=1) if lora else Mesh(data=1, fsdp=target.chips, tensor=1)
    return tokens_per_gpu(
        Workload(
            shape=shape,
            sequence=LENGTH,
            global_batch=8 * target.chips,
            mesh=mesh,
            recompute=recompute,
            weight_bytes=2,
            method=method,
            lora_rank=RANK if lora else 0,
            lora_modules=_every(shape) if lora else (),
            software="torch",
            eager=True,
        ),
        target,
    )
