"""A dataset as one voter sees it: its tokens, and the voter's own train and validation examples."""

from dataclasses import dataclass

import polars as pl

from capibara_assets.datasets.tokens.templates import Tokenizer
from capibara_assets.datasets.tokens.tokenising import Encoded, EncodedSet
from capibara_assets.training.data.examples import chosen, read_examples, tokens_of, validation_examples, weighted
from capibara_assets.training.data.order import training_part
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.step.settings import Settings


@dataclass(frozen=True)
class VoterExamples:
    """A dataset as one voter sees it.

    Attributes:
        tokenizer: of the base.
        table: the dataset's rows.
        encoded: their tokens, and which of them cannot be trained on.
        ids, train: the voter's train examples, in the order of their ids.
        validation: its validation examples, as the head sees them.
    """

    run: VoterRun
    settings: Settings
    tokenizer: Tokenizer
    table: pl.DataFrame
    encoded: EncodedSet
    ids: list[str]
    train: list[Encoded]
    validation: list[Encoded]

    @classmethod
    def read(cls, run: VoterRun, settings: Settings, tokenizer: Tokenizer) -> "VoterExamples":
        """Read and tokenise the dataset of the run's request.

        Raises:
            Interrupted: stopped.
            InputError: the dataset cannot be read, or has nothing to train on or to validate on.
        """
        request, voter = run.request, run.voter
        table = read_examples(request.dataset)
        encoded = tokens_of(request, table, tokenizer, settings, poll=run.poll_if_alone)
        run.poll_all()
        part = training_part(table, voter.shard, len(request.recipe.voters))
        ids, train = chosen("train", part, encoded, settings)
        train = weighted(request, ids, train)
        validation = validation_examples(request, voter, table, encoded, settings, tokenizer)
        return cls(run, settings, tokenizer, table, encoded, ids, train, validation)
