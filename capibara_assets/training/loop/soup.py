"""Soups: the average of a training's own weights at several validations (Wortsman et al. 2022, arXiv 2203.05482).

Averaged are the changes of the base's weights (`products.averaged`), cut to the trained rank; the weights validated are
those published. If the soup is worse than the best validation, the latter is published; both losses are in the report.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from capibara_assets.modeling.greedy import greedy_choice
from capibara_assets.training.loop.products import Average, averaged, detached, shares_of
from capibara_assets.training.loop.tactics import Published, Score, Tactic
from capibara_assets.training.step.subject import Subject
from capibara_assets.training.strategy import SoupStrategy

_LOSS = "loss"
_BEST = "best"


@dataclass(frozen=True)
class Ingredient:
    """Weights at a validation, by the names of trained parameters, with their validation loss."""

    step: int
    loss: float
    weights: dict[str, Tensor]


class SoupTactic(Tactic):
    """The tactic of the soup strategy: keeps the newest validations' weights and averages them at the end."""

    def __init__(self, choice: SoupStrategy, subject: Subject):
        super().__init__(subject)
        self._choice = choice
        self._kept: list[Ingredient] = []
        self._best: tuple[int, float] | None = None  # step and loss, of all validations

    def after_validation(self, step: int, loss: float, weights: Mapping[str, Tensor]) -> None:
        self._kept = [*self._kept, Ingredient(step, loss, detached(weights))][-self._choice.ingredients :]
        if self._best is None or loss < self._best[1]:
            self._best = (step, loss)

    def state(self) -> dict[str, Tensor]:
        state = {f"{one.step}/{name}": value for one in self._kept for name, value in one.weights.items()}
        state |= {f"{one.step}/{_LOSS}": torch.tensor(one.loss, dtype=torch.float64) for one in self._kept}
        return state | ({_BEST: torch.tensor(self._best, dtype=torch.float64)} if self._best else {})

    def restore(self, state: Mapping[str, Tensor]) -> None:
        if not state:
            return
        step, loss = state[_BEST].tolist()
        self._best = (int(step), loss)
        by_step: dict[int, dict[str, Tensor]] = {}
        for key, value in state.items():
            if key != _BEST:
                at, _, name = key.partition("/")
                by_step.setdefault(int(at), {})[name] = value
        self._kept = [Ingredient(at, float(by_step[at].pop(_LOSS)), by_step[at]) for at in sorted(by_step)]

    def result(self, best: Mapping[str, Tensor], score: Score) -> Published:
        assert self._best is not None  # `publish` requires a best validation
        if self._choice.average == "greedy":
            used, average, loss = self._greedy(score)
        else:
            used = self._kept
            average = self._average(used)
            loss = score(average.weights)
        best_kept = min(self._kept, key=lambda one: (one.loss, one.step))
        soup = loss <= self._best[1]  # also false for NaN
        report = {
            "soup": self._choice.average,
            "ingredients": [{"step": one.step, "validation_loss": one.loss} for one in self._kept],
            "used": sorted(one.step for one in used),
            "soup_validation_loss": loss if math.isfinite(loss) else None,
            "best_ingredient_validation_loss": best_kept.loss,
            "best_validation": {"step": self._best[0], "validation_loss": self._best[1]},
            "relative_error": average.relative_error,
            "published": "soup" if soup else "best validation",
        }
        weights = average.weights if soup else best
        return Published(self.subject.adapter(weights), loss if soup else None, report)

    def _average(self, ingredients: list[Ingredient]) -> Average:
        if len(ingredients) == 1:
            return Average(ingredients[0].weights, 0.0)
        losses = [one.loss for one in ingredients]
        shares = shares_of(losses, self._choice.metric if self._choice.average == "weighted" else None)
        return averaged([self.subject.adapter(one.weights) for one in ingredients], shares, self.subject)

    def _greedy(self, score: Score) -> tuple[list[Ingredient], Average, float]:
        """Start with the best; add each of the others if the soup is then no worse."""
        best_first = sorted(self._kept, key=lambda one: (one.loss, one.step))
        used, negative_loss, _ = greedy_choice(
            best_first, -best_first[0].loss, lambda ones: -score(self._average(list(ones)).weights)
        )
        return list(used), self._average(list(used)), -negative_loss
