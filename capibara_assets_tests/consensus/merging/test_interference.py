"""The interference matrix against losses measured one by one."""

import pytest

from capibara_assets.consensus.merging.experts_merge import merge_experts
from capibara_assets.consensus.recipe import ConsensusRecipe, MergeRecipe
from capibara_assets.domains import Domain
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.losses import assistant_losses
from capibara_assets_tests.consensus.conftest import Tokens, changed

RECIPE = ConsensusRecipe(merge=MergeRecipe(interference_tokens=100_000, methods=("task_arithmetic",)))


def test_it_is_the_change_of_each_loss_by_each_expert(
    deeper: Base, experts: dict[Domain, LoraAdapter], domain_validation: dict[Domain, list[Tokens]]
) -> None:
    report = merge_experts(deeper, experts, domain_validation, RECIPE).report
    assert all(report["interference"][domain][domain] < 0 for domain in experts), "an expert helps its own domain"
    deltas = {
        domain: {m: report["scale"] * report["weights"][domain] * d for m, d in experts[domain].deltas().items()}
        for domain in experts
    }
    for absent in experts:
        others = [deltas[domain] for domain in experts if domain != absent]
        without = {module: sum(own[module] for own in others) for module in others[0]}
        with applied(deeper.model, without):
            for domain, examples in domain_validation.items():
                change = report["losses"]["merged"][domain] - assistant_losses(deeper.model, examples).mean
                assert report["interference"][absent][domain] == pytest.approx(change, abs=1e-4)


def test_an_expert_of_nothing_disturbs_nobody_and_a_harmful_one_shows(
    deeper: Base, experts: dict[Domain, LoraAdapter], domain_validation: dict[Domain, list[Tokens]]
) -> None:
    odd = {**experts, Domain.SQL: changed(experts[Domain.SQL], 0.0)}
    found = merge_experts(deeper, odd, domain_validation, RECIPE).report["interference"]
    assert all(change == pytest.approx(0.0, abs=1e-6) for change in found[Domain.SQL].values())
    odd = {**experts, Domain.SQL: changed(experts[Domain.SQL], -1.0)}
    found = merge_experts(deeper, odd, domain_validation, RECIPE).report["interference"]
    assert found[Domain.SQL][Domain.SQL] > 0


def test_of_one_expert_it_is_what_the_merge_gained(
    deeper: Base, experts: dict[Domain, LoraAdapter], domain_validation: dict[Domain, list[Tokens]]
) -> None:
    report = merge_experts(deeper, {Domain.API: experts[Domain.API]}, domain_validation, RECIPE).report
    gained = report["losses"]["merged"]["api"] - report["losses"]["base"]["api"]
    assert report["interference"] == {"api": {"api": pytest.approx(gained, abs=1e-6)}}
