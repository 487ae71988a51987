"""One dense model out of experts: better than the base everywhere, and a model that Transformers loads."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from capibara_assets.consensus.choose.sampling import subsample
from capibara_assets.consensus.merging.experts_merge import merge_experts, write_merged
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.losses import assistant_losses
from capibara_assets_tests.consensus.conftest import Tokens, changed, counting

RECIPE = ConsensusRecipe()


def test_every_domain_improves_and_the_model_loads(
    deeper: Base, experts: dict[Domain, LoraAdapter], domain_validation: dict[Domain, list[Tokens]], tmp_path: Path
) -> None:
    before = {name: weight.clone() for name, weight in deeper.model.state_dict().items()}
    merge = merge_experts(deeper, experts, domain_validation, RECIPE)
    report = merge.report
    assert report["all_improve"]
    assert report["smallest_relative_gain"] == pytest.approx(min(report["relative_gains"].values()))
    assert report["smallest_relative_gain"] >= max(
        c["smallest_relative_gain"] for c in report["candidates"] if not c["given_up_early"]
    )
    assert {c["method"] for c in report["candidates"]} == set(RECIPE.merge.methods)
    assert len({tuple(c["weights"].values()) for c in report["candidates"]}) > 1, "weights are searched, too"
    write_merged(deeper, merge, tmp_path)
    for name, weight in deeper.model.state_dict().items():
        assert torch.equal(weight, before[name]), "the base has its own bits again"
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.dtype == torch.float32
    for domain, examples in domain_validation.items():
        loss = assistant_losses(loaded, examples[: report["validation_examples"][domain]]).mean
        assert loss == pytest.approx(report["losses"]["merged"][domain], rel=1e-5)
        assert loss < report["losses"]["base"][domain]
    assert AutoTokenizer.from_pretrained(tmp_path)("w3 w4")["input_ids"] == [3, 4]
    assert (tmp_path / "tokenizer.json").read_bytes() == (deeper.path / "tokenizer.json").read_bytes()


def test_neither_the_order_of_experts_nor_threads_show(
    deeper: Base, experts: dict[Domain, LoraAdapter], domain_validation: dict[Domain, list[Tokens]]
) -> None:
    torch.set_num_threads(3)
    try:
        first = merge_experts(deeper, experts, domain_validation, RECIPE)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    second = merge_experts(deeper, dict(reversed(experts.items())), dict(reversed(domain_validation.items())), RECIPE)
    assert first.report == second.report
    assert all(torch.equal(delta, second.deltas[module]) for module, delta in first.deltas.items())


def test_one_expert_needs_no_compromise(
    deeper: Base, experts: dict[Domain, LoraAdapter], domain_validation: dict[Domain, list[Tokens]]
) -> None:
    report = merge_experts(deeper, {Domain.SQL: experts[Domain.SQL]}, domain_validation, RECIPE).report
    assert (report["method"], report["weights"]) == ("task_arithmetic", {"sql": 1.0})
    assert report["scale"] > 0.3, "nothing interferes, so the climb goes on"


def test_a_merge_that_helps_nowhere_says_so(
    deeper: Base, experts: dict[Domain, LoraAdapter], domain_validation: dict[Domain, list[Tokens]]
) -> None:
    flipped = {domain: changed(adapter, -1.0) for domain, adapter in experts.items()}
    report = merge_experts(deeper, flipped, domain_validation, RECIPE).report
    assert not report["all_improve"]
    assert report["smallest_relative_gain"] < 0


def test_nothing_to_merge_and_nothing_to_judge_by(deeper: Base, experts: dict[Domain, LoraAdapter]) -> None:
    with pytest.raises(InputError, match="no expert to merge"):
        merge_experts(deeper, {}, {}, RECIPE)
    with pytest.raises(InputError, match="no validation examples for python"):
        merge_experts(deeper, experts, {}, RECIPE)


@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 30), st.integers(1, 2000))
def test_subsample_keeps_to_its_limits(lengths: list[int], most: int, tokens: int) -> None:
    chosen = subsample(lengths, most, tokens)
    assert chosen == sorted(set(chosen))
    assert len(chosen) <= most
    assert bool(chosen) == bool(lengths)
    assert len(chosen) <= 1 or sum(lengths[i] for i in chosen) <= tokens


def test_subsample_reaches_over_the_whole_list() -> None:
    assert subsample([1] * 100, 4, 100) == [0, 25, 50, 75]
    assert subsample([1] * 100, 10, 2) == [0, 80]
    assert counting(1, 3, 0)[0].supervised == 9
