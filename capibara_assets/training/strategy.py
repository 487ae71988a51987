"""Declarations of the training strategies; `loop` and `strategies` implement them.

Voters of one recipe may have different strategies. `max_steps` and `max_tokens` of the recipe bound a training as a
whole: levels share them, a federated client has them for all its rounds, each of several seeds has them for itself.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from capibara_assets.deployment.declarations import Declared
from capibara_assets.modeling.greedy import SoupMetric


class PlainStrategy(Declared):
    """One training from the shared initial weights; publishes the weights of its best validation."""

    kind: Literal["plain"] = "plain"


class LevelChoice(Declared):
    """One level of a hierarchical training: its data, epochs and peak learning rate."""

    name: str = Field(min_length=1)
    data: Literal["general", "domain", "hard"] = Field(description="all domains, the voter's own, or its hard examples")
    epochs: float = Field(gt=0, description="Passes over its data; the recipe's epochs do not count")
    learning_rate_factor: float = Field(1.0, gt=0, description="Its peak, as a share of the recipe's learning rate")


class HierarchicalStrategy(Declared):
    """A curriculum from general to special data: levels in sequence with one optimizer, each with its own warm-up.

    `hard` data are the repairs and the examples of difficulty `hard_from` and more. `without_hard` decides what happens
    without any.
    """

    kind: Literal["hierarchical"] = "hierarchical"
    levels: tuple[LevelChoice, ...] = Field(
        (
            LevelChoice(name="general", data="general", epochs=3, learning_rate_factor=1.0),
            LevelChoice(name="specialized", data="domain", epochs=2, learning_rate_factor=0.5),
            LevelChoice(name="finetuning", data="hard", epochs=1, learning_rate_factor=0.1),
        ),
        min_length=1,
    )
    hard_from: float = Field(2 / 3, ge=0, le=1, description="Difficulty from which an example is hard (datasets' band)")
    without_hard: Literal["raise", "leave_out"] = Field(
        "raise", description="No hard example: an error, or the level is left out and the log says so"
    )

    @model_validator(mode="after")
    def _levels_differ(self) -> "HierarchicalStrategy":
        names = [level.name for level in self.levels]
        if len(set(names)) != len(names):
            raise ValueError(f"levels must have different names: {', '.join(names)}")
        return self


class ConvexityStrategy(Declared):
    """Group lasso on LoRA's rank components (Yuan and Lin 2006), so that the rank adapts to the data."""

    kind: Literal["convexity"] = "convexity"
    regularization: float = Field(0.01, ge=0, description="Nats per unit of a component's norm, scale |b| |a|")
    convex_constraint: bool = Field(True, description="Components stay in a ball: projected back after each step")
    radius: float = Field(10.0, gt=0, description="of that ball: the norm of row and column together")
    use_proximal_gradient: bool = Field(True, description="The exact proximal step; else the penalty's subgradient")


_METRIC = "Shares in proportion to 1 / validation perplexity, or 1 / loss"


def _without_usual_metric(document: dict[str, Any]) -> dict[str, Any]:
    """Without a metric of perplexity: trainings begun before there was a choice keep their digests."""
    return {name: value for name, value in document.items() if (name, value) != ("metric", "perplexity")}


class SoupStrategy(Declared):
    """The average of the weights at several validations (Wortsman et al. 2022, arXiv 2203.05482)."""

    kind: Literal["soup"] = "soup"
    average: Literal["uniform", "weighted", "greedy"] = Field(
        "uniform", description="weighted: by `metric`; greedy: best first, while it gets no worse"
    )
    metric: SoupMetric = Field("perplexity", description=_METRIC)
    ingredients: int = Field(5, gt=1, description="Newest validations that are kept for it")

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_usual_metric(dump(self))


class SeedsStrategy(Declared):
    """Several trainings that differ only in their seed, averaged (the `huggingface` strategy)."""

    kind: Literal["huggingface"] = "huggingface"
    k: int = Field(5, gt=1, description="Trainings")
    epochs: float = Field(3.0, gt=0, description="of each; the recipe's epochs do not count")
    average: Literal["uniform", "weighted"] = Field("weighted", description="weighted: by `metric`")
    metric: SoupMetric = Field("perplexity", description=_METRIC)

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return _without_usual_metric(dump(self))


