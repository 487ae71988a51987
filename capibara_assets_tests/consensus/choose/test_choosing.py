"""The choice among candidates: what is tried, what passes the gate, what wins, and that all of it can be made again."""

import json
from collections.abc import Mapping

import pytest
import torch

from capibara_assets.checkpoints.inspect.verify import digest_of
from capibara_assets.consensus.choose.choosing import (
    BASE,
    ChoiceError,
    ConsensusChoice,
    Tried,
    ValidationLosses,
    choose,
    measure,
    rebuild,
)
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.losses import TokenLosses
from capibara_assets.modeling.low_rank import merge_adapters
from capibara_assets_tests.consensus.conftest import Tokens, changed

RECIPE = ConsensusRecipe()
MERGED = ("robust", "convex", "uniform_soup", "weighted_soup", "greedy_soup")


@pytest.fixture(scope="module")
def choice(tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens]) -> ConsensusChoice:
    return choose(ValidationLosses(tiny, validation), honest, RECIPE, f=1)


def entry(choice: ConsensusChoice, name: str) -> Tried:
    return next(one for one in choice.tried if one.name == name)


def test_every_candidate_is_tried_and_the_best_is_taken(
    choice: ConsensusChoice, honest: dict[str, LoraAdapter]
) -> None:
    assert tuple(one.name for one in choice.tried[:5]) == MERGED
    assert {one.name for one in choice.tried[5:]} == set(honest)
    assert all(one.kind == "voter" for one in choice.tried[5:])
    least = min(one.loss for one in choice.tried if one.loss is not None)
    assert choice.chosen.loss == pytest.approx(least, abs=1e-5)
    best_voter = min(choice.losses[name] for name in honest)
    assert choice.chosen.loss is not None
    assert choice.chosen.loss <= best_voter < choice.losses[BASE]
    assert choice.chosen.digest == digest_of(choice.adapter)
    greedy = entry(choice, "greedy_soup").loss
    assert greedy is not None
    assert greedy <= best_voter, "a greedy soup is never worse than its best member"


def test_losses_are_those_of_the_adapters(
    choice: ConsensusChoice, tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens]
) -> None:
    for one in choice.tried:
        measured = measure(tiny, rebuild(one, honest), validation).by_example.mean
        assert one.loss == pytest.approx(measured, abs=1e-6), one.name


def test_losses_may_come_from_elsewhere(
    choice: ConsensusChoice, tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens]
) -> None:
    """The same choice, every candidate measured where the caller says, and none that is known measured again."""
    asked: list[str] = []

    def measuring(adapter: LoraAdapter) -> TokenLosses:
        asked.append(digest_of(adapter))
        return measure(tiny, adapter, validation)

    known = {name: measure(tiny, honest.get(name), validation) for name in (BASE, *honest)}
    found = choose(ValidationLosses(tiny, validation, known, measuring), honest, RECIPE, f=1)
    assert (found.chosen, found.tried, found.losses) == (choice.chosen, choice.tried, choice.losses)
    assert len(asked) == len(set(asked)) and not set(asked) & {digest_of(adapter) for adapter in honest.values()}


def test_an_entry_is_enough_to_make_its_adapter_again(choice: ConsensusChoice, honest: dict[str, LoraAdapter]) -> None:
    for one in choice.tried:
        read = Tried.model_validate(json.loads(json.dumps(one.model_dump(mode="json"), allow_nan=False)))
        assert read == one
        assert digest_of(rebuild(read, dict(reversed(honest.items())))) == one.digest, one.name
    with pytest.raises(InputError, match="voter-2"):
        rebuild(choice.tried[0], {name: honest[name] for name in honest if name != "voter-2"})


def test_weights_are_over_the_voters_and_sum_to_one(choice: ConsensusChoice) -> None:
    for one in choice.tried:
        if one.weights is not None:
            assert len(one.weights) == len(one.voters)
            assert sum(one.weights) == pytest.approx(1.0, abs=1e-9)
    convex = entry(choice, "convex")
    assert 0 <= convex.figures["duality_gap"] < 1e-4
    assert convex.figures["tokens"] == 32 * 9
    assert entry(choice, "uniform_soup").weights == (0.25,) * 4


@pytest.mark.parametrize("rule", ["geometric_median", "trimmed_mean"])
def test_neither_order_nor_names_show(
    rule: str, tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens]
) -> None:
    recipe = RECIPE.model_copy(update={"rule": rule})
    first = choose(ValidationLosses(tiny, validation), honest, recipe, f=1)
    assert choose(ValidationLosses(tiny, validation), dict(reversed(honest.items())), recipe, f=1).tried == first.tried
    renamed = {f"x{9 - int(name[-1])}": adapter for name, adapter in honest.items()}
    other = choose(ValidationLosses(tiny, validation), renamed, recipe, f=1)
    assert [one.digest for one in other.tried] == [one.digest for one in first.tried]
    assert other.chosen.digest == first.chosen.digest


