"""The budget of a private training, and warnings on its noise before anything is trained."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.training.strategies.privacy import (
    SUM,
    NoisedSums,
    NoisePrediction,
    Unit,
    affordable_steps,
    dp_epsilon,
    dp_noise_multiplier,
    privacy_document,
)
from capibara_assets.training.strategy import FederatedStrategy, Privacy, TrainedNumbers


@dataclass(frozen=True)
class Budget:
    """Noise and number of sums within a privacy budget: rounds of a federated training, or steps of DP-SGD.

    Attributes:
        sampling_rate: probability that a client (or example) is part of a sum.
        rounds: as many as requested, or the last one within the budget.
        denominator: expected number of clients (or examples) in a sum, a constant.
        unit: what epsilon protects: one client or one example.
    """

    noise_multiplier: float
    sampling_rate: float
    rounds: int
    denominator: float
    unit: Unit


def dimensions(trained: TrainedNumbers, sizes: Iterable[tuple[int, int]], rank: int) -> int:
    """Number of values in a client's change, for modules of sizes (out, in) at a LoRA rank."""
    match trained:
        case "factors":
            return sum(out * into for out, into in sizes)
        case "b_only":
            return sum(out * rank for out, _ in sizes)
    return sum(rank for _ in sizes)


def trained_numbers(trained: TrainedNumbers, sizes: Iterable[tuple[int, int]], rank: int) -> int:
    """Number of values in an example's gradient, for modules of sizes (out, in) at a LoRA rank."""
    sizes = list(sizes)
    return sum(rank * (out + into) for out, into in sizes) if trained == "factors" else dimensions(trained, sizes, rank)


def budget_of(strategy: FederatedStrategy) -> Budget:
    """The budget of a federated strategy with privacy.

    Dropouts do not amplify privacy: outside of a simulation they are not random.

    Raises:
        InputError: even one round exceeds the budget.
    """
    assert strategy.privacy is not None
    expected = strategy.clients * strategy.sampling_rate * (1 - strategy.dropout)
    return _budget(strategy.privacy, strategy.sampling_rate, strategy.rounds, expected, "client")


def budget_of_steps(privacy: Privacy, global_batch: int, examples: int, steps: int) -> Budget:
    """The budget of DP-SGD, whose expected batch is `global_batch`.

    Raises:
        InputError: delta is too large for so many examples, or even one step exceeds the budget.
    """
    if privacy.delta * examples >= 1:
        raise InputError(
            f"privacy: delta {privacy.delta:g} is no less than 1 / {examples} examples, so one of them could be given "
            "away whole: lower delta"
        )
    rate = min(1.0, global_batch / examples)
    return _budget(privacy, rate, steps, rate * examples, "example")


def _budget(choice: Privacy, rate: float, rounds: int, expected: float, unit: Unit) -> Budget:
    noise = choice.noise_multiplier or dp_noise_multiplier(choice.epsilon, rate, rounds, choice.delta)
    affordable = affordable_steps(choice.epsilon, noise, rate, rounds, choice.delta)
    if not affordable:
        first = dp_epsilon(noise, rate, 1, choice.delta)
        raise InputError(
            f"privacy: one {SUM[unit]} with noise_multiplier {noise:g} has epsilon {first:.3g}, above the budget of "
            f"{choice.epsilon:g}: leave noise_multiplier out, so that it is chosen, or raise epsilon"
        )
    return Budget(noise, rate, affordable, expected, unit)


def predicted(privacy: Privacy, budget: Budget, dimensions: int) -> NoisePrediction:
    """The predicted noise of one sum."""
    return NoisePrediction(budget.noise_multiplier, privacy.clip, budget.denominator, dimensions, budget.unit)


def document_of(
    privacy: Privacy, budget: Budget, asked: int, there: int, trained: TrainedNumbers, dimensions: int, **further: Any
) -> dict[str, Any]:
    """The privacy document of a training, for all rounds or steps of its budget.

    Args:
        asked: rounds or steps requested.
        there: number of clients or examples.
        further: more entries.
    """
    sums = NoisedSums(budget.noise_multiplier, budget.sampling_rate, budget.rounds, privacy.delta, privacy.clip)
    return privacy_document(
        sums,
        clients=there if budget.unit == "client" else None,
        examples=there if budget.unit == "example" else None,
        budget=privacy.epsilon,
        stopped_by_budget=budget.rounds < asked,
        trained=trained,
        dimensions=dimensions,
        denominator=budget.denominator,
        predicted_snr=predicted(privacy, budget, dimensions).snr,
        seed="declared: no guarantee" if privacy.seed is not None else "entropy of the system",
        **further,
    )


def warnings_of(privacy: Privacy, budget: Budget, asked: int, dimensions: int) -> list[str]:
    """Warnings before a private training: budget, noise and signal, with the arithmetic.

    Args:
        asked: rounds or steps requested.
        dimensions: number of trained values.
    """
    noise, sums = predicted(privacy, budget, dimensions), f"{SUM[budget.unit]}s"
    many = f"{budget.rounds} of {asked} {sums} (the next would pass the budget)"
    lines = [
        f"privacy epsilon {privacy.epsilon:g}, delta {privacy.delta:g}, for one {budget.unit} more or less, "
        f"{many if budget.rounds < asked else f'{budget.rounds} {sums}'}: {noise.arithmetic()}"
    ]
    over_all = noise.snr * budget.rounds**0.5  # what all sums agree on adds up by their number, noise by its root
    if budget.unit == "example" and budget.rounds > 1:
        lines.append(f"over {budget.rounds} steps that all agree: at most {over_all:.2g}")
    ratio = noise.snr if budget.unit == "client" else over_all
    if ratio < 1:
        there = budget.denominator / budget.sampling_rate
        fewer = max(1, int(dimensions * ratio**2))
        how = "drowns" if ratio < 0.5 else "is longer than"
        lines.append(
            f"the noise {how} the update: for a signal-to-noise ratio of 1 take {there / ratio:,.0f} "
            f"{budget.unit}s in place of {there:,.4g}, or train {fewer:,} numbers in place of {dimensions:,} (trained: "
            f"b_only or scales, a smaller rank, fewer modules), or fewer {sums}"
        )
    if privacy.seed is not None:
        lines.append("privacy.seed is declared: anyone who knows it can remove the noise, so there is no guarantee")
    return lines
