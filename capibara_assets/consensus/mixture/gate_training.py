"""A mixture's gates: initial rows, and training by the language loss and a load-balancing loss against unused experts.

The initial rows are one linear discriminant per domain. Plain means of hidden states nearly coincide (every token
shares one large component), so a gate made of them sends everything to one expert. The rows here are the centred means,
whitened by the covariance within the domains.

Only the gates learn (Branch-Train-MiX, Sukhbaatar et al. 2024, trains on after mixing; attention and experts are frozen
here). The balancing loss is that of the Switch Transformer (Fedus et al. 2022) over the best k, as in Mixtral.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from capibara_assets.consensus.choose.lanes import Lanes
from capibara_assets.consensus.choose.sampling import subsample
from capibara_assets.consensus.recipe import MoeRecipe
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.modeling.collators import Packing, collate_packed
from capibara_assets.modeling.losses import collate, token_nll

if TYPE_CHECKING:
    from capibara_assets.datasets.tokens.tokenising import Encoded

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

_LOGGED = 10  # parts of the training, with a line each in the log
_PACKS = 2  # of a step's examples: as many as the smallest machine has cores, and the same on all for the same bits


@dataclass(frozen=True)
class _PackPass:
    """One pack's forward pass with its graph: summed loss, supervised tokens, logits (tokens, experts) per gate."""

    nll: Tensor
    supervised: int
    logits: list[Tensor]


def load_balancing_loss(logits: Sequence[Tensor], top_k: int) -> Tensor:
    """Mean over the layers of experts * sum_i share_i * probability_i; `top_k` when balanced, more when not.

    share_i is the share of tokens that have expert i among their best k; probability_i the mean of its softmax. Each
    layer counts by itself: an expert unused in one layer is not offset by another.

    Args:
        logits: of each layer's gate, (tokens, experts); no padding.
    """
    return torch.stack(
        [(share * _probabilities(one)).sum() * one.shape[1] for one, share in _shares(logits, top_k)]
    ).mean()


def training_k(top_k: int, experts: int) -> int:
    """Experts per token while the gates train: at least two.

    The weights of the best k are normalised to sum to 1, so the one weight of a top-1 gate is constant and the
    language loss has no gradient for it.
    """
    return min(max(top_k, 2), experts)


def train_gates(
    model: Any, examples: Mapping[Domain, Sequence["Encoded"]], recipe: MoeRecipe, lanes: Lanes
) -> list[dict[str, Any]]:
    """Train a Mixtral model's gates in place: Adam, one example of every domain per step, the rate falling to 0.

    Args:
        model: in eval mode, no parameter requiring a gradient; its number of experts per token is `training_k`
            meanwhile.
        examples: training examples, by domain in the order of the experts.

    Returns:
        A line for each tenth of the training, means over it: "step" (the last), "loss" (nats per token), "balance"
        (the load-balancing loss) and "utilisation" (share of the routed pairs per expert).

    Raises:
        InputError: a domain without an example that has supervised tokens.
    """
    gates = mixture_gates(model)
    weights = [gate.weight for gate in gates]
    names = [str(domain) for domain in examples]
    order = [_Endless(own, number, recipe) for number, own in enumerate(_usable(examples, recipe).values())]
    k = training_k(recipe.top_k, len(names))
    optimizer = torch.optim.Adam(weights, lr=recipe.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / recipe.steps)
    log, lines = [], list[tuple[float, float, Tensor]]()
    with routing(model, k), _recorded(gates) as recorded:
        for weight in weights:
            weight.requires_grad_(True)
        try:
            for step in range(1, recipe.steps + 1):
                packs = _packs([domain.next() for domain in order], model.config)
                read = lanes.map(lambda pack: _read(model, pack, recorded), packs)
                lines.append(_learn(read, weights, k, recipe.balance, lanes))
                optimizer.step()
                schedule.step()
                if step * _LOGGED // recipe.steps > (step - 1) * _LOGGED // recipe.steps:
                    log.append(_line(step, lines, names))
                    lines.clear()
        finally:
            for weight in weights:
                weight.requires_grad_(False)
                weight.grad = None
    return log


