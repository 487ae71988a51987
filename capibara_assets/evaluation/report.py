"""The data of an evaluation report: figures, comparisons, curves, worst examples, sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from capibara_assets.evaluation.schema import Interval

SHOWN_CHARACTERS = 1_500  # of a prompt or an answer: hostile output may be endless


@dataclass(frozen=True)
class Metric:
    """Display settings of a metric.

    Attributes:
        name: as tables call it, e.g. `loss`, `pass@1`.
        title: its name for a reader.
        meaning: what it measures, in a few words.
        direction: whether lower or higher is better.
        percent: whether it is a share, written as per cent.
    """

    name: str
    title: str
    meaning: str
    direction: str
    percent: bool


METRICS = {
    metric.name: metric
    for metric in (
        Metric("loss_per_assistant_token", "loss", "nats per token of the recorded answer", "lower", False),
        Metric("perplexity", "perplexity", "exp of the loss", "lower", False),
        Metric("repair_rate", "repair rate", "fixes that run and pass", "higher", True),
        Metric("exact_match", "exact match", "predicted outputs that are equal", "higher", True),
        Metric("chrf", "chrF", "of prose", "higher", True),
        Metric("bleu", "BLEU", "of prose", "higher", True),
        Metric("rouge_l", "ROUGE-L", "of prose", "higher", True),
    )
}


def metric_of(name: str) -> Metric:
    """Display settings of a metric by name; pass@k for any k."""
    if name.startswith("pass@"):
        at, _, families = name.partition("/")
        of = f" of {families} families" if families else ""
        return Metric(name, f"{at}{of}", f"answers{of} that run and pass their check", "higher", True)
    return METRICS.get(name, Metric(name, name, "", "higher", False))


@dataclass(frozen=True)
class AnsweringCost:
    """The cost of answering.

    Attributes:
        tokens: generated for the answers.
        seconds: wall clock, loading not included.
        peak_mib: peak memory of this process (of the GPU where the model is on one); None: nothing ran.
    """

    answers: int
    tokens: int
    seconds: float
    peak_mib: float | None

    @property
    def tokens_per_second(self) -> float | None:
        """None where nothing was generated."""
        return self.tokens / self.seconds if self.answers and self.seconds > 0 else None


@dataclass(frozen=True)
class Comparison:
    """One contender against a reference on the same items.

    Attributes:
        metric: the score.
        difference: candidate minus reference, or the share of the reference's loss that is saved; with its paired
            interval, p-value and the smallest difference that these items could have shown.
        adjusted: the p-value after Holm over the compared contenders.
    """

    metric: str
    candidate: str
    reference: str
    difference: Interval
    adjusted: float | None


@dataclass(frozen=True)
class ShownAnswer:
    """One contender's result on an item: its loss on the recorded answer; text and verdict where it answered."""

    contender: str
    loss: float | None
    text: str | None
    verdict: str | None
    detail: str


@dataclass(frozen=True)
class WorstExample:
    """An item on which the judged model did badly, with the answers of all contenders."""

    item_id: str
    kind: str
    why: str
    prompt: str
    reference: str
    check: str
    answers: tuple[ShownAnswer, ...]


@dataclass(frozen=True)
class ReportSource:
    """An artifact that the evaluation was made from; `url` is its page in Dagster's UI, without the host."""

    name: str
    digest: str
    url: str = ""
    note: str = ""


@dataclass(frozen=True)
class EvaluationReport:
    """Everything that the report page shows. Empty parts are left out; `notes` say why where it matters.

    Attributes:
        title: what was evaluated, e.g. a domain.
        verdict: promote, reject or inconclusive; empty where there was no decision.
        paragraph: the decision in words.
        figures: contender -> metric -> estimate with interval.
        judged: the contender that the decision is about.
        metric: the score that decided; empty where there was no decision.
        curves: voter -> (step, validation loss).
        router: the report of `expert_router`, as it was published.
        settings: what every contender shared: decoding, budgets, seed.
    """

    title: str
    verdict: str
    paragraph: str
    judged: str
    figures: Mapping[str, Mapping[str, Interval]]
    comparisons: Sequence[Comparison] = ()
    metric: str = ""
    usage: Mapping[str, AnsweringCost] = field(default_factory=dict)
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    router: Mapping[str, Any] = field(default_factory=dict)
    worst: Sequence[WorstExample] = ()
    sources: Sequence[ReportSource] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    confidence: float = 0.95
    notes: Sequence[str] = ()

    def metrics(self) -> list[str]:
        """Names of the metrics that any contender has: losses first, then metrics of runs, then text similarity."""
        names = dict.fromkeys(name for row in self.figures.values() for name in row)
        passes = sorted((name for name in names if name.startswith("pass@")), key=_place)
        order = ["loss_per_assistant_token", "perplexity", *passes, *METRICS]
        return sorted(names, key=lambda name: order.index(name) if name in order else len(order))


def _place(name: str) -> tuple[int, str]:
    k, _, families = name.removeprefix("pass@").partition("/")
    return int(k), families


def shown(words: str, most: int = SHOWN_CHARACTERS) -> str:
    """A text cut to `most` characters, with the number of characters cut."""
    if len(words) <= most:
        return words
    return f"{words[:most]}\n… {len(words) - most:,} more characters"
