"""How long a training step waits for an asynchronous save, and what the write beside costs the steps that follow."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from capibara_assets.checkpoints.store.saving import AsyncSaver
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.deployment.locations import resources_root
from capibara_assets.modeling.base import load_base
from capibara_assets.modeling.files import read_config
from capibara_assets.planning.models import from_config
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.step.stepper import PlainStepper

_WARM_UP = 3


@dataclass(frozen=True)
class Trained:
    """A model in training: `step` does one, `state` is what a training saves of it."""

    step: Callable[[], None]
    state: Callable[[], dict[str, Any]]
    interval: int
    """Steps from one save to the next."""
    what: str


def measure_stall(folder: Path, repeats: int) -> dict[str, Any]:
    """`stall_share`: seconds for which `AsyncSaver.save` holds the training up, over those of a step without a save.

    Real forward and backward passes and AdamW in bfloat16, one thread, at the demo recipe's size and at a larger one;
    the worse of the two counts. `stall_cpu_share` is the same in processor seconds of the training's thread.
    `interval_ratio`: a save and the steps until the next one, over as many steps without: what writing costs the
    training in all, as it shares processor and memory with it.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        sizes = {"demo": _demo(), "larger": _larger()}
        found = {name: _stall(folder / name, trained, repeats) for name, trained in sizes.items()}
    finally:
        torch.set_num_threads(threads)
    return {
        "stall_share": max(each["stall_share"] for each in found.values()),
        "stall_share_range": [
            min(each["stall_share_range"][0] for each in found.values()),
            max(each["stall_share_range"][1] for each in found.values()),
        ],
        "stall_cpu_share": max(each["stall_cpu_share"] for each in found.values()),
        "interval_ratio": max(each["interval_ratio"] for each in found.values()),
        "stall": found,
    }


def _stall(folder: Path, trained: Trained, repeats: int) -> dict[str, Any]:
    for _ in range(_WARM_UP):
        trained.step()
    steps: list[float] = []
    held: list[float] = []
    cpu: dict[str, list[float]] = {"step": [], "save": []}  # seconds of the training's own thread
    intervals: dict[bool, list[float]] = {False: [], True: []}
    with AsyncSaver(CheckpointStore(folder)) as saver:
        for turn in range(2 * (repeats + 1)):
            saving = turn % 2 == 1
            began, cpu_began = time.perf_counter(), time.thread_time()
            if saving:
                saved = saver.save(trained.state(), turn, "stall")
                held.append(time.perf_counter() - began)
                cpu["save"].append(time.thread_time() - cpu_began)
            for _ in range(trained.interval):
                at, cpu_at = time.perf_counter(), time.thread_time()
                trained.step()
                if saving:
                    saver.check()
                else:
                    steps.append(time.perf_counter() - at)
                    cpu["step"].append(time.thread_time() - cpu_at)
            intervals[saving].append(time.perf_counter() - began)
            if saving:
                saved.result()  # the next interval is one without a write
    step, first = statistics.median(steps), held.pop(0)
    shares = [seconds / step for seconds in held]
    return {
        "stall_share": round(statistics.median(shares), 4),
        "stall_share_range": [round(min(shares), 4), round(max(shares), 4)],
        "stall_cpu_share": round(statistics.median(cpu["save"][1:]) / statistics.median(cpu["step"]), 4),
        "first_stall_share": round(first / step, 4),  # its buffers are new memory
        "interval_ratio": round(
            statistics.median(b / a for a, b in list(zip(intervals[False], intervals[True], strict=True))[1:]), 4
        ),
        "step_s": round(step, 4),
        "stall_s": round(statistics.median(held), 5),
        "interval_steps": trained.interval,
        "what": trained.what,
    }


def _demo() -> Trained:
    base = load_base(resources_root() / "base_models" / "capibara-nano", torch.bfloat16)
    recipe = shipped_recipe("training-demo", TrainingRecipe)
    return _training(base.model, read_config(base.path), recipe, 96, "the demo's base and recipe")


def _larger() -> Trained:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=2912,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=2,
        num_attention_heads=32,
        num_key_value_heads=4,
        use_cache=False,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).bfloat16().requires_grad_(False)
    recipe = shipped_recipe("training-demo", TrainingRecipe)
    lora = recipe.model.lora.model_copy(update={"rank": 16, "alpha": 32.0})
    checkpoint = recipe.checkpoint.model_copy(update={"every": 3})
    model_choice = recipe.model.model_copy(update={"lora": lora})
    recipe = recipe.model_copy(update={"model": model_choice, "checkpoint": checkpoint})
    return _training(model, config.to_dict(), recipe, 128, "two layers of TinyLlama-1.1B, LoRA rank 16")


def _training(model: Any, config: dict[str, Any], recipe: TrainingRecipe, length: int, what: str) -> Trained:
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(
        r=recipe.model.lora.rank,
        lora_alpha=recipe.model.lora.alpha,
        target_modules=list(from_config(config, what).lora_targets),
        bias="none",
    )
    adapted: Any = get_peft_model(model, lora)
    weights = {name: value for name, value in adapted.named_parameters() if value.requires_grad}
    stepper = PlainStepper(weights, recipe)
    generator = torch.Generator().manual_seed(0)

    def step() -> None:
        tokens = torch.randint(0, config["vocab_size"], (recipe.training.global_batch, length), generator=generator)
        with torch.autocast("cpu", torch.bfloat16):
            loss = adapted(input_ids=tokens, labels=tokens).loss
        stepper.backward(loss)
        stepper.step(1e-4)

    size = sum(value.nbytes for value in weights.values()) * 3 / 2**20
    what += f"; a step: {recipe.training.global_batch} sequences of {length} tokens; "
    what += f"saved: {size:.1f} MiB, weights and moments"
    return Trained(step, lambda: {"weights": weights, "optimizer": stepper.state()}, recipe.checkpoint.every, what)