def mixture_gates(model: Any) -> list[nn.Module]:
    """The gate of each layer."""
    return [layer.mlp.gate for layer in model.model.layers]


@contextmanager
def routing(model: Any, top_k: int) -> Iterator[None]:
    """Context manager that sets the model's gates to `top_k` experts."""
    gates = mixture_gates(model)
    before = [gate.top_k for gate in gates]
    for gate in gates:
        gate.top_k = top_k
    try:
        yield
    finally:
        for gate, k in zip(gates, before, strict=True):
            gate.top_k = k


def _learn(
    read: Sequence[_PackPass], weights: Sequence[Tensor], top_k: int, balance: float, lanes: Lanes
) -> tuple[float, float, Tensor]:
    """Set the weights' gradients for one step; returns its loss, balancing loss and utilisation.

    The shares of the balancing loss have no gradient and its probabilities are sums over tokens, so each pack has its
    own backward pass, in a lane, and the sum of the gradients is that of the whole step.
    """
    supervised = sum(one.supervised for one in read)
    layers = range(len(weights))
    whole = [torch.cat([one.logits[layer].detach() for one in read]) for layer in layers]
    tokens = len(whole[0])
    shares = [share for _, share in _shares(whole, top_k)]

    def back(one: _PackPass) -> tuple[Tensor, ...]:
        pulled = [
            (share * _probabilities(own)).sum() * (own.shape[1] * len(own) / tokens)
            for own, share in zip(one.logits, shares, strict=True)
        ]
        loss = one.nll / supervised + balance * torch.stack(pulled).mean()
        gradients: tuple[Tensor, ...] = torch.autograd.grad(loss, weights)
        return gradients

    gradients = lanes.map(back, read)
    for number, weight in enumerate(weights):
        weight.grad = torch.stack([own[number] for own in gradients]).sum(dim=0)
    loss = sum(float(one.nll.detach()) for one in read) / supervised
    return loss, float(load_balancing_loss(whole, top_k)), torch.stack(shares).mean(dim=0) / top_k


def _packs(examples: Sequence["Encoded"], config: Any) -> list[list["Encoded"]]:
    """The examples in packs of similar length; one by one where a row would exceed a sliding window."""
    window = getattr(config, "sliding_window", None)
    if window and window < _length(examples):
        return [[example] for example in examples]
    packs: list[list[Encoded]] = [[] for _ in range(min(_PACKS, len(examples)))]
    for example in sorted(examples, key=lambda example: -len(example.input_ids)):
        min(packs, key=_length).append(example)
    return packs


def _length(pack: Sequence["Encoded"]) -> int:
    return sum(len(example.input_ids) for example in pack)


def _read(model: Any, pack: Sequence["Encoded"], recorded: threading.local) -> _PackPass:
    """Forward pass of a pack in one row without padding: wider products are faster, and no gate sees padding."""
    recorded.logits = []
    packing = Packing(_length(pack), model.config._attn_implementation)
    batch = collate_packed(pack, packing=packing) if len(pack) > 1 else collate(pack)
    nll = token_nll(model, batch)
    return _PackPass(nll.sum(), len(batch.targets), recorded.logits)


@contextmanager
def _recorded(gates: Sequence[nn.Module]) -> Iterator[threading.local]:
    """Context in which each lane's gates append their logits to the lane's own list."""
    recorded = threading.local()
    hooks = [gate.register_forward_hook(lambda _, __, output: recorded.logits.append(output[0])) for gate in gates]
    try:
        yield recorded
    finally:
        for hook in hooks:
            hook.remove()


def _shares(logits: Sequence[Tensor], top_k: int) -> Iterator[tuple[Tensor, Tensor]]:
    """For each layer its logits, and the share of its tokens routed to each expert (experts,)."""
    for one in logits:
        picked = one.detach().topk(top_k, dim=-1).indices
        yield one, torch.bincount(picked.flatten(), minlength=one.shape[1]).float() / len(one)