TrainedNumbers = Literal["factors", "b_only", "scales"]
_TRAINED = (
    "factors: A and B; b_only: A stays as it was drawn (FFA-LoRA, arXiv 2403.12313); scales: one number for each rank "
    "component, along fixed random signs in B (as VeRA's, arXiv 2310.11454)"
)


class ClientStrategy(Declared):
    """The training of one federated client: which numbers are trained, and how firmly they are held near the start."""

    kind: Literal["client"] = "client"
    trained: TrainedNumbers = Field("factors", description=_TRAINED)
    proximal: float = Field(0.0, ge=0, description="mu of FedProx: mu / 2 |w - w_start|^2 joins the loss")


class FederatedServer(Declared):
    """The server's optimizer, which applies the clients' mean change."""

    optimizer: Literal["average", "adam"] = Field("average", description="FedAvg, or FedAdam (arXiv 2003.00295)")
    learning_rate: float | None = Field(None, gt=0, description="of the server; None: 1 for average, 0.01 for adam")
    betas: tuple[float, float] = (0.9, 0.99)
    tau: float = Field(1e-3, gt=0, description="adam: added to sqrt(v); v starts as tau^2")

    @property
    def rate(self) -> float:
        """The server's learning rate."""
        return self.learning_rate or (1.0 if self.optimizer == "average" else 0.01)


class Privacy(Declared):
    """Differential privacy: clipped vectors, noise on their sum, and a budget that is never exceeded.

    `federated` protects clients, whose changes are summed each round; `private` protects train examples, whose
    gradients are summed each step.
    """

    epsilon: float = Field(1.0, gt=0, allow_inf_nan=False, description="Budget, for one client (example) more or less")
    delta: float = Field(1e-5, gt=0, lt=1, description="Well below 1 / clients (examples)")
    clip: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="Most length of a client's change (example's gradient) in the sum"
    )
    noise_multiplier: float | None = Field(
        None, gt=0, description="Noise on the sum over the clip; None: the least with which all sums fit the budget"
    )
    seed: int | None = Field(
        None, ge=0, description="For tests: a seed that others can know voids the guarantee. None: the system's entropy"
    )


class FederatedStrategy(Declared):
    """Federated training: clients train on their own examples, share weight changes only (FedAvg, arXiv 1602.05629)."""

    kind: Literal["federated"] = "federated"
    clients: int = Field(4, gt=0, description="Number of parts that the train examples are split into")
    rounds: int = Field(3, gt=0)
    local_epochs: float = Field(1.0, gt=0, description="of a client in a round; the recipe's epochs do not count")
    by: Literal["auto", "tenants", "groups"] = Field(
        "auto", description="A client is made of whole tenants or of whole groups; auto: tenants if there are enough"
    )
    trained: TrainedNumbers = Field("factors", description=_TRAINED)
    proximal: float = Field(0.0, ge=0, description="mu of FedProx (arXiv 1812.06127)")
    server: FederatedServer = FederatedServer.model_validate({})
    sampling_rate: float = Field(
        1.0, gt=0, le=1, description="Probability that a client takes part in a round (Poisson sampling)"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="Share of sampled clients that drop out (drawn from the seed)")
    privacy: Privacy | None = Field(None, description="None: nothing is clipped or noised, and nothing guaranteed")

    def client(self) -> ClientStrategy | PlainStrategy:
        """The strategy of each client's training."""
        if self.trained == "factors" and not self.proximal:
            return PlainStrategy()
        return ClientStrategy(trained=self.trained, proximal=self.proximal)


class PrivateStrategy(Declared):
    """Differential privacy of single train examples (DP-SGD, Abadi et al. 2016, arXiv 1607.00133).

    Every example is drawn for a step with the probability that makes the recipe's global batch the expected batch.
    """

    kind: Literal["private"] = "private"
    trained: TrainedNumbers = Field("b_only", description=_TRAINED)
    privacy: Privacy = Privacy.model_validate({})


