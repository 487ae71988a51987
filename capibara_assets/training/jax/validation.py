"""Validation of a JAX training: the mean loss over a file's conversations, by the forward pass of the training step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capibara_assets.modeling.jax.placement import Placement
from capibara_assets.modeling.jax.sizes import StepSettings
from capibara_assets.modeling.jax.step import loss_sum
from capibara_assets.planning.writers.jax_config import JaxConfig
from capibara_assets.training.jax.devices import placed_batch
from capibara_assets.training.jax.rows import Arrays, read_examples, rows_of


@dataclass(frozen=True)
class Validation:
    """The batches of a validation, and the compiled sum of their losses.

    Attributes:
        tokens: supervised tokens of all batches.
    """

    batches: tuple[Arrays, ...]
    tokens: int
    mesh: Any
    summed: Callable[[Any, Any, Any], Any]

    def loss(self, trained: Mapping[str, Any], frozen: Mapping[str, Any]) -> float:
        """Nats per supervised token over all batches."""
        sums = (float(self.summed(trained, frozen, placed_batch(self.mesh, batch))) for batch in self.batches)
        return sum(sums) / self.tokens


def validation_of(
    config: JaxConfig, settings: StepSettings, mesh: Any, file: Path | None, tokenizer: Any
) -> Validation | None:
    """The validation of a configuration; None if it names no file. A batch has the rows of one pass.

    Raises:
        InputError: the file is missing, a line is no conversation, or none can be used.
    """
    if file is None:
        return None
    import jax

    rows = rows_of(config, read_examples(config, file, tokenizer).encoded)
    skipped = 1 if config.model.family == "decoder" else 0  # nothing predicts a row's first token
    tokens = int(rows.arrays["mask"][:, skipped:].sum())
    batches = tuple(part.batch() for part in rows.batches(config.sequences // config.micro_steps))

    def summed(trained: Any, frozen: Any, batch: Any) -> Any:
        return loss_sum(config.model, settings, trained, frozen, batch, Placement(mesh))

    return Validation(batches, tokens, mesh, jax.jit(summed))
