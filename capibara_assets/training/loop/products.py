"""The products B A of LoRA in a model under training, and exact averages of adapters in the form of its parameters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, pairs_only
from capibara_assets.modeling.greedy import SoupMetric, soup_shares
from capibara_assets.modeling.low_rank import merge_adapters
from capibara_assets.training.step.subject import Subject


@dataclass(frozen=True)
class Product:
    """The trained change of one module's weight, scale * B @ A.

    Attributes:
        module: its name in the base model.
        a, b: names of the trained parameters, A (rank, in) and B (out, rank).
    """

    module: str
    a: str
    b: str
    scale: float
    rank: int


def products(subject: Subject) -> list[Product]:
    """A subject's products, in the order of their modules.

    Raises:
        InputError: a module's change is not one product (experts' stacked factors).
    """
    name_of = {id(value): name for name, value in subject.trainable.items()}
    adapter = subject.adapter(subject.trainable)
    parts = []
    for module in adapter.modules:
        a, b, rank = adapter.a(module), adapter.b(module), adapter.rank(module)
        if a.ndim != 2 or b.ndim != 2 or not a.shape[0] == b.shape[1] == rank:
            raise InputError(
                f"module {module}: its LoRA factors {tuple(b.shape)} and {tuple(a.shape)} are not one product of rank "
                f"{rank}, which this strategy needs: train this voter with strategy plain, or leave the module out"
            )
        parts.append(Product(module, name_of[id(a)], name_of[id(b)], adapter.scale(module), rank))
    return parts


@dataclass(frozen=True)
class Average:
    """An average of adapters, in the form of the parameters under training.

    Attributes:
        weights: by the names of trained parameters.
        relative_error: Frobenius norm of the error made by the cut to the trained rank, relative to the exact average.
    """

    weights: dict[str, Tensor]
    relative_error: float


def averaged(adapters: Sequence[LoraAdapter], shares: Sequence[float], subject: Subject) -> Average:
    """The weighted sum of the adapters' deltas, exact, then cut to the best product of the trained rank (SVD).

    A and B are never averaged apart: the mean of products is not the product of means. Parameters trained besides
    LoRA (new layers) are averaged directly.
    """
    parts = products(subject)
    merged = merge_adapters([pairs_only(one) for one in adapters], shares, {part.module: part.rank for part in parts})
    weights: dict[str, Tensor] = {}
    for part in parts:
        a, b = merged.a(part.module), merged.b(part.module) * (merged.scale(part.module) / part.scale)
        missing = part.rank - len(a)  # a combination of smaller rank is filled up with zeros
        weights[part.a] = torch.nn.functional.pad(a, (0, 0, 0, missing))
        weights[part.b] = torch.nn.functional.pad(b, (0, missing))
    for name in subject.trainable.keys() - weights.keys():
        theirs = subject.peft_names[name]
        pairs = zip(adapters, shares, strict=True)
        weights[name] = sum(
            (share * adapter.tensors[theirs].cpu().double() for adapter, share in pairs), torch.zeros(())
        ).float()
    return Average({name: weights[name].contiguous() for name in subject.trainable}, merged.relative_error)


def shares_of(losses: Sequence[float], metric: SoupMetric | None) -> list[float]:
    """Shares that sum to one: equal (`metric` None), or by `soup_shares`."""
    return soup_shares(losses, metric) if metric else [1 / len(losses)] * len(losses)


def detached(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Detached copies of weights."""
    return {name: value.detach().clone() for name, value in weights.items()}
