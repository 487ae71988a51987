"""One dense model out of the domains' experts: base + scale * sum of weighted deltas, searched on validation.

`dense_search` says how it is searched, `delta_sums` what is searched among, `interference` who disturbs whom.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from capibara_assets.consensus.choose.lanes import lanes
from capibara_assets.consensus.choose.sampling import subsample
from capibara_assets.consensus.merging.delta_sums import sum_experts
from capibara_assets.consensus.merging.dense_search import DenseSearch
from capibara_assets.consensus.merging.interference import interference
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.quantised import is_quantised, save_dequantised

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
class Merge:
    """The chosen merge.

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
) -> Merge:
    """Find the method, scale and weights under which the domain that gains least gains most.

    `report["all_improve"]` says whether every domain's loss ended under the base's; `report["interference"]` is that
    of `interference`. The same bits whatever the order of the experts and the number of threads.

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
    return Merge({module: best.scale * delta for module, delta in summed.deltas.items()}, report)


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


def chosen(domain: Domain, validation: Mapping[Domain, Sequence["Encoded"]], most: int, tokens: int) -> list["Encoded"]:
    """A domain's validation examples that a search or a report reads: at most so many, of so many tokens together.

    Raises:
        InputError: there is none with a supervised token.
    """
    usable = [example for example in validation.get(domain, ()) if example.supervised > 0]
    if not usable:
        raise InputError(f"no validation examples for {domain}: the merge cannot be judged there")
    return [usable[i] for i in subsample([len(example.input_ids) for example in usable], most, tokens)]
