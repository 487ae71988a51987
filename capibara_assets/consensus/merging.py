"""One dense model out of the domains' experts: base + scale * sum of weighted deltas, the scale searched on validation.

What counts is the domain that gains least: a merge that lifts five domains and spoils one is no merge. The deltas are
summed plainly, or in the manner of TIES (Yadav et al. 2023): each trimmed to its largest entries, a sign elected per
entry, and the entries that agree with it summed.
"""

import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from capibara_assets.consensus.recipe import ConsensusRecipe, MergeRecipe
from capibara_assets.consensus.sampling import subsample
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.losses import assistant_losses
from capibara_assets.modeling.quantised import is_quantised, save_dequantised

if TYPE_CHECKING:
    from capibara_assets.datasets.tokenising import Encoded

_BATCH_TOKENS = 1024
_FIRST_SCALE = 0.3  # where the climb over the scales begins
_TOKENIZER_FILES = (
    "tokenizer*",
    "chat_template*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "spiece.model",
)


@dataclass(frozen=True)
class Merge:
    """The chosen merge.

    Attributes:
        deltas: module -> change of its weight (out, in), float32, scale and weights included.
        report: method, scale, weights, losses of base and merge per domain, and every candidate tried.
    """

    deltas: dict[str, Tensor]
    report: dict[str, Any]


@dataclass(frozen=True)
class _Candidate:
    method: str
    scale: float
    weights: dict[Domain, float]
    losses: dict[Domain, float]
    worst: float  # least relative gain over the domains; of those measured, where the search gave up early

    def report(self, domains: int) -> dict[str, Any]:
        return {
            "method": self.method,
            "scale": self.scale,
            "weights": {str(domain): weight for domain, weight in self.weights.items()},
            "losses": {str(domain): loss for domain, loss in self.losses.items()},
            "smallest_relative_gain": self.worst,
            "given_up_early": len(self.losses) < domains,
        }


def merge_experts(
    base: Base,
    experts: Mapping[Domain, LoraAdapter],
    validation: Mapping[Domain, Sequence["Encoded"]],
    recipe: ConsensusRecipe,
) -> Merge:
    """Find the method, scale and weights under which the domain that gains least gains most.

    The climb starts at scale 0.3, goes on to the neighbouring scale while that helps, and ends with one adjustment of
    the domains' weights. `report["all_improve"]` says whether every domain's loss ended under the base's.

    Raises:
        InputError: no expert, or an expert's domain without validation examples.
    """
    domains = [domain for domain in Domain if domain in experts]
    if not domains:
        raise InputError("no expert to merge: agree on at least one domain's consensus checkpoint first")
    examples = {domain: _chosen(domain, validation, recipe.merge) for domain in domains}
    search = _Search(base, {domain: experts[domain] for domain in domains}, examples, recipe.merge)
    best = search.run()
    losses = {str(domain): best.losses[domain] for domain in domains}
    base_losses = {str(domain): search.base_losses[domain] for domain in domains}
    report = {
        **best.report(len(domains)),
        "losses": {"base": base_losses, "merged": losses},
        "relative_gains": {name: 1.0 - losses[name] / base_losses[name] for name in losses},
        "all_improve": all(losses[name] < base_losses[name] for name in losses),
        "validation_examples": {str(domain): len(examples[domain]) for domain in domains},
        "candidates": [candidate.report(len(domains)) for candidate in search.tried],
    }
    summed = search.summed(best.method, best.weights)
    return Merge({module: best.scale * delta for module, delta in summed.items()}, report)


def write_merged(base: Base, merge: Merge, out: Path) -> None:
    """Write the merged model as a Transformers directory, in the precision the base is loaded in (float32 by default:
    rounding to bfloat16 would lose small deltas), with the base's tokenizer files.

    A base in 8 or 4 bits loses some of the merge (`applied` warns) and is written in float32, as it computes.
    """
    out.mkdir(parents=True, exist_ok=True)
    with applied(base.model, merge.deltas):
        if any(is_quantised(layer) for layer in base.model.modules()):
            save_dequantised(base.model, out)
        else:
            base.model.save_pretrained(out)
    copy_tokenizer(base.path, out)


def copy_tokenizer(source: Path, out: Path) -> None:
    """Copy a model's tokenizer and chat template, byte for byte."""
    for file in sorted({file for pattern in _TOKENIZER_FILES for file in source.glob(pattern) if file.is_file()}):
        shutil.copyfile(file, out / file.name)


def ties_sum(deltas: Sequence[Tensor], density: float) -> Tensor:
    """Trim each delta to its largest entries, elect the sign of each entry, sum those that agree (float32)."""
    stack = torch.stack([_trimmed(delta, density) for delta in deltas])
    elected = torch.sign(stack.sum(dim=0))
    return torch.where(torch.sign(stack) == elected, stack, torch.zeros(())).sum(dim=0)


