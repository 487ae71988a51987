"""DP-SGD: gradients clipped one by one, noise and sampling as accounted, and nothing told that is not noised."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from pydantic import ValidationError

from capibara_assets.deployment.declarations import read_declared
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.training.data.examples import chosen, read_examples, tokens_of
from capibara_assets.training.data.voter_run import Interrupted
from capibara_assets.training.environment import pick_device, settings_on
from capibara_assets.training.loop.client import lora_only
from capibara_assets.training.plan.plan import plan_training
from capibara_assets.training.plan.text import plan_lines
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.step.subject import load_subject
from capibara_assets.training.strategies import private_sgd
from capibara_assets.training.strategies.changes import Coordinates, Mechanism, length
from capibara_assets.training.strategies.privacy import (
    NoisedSums,
    combined_privacy,
    dp_epsilon,
    privacy_document,
    privacy_problems,
)
from capibara_assets.training.strategies.privacy_plan import budget_of_steps, trained_numbers
from capibara_assets.training.strategies.private_sgd import GradientSpace, add_clipped
from capibara_assets.training.strategy import Privacy, PrivateStrategy, TrainedNumbers
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.strategy_runs import QUIET, digests, manifest, train, train_stopped, voters

KINDS: tuple[TrainedNumbers, ...] = ("factors", "b_only", "scales")
# Each kind's gradient is tested in `make test`; what is done with it is the same for all of them.
B_ONLY = ["b_only", *(pytest.param(kind, marks=pytest.mark.extended) for kind in KINDS[::2])]


def private(trained: TrainedNumbers = "b_only", **privacy: Any) -> list[dict[str, Any]]:
    """One voter under DP-SGD; its noise is given, since finding the least for a large epsilon takes seconds."""
    choice = {"epsilon": 8.0, "noise_multiplier": 2.0, "clip": 0.5} | privacy
    return voters({"kind": "private", "trained": trained, "privacy": choice})


@pytest.fixture
def few(dataset: Path, tmp_path: Path) -> Path:
    """16 train examples, and four to validate on: each of them has a gradient of its own."""
    pl.read_parquet(dataset).head(20).write_parquet(tmp_path / "few.parquet")
    return tmp_path / "few.parquet"


class Steps:
    """What goes into the noise of each step, and what comes out."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.sums: list[Coordinates] = []
        self.means: list[Coordinates] = []
        self.how: list[Mechanism] = []
        self.gradients: list[Coordinates] = []
        noised, add = private_sgd.noised, private_sgd.add_clipped

        def noticing(total: Coordinates, how: Mechanism) -> Coordinates:
            self.sums.append({name: value.copy() for name, value in total.items()})
            self.how.append(how)
            self.means.append(noised(total, how))
            return self.means[-1]

        def adding(total: Coordinates, gradient: Coordinates, clip: float) -> None:
            self.gradients.append(gradient)
            add(total, gradient, clip)

        monkeypatch.setattr(private_sgd, "noised", noticing)
        monkeypatch.setattr(private_sgd, "add_clipped", adding)


@pytest.mark.parametrize("trained", KINDS)
def test_a_gradient_is_the_slope_of_the_loss_in_its_coordinates(
    make_request: MakeRequest, trained: TrainedNumbers
) -> None:
    request = make_request(lora=QUIET, voters=private(trained))
    device = pick_device()
    settings = settings_on(request, device)
    subject = load_subject(request, settings, device)
    examples = read_examples(request.dataset)
    encoded = tokens_of(request, examples, subject.base.tokenizer, settings)
    _, train_set = chosen("train", examples.filter(pl.col("split") == "train"), encoded, settings)
    gradients, parts = GradientSpace.of(trained, subject), lora_only(subject)
    batch = subject.collate([train_set[3]])
    start = {name: value.detach().clone() for name, value in subject.trainable.items()}
    found = gradients.of_example(train_set[3])
    sizes = [(len(start[part.b]), start[part.a].shape[1]) for part in parts]
    assert sum(value.size for value in found.values()) == trained_numbers(trained, sizes, 2)
    assert {n: value.shape for n, value in gradients.zeros().items()} == {n: value.shape for n, value in found.items()}

    generator = np.random.default_rng(0)
    direction = {name: generator.standard_normal(value.shape) for name, value in found.items()}
    direction = {name: value / length(direction) for name, value in direction.items()}
    slope = sum(float((found[name] * direction[name]).sum()) for name in found)
    gradients.write(direction)  # as weights' directions: unit vectors of the coordinates
    losses = []
    for step in (1e-2, -1e-2):
        for name, value in subject.trainable.items():
            moved = start[name] + (step * value.grad if value.grad is not None else 0.0)
            value.data.copy_(moved)
        losses.append(float(subject.loss(batch).mean().detach()))
    assert slope == pytest.approx((losses[0] - losses[1]) / 2e-2, rel=0.02, abs=1e-5)
    assert abs(slope) > 1e-4


