"""The mixture of experts: a Mixtral checkpoint that loads, the right arithmetic, gates that tell domains apart."""

from pathlib import Path

import polars as pl
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MixtralForCausalLM, Qwen2Config

from capibara_assets.consensus.choose.experts import PromptedExample
from capibara_assets.consensus.merging.experts_merge import merge_experts, write_merged
from capibara_assets.consensus.mixture.mixtral import mixtral_config
from capibara_assets.consensus.mixture.moe import MixtureExamples, mixture_of_experts
from capibara_assets.consensus.recipe import ConsensusRecipe, MoeRecipe
from capibara_assets.datasets.schema import Route
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.losses import assistant_losses
from capibara_assets.storage.records import table
from capibara_assets_tests.consensus.conftest import Tokens, changed, counting

STEPS = {Domain.PYTHON: 5, Domain.SQL: 7, Domain.API: 11}
RECIPE = ConsensusRecipe(moe=MoeRecipe(steps=20))


@pytest.fixture(scope="module")
def routes(experts: dict[Domain, LoraAdapter]) -> pl.DataFrame:
    """Prompts that look like their domain's sequences; those of the test split point the wrong way."""
    rows = []
    for domain in experts:
        for number, example in enumerate(counting(STEPS[domain], 40, seed=7)):
            rows.append(
                Route(
                    route_id=f"{domain}-{number:02}",
                    prompt=" ".join(f"w{token}" for token in example.input_ids),
                    domains=[domain.value],
                    weights=[1.0],
                    split="train" if number < 35 else "test",
                    group_id=f"g{number}",
                    hard_negative=False,
                    negative_of=[],
                )
            )
    return table(Route, rows)


@pytest.fixture(scope="module")
def merged(
    deeper: Base,
    experts: dict[Domain, LoraAdapter],
    domain_validation: dict[Domain, list[Tokens]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("merged")
    write_merged(deeper, merge_experts(deeper, experts, domain_validation, RECIPE), folder)
    return folder


@pytest.fixture(scope="module")
def training() -> dict[Domain, list[Tokens]]:
    return {domain: counting(step, 40, seed=500 + step) for domain, step in STEPS.items()}


@pytest.fixture(scope="module")
def asked(domain_validation: dict[Domain, list[Tokens]]) -> dict[Domain, list[PromptedExample]]:
    """The validation examples and the prompts that they would have come of."""
    return {
        domain: [PromptedExample(example, " ".join(f"w{token}" for token in example.input_ids)) for example in own]
        for domain, own in domain_validation.items()
    }


def test_it_loads_routes_and_is_compared(
    deeper: Base,
    experts: dict[Domain, LoraAdapter],
    merged: Path,
    routes: pl.DataFrame,
    training: dict[Domain, list[Tokens]],
    asked: dict[Domain, list[PromptedExample]],
    domain_validation: dict[Domain, list[Tokens]],
    tmp_path: Path,
) -> None:
    report = mixture_of_experts(
        deeper, merged, experts, MixtureExamples(routes, training, asked), tmp_path / "one", RECIPE
    )
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "one")
    assert isinstance(model, MixtralForCausalLM)
    assert (model.config.num_local_experts, model.config.num_experts_per_tok) == (3, 2)
    assert model.config.capibara_experts == ["python", "sql", "api"]
    assert sum(report["utilisation"].values()) == pytest.approx(1.0)
    assert all(sum(layer.values()) == pytest.approx(1.0) for layer in report["per_layer"])
    assert report["dead"] == [] and report["dead_in"] == {}
    for domain in experts:
        assert max(report["top1"][domain], key=report["top1"][domain].get) == domain
    for k in (1, 2):  # the stated losses are those of the checkpoint as Transformers loads it
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "one", num_experts_per_tok=k)
        for domain, examples in domain_validation.items():
            assert report["losses"][domain][f"moe_top{k}"] == pytest.approx(
                assistant_losses(loaded, examples).mean, rel=1e-5
            )
    dense = AutoModelForCausalLM.from_pretrained(merged)
    for domain, examples in domain_validation.items():
        row = report["losses"][domain]
        assert row["base"] == pytest.approx(assistant_losses(deeper.model, examples).mean, rel=1e-5)
        assert row["dense_merge"] == pytest.approx(assistant_losses(dense, examples).mean, rel=1e-5)
        with applied(deeper.model, experts[domain]):
            assert row["oracle_adapters"] == pytest.approx(assistant_losses(deeper.model, examples).mean, rel=1e-5)
        assert row["moe_top2"] < row["base"]
        if report["router_accuracy"][domain] == 1.0:
            assert row["routed_adapters"] == pytest.approx(row["oracle_adapters"], rel=1e-6)
    assert report["mean_losses"]["moe_top2"] <= report["mean_losses"]["moe_top2_initial"]


def test_the_same_bytes_whatever_the_order_and_the_threads(
    deeper: Base,
    experts: dict[Domain, LoraAdapter],
    merged: Path,
    routes: pl.DataFrame,
    training: dict[Domain, list[Tokens]],
    asked: dict[Domain, list[PromptedExample]],
    tmp_path: Path,
) -> None:
    first = mixture_of_experts(
        deeper, merged, experts, MixtureExamples(routes, training, asked), tmp_path / "one", RECIPE
    )
    turned = [dict(reversed(given.items())) for given in (experts, training, asked)]
    torch.set_num_threads(3)
    try:
        second = mixture_of_experts(
            deeper, merged, turned[0], MixtureExamples(routes, turned[1], turned[2]), tmp_path / "two", RECIPE
        )
    finally:
        torch.set_num_threads(1)
    assert first == second
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one == two


