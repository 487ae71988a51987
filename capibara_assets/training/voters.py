"""One voter from start to finish, by its strategy: most are one training, some are several that become one adapter."""

from collections.abc import Callable
from pathlib import Path

from capibara_assets.training.events import Report
from capibara_assets.training.federated import train_federated
from capibara_assets.training.loop import train_voter
from capibara_assets.training.private_sgd import train_private
from capibara_assets.training.ranks import ALONE, Ranks
from capibara_assets.training.recipe import VoterSpec
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.seeds import train_seeds
from capibara_assets.training.strategies import Federated, Private, Seeds


def train_by_strategy(
    request: TrainingRequest,
    voter: VoterSpec,
    folder: Path,
    report: Report,
    poll: Callable[[], None],
    *,
    ranks: Ranks = ALONE,
) -> Path:
    """As `train_voter`, for any strategy."""
    match voter.strategy:
        case Seeds() as strategy:
            return train_seeds(request, voter, strategy, folder, report, poll, ranks)
        case Federated() as strategy:
            return train_federated(request, voter, strategy, folder, report, poll, ranks)
        case Private() as strategy:
            return train_private(request, voter, strategy, folder, report, poll)
    return train_voter(request, voter, folder, report, poll, ranks=ranks)