def test_what_is_known_is_not_measured_again(
    choice: ConsensusChoice,
    tiny: Base,
    honest: dict[str, LoraAdapter],
    validation: list[Tokens],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {name: measure(tiny, honest.get(name), validation) for name in (BASE, *honest)}
    calls = []

    def counted(*arguments: object) -> object:
        calls.append(arguments)
        return measure(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("capibara_assets.consensus.choose.choosing.measure", counted)
    again = choose(ValidationLosses(tiny, validation, known), honest, RECIPE, f=1)
    assert again.tried == choice.tried
    assert len(calls) <= 4 + len(honest) - 1, "robust, mixture, two soups, and the greedy attempts"


@pytest.mark.parametrize(
    ("strategy", "kind"), [("weighted_average", "weighted_soup"), ("convex_optimization", "convex")]
)
def test_a_strategy_forces_its_candidate(
    strategy: str,
    kind: str,
    choice: ConsensusChoice,
    tiny: Base,
    honest: dict[str, LoraAdapter],
    validation: list[Tokens],
) -> None:
    forced = choose(
        ValidationLosses(tiny, validation), honest, RECIPE.model_copy(update={"merge_strategy": strategy}), f=1
    )
    assert forced.chosen.kind == kind
    assert forced.tried == choice.tried


def _spoilt(honest: Mapping[str, LoraAdapter], factor: float) -> dict[str, LoraAdapter]:
    """Three good voters fewer: only the first is as it was."""
    return {name: adapter if name == "voter-0" else changed(adapter, factor) for name, adapter in honest.items()}


def test_a_merge_that_is_worse_than_the_best_voter_is_not_the_consensus(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens]
) -> None:
    found = choose(ValidationLosses(tiny, validation), _spoilt(honest, -1.0), RECIPE, f=1)
    robust = entry(found, "robust")
    assert not robust.passed
    assert "is not under the base's" in robust.reason
    assert not entry(found, "uniform_soup").passed
    best = found.losses["voter-0"]
    assert found.chosen.loss is not None
    assert found.chosen.loss <= best
    assert found.chosen.passed
    for one in found.tried:
        assert one.passed == (
            one.loss is not None and one.loss < found.losses[BASE] and one.loss <= best * (1 + RECIPE.tolerance)
        )


def test_the_mixture_leaves_useless_voters_out(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens]
) -> None:
    found = choose(ValidationLosses(tiny, validation), _spoilt(honest, -1.0), RECIPE, f=1)
    convex = entry(found, "convex")
    assert convex.weights is not None
    weights = dict(zip(convex.voters, convex.weights, strict=True))
    assert weights["voter-0"] > 0.9


def test_nothing_passes(tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens]) -> None:
    bad = {name: changed(adapter, -1.0) for name, adapter in honest.items()}
    with pytest.raises(ChoiceError, match="no candidate for the consensus may be published") as raised:
        choose(ValidationLosses(tiny, validation), bad, RECIPE, f=1)
    assert len(raised.value.tried) == 9
    with pytest.raises(ChoiceError, match="merge_strategy weighted_average forces a candidate"):
        choose(
            ValidationLosses(tiny, validation),
            bad,
            RECIPE.model_copy(update={"merge_strategy": "weighted_average"}),
            f=1,
        )
    with pytest.raises(ValueError, match="no voter was accepted"):
        choose(ValidationLosses(tiny, validation), {}, RECIPE, f=0)


def test_a_voter_whose_loss_is_not_finite_is_in_no_average(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens]
) -> None:
    broken = {**honest, "voter-1": changed(honest["voter-1"], float("nan"))}
    recipe = RECIPE.model_copy(update={"rule": "mean"})
    found = choose(ValidationLosses(tiny, validation), broken, recipe, f=0)
    assert entry(found, "robust").reason == "its loss is not finite"
    place = found.tried[1].voters.index("voter-1")
    for one in found.tried[1:5]:
        assert one.weights is not None
        assert one.weights[place] == 0.0
    voter = entry(found, "voter-1")
    assert (voter.passed, voter.loss) == (False, None)
    assert found.chosen.passed


def test_a_smaller_rank_holds_for_every_merge_and_leaves_voters_alone(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens]
) -> None:
    found = choose(
        ValidationLosses(tiny, validation), honest, RECIPE.model_copy(update={"rank": 12, "tolerance": 0.5}), f=1
    )
    for one in found.tried:
        adapter = rebuild(one, honest)
        whole = sum(weight != 0 for weight in one.weights or (1.0,)) == 1
        assert adapter.config["r"] == (8 if whole else 12)
        assert (one.relative_error == 0) == whole
        assert digest_of(adapter) == one.digest


def test_equal_candidates_go_to_the_robust_aggregate(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens]
) -> None:
    same = dict.fromkeys(honest, honest["voter-0"])
    found = choose(ValidationLosses(tiny, validation), same, RECIPE, f=1)
    assert found.chosen.kind == "robust"
    exact = merge_adapters([honest["voter-0"]], [1.0])
    for module in exact.modules:
        assert torch.allclose(found.adapter.delta(module), exact.delta(module), atol=1e-6)


def test_one_voter_alone(tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens]) -> None:
    found = choose(ValidationLosses(tiny, validation), {"only": honest["voter-0"]}, RECIPE, f=0)
    assert {one.kind for one in found.tried} == {*MERGED, "voter"}
    assert found.chosen.kind == "robust"
