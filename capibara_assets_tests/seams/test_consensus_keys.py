"""How candidates are made is said in the recipe's file, and the certificate of what came of it answers for it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from capibara_assets.cli.checkpoint.consensus import WITH_RESERVATIONS, consensus
from capibara_assets.consensus.agree import Agreement, agree
from capibara_assets.consensus.certificates.certificate import certify, parse_certificate, sealed, write_certificate
from capibara_assets.consensus.election.voting import vote
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.deployment.declarations import read_declared
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.conftest import Tokens, honest, shards, validation
from capibara_assets_tests.consensus.conftest import deeper as tiny
from capibara_assets_tests.consensus.in_process import hold_here

__all__ = ["honest", "shards", "tiny", "validation"]

KINDS = ("hierarchical", "hierarchical", "convexity", "soup")


def recipe_file(folder: Path, **changes: Any) -> Path:
    """The shipped recipe with other values, as a deployment's own file."""
    values = yaml.safe_load((resources_root() / "recipes" / "consensus.yaml").read_text())
    file = folder / "consensus.yaml"
    file.write_text(yaml.safe_dump(values | changes))
    return file


@pytest.fixture(scope="module")
def voters(honest: dict[str, LoraAdapter], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Voters on disk whose manifests state the strategies of the integrated one."""
    folders, folder = {}, tmp_path_factory.mktemp("voters")
    for (name, adapter), kind in zip(honest.items(), KINDS, strict=True):
        folders[name] = folder / name
        write_adapter(adapter, folders[name])
        (folders[name] / "manifest.json").write_text(json.dumps({"strategy": kind}))
    return folders


def agreed(
    file: Path, tiny: Base, voters: dict[str, Path], validation: list[Tokens], shards: dict[str, list[int]]
) -> Agreement:
    recipe = read_declared(file, ConsensusRecipe)
    return agree(tiny, voters, validation, shards, recipe, {"domain": "python"}, hold=hold_here)


def entries(agreement: Agreement) -> dict[str, Any]:
    return {entry.name: entry for entry in agreement.certificate.tried}


def verified(certificate: Path, voters: dict[str, Path]) -> tuple[int, str]:
    command = ["verify", str(certificate), "--voters", str(voters["voter-0"].parent)]
    found = CliRunner().invoke(consensus, command)
    return found.exit_code, found.output


def test_the_file_makes_the_candidates_and_the_certificate_says_so(
    tiny: Base,
    voters: dict[str, Path],
    validation: list[Tokens],
    shards: dict[str, list[int]],
    tmp_path: Path,
) -> None:
    """Each key alone shows in its candidate; the certificate holds, and no longer with another recipe's keys."""
    usual = agreed(recipe_file(tmp_path), tiny, voters, validation, shards)
    assert "candidates" not in usual.certificate.model_dump(mode="json")["thresholds"]  # as certificates were before
    keys = {
        "convex": {"lambda_reg": 50.0, "max_iterations": 100},
        "soup": {"metric": "loss"},
        "integrated": {"weights": {"hierarchical": 0.0, "convexity": 0.25, "soup": 0.75}, "threshold": 1.0},
    }
    file = recipe_file(tmp_path, candidates=keys, fault_tolerance=0.33)
    ours = agreed(file, tiny, voters, validation, shards)
    before, after = entries(usual), entries(ours)
    assert after["convex"].weights == (0.25,) * 4 != before["convex"].weights  # so strong a pull makes equal weights
    losses = {name: after[name].loss for name in voters}
    inverse = {name: 1 / loss for name, loss in losses.items()}
    for name, share in zip(after["weighted_soup"].voters, after["weighted_soup"].weights, strict=True):
        assert share == pytest.approx(inverse[name] / sum(inverse.values()), abs=1e-3)
    assert after["weighted_soup"].weights != before["weighted_soup"].weights
    weights = dict(zip(after["integrated"].voters, after["integrated"].weights, strict=True))
    assert weights == {"voter-0": 0.0, "voter-1": 0.0, "voter-2": 0.25, "voter-3": 0.75}
    assert "the threshold 1" in after["integrated"].figures["verdict"]
    assert before["integrated"].figures["verdict"].endswith("the threshold 0.8")
    assert ours.certificate.f == 1  # 0.33 of three others, to the letter, would be none

    certify(ours, tmp_path / "ours")
    path = tmp_path / "ours" / "certificate.json"
    assert verified(path, voters)[0] == WITH_RESERVATIONS, verified(path, voters)[1]  # no keys are known here
    document = json.loads(path.read_text())
    assert document["thresholds"]["candidates"] == keys
    del document["thresholds"]["candidates"]  # another recipe's keys, sealed again
    write_certificate(sealed(parse_certificate(document)), path)
    code, words = verified(path, voters)
    assert code == 1
    for named in (
        "candidate weighted_soup: by perplexity",
        "candidate integrated:",
        "convex: lambda_reg 50.0",
        "election",
    ):
        assert named in words


def test_newtons_steps_are_a_key(
    tiny: Base, voters: dict[str, Path], validation: list[Tokens], shards: dict[str, list[int]], tmp_path: Path
) -> None:
    none = agreed(recipe_file(tmp_path, candidates={"convex": {"max_iterations": 0}}), tiny, voters, validation, shards)
    assert entries(none)["convex"].weights == (0.25,) * 4  # where it starts
    assert entries(none)["convex"].figures["duality_gap"] > 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"candidates": {"integrated": {"weights": {"hierarchical": 0.5, "soup": 0.4}}}}, "sum to 1, not to 0.9"),
        ({"candidates": {"integrated": {"weights": {"hierarchic": 1.0}}}}, "no strategy hierarchic: choose from plain"),
        ({"candidates": {"soup": {"metrik": "loss"}}}, "unknown key 'metrik': did you mean 'metric'"),
        ({"candidates": {"convex": {"lambda_reg": -1}}}, "candidates.convex.lambda_reg"),
    ],
)
def test_wrong_keys_are_named_with_their_file(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = recipe_file(tmp_path, **changes)
    with pytest.raises(InputError, match=words) as raised:
        read_declared(file, ConsensusRecipe)
    assert str(file) in str(raised.value)


def test_a_literal_33_percent_is_one_third(tmp_path: Path) -> None:
    for written in (0.33, 0.333, 0.3333333333):
        assert read_declared(recipe_file(tmp_path, fault_tolerance=written), ConsensusRecipe).fault_tolerance == 1 / 3
    for written in (0.3, 0.25, 0.32, 0.0):
        assert read_declared(recipe_file(tmp_path, fault_tolerance=written), ConsensusRecipe).fault_tolerance == written
    ballots = [
        {"voter": one, "candidate": other, "round": number, "quality": 0.0 if one == "d" else 0.95}
        for one in "abcd" for other in "abcd" if one != other for number in range(3)
    ]  # fmt: skip
    found = vote(ballots, fault_tolerance=0.33)
    assert (found.n, found.f, found.quorum) == (4, 1, 3)
    assert found.accepted == ("a", "b", "c", "d")  # one liar refuses everybody: 2 of 3 suffice
