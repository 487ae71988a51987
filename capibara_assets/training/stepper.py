"""How gradients become weights: plain AdamW here, DeepSpeed ZeRO-2 in zero.py, behind the same four methods."""

import math
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from capibara_assets.training.recipe import TrainingRecipe


class Stepper(Protocol):
    """Takes losses in, changes the trainable weights, and gives its state out as named tensors."""

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Add a micro-batch's gradient; losses are already divided by the step's supervised tokens.

        Args:
            last: whether it is the step's last micro-batch.
        """

    def step(self, learning_rate: float) -> float | None:
        """Clip, update, clear; the gradient's norm, or None where it was not finite and nothing was changed."""

    def clear(self) -> None:
        """Forget the gradients of a step that is not to be taken."""

    def state(self) -> dict[str, Tensor]:
        """Optimizer state by `<parameter>.<field>`."""

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        """Put weights and optimizer state back, exactly."""


class PlainStepper:
    """AdamW in this process, fused into one kernel per step."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], recipe: TrainingRecipe):
        self._parameters = dict(parameters)
        self._max_norm = recipe.max_gradient_norm
        self._optimizer = torch.optim.AdamW(
            self._parameters.values(),
            lr=0.0,  # set at each step: the schedule is a function of the step, not a state
            betas=recipe.betas,
            eps=recipe.epsilon,
            weight_decay=recipe.weight_decay,
            fused=True,
        )

    def backward(self, loss: Tensor, *, last: bool) -> None:
        loss.backward()

    def step(self, learning_rate: float) -> float | None:
        norm = float(nn.utils.clip_grad_norm_(self._parameters.values(), self._max_norm))
        if not math.isfinite(norm):
            self.clear()
            return None
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self.clear()
        return norm

    def clear(self) -> None:
        self._optimizer.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        return {
            f"{name}.{field}": value
            for name, parameter in self._parameters.items()
            for field, value in self._optimizer.state[parameter].items()
        }

    def restore(self, weights: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
        restore_weights(self._parameters, weights)
        fields = sorted({name.rpartition(".")[2] for name in state})
        per_parameter = {
            index: {field: state[f"{name}.{field}"] for field in fields} for index, name in enumerate(self._parameters)
        }
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": per_parameter if fields else {}, "param_groups": groups})


def restore_weights(parameters: Mapping[str, nn.Parameter], weights: Mapping[str, Tensor]) -> None:
    """Copy saved weights into parameters; names and shapes must be the same on both sides."""
    if parameters.keys() != weights.keys():
        raise ValueError(f"saved weights differ in names: {sorted(parameters.keys() ^ weights.keys())[:5]}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != weights[name].shape:
                raise ValueError(f"{name}: saved {tuple(weights[name].shape)}, expected {tuple(parameter.shape)}")
            parameter.copy_(weights[name])
