"""Steppers turn gradients into weights: AdamW in one process here; DDP, FSDP2 and ZeRO in `parallel`."""

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from capibara_assets.errors import InputError
from capibara_assets.modeling.losses import Batch
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.step.subject import LossModule


class Stepper(Protocol):
    """Computes losses and gradients, updates the trained weights, and returns all state as named tensors.

    `state`, `full` and `restore` are collective where there are several processes: all call them, or none.
    """

    def loss(self, batch: Batch) -> Tensor:
        """Losses of the batch's supervised tokens, computed through the wrapped model."""

    def micro_step(self, *, last: bool) -> AbstractContextManager[Any]:
        """Context of a micro-batch's forward and backward pass; gradients are exchanged in the `last` one of a step."""

    def backward(self, loss: Tensor) -> None:
        """Add a micro-batch's gradient; losses are already divided by the whole step's supervised tokens."""

    def step(self, learning_rate: float) -> float | None:
        """Clip the gradient, update the weights, clear the gradient; returns the gradient's norm before clipping.

        None where the gradient or the updated weights were not finite: the weights are then unchanged.
        """

    def clear(self) -> None:
        """Discard the gradients of a skipped step."""

    def full(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whole tensors of values sharded as the trained parameters are."""

    def state(self) -> dict[str, Tensor]:
        """Whole optimizer state by `<parameter>.<field>`."""

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Restore weights and optimizer state, exactly."""


class PlainStepper:
    """AdamW in this process, fused into one kernel per step."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        recipe: TrainingRecipe,
        loss: LossModule | None = None,
        *,
        scaled: bool = False,
    ):
        """Make the recipe's optimizer for parameters.

        Args:
            loss: the model under training; None where the caller computes losses itself.
            scaled: for fp16: losses are scaled up before the backward pass, gradients down before they are clipped.
        """
        self._parameters, self._loss = dict(parameters), loss
        self._max_norm = recipe.training.max_gradient_norm
        self._optimizer = adamw(self._parameters, recipe)
        self._before = [torch.empty_like(value) for value in self._parameters.values()]
        scaler = recipe.guards.scaler
        device = next(iter(self._parameters.values())).device.type
        self._scaler = torch.amp.GradScaler(device, enabled=scaled, **scaler.model_dump())

    def loss(self, batch: Batch) -> Tensor:
        assert self._loss is not None
        losses: Tensor = self._loss(batch)
        return losses

    def micro_step(self, *, last: bool) -> AbstractContextManager[Any]:
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        self._scaler.scale(loss).backward()

    def step(self, learning_rate: float) -> float | None:
        self._scaler.unscale_(self._optimizer)
        norm = float(nn.utils.clip_grad_norm_(self._parameters.values(), self._max_norm))
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        updated = math.isfinite(norm) and self._update()
        if self._scaler.is_enabled():
            self._scaler.update()  # where the gradient was not finite it lowers the scale
        self.clear()
        return norm if updated else None

    def _update(self) -> bool:
        """Step the optimizer; False, with the weights unchanged, if they would no longer be finite."""
        weights = [value.detach() for value in self._parameters.values()]
        torch._foreach_copy_(self._before, weights)
        self._scaler.step(self._optimizer)
        if all_finite(weights):
            return True
        torch._foreach_copy_(weights, self._before)
        return False

    def clear(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)

    def full(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(values)

    def state(self) -> dict[str, Tensor]:
        return optimizer_state(self._parameters, self._optimizer) | scaler_state(self._scaler)

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        restore_weights(self._parameters, weights)
        restore_optimizer(self._parameters, self._optimizer, restore_scaler(self._scaler, state))


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Whether no value is NaN or infinite; reads one number from the device."""
    largest = torch.stack(torch._foreach_norm(list(tensors), math.inf))  # no sum that could overflow
    return bool(torch.isfinite(largest).all())


def adamw(parameters: Mapping[str, nn.Parameter], recipe: TrainingRecipe) -> torch.optim.Optimizer:
    """The recipe's AdamW over parameters, at rate 0: the schedule is a function of the step, not a state.

    Raises:
        InputError: an 8-bit optimizer without CUDA or without bitsandbytes.
    """
    choice = recipe.training
    settings: dict[str, Any] = {
        "lr": 0.0,
        "betas": choice.betas,
        "eps": choice.epsilon,
        "weight_decay": choice.weight_decay,
    }
    if choice.optimizer == "adamw":
        return torch.optim.AdamW(parameters.values(), fused=True, **settings)
    if not all(value.is_cuda for value in parameters.values()):
        raise InputError("optimizer adamw_8bit needs a CUDA device: use adamw")
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError as error:
        raise InputError("optimizer adamw_8bit needs bitsandbytes (extra `gpu`): install it, or use adamw") from error
    optimizer: torch.optim.Optimizer = AdamW8bit(parameters.values(), **settings)
    return optimizer


def optimizer_state(parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """An optimizer's state by `<parameter>.<field>`; numbers become tensors."""
    return {
        f"{name}.{field}": torch.as_tensor(value)
        for name, parameter in parameters.items()
        for field, value in optimizer.state[parameter].items()
    }


def restore_optimizer(
    parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]
) -> None:
    """Restore what `optimizer_state` returned, exactly; the given tensors are copied.

    A parameter that has not had a gradient yet has no state.
    """
    of_parameter: dict[str, dict[str, Any]] = {}
    for name, value in state.items():
        parameter, _, field = name.rpartition(".")
        number = value.dim() == 0 and not value.is_floating_point()
        of_parameter.setdefault(parameter, {})[field] = value.item() if number else value.clone()
    per_parameter = {index: of_parameter[name] for index, name in enumerate(parameters) if name in of_parameter}
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": per_parameter, "param_groups": groups})


_SCALER = "loss_scaler."


def scaler_state(scaler: torch.amp.GradScaler) -> dict[str, Tensor]:
    """A loss scaler's state as tensors; empty where it is disabled."""
    numbers = scaler.state_dict().items()
    return {f"{_SCALER}{name}": torch.tensor(float(value), dtype=torch.float64) for name, value in numbers}


def restore_scaler(scaler: torch.amp.GradScaler, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Restore a loss scaler's state; returns the rest of the state."""
    own = {name.removeprefix(_SCALER): float(value) for name, value in state.items() if name.startswith(_SCALER)}
    if own and scaler.is_enabled():
        counts = {name: int(own[name]) for name in ("growth_interval", "_growth_tracker")}
        scaler.load_state_dict(own | counts)
    return {name: value for name, value in state.items() if not name.startswith(_SCALER)}


def restore_weights(parameters: Mapping[str, nn.Parameter], weights: Mapping[str, Tensor]) -> None:
    """Copy saved weights into parameters; names and shapes must be the same on both sides."""
    if parameters.keys() != weights.keys():
        raise ValueError(f"saved weights differ in names: {sorted(parameters.keys() ^ weights.keys())[:5]}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != weights[name].shape:
                raise ValueError(f"{name}: saved {tuple(weights[name].shape)}, expected {tuple(parameter.shape)}")
            parameter.copy_(weights[name])
