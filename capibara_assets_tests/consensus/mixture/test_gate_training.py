"""Gates that learn: the balancing loss against Transformers', gradients against one batch, tasks told apart."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from capibara_assets.consensus.choose.lanes import Lanes, lanes
from capibara_assets.consensus.merging.experts_merge import merge_experts, write_merged
from capibara_assets.consensus.mixture.gate_training import (
    load_balancing_loss,
    mixture_gates,
    routing,
    train_gates,
    training_k,
)
from capibara_assets.consensus.mixture.mixtral import mixtral_config, mixtral_tensors
from capibara_assets.consensus.mixture.moe import utilisation, write_mixture
from capibara_assets.consensus.recipe import ConsensusRecipe, MoeRecipe
from capibara_assets.domains import Domain
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.losses import assistant_losses, collate, token_nll
from capibara_assets_tests.consensus.conftest import Tokens, counting, learnt

STEPS = {Domain.PYTHON: 5, Domain.SQL: 7, Domain.API: 11}


@pytest.fixture
def at_once() -> Iterator[Lanes]:
    with lanes() as found:
        yield found


@pytest.fixture
def training() -> dict[Domain, list[Tokens]]:
    return {domain: counting(step, 40, seed=500 + step) for domain, step in STEPS.items()}


@pytest.fixture(scope="module")
def trunk(
    deeper: Base,
    experts: dict[Domain, LoraAdapter],
    domain_validation: dict[Domain, list[Tokens]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Base:
    """The dense merge, whose attention knows all tasks a little."""
    folder = tmp_path_factory.mktemp("trunk")
    write_merged(deeper, merge_experts(deeper, experts, domain_validation, ConsensusRecipe()), folder)
    return load_base(folder)


def mixture(
    trunk: Base, deeper: Base, experts: dict[Domain, LoraAdapter], gates: list[torch.Tensor], folder: Path
) -> object:
    """The experts with given gates, as Transformers loads them."""
    mixtral_config(deeper.model.config, len(experts), 2).save_pretrained(folder)
    write_mixture(mixtral_tensors(trunk.model, deeper.model, list(experts.values()), gates), folder)
    return AutoModelForCausalLM.from_pretrained(folder).eval().requires_grad_(False)


def random_gates(scale: float, seed: int = 0) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(3, 32, generator=random) for _ in range(2)]


@given(st.integers(1, 40), st.integers(2, 8), st.integers(1, 3), st.integers(0, 2**31))
def test_the_balancing_loss_is_transformers(tokens: int, experts: int, layers: int, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    logits = [2 * torch.randn(tokens, experts, generator=random) for _ in range(layers)]
    for k in (1, 2):
        theirs = [float(load_balancing_loss_func((one,), experts, k)) for one in logits]
        assert float(load_balancing_loss(logits, k)) == pytest.approx(sum(theirs) / layers, rel=1e-5)


def test_balance_is_k_and_one_expert_for_all_is_their_number() -> None:
    even = torch.eye(4).repeat(5, 1) * 1e-4
    assert float(load_balancing_loss([even], 1)) == pytest.approx(1.0, rel=1e-3)
    one = torch.tensor([[50.0, 0.0, 0.0, 0.0]]).expand(7, 4)
    assert float(load_balancing_loss([one], 1)) == pytest.approx(4.0, rel=1e-5)
    # Two layers that lean each its own way do not excuse each other
    other = torch.tensor([[0.0, 0.0, 0.0, 50.0]]).expand(7, 4)
    assert float(load_balancing_loss([one, other], 1)) == pytest.approx(4.0, rel=1e-5)


@pytest.mark.parametrize("window", [None, 6])
def test_a_step_is_that_of_the_whole_batch(
    window: int | None,
    trunk: Base,
    deeper: Base,
    experts: dict[Domain, LoraAdapter],
    training: dict[Domain, list[Tokens]],
    at_once: Lanes,
    tmp_path: Path,
) -> None:
    """Examples packed in lanes; plain Adam on Transformers' own forward pass over all of them, a row each."""
    first = {domain: own[:1] for domain, own in training.items()}
    recipe = MoeRecipe(steps=1, learning_rate=0.01, balance=0.5)
    ours = mixture(trunk, deeper, experts, random_gates(0.3), tmp_path)
    ours.config.sliding_window = window  # type: ignore[attr-defined]
    log = train_gates(ours, first, recipe, at_once)

    theirs = AutoModelForCausalLM.from_pretrained(tmp_path).eval().requires_grad_(False)
    theirs.config.sliding_window = window
    gates = [gate.weight.requires_grad_(True) for gate in mixture_gates(theirs)]
    found: list[torch.Tensor] = []
    for gate in mixture_gates(theirs):
        gate.register_forward_hook(lambda _, __, output: found.append(output[0]))
    language = token_nll(theirs, collate([own[0] for own in first.values()])).mean()
    balance = sum(load_balancing_loss_func((logits,), 3, 2) for logits in found) / len(found)
    (language + 0.5 * balance).backward()
    torch.optim.Adam(gates, lr=0.01).step()
    assert (log[-1]["loss"], log[-1]["balance"]) == (pytest.approx(language.item()), pytest.approx(balance.item()))
    for own, other in zip(mixture_gates(ours), gates, strict=True):
        assert torch.allclose(own.weight, other, atol=1e-4)
        assert not own.weight.requires_grad and own.weight.grad is None


