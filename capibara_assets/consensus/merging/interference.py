"""Who helps and who disturbs whom in a merge: the change of every domain's loss by every domain's expert."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from capibara_assets.consensus.choose.lanes import Lanes
from capibara_assets.consensus.choose.sampling import subsample
from capibara_assets.consensus.merging.delta_sums import sum_experts
from capibara_assets.consensus.merging.dense_search import Candidate
from capibara_assets.consensus.recipe import MergeRecipe
from capibara_assets.domains import Domain
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base

if TYPE_CHECKING:
    from capibara_assets.datasets.tokens.tokenising import Encoded


def interference(
    base: Base,
    experts: Mapping[Domain, LoraAdapter],
    merge: Candidate,
    examples: Mapping[Domain, Sequence["Encoded"]],
    recipe: MergeRecipe,
    lanes: Lanes,
) -> dict[str, dict[str, float]]:
    """Expert d -> domain e -> loss of e under the merge, less that under the same merge without d (nats per token).

    Below 0 the expert helps that domain, above 0 it disturbs it; the diagonal is what an expert does for its own
    domain beside all others. Method, scale and the others' weights stay as they are. At most
    `recipe.interference_tokens` of each domain's examples are read.
    """
    chosen = {}
    for domain in experts:
        own = examples[domain]
        picked = subsample([len(example.input_ids) for example in own], len(own), recipe.interference_tokens)
        chosen[domain] = [own[i] for i in picked]

    def losses(weights: Mapping[Domain, float]) -> dict[Domain, float]:
        with applied(base.model, sum_experts(merge.method, experts, weights, recipe).deltas, merge.scale):
            return lanes.by_domain(base.model, chosen)

    whole = losses(merge.weights)
    found = {}
    for absent in experts:
        without = losses({**merge.weights, absent: 0.0})
        found[str(absent)] = {str(domain): whole[domain] - without[domain] for domain in chosen}
    return found