def _probabilities(logits: Tensor) -> Tensor:
    return torch.softmax(logits.float(), dim=-1).mean(dim=0)


def _line(step: int, lines: Sequence[tuple[float, float, Tensor]], names: Sequence[str]) -> dict[str, Any]:
    """A line of the log: means over the steps since the last one."""
    losses, balances, shares = zip(*lines, strict=True)
    utilisation = torch.stack(shares).mean(dim=0).tolist()
    return {
        "step": step,
        "loss": sum(losses) / len(losses),
        "balance": sum(balances) / len(balances),
        "utilisation": dict(zip(names, utilisation, strict=True)),
    }


def _usable(examples: Mapping[Domain, Sequence["Encoded"]], recipe: MoeRecipe) -> dict[Domain, list["Encoded"]]:
    """A spread subsample of each domain's short examples; where a domain has none, its shortest one."""
    by_domain = {}
    for domain, own in examples.items():
        usable = [example for example in own if example.supervised > 0]
        if not usable:
            raise InputError(f"no training examples for {domain}: the gates cannot learn it")
        short = [example for example in usable if len(example.input_ids) <= recipe.tokens_per_example]
        short = short or [min(usable, key=lambda example: len(example.input_ids))]
        by_domain[domain] = [short[i] for i in subsample([1] * len(short), recipe.examples_per_domain, len(short))]
    return by_domain


class _Endless:
    """A domain's examples without end, in a new random order each round."""

    def __init__(self, examples: Sequence["Encoded"], number: int, recipe: MoeRecipe) -> None:
        self._examples = examples
        self._random = torch.Generator().manual_seed(recipe.seed * 1000 + number)
        self._left: list[int] = []

    def next(self) -> "Encoded":
        if not self._left:
            self._left = torch.randperm(len(self._examples), generator=self._random).tolist()
        return self._examples[self._left.pop()]


@dataclass(frozen=True)
class ClassStatistics:
    """Mean (hidden,) and covariance (hidden, hidden) of one domain's hidden states in one layer."""

    mean: Vector
    covariance: Matrix


def class_statistics(layers: Sequence[Tensor]) -> list[ClassStatistics]:
    """Mean and covariance of hidden states (tokens, hidden), float64, per layer."""
    statistics = []
    for states in layers:
        values = states.numpy()
        mean = values.mean(axis=0)
        centred = values - mean
        statistics.append(ClassStatistics(mean, centred.T @ centred / len(values)))
    return statistics


def gate_rows(domains: Sequence[ClassStatistics], shrinkage: float, spread: float) -> Matrix:
    """(domains, hidden) rows whose products with a hidden state are the gate's logits.

    Row d is W^-1 (mean_d - mean) with W the covariance within the domains, shrunk towards a multiple of the identity.
    A gate has no bias: the part along the overall mean stands for it, since every hidden state has much of that.

    Args:
        shrinkage: share of the mean variance that is added to every direction.
        spread: standard deviation of the logits over all domains' tokens.
    """
    means = np.stack([domain.mean for domain in domains])
    centre = means.mean(axis=0)
    within = np.mean([domain.covariance for domain in domains], axis=0)
    within += np.eye(len(within)) * (shrinkage * np.trace(within) / len(within) + np.finfo(np.float64).tiny)
    rows = np.linalg.solve(within, (means - centre).T).T
    # Discriminant analysis puts the threshold half-way between a domain's mean and the overall one
    offsets = -0.5 * np.einsum("dh,dh->d", rows, means + centre)
    rows += offsets[:, None] * centre[None, :] / max(float(centre @ centre), np.finfo(np.float64).tiny)
    between = (means - centre).T @ (means - centre) / len(means)
    variance = np.einsum("dh,hk,dk->d", rows, within + between, rows).mean()
    return rows * (spread / np.sqrt(variance)) if variance > 0 else rows