def test_gates_that_training_makes_worse_are_not_kept(
    deeper: Base,
    experts: dict[Domain, LoraAdapter],
    merged: Path,
    routes: pl.DataFrame,
    training: dict[Domain, list[Tokens]],
    asked: dict[Domain, list[PromptedExample]],
    tmp_path: Path,
) -> None:
    """Trained in huge steps towards balance alone."""
    wild = ConsensusRecipe(moe=MoeRecipe(steps=20, learning_rate=3.0, balance=100.0))
    report = mixture_of_experts(
        deeper, merged, experts, MixtureExamples(routes, training, asked), tmp_path / "wild", wild
    )
    assert report["training"]["kept"] is False
    assert report["training"]["mean_loss"]["after"] > report["training"]["mean_loss"]["before"]
    assert report["mean_losses"]["moe_top2"] == report["training"]["mean_loss"]["before"]
    assert report["mean_losses"]["moe_top2"] == report["mean_losses"]["moe_top2_initial"]
    mixture_of_experts(deeper, merged, experts, MixtureExamples(routes), tmp_path / "untrained", RECIPE)
    wild_bytes, plain = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("wild", "untrained"))
    assert wild_bytes == plain


def test_identical_experts_are_the_dense_expert(
    deeper: Base, experts: dict[Domain, LoraAdapter], routes: pl.DataFrame, tmp_path: Path
) -> None:
    """With the same feed-forward delta in every expert, whatever the gates say, the mixture is that dense model."""
    mlp_only = {n: t for n, t in experts[Domain.SQL].tensors.items() if ".mlp." in n}
    same = LoraAdapter(experts[Domain.SQL].config, mlp_only)
    mixture_of_experts(deeper, deeper.path, dict.fromkeys(experts, same), MixtureExamples(routes), tmp_path, RECIPE)
    mixture = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.arange(20)[None] % 64
    with torch.no_grad(), applied(deeper.model, same):
        expected = deeper.model(ids).logits
    with torch.no_grad():
        assert torch.allclose(mixture(ids).logits, expected, atol=1e-5)


def test_one_expert_is_a_mixture_of_one(
    deeper: Base, experts: dict[Domain, LoraAdapter], routes: pl.DataFrame, tmp_path: Path
) -> None:
    nothing = changed(experts[Domain.API], 0.0)
    report = mixture_of_experts(deeper, deeper.path, {Domain.API: nothing}, MixtureExamples(routes), tmp_path, RECIPE)
    assert report["utilisation"] == {"api": 1.0}
    ids = torch.arange(9)[None]
    with torch.no_grad():
        found = AutoModelForCausalLM.from_pretrained(tmp_path)(ids).logits
        assert torch.allclose(found, deeper.model(ids).logits, atol=1e-5)


def test_top_1(deeper: Base, experts: dict[Domain, LoraAdapter], routes: pl.DataFrame, tmp_path: Path) -> None:
    recipe = RECIPE.model_copy(update={"moe": RECIPE.moe.model_copy(update={"top_k": 1})})
    report = mixture_of_experts(deeper, deeper.path, experts, MixtureExamples(routes), tmp_path, recipe)
    assert report["top_k"] == AutoModelForCausalLM.from_pretrained(tmp_path).config.num_experts_per_tok == 1


def test_what_mixtral_cannot_express() -> None:
    with pytest.raises(InputError, match="'qwen2' model cannot be written as Mixtral"):
        mixtral_config(Qwen2Config(), 2, 2)
    with pytest.raises(InputError, match="biases"):
        mixtral_config(LlamaConfig(attention_bias=True), 2, 2)


def test_every_expert_needs_prompts_and_examples(
    deeper: Base,
    experts: dict[Domain, LoraAdapter],
    routes: pl.DataFrame,
    training: dict[Domain, list[Tokens]],
    asked: dict[Domain, list[PromptedExample]],
    tmp_path: Path,
) -> None:
    less = {domain: own for domain, own in training.items() if domain != Domain.API}
    with pytest.raises(InputError, match="no training examples for api"):
        mixture_of_experts(deeper, deeper.path, experts, MixtureExamples(routes, less), tmp_path, RECIPE)
    unjudged = {domain: own for domain, own in asked.items() if domain != Domain.API}
    with pytest.raises(InputError, match="no validation examples for api"):
        mixture_of_experts(deeper, deeper.path, experts, MixtureExamples(routes, training, unjudged), tmp_path, RECIPE)
    fewer = routes.filter(~pl.col("domains").list.contains("sql"))
    with pytest.raises(InputError, match="no routing prompts for sql"):
        mixture_of_experts(deeper, deeper.path, experts, MixtureExamples(fewer), tmp_path, RECIPE)
    with pytest.raises(InputError, match="no expert to mix"):
        mixture_of_experts(deeper, deeper.path, {}, MixtureExamples(routes), tmp_path, RECIPE)
