"""An exponential moving average of the trained weights, that validation and publication use in their place."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

from capibara_assets.training.recipe import EmaChoice


class Ema:
    """Shadow weights s <- d s + (1 - d) w after every `every`-th step, with d = min(decay, (1 + n) / (10 + n)).

    The smaller d of the first n updates is TensorFlow's `num_updates` rule: a short training is not held to its start.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], choice: EmaChoice):
        self._parameters, self._choice = dict(parameters), choice
        self.shadow = {name: value.detach().clone() for name, value in self._parameters.items()}

    def update(self, step: int) -> None:
        """After optimizer step `step` (1-based)."""
        if step % self._choice.every:
            return
        done = step // self._choice.every
        decay = min(self._choice.decay, (1 + done) / (10 + done))
        with torch.no_grad():
            for name, value in self._parameters.items():
                self.shadow[name].lerp_(value, 1 - decay)

    def applied(self) -> AbstractContextManager[None]:
        """The model has the averaged weights; on leaving, its own again, bit for bit."""
        return holding(self._parameters, self.shadow)

    def restore(self, shadow: Mapping[str, Tensor]) -> None:
        """Put saved shadow weights back, exactly."""
        with torch.no_grad():
            for name, value in self.shadow.items():
                value.copy_(shadow[name])


@contextmanager
def holding(parameters: Mapping[str, nn.Parameter], values: Mapping[str, Tensor]) -> Iterator[None]:
    """The parameters hold these values; on leaving, their own again, bit for bit."""
    own = {name: value.detach().clone() for name, value in parameters.items()}
    _fill(parameters, values)
    try:
        yield
    finally:
        _fill(parameters, own)


def _fill(parameters: Mapping[str, nn.Parameter], values: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(values[name])