class _Search:
    """The climb over methods, scales and weights; `tried` keeps every candidate."""

    def __init__(
        self,
        base: Base,
        experts: Mapping[Domain, LoraAdapter],
        examples: Mapping[Domain, Sequence["Encoded"]],
        recipe: MergeRecipe,
    ) -> None:
        self.base, self.experts, self.examples, self.recipe = base, experts, examples, recipe
        self.modules = sorted({module for adapter in experts.values() for module in adapter.modules})
        self.base_losses = {domain: self._loss(domain) for domain in experts}
        self.tried: list[_Candidate] = []

    def run(self) -> _Candidate:
        equal = dict.fromkeys(self.experts, 1.0)
        start = min(self.recipe.scales, key=lambda scale: (abs(scale - _FIRST_SCALE), scale))
        best: _Candidate | None = None
        for method in self.recipe.methods if len(self.experts) > 1 else ("sum",):
            best = self._climb(method, equal, start if best is None else best.scale, best)
        assert best is not None
        if len(self.experts) > 1 and best.worst > 0.0:
            weights = _balanced(best, self.base_losses)
            best = self._try(best.method, best.scale, weights, self.summed(best.method, weights), best)
        return best

    def summed(self, method: str, weights: Mapping[Domain, float]) -> dict[str, Tensor]:
        result = {}
        for module in self.modules:
            parts = [
                weights[domain] * adapter.delta(module)
                for domain, adapter in self.experts.items()
                if module in adapter.modules
            ]
            result[module] = ties_sum(parts, self.recipe.ties_density) if method == "ties" else _plain_sum(parts)
        return result

    def _climb(self, method: str, weights: dict[Domain, float], start: float, best: _Candidate | None) -> _Candidate:
        """From `start` up the scales while that helps; down only where the first step up did not."""
        summed = self.summed(method, weights)
        scales = sorted(self.recipe.scales)
        at = scales.index(start)
        best = self._try(method, scales[at], weights, summed, best)
        for direction in (scales[at + 1 :], scales[:at][::-1]):
            before = best
            for scale in direction:
                better = self._try(method, scale, weights, summed, best)
                if better is best:
                    break
                best = better
            if best is not before:
                break
        return best

    def _try(
        self,
        method: str,
        scale: float,
        weights: dict[Domain, float],
        summed: Mapping[str, Tensor],
        best: _Candidate | None,
    ) -> _Candidate:
        """The better of `best` and this candidate; measuring stops at the first domain that already decides it."""
        losses: dict[Domain, float] = {}
        worst = math.inf
        with applied(self.base.model, summed, scale):
            for domain in self._most_telling_first(best):
                losses[domain] = self._loss(domain)
                gain = 1.0 - losses[domain] / self.base_losses[domain]
                worst = min(worst, gain if math.isfinite(gain) else -math.inf)
                if best is not None and worst <= best.worst:
                    break
        # JSON has no infinity: a diverged candidate lost everything
        candidate = _Candidate(method, scale, weights, _finite(losses), max(worst, -1e9))
        self.tried.append(candidate)
        return candidate if best is None or candidate.worst > best.worst else best

    def _most_telling_first(self, best: _Candidate | None) -> Iterable[Domain]:
        if best is None:
            return self.experts
        return sorted(self.experts, key=lambda d: (-best.losses[d] / self.base_losses[d], d))

    def _loss(self, domain: Domain) -> float:
        return assistant_losses(self.base.model, self.examples[domain], batch_tokens=_BATCH_TOKENS).mean


def _chosen(domain: Domain, validation: Mapping[Domain, Sequence["Encoded"]], recipe: MergeRecipe) -> list["Encoded"]:
    usable = [example for example in validation.get(domain, ()) if example.supervised > 0]
    if not usable:
        raise InputError(f"no validation examples for {domain}: the merge cannot be judged there")
    lengths = [len(example.input_ids) for example in usable]
    return [usable[i] for i in subsample(lengths, recipe.examples_per_domain, recipe.tokens_per_domain)]


def _balanced(best: _Candidate, base_losses: Mapping[Domain, float]) -> dict[Domain, float]:
    """Weights that favour the domains that gain less than the others: (mean gain / gain) ** 1/2, within 2/3 and 3/2."""
    gains = {domain: 1.0 - best.losses[domain] / base_losses[domain] for domain in best.weights}
    mean = sum(gains.values()) / len(gains)
    return {d: min(max(math.sqrt(mean / gain), 2 / 3), 3 / 2) * best.weights[d] for d, gain in gains.items()}


def _plain_sum(parts: Sequence[Tensor]) -> Tensor:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def _trimmed(delta: Tensor, density: float) -> Tensor:
    keep = max(1, round(density * delta.numel()))
    if keep >= delta.numel():
        return delta
    limit = delta.abs().flatten().kthvalue(delta.numel() - keep + 1).values
    return torch.where(delta.abs() >= limit, delta, torch.zeros(()))


def _finite(losses: Mapping[Domain, float]) -> dict[Domain, float]:
    return {domain: loss if math.isfinite(loss) else 1e9 for domain, loss in losses.items()}
