"""Training of one voter by its strategy: one run of the training loop, or the strategy's own trainer."""

from importlib import import_module
from pathlib import Path

from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.loop.train import train_voter
from capibara_assets.training.strategy import TRAINERS


def train_by_strategy(run: VoterRun) -> Path:
    """Train a voter by its strategy; returns the folder of its result, as `train_voter`."""
    strategy = run.voter.strategy
    if strategy.kind not in TRAINERS:
        return train_voter(run)
    module, name = TRAINERS[strategy.kind].split(":")
    trainer = getattr(import_module(f"capibara_assets.training.{module}"), name)
    folder: Path = trainer(run, strategy)
    return folder
