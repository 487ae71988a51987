"""One voter from start to finish, by its strategy: most are one training, some are several that become one adapter."""

from pathlib import Path

from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.loop.train import train_voter
from capibara_assets.training.strategies.federated import train_federated
from capibara_assets.training.strategies.private_sgd import train_private
from capibara_assets.training.strategies.seeds import train_seeds
from capibara_assets.training.strategy import FederatedStrategy, PrivateStrategy, SeedsStrategy


def train_by_strategy(run: VoterRun) -> Path:
    """As `train_voter`, for any strategy."""
    match run.voter.strategy:
        case SeedsStrategy() as strategy:
            return train_seeds(run, strategy)
        case FederatedStrategy() as strategy:
            return train_federated(run, strategy)
        case PrivateStrategy() as strategy:
            return train_private(run, strategy)
    return train_voter(run)
