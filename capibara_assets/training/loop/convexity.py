"""Group lasso on LoRA's rank components: components that the data do not need shrink to zero and are removed.

A component is row a of A with column b of B; its share of the weight's change is scale * b a^T, of Frobenius norm
scale |b| |a|. The penalty is the sum of these norms:

    loss + regularization * sum over modules and components of scale |b| |a|.

Why the norm of the product, and not of (a, b) side by side: LoRA starts with B = 0 and A of norm about one, so that
beside A the column b would count for nothing, and a component without any effect would have a large norm. The product
does not change with (c b, a / c), is zero exactly where the component has no effect, and its sum bounds the nuclear
norm of the whole change.

The proximal step is that penalty's exact proximal map in (a, b) together: directions stay, and the lengths solve
|a|' = (|a| - t |b|')+ and |b|' = (|b| - t |a|')+, two block soft-thresholds at once. Its length is Adam's: a step of
AdamW is the rate over the root of the second moments, so a penalty of rate * regularization alone would be far too
weak for the loss that it stands beside. t = rate * regularization * c * scale / d, with d the root mean square of
AdamW's denominators over the component's numbers: the proximal map in the metric of the optimizer's step; c is what
clipping left of the gradient, because it left as much of the loss's side of the scales. So a component is dead while
the loss falls along it by less than `regularization` per unit. It keeps its row of A, and can come back.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.training.loop.products import Product, products
from capibara_assets.training.loop.tactics import Published, Score, Tactic
from capibara_assets.training.recipe import TrainingChoice
from capibara_assets.training.step.stepper import Stepper
from capibara_assets.training.step.subject import Subject
from capibara_assets.training.strategy import ConvexityStrategy


def proximal_lengths(a: Tensor, b: Tensor, threshold: Tensor) -> tuple[Tensor, Tensor]:
    """The x, y >= 0 that minimise (x - a)^2 / 2 + (y - b)^2 / 2 + threshold x y; each argument is (r,), not negative.

    From a threshold of 1 on the function is not convex, and its least value lies where the smaller one is zero.
    """
    b_dies = (b <= threshold * a) & (b <= a)
    a_dies = (a <= threshold * b) & (a < b)
    left = torch.where(b_dies | a_dies, 1.0, 1.0 - threshold * threshold)
    x = torch.where(b_dies, a, torch.where(a_dies, 0.0, (a - threshold * b) / left))
    y = torch.where(a_dies, b, torch.where(b_dies, 0.0, (b - threshold * a) / left))
    return x, y


def proximal_step(a: Tensor, b: Tensor, threshold: Tensor) -> None:
    """The minimum over all rows and columns of |a' - a|^2 / 2 + |b' - b|^2 / 2 + sum of threshold |a'_r| |b'_r|.

    Args:
        a, b: A (r, in) and B (out, r), changed in place.
        threshold: (r,).
    """
    of_a, of_b = a.norm(dim=1), b.norm(dim=0)
    x, y = proximal_lengths(of_a, of_b, threshold)
    a.mul_(_ratio(x, of_a)[:, None])
    b.mul_(_ratio(y, of_b))


def project(a: Tensor, b: Tensor, radius: float) -> None:
    """The nearest rows and columns, in place, with |(a_r, b_r)| <= radius for every component."""
    norm = (a.square().sum(dim=1) + b.square().sum(dim=0)).sqrt()
    factor = torch.where(norm > radius, radius / norm, 1.0)
    a.mul_(factor[:, None])
    b.mul_(factor)


def alive(a: Tensor, b: Tensor) -> Tensor:
    """(r,) whether each component has any effect."""
    return a.bool().any(dim=1) & b.bool().any(dim=0)


def without_dead(adapter: LoraAdapter) -> tuple[LoraAdapter, dict[str, int]]:
    """The adapter without components of no effect, with equal deltas; and how many are alive in each module.

    PEFT has no rank 0: a module in which all are dead keeps one component of zeros.
    """
    tensors, ranks, counts = dict(adapter.tensors), {}, {}
    for module in adapter.modules:
        a, b = adapter.a(module), adapter.b(module)
        keep = alive(a, b)
        counts[module] = int(keep.sum())
        if not counts[module]:
            keep = torch.arange(len(keep), device=keep.device) == 0
            b = torch.zeros_like(b)
        ranks[module] = int(keep.sum())
        for name, value in adapter.tensors.items():
            if value is adapter.a(module):
                tensors[name] = a[keep].contiguous()
            elif value is adapter.b(module):
                tensors[name] = b[:, keep].contiguous()
    if all(ranks[module] == adapter.a(module).shape[0] for module in adapter.modules):
        return adapter, counts
    alphas = {module: adapter.scale(module) * _divisor(adapter.config, rank) for module, rank in ranks.items()}
    usual = Counter(ranks.values()).most_common(1)[0][0]
    example = next(module for module, rank in ranks.items() if rank == usual)
    odd = [module for module in ranks if ranks[module] != usual or alphas[module] != alphas[example]]
    config = adapter.config | {
        "r": usual,
        "lora_alpha": _number(alphas[example]),
        "rank_pattern": {module: ranks[module] for module in odd},
        "alpha_pattern": {module: _number(alphas[module]) for module in odd},
    }
    return LoraAdapter(config, tensors), counts


class ConvexityTactic(Tactic):
    """The tactic of the convexity strategy: a proximal step (or a subgradient) and a projection at every step."""

    def __init__(self, choice: ConvexityStrategy, subject: Subject, stepper: Stepper, training: TrainingChoice):
        super().__init__(subject)
        self._choice, self._stepper, self._training = choice, stepper, training
        self._products = products(subject)

    def before_step(self) -> None:
        """Without proximal steps the penalty's subgradient joins the gradient; zero at a component of zero."""
        if self._choice.use_proximal_gradient:
            return
        for part in self._products:
            a, b = self.subject.trainable[part.a], self.subject.trainable[part.b]
            of_a, of_b = a.detach().norm(dim=1), b.detach().norm(dim=0)
            weight = self._choice.regularization * part.scale
            for parameter, slope in (
                (a, (weight * _ratio(of_b, of_a))[:, None] * a.detach()),
                (b, weight * _ratio(of_a, of_b) * b.detach()),
            ):
                parameter.grad = slope if parameter.grad is None else parameter.grad.add_(slope)

    def after_step(self, learning_rate: float, gradient_norm: float) -> None:
        clipped = min(1.0, self._training.max_gradient_norm / (gradient_norm + 1e-6))
        state = self._stepper.state() if self._choice.use_proximal_gradient else {}
        done = float(state[f"{self._products[0].b}.step"]) if state else 0.0  # of all alike; read from the device once
        with torch.no_grad():
            for part in self._products:
                a, b = self.subject.trainable[part.a], self.subject.trainable[part.b]
                if state:
                    weight = learning_rate * self._choice.regularization * clipped * part.scale
                    proximal_step(a, b, weight / self._denominators(state, part, done))
                if self._choice.convex_constraint:
                    project(a, b, self._choice.radius)

    def result(self, best: Mapping[str, Tensor], score: Score) -> Published:
        adapter, counts = without_dead(self.subject.adapter(best))
        norms = [
            part.scale * best[part.b].norm(dim=0) * best[part.a].norm(dim=1) for part in self._products
        ]  # of the components, whose sum the penalty weighs
        report: dict[str, Any] = {
            "components": sum(part.rank for part in self._products),
            "components_alive": sum(counts.values()),
            "effective_rank": counts,
            "penalty": self._choice.regularization * math.fsum(float(norm.double().sum()) for norm in norms),
        }
        return Published(adapter, None, report)

    def _denominators(self, state: Mapping[str, Tensor], part: Product, done: float) -> Tensor:
        """(r,) root mean square of AdamW's sqrt(v) over a component's numbers after `done` steps, and its epsilon."""
        of_a, of_b = state[f"{part.a}.exp_avg_sq"], state[f"{part.b}.exp_avg_sq"]
        corrected = 1 - self._training.betas[1] ** done
        mean = (of_a.sum(dim=1) + of_b.sum(dim=0)) / (of_a.shape[1] + of_b.shape[0])
        return (mean / corrected).sqrt() + self._training.epsilon


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    """Quotients; 0 over 0 is 0."""
    return torch.where(below > 0, above / torch.where(below > 0, below, 1.0), 0.0)


def _divisor(config: Mapping[str, Any], rank: int) -> float:
    return math.sqrt(rank) if config.get("use_rslora") else float(rank)


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value
