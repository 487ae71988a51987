"""The data of each optimizer step: which tokens this process trains on, by the levels of a curriculum."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from capibara_assets.datasets.tokens.masking import Masking
from capibara_assets.datasets.tokens.templates import Tokenizer
from capibara_assets.datasets.tokens.tokenising import Encoded
from capibara_assets.modeling.heads import Head
from capibara_assets.training.data.order import ExampleOrder, micro_batches
from capibara_assets.training.ranks import ALONE, Ranks
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.step.settings import Settings, learning_rate

View = Callable[[Sequence[str], Sequence[Encoded], object], list[Encoded]]


def view_of(head: Head, tokenizer: Tokenizer, seed: str) -> View | None:
    """A function (ids, examples, step) that masks examples for a masked language model, reproducibly for each step.

    None for other heads, which see whole examples. Validation passes a word in place of the step.
    """
    if head != "masked":
        return None
    masking = Masking.of_tokenizer(tokenizer)
    return lambda ids, examples, step: masking.all_hidden(ids, examples, seed, step)


@dataclass(frozen=True)
class CurriculumLevel:
    """A stage of the training: its examples, its steps, its peak learning rate. A plain training has one.

    Attributes:
        name: of the level.
        ids, examples: what it trains on.
        order: step within the level -> indices of its examples.
        steps: how many.
        peak: its highest learning rate.
        about: how its examples were chosen, as JSON.
    """

    name: str
    ids: list[str]
    examples: list[Encoded]
    order: ExampleOrder
    steps: int
    peak: float
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StepData:
    """The data of one optimizer step; a pure function of its number.

    Attributes:
        ids: of its examples, those of all processes.
        parts: this process's micro-batches, each a list of examples; every process has equally many, of which some
            may be empty.
        supervised: tokens with a loss in the whole step, by which the loss is divided.
        tokens: of the whole step, padding not counted.
        rate: learning rate.
        level: name of the level.
    """

    ids: list[str]
    parts: list[list[Encoded]]
    supervised: int
    tokens: int
    rate: float
    level: str


class Curriculum:
    """The levels of a training, one after the other: optimizer step -> its data, without replaying earlier steps."""

    def __init__(
        self,
        levels: Sequence[CurriculumLevel],
        recipe: TrainingRecipe,
        ranks: Ranks = ALONE,
        *,
        view: "View | None" = None,
        row_tokens: int | None = None,
    ):
        """Concatenate levels.

        Args:
            view: masks a step's examples (`view_of`); None: they are seen whole.
            row_tokens: capacity of a packed row; None: examples are not packed.
        """
        self._levels, self._recipe, self._ranks = list(levels), recipe, ranks
        self._view, self._row_tokens = view, row_tokens
        self._ends = list(accumulate(level.steps for level in levels))
        self.total = self._ends[-1]

    @property
    def levels(self) -> tuple[CurriculumLevel, ...]:
        """The levels in their order."""
        return tuple(self._levels)

    def epoch_ends(self) -> tuple[int, ...]:
        """Number of steps done at the end of each epoch, in order; the end of a level ends its last epoch."""
        ends = list[int]()
        for level, end in zip(self._levels, self._ends, strict=True):
            if not level.steps:
                continue
            per_epoch, begin = level.order.steps_per_epoch, end - level.steps
            ends += [*range(begin + per_epoch, end, per_epoch), end]
        return tuple(ends)

    def about(self) -> list[dict[str, Any]]:
        """The levels as JSON, for the log and the manifest."""
        return [
            {"name": one.name, "examples": len(one.ids), "steps": one.steps, "learning_rate": one.peak, **one.about}
            for one in self._levels
        ]

    def step(self, number: int) -> StepData:
        """Data of step `number`, 0-based over all levels."""
        at = next(index for index, end in enumerate(self._ends) if number < end)
        level, within = self._levels[at], number - (self._ends[at] - self._levels[at].steps)
        indices = level.order.step(within)
        ids, examples = [level.ids[index] for index in indices], [level.examples[index] for index in indices]
        if self._view:
            examples = self._view(ids, examples, number)
        parts = self._parts(examples)
        return StepData(
            ids=ids,
            parts=parts[self._ranks.rank :: self._ranks.world],
            supervised=sum(example.supervised for example in examples),
            tokens=sum(len(example.input_ids) for example in examples),
            rate=learning_rate(within, level.steps, level.peak, self._recipe),
            level=level.name,
        )

    def _parts(self, examples: list[Encoded]) -> list[list[Encoded]]:
        """A step's examples as micro-batches of similar length; their number is a multiple of the processes."""
        lengths = [len(example.input_ids) for example in examples]
        groups = micro_batches(lengths, self._recipe.training, self._ranks.world, self._row_tokens)
        return [[examples[index] for index in group] for group in groups]


def plain_level(
    ids: list[str], examples: list[Encoded], steps: int, seed: str, settings: Settings, recipe: TrainingRecipe
) -> CurriculumLevel:
    """The one level of a plain training."""
    lengths = [len(example.input_ids) for example in examples]
    order = ExampleOrder(
        ids,
        lengths,
        seed=seed,
        global_batch=settings.global_batch,
        window=recipe.data.length_window,
        weights=[example.weight for example in examples],
    )
    return CurriculumLevel("training", ids, examples, order, steps, settings.learning_rate)
