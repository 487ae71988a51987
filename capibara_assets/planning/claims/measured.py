"""Measurements of claims on this machine with the shipped base model: ratios, which carry over to other models."""

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capibara_assets.modeling.recomputation import keep_every_nth
from capibara_assets.planning.claims.kernels import measure_kernels

RANK, MODULES = 8, ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SEQUENCES, LENGTH = 4, 128
_PRODUCT = 1024  # side of the matrices in the timed product


@dataclass(frozen=True)
class MeasuredRatios:
    """Ratios measured on this machine: medians of interleaved runs in processor time, unaffected by other programs.

    Attributes:
        model: name of the base model.
        threads: of torch.
        lora_memory_saved: share of full fine-tuning's peak that LoRA does not need.
        lora_speed_up: steps of LoRA in the time of one of full fine-tuning.
        checkpointing_memory_saved: share of LoRA's peak that recomputing every layer saves.
        checkpointing_time_added: share of LoRA's step time that it costs.
        second_layers_memory_saved: the same saving where every second layer is recomputed.
        second_layers_time_added: the same cost where every second layer is recomputed.
        bf16_speed_up: LoRA steps under bf16 autocast in the time of one in float32.
        bf16_gflops: of one large matrix product in bf16.
        fp32_gflops: of one in float32.
        kernels: `kernels.measure_kernels`.
    """

    model: str
    threads: int
    lora_memory_saved: float
    lora_speed_up: float
    checkpointing_memory_saved: float
    checkpointing_time_added: float
    second_layers_memory_saved: float
    second_layers_time_added: float
    bf16_speed_up: float
    bf16_gflops: float
    fp32_gflops: float
    kernels: dict[str, Any]

    @property
    def gflops(self) -> float:
        """Of a matrix product in the faster of the two formats."""
        return max(self.bf16_gflops, self.fp32_gflops)


def measure(base: Path, *, runs: int = 3) -> MeasuredRatios:
    """Measure training steps in five configurations, matrix products and kernels; takes seconds on two cores.

    Args:
        base: folder of a Llama-shaped Transformers model.
        runs: timed steps per configuration; the median counts.

    Raises:
        OSError: the folder holds no Transformers model.
    """
    import torch

    ways = {
        "full": _Trainee(base),
        "lora": _Trainee(base, rank=RANK),
        "again": _Trainee(base, rank=RANK, every=1),
        "second": _Trainee(base, rank=RANK, every=2),
        "bf16": _Trainee(base, rank=RANK, bf16=True),
    }
    for way in ways.values():
        way.step()  # the optimizer's state appears, kernels are chosen
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, way in ways.items():
            started = time.process_time()
            way.step()
            seconds[name].append(time.process_time() - started)
    typical = {name: statistics.median(each) for name, each in seconds.items()}
    peaks = {name: way.peak() for name, way in ways.items() if name != "bf16"}
    return MeasuredRatios(
        model=base.name,
        threads=torch.get_num_threads(),
        lora_memory_saved=1 - peaks["lora"] / peaks["full"],
        lora_speed_up=typical["full"] / typical["lora"],
        checkpointing_memory_saved=1 - peaks["again"] / peaks["lora"],
        checkpointing_time_added=typical["again"] / typical["lora"] - 1,
        second_layers_memory_saved=1 - peaks["second"] / peaks["lora"],
        second_layers_time_added=typical["second"] / typical["lora"] - 1,
        bf16_speed_up=typical["lora"] / typical["bf16"],
        bf16_gflops=_gflops(torch.bfloat16),
        fp32_gflops=_gflops(torch.float32),
        kernels=measure_kernels(runs),
    )


class _Trainee:
    """A model, its optimizer and one batch of random tokens; `step` trains on it once.

    Every `every`-th layer is computed again in the backward pass; 0: none.
    """

    def __init__(self, base: Path, *, rank: int = 0, every: int = 0, bf16: bool = False) -> None:
        import torch
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="sdpa")
        if rank:
            model = get_peft_model(model, LoraConfig(r=rank, target_modules=list(MODULES)))
        if every:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.enable_input_require_grads()
            keep_every_nth(model, every)
        self.model = model.train()
        self.optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5, fused=True)
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, model.config.vocab_size, (SEQUENCES, LENGTH), generator=generator)
        self.bf16 = bf16

    def step(self) -> None:
        import torch

        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.model(input_ids=self.tokens, labels=self.tokens, use_cache=False).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def peak(self) -> int:
        """Peak bytes: weights, optimizer state, and the peak of a step's other allocations."""
        gc.collect()
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        resident = sum(int(tensor.nbytes) for tensor in [*self.model.parameters(), *state])
        return resident + most_bytes(self.step)


def most_bytes(work: Callable[[], None]) -> int:
    """Peak of torch's CPU allocations during `work` above those before it, in bytes, from the profiler's records."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    held = most = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def _gflops(dtype: Any, times: int = 5) -> float:
    """GFLOP/s of a product of two square matrices, the best of `times`."""
    import torch

    left = torch.randn(_PRODUCT, _PRODUCT).to(dtype)
    best = float("inf")
    for _ in range(times):
        started = time.perf_counter()
        left @ left
        best = min(best, time.perf_counter() - started)
    return 2 * _PRODUCT**3 / best / 1e9
