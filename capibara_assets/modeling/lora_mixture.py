"""Mixture of LoRA adapters on one model, weighted per prompt or per token and summed in the forward pass.

Every adapted layer adds sum_e w_e * scale_e * B_e A_e x to its output: one product with all A stacked, one scaling,
one product with all B. With weights that are the same for every token that is exactly the adapter that
`modeling.low_rank.merge_adapters` makes; other weights equal no single adapter. (Mixtures of LoRA experts: arXiv
2404.13628; LoraHub: arXiv 2307.13269.)
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, is_transposed


class Weights(Protocol):
    """Weights of the adapters, per layer and token, during a forward pass."""

    def install(self, model: nn.Module) -> Any:
        """Context in which `of` may be called; may add hooks that read hidden states, for instance."""
        ...

    def of(self, module: str, inputs: Tensor) -> Tensor:
        """Weights (..., adapters) for the layer's input (batch, tokens, in); broadcast over missing dimensions."""
        ...


@dataclass(frozen=True)
class PromptWeights:
    """Fixed weights per prompt: (batch, adapters), or (adapters,) for every prompt."""

    values: Tensor

    @contextmanager
    def install(self, model: nn.Module) -> Iterator[None]:
        """Nothing to install."""
        yield

    def of(self, module: str, inputs: Tensor) -> Tensor:
        """The same for every layer and token. Raises ValueError: another number of prompts than weights."""
        values = self.values.to(inputs.device, torch.float32)
        if values.ndim == 1:
            return values
        if len(values) != len(inputs):
            raise ValueError(f"weights of {len(values)} prompts for a batch of {len(inputs)}")
        return values[:, None, :]


class TokenGates:
    """Weights per token: in each decoder layer the softmax of gate rows times its input, over the `top` best adapters.

    As the gates of a mixture of experts, over adapters instead of feed-forward blocks. A token's weights depend only on
    the tokens up to it, so generation with a cache gives the same as one pass over the whole text.
    """

    def __init__(self, rows: Sequence[Tensor], layers: str = "model.layers", top: int | None = None) -> None:
        """`rows`: gate rows of each decoder layer, (adapters, hidden). `top`: None for all adapters."""
        self._rows, self._layers, self._top = list(rows), layers, top
        self._now: dict[int, Tensor] = {}

    @contextmanager
    def install(self, model: nn.Module) -> Iterator[None]:
        """Context in which decoder layers record their tokens' weights. Raises InputError: layers and rows differ."""
        try:
            layers = list(model.get_submodule(self._layers))  # type: ignore[call-overload]
        except AttributeError as error:
            raise InputError(f"the model has no {self._layers}: its decoder layers are elsewhere") from error
        if len(layers) != len(self._rows):
            raise InputError(f"gates of {len(self._rows)} layers for a model of {len(layers)}")
        hooks = [layer.register_forward_pre_hook(self._noting(number)) for number, layer in enumerate(layers)]
        try:
            yield
        finally:
            self._now.clear()
            for hook in hooks:
                hook.remove()

    def of(self, module: str, inputs: Tensor) -> Tensor:
        """The weights of the decoder layer that holds the module. Raises InputError: none does."""
        prefix, _, rest = module.removeprefix(f"{self._layers}.").partition(".")
        if not rest or not prefix.isdigit() or int(prefix) not in self._now:
            raise InputError(f"{module} is in no decoder layer: token weights cannot reach it")
        return self._now[int(prefix)]

    def _noting(self, number: int) -> Any:
        def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            rows = self._rows[number].to(inputs[0].device, torch.float32)
            logits = inputs[0].float() @ rows.T
            if self._top is not None and self._top < logits.shape[-1]:
                least = logits.topk(self._top, dim=-1).values[..., -1:]
                logits = logits.masked_fill(logits < least, -torch.inf)
            self._now[number] = torch.softmax(logits, dim=-1)

        return note


@contextmanager
def mixed(model: nn.Module, adapters: Mapping[str, LoraAdapter], weights: Weights) -> Iterator[nn.Module]:
    """Context in which the model runs with all the adapters, weighted; its own weights never change.

    Args:
        model: the base model (no PEFT wrappers).
        adapters: name -> adapter, in the order of the weights.

    Raises:
        InputError: no adapter, a module that the model lacks or of another shape, a DoRA.
    """
    if not adapters:
        raise InputError("nothing to mix: no adapter is given")
    ordered = list(adapters.values())
    if any(adapter.is_dora for adapter in ordered):
        raise InputError("a DoRA cannot be mixed as the model runs: its change depends on the base's weights")
    with ExitStack() as stack:
        stack.enter_context(weights.install(model))
        for module in sorted({name for adapter in ordered for name in adapter.modules}):
            layer = _layer(model, module)
            path = _Paths.of(module, ordered, layer)
            stack.callback(layer.register_forward_hook(path.hook(weights)).remove)
        yield model


@dataclass(frozen=True)
class _Paths:
    """Stacked factors of one module: A (ranks, in), B (out, ranks) with the scales, and the adapter of each rank."""

    module: str
    a: Tensor
    b: Tensor
    owner: Tensor

    @classmethod
    def of(cls, module: str, adapters: Sequence[LoraAdapter], layer: Any) -> "_Paths":
        own = [(number, one) for number, one in enumerate(adapters) if module in one.modules]
        a = torch.cat([one.a(module).float() for _, one in own])
        b = torch.cat([one.scale(module) * one.b(module).float() for _, one in own], dim=1)
        expected = tuple(layer.weight.shape) if not is_transposed(layer) else tuple(reversed(layer.weight.shape))
        if (b.shape[0], a.shape[1]) != expected:
            raise InputError(f"{module}: the adapters fit {(b.shape[0], a.shape[1])}, the base's weight is {expected}")
        owner = torch.tensor([number for number, one in own for _ in range(len(one.a(module)))])
        device = layer.weight.device
        return cls(module, a.to(device), b.to(device), owner.to(device))

    def hook(self, weights: Weights) -> Any:
        def add(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            shares = weights.of(self.module, inputs[0])
            hidden = (inputs[0].float() @ self.a.T) * shares[..., self.owner]
            return (output.float() + hidden @ self.b.T).to(output.dtype)

        return add


def _layer(model: nn.Module, module: str) -> Any:
    try:
        layer = model.get_submodule(module)
    except AttributeError as error:
        raise InputError(f"the base model has no module {module!r}: the adapter was made for another model") from error
    if getattr(layer, "weight", None) is None:
        raise InputError(f"module {module!r} of the base model has no matrix to add a delta to")
    return layer
