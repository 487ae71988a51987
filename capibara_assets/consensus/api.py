"""Public functions of consensus, also importable from `capibara_assets.consensus`.

| function | takes | returns |
|---|---|---|
| `vote` | ballots, thresholds | `Outcome`: who is accepted, the tallies, refused ballots |
| `aggregate` | n vectors (n, d), a robust rule, f | `Aggregate`: vector (d,), weights, evidence |
| `pre_aggregate` | n vectors (n, d), nnm, clipping, arc or bucketing, f | the vectors after mixing or clipping |
| `soup` | models (arrays, tensors, adapters), a score | `SoupResult`: their uniform, weighted or greedy average |
| `convex_weights` | losses (K, T) of K models | `ConvexWeights`: the likeliest mixture, and its duality gap |
| `simplex_least_squares` | models (K, d), target (d,) | weights (K,) of the nearest point of the convex hull |
| `merge_adapters` | LoRA adapters, weights, rank | the weighted sum of their deltas as one adapter |
| `merge_checkpoints` | checkpoint folders, a merge method | `MergedCheckpoint`: a Transformers folder on disk |
| `soup_of_checkpoints` | models or adapters on disk, `HeldOut` examples | `CheckpointSoup`: their soup on disk |
| `certify` | an `Agreement`, a folder | the certificate's file, with the adapter beside it |
| `verify_certificate` | a certificate or its file | `Verification`: problems, recomputed and unchecked steps |
| `dp_clipped_mean` | clients' vectors, clip, noise | the clipped and noised mean |
| `dp_epsilon` | noise, sampling rate, steps, delta | the privacy budget epsilon that training spent |

A function's module is imported when the function is first used, so the rules on arrays do not import torch.
"""

from typing import TYPE_CHECKING

from capibara_assets.deployment.public_names import public_names

if TYPE_CHECKING:
    from capibara_assets.consensus.aggregation.aggregate import aggregate
    from capibara_assets.consensus.aggregation.preaggregation import pre_aggregate
    from capibara_assets.consensus.certificates.certificate import certify, verify_certificate
    from capibara_assets.consensus.choose.convex import convex_weights, simplex_least_squares
    from capibara_assets.consensus.choose.soups import soup
    from capibara_assets.consensus.election.voting import vote
    from capibara_assets.consensus.merging.checkpoint_merge import merge_checkpoints
    from capibara_assets.consensus.merging.checkpoint_soup import HeldOut, soup_of_checkpoints
    from capibara_assets.modeling.low_rank import merge_adapters
    from capibara_assets.training.strategies.privacy import dp_clipped_mean, dp_epsilon

__all__ = [
    "HeldOut",
    "aggregate",
    "certify",
    "convex_weights",
    "dp_clipped_mean",
    "dp_epsilon",
    "merge_adapters",
    "merge_checkpoints",
    "pre_aggregate",
    "simplex_least_squares",
    "soup",
    "soup_of_checkpoints",
    "verify_certificate",
    "vote",
]

_HOMES = {
    "HeldOut": "consensus.merging.checkpoint_soup",
    "aggregate": "consensus.aggregation.aggregate",
    "certify": "consensus.certificates.certificate",
    "convex_weights": "consensus.choose.convex",
    "dp_clipped_mean": "training.strategies.privacy",
    "dp_epsilon": "training.strategies.privacy",
    "merge_adapters": "modeling.low_rank",
    "merge_checkpoints": "consensus.merging.checkpoint_merge",
    "pre_aggregate": "consensus.aggregation.preaggregation",
    "simplex_least_squares": "consensus.choose.convex",
    "soup": "consensus.choose.soups",
    "soup_of_checkpoints": "consensus.merging.checkpoint_soup",
    "verify_certificate": "consensus.certificates.certificate",
    "vote": "consensus.election.voting",
}


__getattr__, __dir__ = public_names(__name__, _HOMES)