Strategy = Annotated[
    PlainStrategy
    | HierarchicalStrategy
    | ConvexityStrategy
    | SoupStrategy
    | SeedsStrategy
    | FederatedStrategy
    | ClientStrategy
    | PrivateStrategy,
    Field(discriminator="kind"),
]


TRAINERS = {
    "huggingface": "strategies.parts:train_seeds",
    "federated": "strategies.federated:train_federated",
    "private": "strategies.private_sgd:train_private",
}
"""Kind -> the function in `training` that trains such a voter; other kinds are one run of `loop.train.train_voter`.

A new strategy is a class here, in `Strategy`, and in this table if it has a trainer of its own: a function of the run
and the strategy that returns the result's folder.
"""


def needs_all_domains(strategy: Strategy) -> bool:
    """Whether a strategy also trains on other domains' examples."""
    return isinstance(strategy, HierarchicalStrategy) and any(level.data == "general" for level in strategy.levels)


def incompatibility(strategy: Strategy, recipe: Any) -> str | None:
    """Why a strategy cannot be used with the rest of a recipe (TrainingRecipe); None if it can."""
    if recipe.model.lora.use_dora and isinstance(
        strategy,
        ConvexityStrategy | SoupStrategy | SeedsStrategy | FederatedStrategy | ClientStrategy | PrivateStrategy,
    ):
        return "it works on products B A, and DoRA's change is more than that: set use_dora: false"
    if isinstance(strategy, FederatedStrategy | ClientStrategy) and (
        problem := _incompatible_clients(strategy, recipe)
    ):
        return problem
    if isinstance(strategy, PrivateStrategy):
        return _incompatible_examples(strategy, recipe)
    if not isinstance(strategy, ConvexityStrategy):
        return None
    if recipe.hardware.backend in ("fsdp2", "zero2"):
        return (
            f"it changes weights between steps, and backend {recipe.hardware.backend} keeps them in parts or in copies "
            "of its own: use single, ddp or accelerate"
        )
    if recipe.ema is not None:
        return "an average over time has no exact zeros, so no component would ever be dead: leave ema out"
    if strategy.use_proximal_gradient and recipe.training.optimizer != "adamw":
        return f"its step is measured by AdamW's second moments, which {recipe.training.optimizer} rounds: use adamw"
    if not strategy.use_proximal_gradient and recipe.hardware.precision == "fp16":
        return "a subgradient cannot be added to gradients that a loss scale stretches: use bf16, or the proximal step"
    return None


def _incompatible_clients(strategy: FederatedStrategy | ClientStrategy, recipe: Any) -> str | None:
    if isinstance(strategy, FederatedStrategy) and strategy.privacy and strategy.privacy.delta * strategy.clients >= 1:
        return (
            f"delta {strategy.privacy.delta:g} is no less than 1 / {strategy.clients} clients, so one of them could be "
            "given away whole: lower delta"
        )
    if strategy.trained == "factors" and not strategy.proximal:
        return None
    if recipe.hardware.backend in ("fsdp2", "zero2"):
        return (
            f"it changes gradients before they are used, and backend {recipe.hardware.backend} keeps them in parts: "
            "use single, ddp or accelerate"
        )
    if strategy.proximal and recipe.hardware.precision == "fp16":
        return "the proximal term cannot be added to gradients that a loss scale stretches: use bf16 or fp32"
    return _incompatible_scales(strategy.trained, recipe)


def _incompatible_examples(strategy: PrivateStrategy, recipe: Any) -> str | None:
    if recipe.hardware.backend != "single":
        return f"it clips each example's gradient, and backend {recipe.hardware.backend} only has sums: use single"
    if recipe.hardware.precision == "fp16":
        return "gradients of single examples are not scaled for fp16: use bf16 or fp32"
    if recipe.ema is not None:
        return "an average over time is not built for it: leave ema out"
    return _incompatible_scales(strategy.trained, recipe)


def _incompatible_scales(trained: TrainedNumbers, recipe: Any) -> str | None:
    if trained == "scales" and recipe.training.optimizer != "adamw":
        return f"AdamW keeps a component along its signs, and {recipe.training.optimizer} rounds: use adamw"
    return None
