"""A federated voter's budget, and what can be said of its noise before anything is trained."""

from collections.abc import Iterable
from dataclasses import dataclass

from capibara_assets.errors import InputError
from capibara_assets.training.privacy import Prediction, affordable_steps, dp_epsilon, dp_noise_multiplier
from capibara_assets.training.strategies import Federated, Trained


@dataclass(frozen=True)
class Budget:
    """How much noise, and for how many rounds.

    Attributes:
        rounds: at most those asked for; the next one would pass the budget.
        denominator: clients that are expected to answer, a constant.
    """

    noise_multiplier: float
    rounds: int
    denominator: float


def dimensions(trained: Trained, sizes: Iterable[tuple[int, int]], rank: int) -> int:
    """Numbers of a client's change, for modules of sizes (out, in) at a LoRA rank."""
    match trained:
        case "factors":
            return sum(out * into for out, into in sizes)
        case "b_only":
            return sum(out * rank for out, _ in sizes)
    return sum(rank for _ in sizes)


def budget_of(strategy: Federated) -> Budget:
    """The budget of a strategy with privacy.

    Clients that drop out are no amplification: who is silent is nobody's random choice outside of a simulation.

    Raises:
        InputError: already the first round would pass the budget.
    """
    choice, rate = strategy.privacy, strategy.sampling_rate
    assert choice is not None
    noise = choice.noise_multiplier or dp_noise_multiplier(choice.epsilon, rate, strategy.rounds, choice.delta)
    rounds = affordable_steps(choice.epsilon, noise, rate, strategy.rounds, choice.delta)
    if not rounds:
        first = dp_epsilon(noise, rate, 1, choice.delta)
        raise InputError(
            f"privacy: one round with noise_multiplier {noise:g} has epsilon {first:.3g}, above the budget of "
            f"{choice.epsilon:g}: leave noise_multiplier out, so that it is chosen, or raise epsilon"
        )
    return Budget(noise, rounds, strategy.clients * rate * (1 - strategy.dropout))


def predicted(strategy: Federated, dimensions: int) -> Prediction:
    """The noise of a round of a strategy with privacy; raises as `budget_of`."""
    assert strategy.privacy is not None
    budget = budget_of(strategy)
    return Prediction(budget.noise_multiplier, strategy.privacy.clip, budget.denominator, dimensions)


def warnings_of(strategy: Federated, dimensions: int) -> list[str]:
    """What to know before training with privacy, with the arithmetic; raises as `budget_of`."""
    choice = strategy.privacy
    if choice is None:
        return []
    budget, found = budget_of(strategy), predicted(strategy, dimensions)
    lines = [
        f"privacy epsilon {choice.epsilon:g}, delta {choice.delta:g}, {budget.rounds} of {strategy.rounds} rounds "
        f"(the next would pass the budget): {found.arithmetic()}"
        if budget.rounds < strategy.rounds
        else f"privacy epsilon {choice.epsilon:g}, delta {choice.delta:g}, {budget.rounds} rounds: {found.arithmetic()}"
    ]
    if found.snr < 1:
        enough = strategy.clients * (1 / found.snr)
        fewer = max(1, int(dimensions * found.snr**2))
        how = "drowns" if found.snr < 0.5 else "is longer than"
        lines.append(
            f"the noise {how} the update: for a signal-to-noise ratio of 1 take {enough:,.0f} clients in place of "
            f"{strategy.clients}, or train {fewer:,} numbers in place of {dimensions:,} (trained: b_only or scales, a "
            "smaller rank, fewer modules), or fewer rounds"
        )
    if choice.seed is not None:
        lines.append("privacy.seed is declared: whoever knows it can take the noise off, so there is no guarantee")
    return lines
