"""The stepper on DeepSpeed ZeRO stage 2, for one process or several."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from capibara_assets.errors import InputError
from capibara_assets.modeling.losses import Batch
from capibara_assets.training.parallel.deepspeed_config import engine_config, recipe_config, require_same
from capibara_assets.training.ranks import Ranks, group_of_one
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.step.settings import Settings
from capibara_assets.training.step.stepper import restore_weights
from capibara_assets.training.step.subject import Subject

_FIELDS = ("exp_avg", "exp_avg_sq")


class Zero2Stepper:
    """AdamW whose gradients and state DeepSpeed shards; `state` returns it whole, as tensors, never as pickles.

    Stage 2 keeps only the part of the gradients that a process updates, so it exchanges them with every micro-batch.
    """

    def __init__(self, subject: Subject, recipe: TrainingRecipe, settings: Settings, ranks: Ranks):
        """Start DeepSpeed's engine.

        Raises:
            InputError: DeepSpeed is not installed, or the user's configuration contradicts the recipe.
        """
        if recipe.hardware.deepspeed is not None:
            require_same(recipe.hardware.deepspeed, recipe_config(recipe, settings, ranks.world))
        self._parameters, self._loss, self._ranks = dict(subject.trainable), subject.loss, ranks
        choice = recipe.training
        optimizer = torch.optim.AdamW(
            self._parameters.values(), lr=0.0, betas=choice.betas, eps=choice.epsilon, weight_decay=choice.weight_decay
        )
        deepspeed = _start_deepspeed()
        self._engine, self._optimizer, *_ = deepspeed.initialize(
            model=subject.adapted, optimizer=optimizer, config=engine_config(recipe), dist_init_required=False
        )

    def loss(self, batch: Batch) -> Tensor:
        losses: Tensor = self._loss(batch)
        return losses

    def micro_step(self, *, last: bool) -> AbstractContextManager[Any]:
        self._engine.set_gradient_accumulation_boundary(is_boundary=last)
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        self._engine.backward(loss * self._ranks.world)  # DeepSpeed averages over the processes

    def step(self, learning_rate: float) -> float | None:
        gradients = (gradient for group in self._optimizer.averaged_gradients.values() for gradient in group)
        if self._ranks.any(not all(bool(torch.isfinite(gradient).all()) for gradient in gradients)):
            self.clear()
            return None
        self._copy_to_optimizer(self._parameters)  # a tactic may have changed them in place since the last step
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._engine.step()
        return float(self._engine.get_global_grad_norm())

    def clear(self) -> None:
        self._engine.zero_grad()
        self._optimizer.averaged_gradients = {}

    def full(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(values)

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
        from deepspeed.utils import safe_set_full_optimizer_state

        restore_weights(self._parameters, weights)
        self._copy_to_optimizer(weights)
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

    def _copy_to_optimizer(self, weights: Mapping[str, Tensor]) -> None:
        """Copy these values into the optimizer's own copy of its part of the weights."""
        from deepspeed.utils import safe_set_full_fp32_param

        for name, parameter in self._parameters.items():
            safe_set_full_fp32_param(parameter, weights[name].detach())


def _start_deepspeed() -> Any:
    """Import DeepSpeed and initialize it on the process group of the ranks, or of this process alone.

    Raises:
        InputError: it is not installed.
    """
    cuda = torch.cuda.is_available()
    if not cuda:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("LOCAL_RANK", "0")
    try:
        import deepspeed
    except ImportError as error:
        raise InputError("backend zero2 needs deepspeed (extra `gpu`): install it, or name another backend") from error
    if not cuda:
        # Otherwise it compiles a collective of its own at its first start: a minute of a core, and a failure where
        # there is no compiler. Gloo, its fallback, is initialized already.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    group_of_one()
    deepspeed.init_distributed("nccl" if cuda else "gloo")
    return deepspeed
