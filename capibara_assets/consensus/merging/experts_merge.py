"""Dense merge of the domains' experts: base + scale * weighted sum of deltas, searched on validation.

`dense_search` is the search, `delta_sums` the ways to sum; `interference` tells which expert helps which domain.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from torch import Tensor

from capibara_assets.consensus.choose.lanes import Lanes, lanes
from capibara_assets.consensus.choose.sampling import subsample
from capibara_assets.consensus.merging.delta_sums import sum_experts
from capibara_assets.consensus.merging.dense_search import DenseSearch, MeasuredMerge
from capibara_assets.consensus.recipe import ConsensusRecipe, MergeRecipe
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.files import without_code
from capibara_assets.modeling.quantised import is_quantised, save_dequantised
from capibara_assets.processes.hidden_libraries import without

if TYPE_CHECKING:
    from capibara_assets.datasets.tokens.tokenising import Encoded

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
class ExpertsMerge:
    """The dense merge that the search chose.

    Attributes:
        deltas: module -> change of its weight (out, in), float32, scale and weights included.
        report: method, scale, weights, losses of base and merge per domain, the interference matrix, and every
            candidate tried.
    """

    deltas: dict[str, Tensor]
    report: dict[str, Any]


def merge_experts(
    base: Base,
    experts: Mapping[Domain, LoraAdapter],
    validation: Mapping[Domain, Sequence["Encoded"]],
    recipe: ConsensusRecipe,
) -> ExpertsMerge:
    """Find the method, scale and weights that maximise the gain of the domain that gains least.

    `report["all_improve"]`: whether every domain's loss is below the base's; `report["interference"]`: the matrix of
    `interference`. The same bits whatever the order of the experts and the number of threads.

    Raises:
        InputError: no expert, or an expert's domain without validation examples.
    """
    domains = [domain for domain in Domain if domain in experts]
    if not domains:
        raise InputError("no expert to merge: agree on at least one domain's consensus checkpoint first")
    examples = {
        domain: chosen(domain, validation, recipe.merge.examples_per_domain, recipe.merge.tokens_per_domain)
        for domain in domains
    }
    ordered = {domain: experts[domain] for domain in domains}
    with lanes() as at_once:
        search = DenseSearch(base, ordered, examples, recipe.merge, at_once)
        best = search.run()
        disturbance = interference(base, ordered, best, examples, recipe.merge, at_once)
        summed = sum_experts(best.method, ordered, best.weights, recipe.merge)
    losses = {str(domain): best.losses[domain] for domain in domains}
    base_losses = {str(domain): search.base_losses[domain] for domain in domains}
    report = {
        **best.report(len(domains)),
        "losses": {"base": base_losses, "merged": losses},
        "relative_gains": {name: 1.0 - losses[name] / base_losses[name] for name in losses},
        "all_improve": all(losses[name] < base_losses[name] for name in losses),
        "validation_examples": {str(domain): len(examples[domain]) for domain in domains},
        "interference": disturbance,
        "candidates": [candidate.report(len(domains)) for candidate in search.tried],
    }
    return ExpertsMerge({module: best.scale * delta for module, delta in summed.deltas.items()}, report)


def interference(
    base: Base,
    experts: Mapping[Domain, LoraAdapter],
    merge: MeasuredMerge,
    examples: Mapping[Domain, Sequence["Encoded"]],
    recipe: MergeRecipe,
    lanes: Lanes,
) -> dict[str, dict[str, float]]:
    """Expert d -> domain e -> loss of e under the merge, minus that under the merge without d; nats per token.

    Below 0 the expert helps that domain, above 0 it harms it; the diagonal is an expert's effect on its own domain
    beside all others. Method, scale and the other weights are unchanged. At most
    `recipe.interference_tokens` of each domain's examples are read.
    """
    chosen = {}  # domain -> examples that are read
    for domain in experts:
        own = examples[domain]
        picked = subsample([len(example.input_ids) for example in own], len(own), recipe.interference_tokens)
        chosen[domain] = [own[i] for i in picked]

    def losses(weights: Mapping[Domain, float]) -> dict[Domain, float]:
        with applied(base.model, sum_experts(merge.method, experts, weights, recipe).deltas, merge.scale):
            return lanes.by_domain(base.model, chosen)

    whole = losses(merge.weights)
    matrix = {}
    for absent in experts:
        without = losses({**merge.weights, absent: 0.0})
        matrix[str(absent)] = {str(domain): whole[domain] - without[domain] for domain in chosen}
    return matrix


def write_merged(base: Base, merge: ExpertsMerge, out: Path) -> None:
    """Write the merged model as a Transformers directory, in the precision the base is loaded in (float32 by default:
    rounding to bfloat16 would lose small deltas), with the base's tokenizer files.

    A base in 8 or 4 bits loses some of the merge (`applied` warns), and is written in float32.
    """
    out.mkdir(parents=True, exist_ok=True)
    with applied(base.model, merge.deltas):
        if any(is_quantised(layer) for layer in base.model.modules()):
            save_dequantised(base.model, out)
        else:
            with without("deepspeed"):  # Transformers asks whether the model is DeepSpeed's: four seconds of imports
                base.model.save_pretrained(out)
    copy_tokenizer(base.path, out)


def merge_problems(report: Mapping[str, Any], experts: Collection[str]) -> list[str]:
    """Problems in a merge's report as text: other experts, losses that are NaN or above the base's.

    Args:
        experts: the domains that it was to be made from.
    """
    base, merged = report["losses"]["base"], report["losses"]["merged"]
    problems = []
    if set(merged) != set(experts):
        problems.append(
            f"made of {', '.join(sorted(merged)) or 'no expert'}, the experts are {', '.join(sorted(experts))}"
        )
    problems += [f"the loss of {name} is {loss}" for name, loss in sorted(merged.items()) if not math.isfinite(loss)]
    before, after = (fmean(losses[name] for name in merged) if merged else math.nan for losses in (base, merged))
    if after >= before:
        problems.append(f"mean loss {after:.4f} over its domains, the base has {before:.4f}")
    return problems


def copy_tokenizer(source: Path, out: Path) -> None:
    """Copy a model's tokenizer and chat template unchanged, except for code that a config names."""
    for file in sorted({file for pattern in _TOKENIZER_FILES for file in source.glob(pattern) if file.is_file()}):
        (out / file.name).write_bytes(without_code(file.name, file.read_bytes()))


def chosen(domain: Domain, validation: Mapping[Domain, Sequence["Encoded"]], most: int, tokens: int) -> list["Encoded"]:
    """Validation examples of a domain for the search: at most `most`, of at most `tokens` tokens in total.

    Raises:
        InputError: no example has a supervised token.
    """
    usable = [example for example in validation.get(domain, ()) if example.supervised > 0]
    if not usable:
        raise InputError(f"no validation examples for {domain}: the merge cannot be judged there")
    return [usable[i] for i in subsample([len(example.input_ids) for example in usable], most, tokens)]