@pytest.mark.parametrize("trained", B_ONLY)
def test_a_step_is_the_sum_of_clipped_gradients_and_noise_of_the_stated_size(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch, few: Path, trained: TrainedNumbers
) -> None:
    steps = Steps(monkeypatch)
    made = make_request(data=few, lora=QUIET, voters=private(trained, clip=0.05), max_steps=2, global_batch=1000)
    document = manifest(train(made))["published"]["privacy"]
    assert document["sampling_rate"] == 1.0 and document["examples"] == 16 == len(steps.gradients) / 2
    expected = {name: np.zeros_like(value) for name, value in steps.sums[0].items()}
    clipped = 0
    for gradient in steps.gradients[:16]:
        norm = math.sqrt(sum(float(np.square(value).sum()) for value in gradient.values()))
        clipped += norm > 0.05
        for name, value in gradient.items():
            expected[name] += value * min(1.0, 0.05 / norm)
    assert clipped > 10
    for name, value in expected.items():
        np.testing.assert_allclose(steps.sums[0][name], value, atol=1e-12)
    noise = np.concatenate(
        [
            ((mean[name] * 16 - total[name]) / (0.05 * document["noise_multiplier"])).ravel()
            for mean, total in zip(steps.means, steps.sums, strict=True)
            for name in total
        ]
    )
    assert float(noise.std()) == pytest.approx(1.0, abs=4 / math.sqrt(2 * noise.size))
    assert abs(float(noise.mean())) < 4 / math.sqrt(noise.size)


def test_one_example_more_moves_the_sum_by_the_clip_and_no_other_gradient(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch, few: Path, tmp_path: Path
) -> None:
    """With dropout: its draws must not depend on which other examples there are."""
    sums, gradients = [], []
    for gone in (None, "e011"):
        steps = Steps(monkeypatch)
        table = pl.read_parquet(few).filter(pl.col("example_id") != (gone or ""))
        file = tmp_path / f"without-{gone}.parquet"
        table.write_parquet(file)
        choice = private("factors", clip=0.05, seed=3)
        lora = QUIET | {"dropout": 0.3}
        made = make_request(work=f"{gone}", data=file, lora=lora, voters=choice, max_steps=1, global_batch=1000)
        train(made)
        monkeypatch.undo()
        sums.append(steps.sums[0])
        gradients.append(steps.gradients)
    whole, rest = gradients
    assert len(whole) == 16 and len(rest) == 15
    at = next(place for place in range(15) if not same(whole[place], rest[place]))
    assert all(same(one, other) for one, other in zip(whole[at + 1 :], rest[at:], strict=True))
    moved = length({name: sums[0][name] - sums[1][name] for name in sums[0]})
    assert 0 < moved <= 0.05 * (1 + 1e-9)


def same(one: Coordinates, other: Coordinates) -> bool:
    return all(np.array_equal(value, other[name]) for name, value in one.items())


def test_a_gradient_that_is_not_finite_adds_nothing() -> None:
    total = {"a": np.ones(3)}
    add_clipped(total, {"a": np.array([1.0, np.nan, 1.0])}, 1.0)
    add_clipped(total, {"a": np.array([np.inf, 0.0, 1.0])}, 1.0)
    assert total["a"].tolist() == [1.0, 1.0, 1.0]


