"""DeepSpeed ZeRO stage 2: its configuration, generated from the recipe, and its engine behind the stepper's methods."""

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from capibara_assets.errors import InputError
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.stepper import restore_weights

_FIELDS = ("exp_avg", "exp_avg_sq")


def zero2_config(recipe: TrainingRecipe) -> dict[str, Any]:
    """DeepSpeed's configuration; every number in it comes from the recipe.

    Losses come in divided by the step's supervised tokens, and micro-batches are counted by the loop, so DeepSpeed
    neither averages nor accumulates on its own (accumulation 1, boundaries set by hand).
    """
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": recipe.max_gradient_norm,
        "bf16": {"enabled": False},  # weights stay float32; the loop's autocast computes in bf16
        "fp16": {"enabled": False},
        "zero_optimization": {
            "stage": 2,
            "allgather_partitions": True,
            "reduce_scatter": True,
            "overlap_comm": False,
            "contiguous_gradients": True,
        },
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
    }


class Zero2Stepper:
    """AdamW whose gradients and state DeepSpeed holds; its state leaves as plain tensors, never as pickles."""

    def __init__(self, model: nn.Module, parameters: Mapping[str, nn.Parameter], recipe: TrainingRecipe):
        self._parameters = dict(parameters)
        optimizer = torch.optim.AdamW(
            self._parameters.values(), lr=0.0, betas=recipe.betas, eps=recipe.epsilon, weight_decay=recipe.weight_decay
        )
        deepspeed = _start_deepspeed()
        self._engine, self._optimizer, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, config=zero2_config(recipe), dist_init_required=False
        )

    def backward(self, loss: Tensor, *, last: bool) -> None:
        self._engine.set_gradient_accumulation_boundary(is_boundary=last)
        self._engine.backward(loss)

    def step(self, learning_rate: float) -> float | None:
        gradients = (gradient for group in self._optimizer.averaged_gradients.values() for gradient in group)
        if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
            self.clear()
            return None
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._engine.step()
        return float(self._engine.get_global_grad_norm())

    def clear(self) -> None:
        self._engine.zero_grad()
        self._optimizer.averaged_gradients = {}

    def state(self) -> dict[str, Tensor]:
        from deepspeed.utils import safe_get_full_optimizer_state

        inner = self._optimizer.optimizer.state
        if not inner:
            return {}
        steps = next(iter(inner.values()))["step"]
        return {f"{name}.step": steps.clone() for name in self._parameters} | {
            f"{name}.{field}": safe_get_full_optimizer_state(parameter, field).clone()
            for name, parameter in self._parameters.items()
            for field in _FIELDS
        }

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        restore_weights(self._parameters, weights)
        for name, parameter in self._parameters.items():
            safe_set_full_fp32_param(parameter, weights[name])  # the optimizer's own copy
        if not state:
            return
        steps = state[f"{next(iter(self._parameters))}.step"]
        for group in self._optimizer.optimizer.param_groups:
            for flat in group["params"]:  # made at the first step otherwise
                zeros = {field: torch.zeros_like(flat) for field in _FIELDS}
                self._optimizer.optimizer.state[flat] = {"step": steps.clone(), **zeros}
        self._optimizer._lazy_init_hp_params_optimizer_state()  # what DeepSpeed does after its first step
        for name, parameter in self._parameters.items():
            for field in _FIELDS:
                safe_set_full_optimizer_state(parameter, state[f"{name}.{field}"], field)


def _start_deepspeed() -> Any:
    """Import DeepSpeed and open a process group of one, without a port.

    Raises:
        InputError: it is not installed, or the process was started as one of several ranks.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world != 1:
        raise InputError(f"a voter trains in one process, but WORLD_SIZE is {world}: start one process per domain")
    cuda = torch.cuda.is_available()
    if not cuda:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("LOCAL_RANK", "0")
    try:
        import deepspeed
    except ImportError as error:
        raise InputError("strategy zero2 needs deepspeed (extra `gpu`): install it, or use strategy plain") from error
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group(
            "nccl" if cuda else "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
    deepspeed.init_distributed("nccl" if cuda else "gloo")
    return deepspeed
