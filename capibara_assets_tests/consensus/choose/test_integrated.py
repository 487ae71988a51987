"""The integrated strategy: weights of strategies shared by their voters, the threshold, and its place in the choice."""

import json
from pathlib import Path

import pytest

from capibara_assets.checkpoints.inspect.verify import digest_of
from capibara_assets.consensus.choose.choosing import BASE, ValidationLosses, choose, rebuild
from capibara_assets.consensus.choose.integrated import integrated_verdict, read_strategies, strategy_weights
from capibara_assets.consensus.recipe import ConsensusRecipe, IntegratedRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.conftest import Tokens, changed

WEIGHTS = IntegratedRecipe().weights
KINDS = {"voter-0": "hierarchical", "voter-1": "hierarchical", "voter-2": "convexity", "voter-3": "soup"}


def test_voters_of_a_strategy_share_its_weight() -> None:
    assert strategy_weights(KINDS, WEIGHTS) == {"voter-0": 0.2, "voter-1": 0.2, "voter-2": 0.3, "voter-3": 0.3}
    assert strategy_weights({**KINDS, "voter-4": "plain"}, WEIGHTS)["voter-4"] == 0.0
    with pytest.raises(InputError, match="no voter of strategy convexity: the integrated adapter needs hierarchical"):
        strategy_weights({"a": "hierarchical", "b": "soup"}, WEIGHTS)
    for weights in ({"plain": 0.5}, {"plain": 1.5, "soup": -0.5}, {}):
        with pytest.raises(ValueError, match="have to be >= 0 and sum to 1"):
            strategy_weights(KINDS, weights)


@pytest.mark.parametrize(
    ("loss", "accepted", "quality"),
    [(1.0, True, 1.0), (0.9, True, 1.0), (1.2, True, 0.8), (1.21, False, 0.79), (2.5, False, 0.0)],
)
def test_a_fifth_of_the_best_gain_may_be_missing(loss: float, accepted: bool, quality: float) -> None:
    found = integrated_verdict(loss, best=1.0, base=2.0, threshold=0.8)
    assert found[:2] == (accepted, pytest.approx(quality))
    assert f"{quality:.3f} {'reaches' if accepted else 'is below'} the threshold 0.8" in found[2]


def test_it_is_a_candidate_where_its_strategies_are(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens]
) -> None:
    recipe = ConsensusRecipe()
    found = choose(ValidationLosses(tiny, validation), honest, recipe, f=1, strategies=KINDS)
    (entry,) = [one for one in found.tried if one.kind == "integrated"]
    assert dict(zip(entry.voters, entry.weights or (), strict=True)) == strategy_weights(KINDS, WEIGHTS)
    assert entry.passed
    assert 0.8 <= entry.figures["quality"] <= 1.0
    assert digest_of(rebuild(entry, honest)) == entry.digest
    best = min(found.losses[name] for name in honest)
    assert entry.loss is not None
    gain = (found.losses[BASE] - entry.loss) / (found.losses[BASE] - best)
    assert entry.figures["quality"] == pytest.approx(min(gain, 1.0), abs=1e-6)
    without = choose(ValidationLosses(tiny, validation), honest, recipe, f=1, strategies={**KINDS, "voter-3": "plain"})
    assert "integrated" not in {one.kind for one in without.tried}


def test_below_its_threshold_it_does_not_pass_however_wide_the_tolerance(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens]
) -> None:
    recipe = ConsensusRecipe(tolerance=10.0)
    weak = {name: adapter if name == "voter-3" else changed(adapter, 0.05) for name, adapter in honest.items()}
    found = choose(ValidationLosses(tiny, validation), weak, recipe, f=1, strategies=KINDS)
    (entry,) = [one for one in found.tried if one.kind == "integrated"]
    assert entry.loss is not None
    assert entry.loss < found.losses[BASE]
    assert not entry.passed
    assert "is below the threshold 0.8" in entry.reason


def test_strategies_are_read_from_manifests(tmp_path: Path) -> None:
    for name, text in {"a": json.dumps({"strategy": "soup"}), "b": "no JSON", "c": "[]", "d": "{}"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(text)
    folders = {name: tmp_path / name for name in ("a", "b", "c", "d", "gone")}
    assert read_strategies(folders) == {"a": "soup"}
