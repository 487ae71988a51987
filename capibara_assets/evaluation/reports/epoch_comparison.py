"""Compare the epochs of a training on the same validation examples: which one to keep, and whether it matters."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from capibara_assets.evaluation.schema import Interval
from capibara_assets.evaluation.statistics.bootstrap import difference, holm, interval, resample
from capibara_assets.modeling.losses import Losses


@dataclass(frozen=True)
class EpochLosses:
    """The losses of one epoch.

    Attributes:
        name: `0` is the base, before any step.
        step: optimizer steps done.
        train_loss: mean over the epoch, nats per token; None where it is not known.
        losses: of each validation example, the same examples in the same order for all epochs.
    """

    name: str
    step: int
    train_loss: float | None
    losses: Losses


@dataclass(frozen=True)
class EpochRow:
    """The result of one epoch in a comparison.

    Attributes:
        loss: nats per validation token, with its interval over groups.
        over_kept: how much higher its loss is than that of the epoch to keep; None for that one.
        p_value: of that difference, adjusted for all epochs (Holm).
    """

    name: str
    step: int
    train_loss: float | None
    loss: Interval
    over_kept: Interval | None
    p_value: float | None


@dataclass(frozen=True)
class EpochComparison:
    """The comparison of all epochs.

    Attributes:
        keep: name of the one with the lowest loss, the earliest of equals.
        last_differs: whether the last one is worse than it beyond chance; False where it is the last itself.
        overfitting: the last one is worse beyond chance although its training loss is lower.
        verdict: that, in a sentence.
    """

    rows: tuple[EpochRow, ...]
    keep: str
    last_differs: bool
    overfitting: bool
    verdict: str
    examples: int
    groups: int

    def document(self) -> dict[str, Any]:
        """As JSON."""
        rows = [
            asdict(row)
            | {
                "loss": row.loss.model_dump(exclude_none=True),
                "over_kept": row.over_kept.model_dump(exclude_none=True) if row.over_kept else None,
            }
            for row in self.rows
        ]
        return asdict(self) | {"rows": rows}


def compare_epochs(
    epochs: Sequence[EpochLosses],
    groups: Sequence[str],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> EpochComparison:
    """Compare epochs by a paired cluster bootstrap over groups; the epoch to keep is chosen on the same examples.

    Its own figure is therefore a little too good, and a test on other examples has the last word.

    Args:
        epochs: in the order of their steps, at least one; the base first where it takes part.
        groups: group of each example.

    Raises:
        ValueError: no epoch, no example, epochs with other tokens, or losses that are not finite.
    """
    if not epochs:
        raise ValueError("no epoch to compare")
    tokens = epochs[0].losses.tokens
    if any(not np.array_equal(one.losses.tokens, tokens) for one in epochs):
        raise ValueError("the epochs were not scored on the same tokens")
    drawn = resample(
        np.column_stack([one.losses.nll for one in epochs]),
        tokens.astype(np.float64),
        np.asarray(groups, dtype=np.str_),
        resamples=resamples,
        seed=seed,
    )
    kept = int(np.argmin(drawn.estimates))
    over = {
        index: interval(
            difference(drawn.draws[:, index], drawn.draws[:, kept]),
            float(drawn.estimates[index] - drawn.estimates[kept]),
            drawn,
            confidence,
        )
        for index in range(len(epochs))
        if index != kept
    }
    adjusted = holm({index: gain.p_value if gain.p_value is not None else 1.0 for index, gain in over.items()})
    rows = tuple(
        EpochRow(
            name=one.name,
            step=one.step,
            train_loss=one.train_loss,
            loss=interval(drawn.draws[:, index], float(drawn.estimates[index]), drawn, confidence).model_copy(
                update={"p_value": None}  # that a loss is not 0 is no question
            ),
            over_kept=over.get(index),
            p_value=adjusted.get(index),
        )
        for index, one in enumerate(epochs)
    )
    last = len(rows) - 1
    differs = last != kept and adjusted[last] < 1 - confidence
    before, after = rows[kept].train_loss, rows[last].train_loss
    learned_on = before is None or (after is not None and after < before)
    overfitting = differs and learned_on
    verdict = _verdict(rows, kept, differs=differs, overfitting=overfitting)
    return EpochComparison(rows, rows[kept].name, differs, overfitting, verdict, drawn.n, drawn.groups)


def _verdict(rows: Sequence[EpochRow], kept: int, *, differs: bool, overfitting: bool) -> str:
    best, last = rows[kept], rows[-1]
    said = f"keep {_called(best)}: {best.loss.estimate:.4f} nats per token"
    if kept == len(rows) - 1:
        more = ", the last one" if kept else ""
        return f"{said}{more}; no over-fitting on these {best.loss.n} examples"
    over = last.over_kept
    assert over is not None and last.p_value is not None, "every epoch but the kept one is compared with it"
    figures = f"{over.estimate:+.4f} [{over.low:+.4f}, {over.high:+.4f}], p {last.p_value:.3g}"
    if not differs:
        return f"{said}; the last one is no worse beyond chance ({figures}): either will do"
    if not overfitting:
        return f"{said}; the last one is worse ({figures}), and so is its training loss: the training went astray"
    if best.train_loss is None or last.train_loss is None:
        return f"{said}; over-fitting: the last one is worse ({figures})"
    return (
        f"{said}; over-fitting: since then the training loss fell from {best.train_loss:.4f} to {last.train_loss:.4f}, "
        f"and the validation loss rose ({figures})"
    )


def _called(row: EpochRow) -> str:
    if row.name == "0":
        return "the base, which every epoch made worse"
    return f"epoch {row.name}" if row.name.isdigit() else row.name
