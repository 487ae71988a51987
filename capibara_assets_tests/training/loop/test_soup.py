"""Soups: averages of products by hand, and never silently worse than the best validation."""

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from capibara_assets.modeling.adapters import LoraAdapter, read_adapter
from capibara_assets.modeling.precision import fast_precision
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.loop.products import averaged, shares_of
from capibara_assets.training.loop.soup import SoupTactic
from capibara_assets.training.step.settings import resolve
from capibara_assets.training.step.subject import Subject, load_subject
from capibara_assets.training.strategy import SoupStrategy
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.strategy_runs import QUIET, digests, manifest, train, train_stopped, voters

CPU = torch.device("cpu")


@pytest.fixture
def subject(make_request: MakeRequest) -> Subject:
    request = make_request(lora=QUIET)
    return load_subject(request, resolve(request.recipe, request.lora, fastest=fast_precision(CPU)), CPU)


def random_weights(subject: Subject, seed: int) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {name: torch.randn(value.shape, generator=random) / 5 for name, value in subject.trainable.items()}


def best_of_rank(matrix: Tensor, rank: int) -> Tensor:
    left, singular, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    return (left[:, :rank] * singular[:rank]) @ right[:rank]


def test_two_ingredients_by_hand(subject: Subject) -> None:
    """The mean of the products, cut to the trained rank; not the product of the means."""
    adapters = [subject.adapter(random_weights(subject, seed)) for seed in (1, 2)]
    average = averaged(adapters, [0.25, 0.75], subject)
    assert average.weights.keys() == subject.trainable.keys()
    found = subject.adapter(average.weights)
    lost = whole = 0.0
    for module in found.modules:
        exact = 0.25 * adapters[0].delta(module).double() + 0.75 * adapters[1].delta(module).double()
        best = best_of_rank(exact, 2)
        assert torch.allclose(found.delta(module).double(), best, atol=1e-5)
        lost += float((exact - best).square().sum())
        whole += float(exact.square().sum())
        apart = 2 * (
            (0.25 * adapters[0].b(module) + 0.75 * adapters[1].b(module))
            @ (0.25 * adapters[0].a(module) + 0.75 * adapters[1].a(module))
        )
        assert float((apart - found.delta(module)).abs().max()) > 1e-2
    assert average.relative_error == pytest.approx(math.sqrt(lost / whole), rel=1e-5)
    assert average.relative_error > 0.1


def test_an_average_of_one_is_itself_and_of_smaller_ones_is_exact(subject: Subject) -> None:
    weights = random_weights(subject, 3)
    adapter = subject.adapter(weights)
    found = subject.adapter(averaged([adapter], [1.0], subject).weights)
    assert all(torch.allclose(found.delta(m), adapter.delta(m), atol=1e-5) for m in adapter.modules)
    rank_one = {name: value[:1] if ".lora_A." in name else value[:, :1] for name, value in adapter.tensors.items()}
    small = LoraAdapter(adapter.config | {"r": 1, "lora_alpha": 2}, rank_one)
    average = averaged([small], [0.5], subject)  # fewer components than are trained: filled up with zeros
    found = subject.adapter(average.weights)
    assert all(value.shape == subject.trainable[name].shape for name, value in average.weights.items())
    assert all(torch.allclose(found.delta(m), 0.5 * small.delta(m), atol=1e-5) for m in small.modules)


def test_shares() -> None:
    assert shares_of([2.0, 9.0], None) == [0.5, 0.5]
    first, second = shares_of([1.0, 1.0 + math.log(3)], "perplexity")  # three times the perplexity, a third the share
    assert (first, second) == (pytest.approx(0.75), pytest.approx(0.25))
    assert shares_of([1e6, 1e6], "perplexity") == [0.5, 0.5]
    assert shares_of([1.0, 3.0], "loss") == [0.75, 0.25]
    assert shares_of([0.0, 1.0, 0.0], "loss") == [0.5, 0.0, 0.5]


def soup_tactic(subject: Subject, average: str, losses: Mapping[int, float], ingredients: int = 5) -> SoupTactic:
    """With the weights of seed `step` at each step."""
    made = SoupTactic(SoupStrategy(average=average, ingredients=ingredients), subject)
    for step, loss in losses.items():
        made.after_validation(step, loss, random_weights(subject, step))
    return made


def delta_of(subject: Subject, steps: list[int], shares: list[float]) -> LoraAdapter:
    adapters = [subject.adapter(random_weights(subject, step)) for step in steps]
    return subject.adapter(averaged(adapters, shares, subject).weights)


def same(one: LoraAdapter, other: LoraAdapter) -> bool:
    return all(torch.allclose(one.delta(module), other.delta(module), atol=1e-5) for module in one.modules)


