"""The public functions of consensus; each is loaded with its module when it is asked for.

A name costs what it needs: the rules on arrays do without torch. Each can be had of the package itself, too.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from capibara_assets.consensus.aggregation.aggregate import aggregate
    from capibara_assets.consensus.aggregation.preaggregation import pre_aggregate
    from capibara_assets.consensus.aggregation.privacy import dp_clipped_mean, dp_epsilon
    from capibara_assets.consensus.certificates.certificate import certify, verify_certificate
    from capibara_assets.consensus.choose.convex import convex_weights, simplex_least_squares
    from capibara_assets.consensus.choose.soups import soup
    from capibara_assets.consensus.merging.checkpoint_merge import merge_checkpoints
    from capibara_assets.consensus.vote.voting import vote
    from capibara_assets.modeling.low_rank import merge_adapters

__all__ = [
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
    "verify_certificate",
    "vote",
]

_HOMES = {
    "aggregate": "consensus.aggregation.aggregate",
    "certify": "consensus.certificates.certificate",
    "convex_weights": "consensus.choose.convex",
    "dp_clipped_mean": "consensus.aggregation.privacy",
    "dp_epsilon": "consensus.aggregation.privacy",
    "merge_adapters": "modeling.low_rank",
    "merge_checkpoints": "consensus.merging.checkpoint_merge",
    "pre_aggregate": "consensus.aggregation.preaggregation",
    "simplex_least_squares": "consensus.choose.convex",
    "soup": "consensus.choose.soups",
    "verify_certificate": "consensus.certificates.certificate",
    "vote": "consensus.vote.voting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"capibara_assets.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