def test_sampling_is_by_the_secret_and_at_the_stated_rate(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for seed in (1, 2):
        steps = Steps(monkeypatch)
        made = make_request(work=f"{seed}", lora=QUIET, voters=private(seed=seed), max_steps=4, global_batch=6)
        document = manifest(train(made))["published"]["privacy"]
        monkeypatch.undo()
        assert document["sampling_rate"] == 6 / 48 and document["denominator"] == 6
        assert document["epsilon"] == dp_epsilon(document["noise_multiplier"], 6 / 48, 4, 1e-5) <= 8.0
        assert "no guarantee" in document["seed"]
        drawn = [np.random.default_rng((seed, step, 1)).random(48) < 6 / 48 for step in range(4)]
        assert len(steps.gradients) == sum(int(one.sum()) for one in drawn)
        counts.append([int(one.sum()) for one in drawn])
        assert {how.seed for how in steps.how} == {(seed, step, 2) for step in range(4)}
    assert counts[0] != counts[1] and len(set(counts[0])) > 2


def test_what_is_told_is_noised_and_the_secret_goes(make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets_drawn = 2**100 + 12345
    monkeypatch.setattr("secrets.randbits", lambda bits: secrets_drawn)
    events: list[dict[str, Any]] = []
    result = train(make_request(lora=QUIET, voters=private(), max_steps=3, checkpoint_every=2), events=events)
    found = manifest(result)
    document = found["published"]["privacy"]
    assert not privacy_problems(document) and document["epsilon"] <= document["budget"] == 8.0
    assert document["adjacency"] == "add_or_remove_one_example" and "clients" not in document
    steps = [event for event in events if event["event"] == "step"]
    assert len(steps) == 3
    assert all(not {"loss", "examples", "samples", "tokens", "supervised"} & event.keys() for event in steps)
    assert not [point for point in json.loads((result / "curve.json").read_text()) if "loss" in point]
    assert "signal-to-noise at most" in next(event["text"] for event in events if event["event"] == "warning")
    for path in result.rglob("*"):
        assert not path.is_file() or str(secrets_drawn).encode() not in path.read_bytes()
    assert sorted(path.name for path in result.parent.iterdir()) == ["events.jsonl", "result"]
    supervised = found["supervised_tokens"] / 3  # what sampling makes one expect: the same for all draws
    monkeypatch.setattr("secrets.randbits", lambda bits: 77)
    other = manifest(train(make_request(work="other", lora=QUIET, voters=private(), max_steps=3)))
    assert other["supervised_tokens"] / 3 == supervised


@pytest.mark.resume
@pytest.mark.parametrize("trained", B_ONLY)
def test_stopped_and_resumed_it_is_the_same_to_the_bit(make_request: MakeRequest, trained: TrainedNumbers) -> None:
    settings: dict[str, Any] = {"voters": private(trained, seed=5), "max_steps": 4}
    expected = digests(train(make_request(work="whole", **settings)))
    assert digests(train_stopped(make_request(work="stopped", **settings), calls=19, times=1)) == expected


@pytest.mark.resume
@pytest.mark.extended
@pytest.mark.parametrize("trained", KINDS)
def test_stopped_often_and_resumed_it_is_the_same_to_the_bit(
    make_request: MakeRequest, trained: TrainedNumbers
) -> None:
    settings: dict[str, Any] = {"voters": private(trained, seed=5), "max_steps": 6}
    expected = digests(train(make_request(work="whole", **settings)))
    assert digests(train_stopped(make_request(work="stopped", **settings), calls=23, times=4)) == expected


def test_steps_end_before_the_budget_is_passed(make_request: MakeRequest, few: Path) -> None:
    choice = private(epsilon=1.0, noise_multiplier=4.0)
    made = make_request(data=few, lora=QUIET, voters=choice, max_steps=5, global_batch=8)
    found = manifest(train(made))
    document = found["published"]["privacy"]
    assert 0 < found["steps"] < found["steps_planned"] and document["stopped_by_budget"]
    assert dp_epsilon(4.0, 0.5, found["steps"], 1e-5) <= 1.0 < dp_epsilon(4.0, 0.5, found["steps"] + 1, 1e-5)
    with pytest.raises(InputError, match=r"one step with noise_multiplier 1\.2 has epsilon .* above the budget of 1"):
        budget_of_steps(Privacy(noise_multiplier=1.2), 24, 48, 3)
    with pytest.raises(InputError, match="no less than 1 / 48 examples"):
        budget_of_steps(Privacy(delta=0.1), 24, 48, 3)


@pytest.mark.parametrize("trained", B_ONLY)
def test_with_a_large_budget_it_learns(make_request: MakeRequest, trained: TrainedNumbers) -> None:
    choice = private(trained, epsilon=1e5, noise_multiplier=0.02, clip=10.0)
    rate = 0.05 if trained == "scales" else 0.01
    found = manifest(train(make_request(lora=QUIET, voters=choice, max_steps=8, learning_rate=rate, epochs=4)))
    assert found["validation_loss"] < found["base_validation_loss"] - 0.01


def test_a_longer_training_needs_other_noise_and_is_refused(make_request: MakeRequest) -> None:
    stop_after_a_point(make_request(lora=QUIET, voters=private(), max_steps=4, checkpoint_every=1))
    with pytest.raises(InputError, match="noise was computed for the former number"):
        train(make_request(lora=QUIET, voters=private(), max_steps=6, checkpoint_every=1))


def stop_after_a_point(request: Any) -> None:
    def poll() -> None:
        if list((request.work / "voter-0").glob("checkpoint-*")):
            raise Interrupted

    with pytest.raises(Interrupted):
        train(request, poll)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"backend": "ddp", "processes": 2}, "clips each example's gradient"),
        ({"precision": "fp16"}, "not scaled for fp16"),
        ({"ema": {"decay": 0.9}}, "leave ema out"),
        ({"use_dora": True}, "products B A"),
        ({"optimizer": "adamw_8bit"}, "AdamW keeps a component along its signs"),
    ],
)
def test_what_does_not_fit_is_refused(make_request: MakeRequest, changes: dict[str, Any], said: str) -> None:
    if changes.pop("use_dora", False):
        changes = {"lora": QUIET | {"use_dora": True}}
    with pytest.raises(ValidationError, match=said):
        make_request(voters=private("scales"), **changes)