def test_uniform_takes_the_newest_and_weighted_counts_by_perplexity(subject: Subject) -> None:
    losses = {3: 2.0, 6: 1.5, 9: 1.5 + math.log(3)}
    published = soup_tactic(subject, "uniform", losses, ingredients=2).result({}, lambda weights: 1.4)
    assert same(published.adapter, delta_of(subject, [6, 9], [0.5, 0.5])) and published.loss == 1.4
    assert published.report["used"] == [6, 9] and published.report["published"] == "soup"
    published = soup_tactic(subject, "weighted", losses, ingredients=2).result({}, lambda weights: 1.4)
    assert same(published.adapter, delta_of(subject, [6, 9], [0.75, 0.25]))


def test_greedy_adds_what_does_not_harm_best_first(subject: Subject) -> None:
    scores = iter([1.6, 1.2, 1.3])  # with 9: worse; with 3: better; with 12: worse again
    published = soup_tactic(subject, "greedy", {3: 2.0, 6: 1.5, 9: 1.7, 12: 3.0}).result(
        {}, lambda weights: next(scores)
    )
    assert published.report["used"] == [3, 6] and published.loss == 1.2
    assert same(published.adapter, delta_of(subject, [6, 3], [0.5, 0.5]))
    alone = soup_tactic(subject, "greedy", {3: 2.0, 6: 1.5}).result(random_weights(subject, 6), lambda weights: 9.9)
    assert alone.report["used"] == [6] and alone.loss == 1.5
    assert all(torch.equal(alone.adapter.tensors[subject.peft_names[name]], value)
               for name, value in random_weights(subject, 6).items())  # fmt: skip


@pytest.mark.parametrize("score", [1.9, math.nan])
def test_a_soup_worse_than_the_best_validation_is_not_published(subject: Subject, score: float) -> None:
    best = random_weights(subject, 3)
    losses = {3: 1.5, 6: 1.6, 9: 1.7}
    published = soup_tactic(subject, "uniform", losses, ingredients=2).result(best, lambda weights: score)
    assert published.loss is None and published.report["published"] == "best validation"
    assert published.report["best_validation"] == {"step": 3, "validation_loss": 1.5}
    assert published.report["best_ingredient_validation_loss"] == 1.6
    assert published.report["soup_validation_loss"] == (None if math.isnan(score) else score)
    assert same(published.adapter, subject.adapter(best))


def test_its_state_comes_back_to_the_bit(subject: Subject) -> None:
    one = soup_tactic(subject, "uniform", {3: 0.1 + 0.2, 12: 1.5, 6: 1 / 3}, ingredients=2)
    other = SoupTactic(SoupStrategy(ingredients=2), subject)
    other.restore(one.state())
    assert one.state().keys() == other.state().keys()
    assert all(torch.equal(value, other.state()[name]) for name, value in one.state().items())
    empty = SoupTactic(SoupStrategy(), subject)
    empty.restore({})
    assert empty.state() == {}


@pytest.mark.parametrize(
    "average", [*(pytest.param(other, marks=pytest.mark.extended) for other in ("uniform", "weighted")), "greedy"]
)
def test_the_published_loss_is_that_of_the_published_weights(
    make_request: MakeRequest, average: str, tmp_path: Path
) -> None:
    settings = {"evaluate_every": 1, "max_steps": 6, "epochs": 9, "lora": QUIET}
    choice = voters({"kind": "soup", "average": average, "ingredients": 3})
    found = manifest(result := train(make_request(voters=choice, **settings)))
    report = found["published"]
    assert [one["step"] for one in report["ingredients"]] == [4, 5, 6]
    assert found["validation_loss"] <= report["best_ingredient_validation_loss"]
    if report["published"] == "soup":
        assert found["validation_loss"] == report["soup_validation_loss"]
    # Validated again, from the files, at the start of a training that begins with them
    from capibara_assets.training.loop.train import train_voter

    request = make_request(work="again", **settings | {"max_steps": 1})
    fresh = load_subject(request, resolve(request.recipe, request.lora, fastest="fp32"), CPU)
    tensors = read_adapter(result).tensors
    initial = {name: tensors[theirs] for name, theirs in fresh.peft_names.items()}
    spec = request.recipe.voters[0].model_copy(update={"shard": 0})
    one = request.model_copy(update={"recipe": request.recipe.model_copy(update={"voters": (spec,)})})
    again = train_voter(VoterRun(one, spec, tmp_path / "judge", lambda event: None, lambda: None, initial=initial))
    assert manifest(again)["base_validation_loss"] == pytest.approx(found["validation_loss"], rel=1e-6)


@pytest.mark.resume
def test_stopped_and_resumed_it_is_the_same_to_the_bit(make_request: MakeRequest) -> None:
    settings = {"voters": voters({"kind": "soup", "average": "greedy", "ingredients": 2}), "evaluate_every": 1}
    settings |= {"max_steps": 5}
    expected = digests(train(make_request(work="whole", **settings)))
    result = train_stopped(make_request(work="stopped", **settings), calls=11, times=2)
    assert digests(result) == expected