def within(first: int, step: int, examples: int, seed: int) -> list[Tokens]:
    """Sequences over 20 tokens of a domain's own, that add `step` again and again."""
    random = torch.Generator().manual_seed(seed)
    made = []
    for start in torch.randint(0, 20, (examples,), generator=random).tolist():
        ids = [first + (start + step * position) % 20 for position in range(12)]
        made.append(Tokens(ids, [-100] * 3 + ids[3:], len(ids) - 3))
    return made


def test_training_tells_separable_tasks_apart_and_lowers_the_loss(deeper: Base, at_once: Lanes, tmp_path: Path) -> None:
    """Every token belongs to one domain and needs its expert; gates that know nothing learn it from the loss alone."""
    tasks = {Domain.PYTHON: (0, 3), Domain.SQL: (20, 7), Domain.API: (40, 9)}
    mlp = ("gate_proj", "up_proj", "down_proj")
    experts = {d: learnt(deeper, within(*task, 64, seed=1), 1, rank=32, targets=mlp) for d, task in tasks.items()}
    training = {domain: within(*task, 40, seed=2) for domain, task in tasks.items()}
    held = {domain: within(*task, 20, seed=3) for domain, task in tasks.items()}
    model = mixture(deeper, deeper, experts, random_gates(0.02), tmp_path)
    prompts = {domain: [example.input_ids for example in own] for domain, own in held.items()}

    def state() -> tuple[float, float]:
        losses = [assistant_losses(model, own).mean for own in held.values()]
        first = utilisation(model, prompts, 2, at_once)["top1"]
        return sum(losses) / 3, sum(first[domain][domain] for domain in experts) / 3

    loss, accuracy = state()
    log = train_gates(model, training, MoeRecipe(steps=30, learning_rate=0.04), at_once)
    after, better = state()
    own = []
    for domain, expert in experts.items():
        with applied(deeper.model, expert):
            own.append(assistant_losses(deeper.model, held[domain]).mean)
    oracle = sum(own) / 3
    assert loss - after > 0.5 * (loss - oracle), "most of what each token's right expert alone would gain"
    assert better > accuracy + 0.2
    assert [line["step"] for line in log] == list(range(3, 31, 3))
    assert log[-1]["loss"] < log[0]["loss"]
    assert all(sum(line["utilisation"].values()) == pytest.approx(1.0) for line in log)


def test_a_dead_expert_is_named_and_balancing_wakes_it(
    trunk: Base,
    deeper: Base,
    experts: dict[Domain, LoraAdapter],
    training: dict[Domain, list[Tokens]],
    domain_validation: dict[Domain, list[Tokens]],
    at_once: Lanes,
    tmp_path: Path,
) -> None:
    """Of five experts the best two are always v and v / 2, or -v and -v / 2: the fifth is asked for nothing."""
    prompts = {domain: [example.input_ids for example in own] for domain, own in domain_validation.items()}
    names = [Domain.PYTHON, Domain.SQL, Domain.JAVASCRIPT, Domain.DEBUG, Domain.API]
    five = dict(zip(names, [*experts.values(), *experts.values()], strict=False))
    everyone = dict.fromkeys(names, prompts[Domain.SQL])
    learnt = {domain: training.get(domain, training[Domain.SQL]) for domain in names}
    gates = [torch.stack([v, v / 2, -v, -v / 2, torch.zeros(32)]) for v, _, _ in random_gates(1.0)]
    model = mixture(trunk, deeper, five, gates, tmp_path)
    found = utilisation(model, everyone, 2, at_once)
    assert found["dead"] == ["api"] and found["dead_in"] == {"api": [0, 1]}
    assert found["utilisation"]["api"] == 0.0 and found["balance"] < 0.9
    log = train_gates(model, learnt, MoeRecipe(steps=20, learning_rate=0.1, balance=1.0), at_once)
    assert utilisation(model, everyone, 2, at_once)["dead"] == []
    assert log[-1]["balance"] < log[0]["balance"]
    assert log[0]["utilisation"]["api"] < log[-1]["utilisation"]["api"]


def test_one_weight_that_is_always_one_teaches_nothing() -> None:
    assert [training_k(k, 6) for k in (1, 2, 3, 9)] == [2, 2, 3, 6]
    assert training_k(1, 1) == 1


def test_routing_is_as_before_afterwards(
    trunk: Base, deeper: Base, experts: dict[Domain, LoraAdapter], tmp_path: Path
) -> None:
    model = mixture(trunk, deeper, experts, random_gates(1.0), tmp_path)
    ids = torch.arange(12)[None]
    with torch.no_grad():
        two = model(ids).logits
        with routing(model, 1):
            one = model(ids).logits
        assert torch.equal(model(ids).logits, two)
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path, num_experts_per_tok=1)
        assert torch.allclose(loaded(ids).logits, one, atol=1e-6)
    assert not torch.allclose(one, two)