def test_a_plan_says_how_much_noise_there_is_and_the_shipped_recipe_fits(make_request: MakeRequest) -> None:
    plan = plan_training(make_request(lora=QUIET, voters=private(epsilon=0.1, noise_multiplier=None)))
    assert any("for one example more or less" in line and "6 examples" in line for line in plan.warnings)
    assert any("the noise drowns the update" in line for line in plan_lines(plan))
    assert plan.voters[0].micro_steps == pytest.approx(plan.voters[0].steps * 6)
    recipe = read_declared(resources_root() / "recipes" / "strategies" / "private.yaml", TrainingRecipe)
    choice = recipe.voters[0].strategy
    assert isinstance(choice, PrivateStrategy) and choice.privacy.seed is None
    assert (choice.privacy.epsilon, choice.privacy.delta) == (1.0, 1e-5)


def test_of_clients_and_examples_only_examples_are_protected_by_all() -> None:
    of_clients = privacy_document(
        NoisedSums(noise_multiplier=4.0, sampling_rate=1.0, steps=1, delta=1e-5, clip=0.1), clients=20
    )
    of_examples = privacy_document(
        NoisedSums(noise_multiplier=2.0, sampling_rate=0.1, steps=9, delta=1e-6, clip=0.1), examples=400
    )
    both = combined_privacy({"a": of_clients, "b": of_examples})
    assert both["adjacency"] == "add_or_remove_one_example"
    assert both["epsilon"] == pytest.approx(2 * of_clients["epsilon"] + of_examples["epsilon"])
    assert both["delta"] == pytest.approx(of_clients["replace_one"]["delta"] + 1e-6)
    assert not privacy_problems(json.loads(json.dumps(both)))
    assert privacy_problems(both | {"adjacency": "add_or_remove_one_client"})
    with pytest.raises(ValueError, match="either clients or examples"):
        privacy_document(NoisedSums(noise_multiplier=4.0, sampling_rate=1.0, steps=1, delta=1e-5, clip=0.1))
