"""Federated voters: who trains what, exact sums of products, FedProx and FedAdam by hand, and privacy's budget."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from capibara_assets.deployment.declarations import read_declared
from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.loop.client import ClientTactic, signs
from capibara_assets.training.loop.products import Product, detached
from capibara_assets.training.plan.plan import plan_training
from capibara_assets.training.plan.text import plan_lines
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.strategies import federated, secret_seed
from capibara_assets.training.strategies.changes import Mechanism, Space, length, mean_change, server_step
from capibara_assets.training.strategies.clients import assign_clients
from capibara_assets.training.strategies.federated import participants
from capibara_assets.training.strategies.privacy import dp_epsilon, privacy_problems
from capibara_assets.training.strategies.privacy_plan import budget_of, dimensions, warnings_of
from capibara_assets.training.strategy import (
    ClientStrategy,
    FederatedServer,
    FederatedStrategy,
    Privacy,
    TrainedNumbers,
)
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.strategy_runs import QUIET, digests, manifest, train, train_stopped, voters

NAME = "base_model.model.{}.lora_{}.weight"


class TinySubject:
    """Two modules under LoRA of rank 2 and nothing else: what the coordinates and the tactic look at."""

    def __init__(self, seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        self.trainable = {
            f"{module}.{half}": nn.Parameter(torch.randn(shape, generator=generator))
            for module, out, into in (("first", 4, 3), ("second", 5, 6))
            for half, shape in (("A", (2, into)), ("B", (out, 2)))
        }
        self.peft_names = {name: NAME.format(*name.split(".")) for name in self.trainable}
        self.device = torch.device("cpu")

    def adapter(self, weights: dict[str, Tensor]) -> LoraAdapter:
        return LoraAdapter({"r": 2, "lora_alpha": 6}, {self.peft_names[name]: value for name, value in weights.items()})


def clients_of(subject: Any, trained: TrainedNumbers, n: int = 5) -> list[dict[str, Tensor]]:
    """Weights of n clients that changed only what is trained."""
    found = []
    for seed in range(n):
        generator = torch.Generator().manual_seed(100 + seed)
        weights = detached(subject.trainable)
        for name, value in weights.items():
            if trained == "factors" or name.endswith("B"):
                change = torch.randn(value.shape, generator=generator)
                if trained == "scales":
                    value.zero_()
                    change = signs(name.removesuffix(".B"), value.shape) * change[:1]
                value.add_(change)
        found.append(weights)
    return found


def dense(weights: dict[str, Tensor], module: str) -> Tensor:
    return 3.0 * (weights[f"{module}.B"].double() @ weights[f"{module}.A"].double())


@pytest.mark.parametrize("trained", ["factors", "b_only", "scales"])
def test_the_mean_is_the_dense_mean_of_the_products(trained: TrainedNumbers) -> None:
    subject: Any = TinySubject()
    start = detached(subject.trainable)
    if trained == "scales":
        for name in ("first.B", "second.B"):
            start[name].zero_()
    clients, shares = clients_of(subject, trained), [0.1, 0.2, 0.3, 0.25, 0.15]
    space = Space.of(trained, subject)
    change = mean_change(space, start, clients, shares)
    point, _ = server_step(FederatedServer(), space.read(start), change, {})
    result = space.write(point, start)
    lost = total = 0.0
    for module in ("first", "second"):
        exact = sum(share * dense(one, module) for share, one in zip(shares, clients, strict=True))
        found = dense(result.weights, module)
        if trained == "factors":  # cut to the trained rank: the best that there is
            left, singular, right = torch.linalg.svd(exact, full_matrices=False)
            torch.testing.assert_close(found, (left[:, :2] * singular[:2]) @ right[:2], atol=1e-4, rtol=1e-4)
            lost, total = lost + float(singular[2:].square().sum()), total + float(singular.square().sum())
            apart = sum(s * one[f"{module}.B"].double() for s, one in zip(shares, clients, strict=True)) @ sum(
                s * one[f"{module}.A"].double() for s, one in zip(shares, clients, strict=True)
            )  # type: ignore[operator]
            assert (3.0 * apart - exact).norm() > 1.2 * (found - exact).norm()
        else:
            torch.testing.assert_close(found, exact, atol=1e-5, rtol=1e-5)
            assert torch.equal(result.weights[f"{module}.A"], start[f"{module}.A"])
    assert result.relative_error == pytest.approx(math.sqrt(lost / total) if total else 0.0, abs=1e-9)


@pytest.mark.parametrize("trained", ["factors", "b_only", "scales"])
def test_reading_and_writing_is_the_identity_and_lengths_are_those_of_weights(trained: TrainedNumbers) -> None:
    subject: Any = TinySubject()
    space, weights = Space.of(trained, subject), clients_of(subject, trained)[0]
    coordinates = space.read(weights)
    again = space.read(space.write(coordinates, weights).weights)
    for module, value in coordinates.items():
        np.testing.assert_allclose(again[module], value, atol=1e-5)
    sizes = [(4, 3), (5, 6)]
    assert sum(value.size for value in coordinates.values()) == dimensions(trained, sizes, 2)
    assert dimensions("factors", sizes, 2) == 42 and dimensions("b_only", sizes, 2) == 18
    assert dimensions("scales", sizes, 2) == 4
    if trained != "factors":
        assert length(coordinates) == pytest.approx(
            math.sqrt(sum(float(weights[f"{m}.B"].double().square().sum()) for m in ("first", "second")))
        )


def test_one_client_more_moves_the_sum_by_the_clip_at_most_over_all_modules() -> None:
    for trained in ("factors", "b_only"):
        subject: Any = TinySubject()
        space, start, clients = Space.of(trained, subject), detached(subject.trainable), clients_of(subject, trained, 6)
        for clip in (0.01, 1.0, 100.0):
            how = Mechanism(clip, 0.0, 1.0, (1,))
            whole = mean_change(space, start, clients, how)
            for gone in range(6):
                rest = mean_change(space, start, clients[:gone] + clients[gone + 1 :], how)
                moved = length({module: whole[module] - rest[module] for module in whole})
                assert moved <= clip * (1 + 1e-12)
                alone = length(mean_change(space, start, [clients[gone]], how))
                assert moved == pytest.approx(alone) and (clip > 1 or alone == pytest.approx(clip))


def test_noise_is_as_large_for_few_clients_as_for_all_and_the_same_when_drawn_again() -> None:
    parts = (Product("wide", "wide.A", "wide.B", 1.0, 40),)
    space, start = Space("b_only", parts), {"wide.A": torch.zeros(40, 3), "wide.B": torch.zeros(100, 40)}
    how = Mechanism(2.0, 1.5, 20.0, (7, 1))
    found = [mean_change(space, start, [start] * n, how)["wide"] for n in (0, 3, 20)]
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])
    assert found[0].std() == pytest.approx(1.5 * 2.0 / 20, rel=0.05)
    other = mean_change(space, start, [], Mechanism(2.0, 1.5, 20.0, (7, 2)))["wide"]
    assert abs(float((found[0] * other).mean())) < 0.1 * float(found[0].var())


def test_fedadam_by_hand() -> None:
    server = FederatedServer(optimizer="adam", learning_rate=0.1, betas=(0.9, 0.99), tau=0.01)
    point = {"w": np.array([1.0, -2.0])}
    first, state = server_step(server, point, {"w": np.array([0.5, 0.0])}, {})
    # m = 0.1 * 0.5, v = 0.99 * 1e-4 + 0.01 * 0.25
    moved = 0.1 * 0.05 / (math.sqrt(0.000099 + 0.0025) + 0.01)
    np.testing.assert_allclose(first["w"], [1.0 + moved, -2.0], rtol=1e-12)
    second, _ = server_step(server, first, {"w": np.array([-0.5, 1.0])}, state)
    m = np.array([0.9 * 0.05 - 0.05, 0.1])
    v = np.array([0.99 * (0.000099 + 0.0025) + 0.0025, 0.99 * 0.99 * 1e-4 + 0.01])
    np.testing.assert_allclose(second["w"], first["w"] + 0.1 * m / (np.sqrt(v) + 0.01), rtol=1e-12)


def test_the_proximal_term_and_the_frozen_half_by_hand() -> None:
    subject: Any = TinySubject()
    tactic = ClientTactic(ClientStrategy(trained="b_only", proximal=0.5), subject)
    a, b = subject.trainable["first.A"], subject.trainable["first.B"]
    with torch.no_grad():
        b.add_(2.0)
    a.grad, b.grad = torch.ones_like(a), torch.full_like(b, 0.25)
    tactic.before_step()
    assert a.grad is None
    torch.testing.assert_close(b.grad, torch.full_like(b, 0.25 + 0.5 * 2.0))
    whole = ClientTactic(ClientStrategy(trained="factors", proximal=0.5), subject)
    a.grad = torch.ones_like(a)
    whole.before_step()
    torch.testing.assert_close(a.grad, torch.ones_like(a))  # it has not moved from its start


def test_scales_take_adamws_step_on_one_number_a_component() -> None:
    subject: Any = TinySubject()
    b, sign = subject.trainable["second.B"], signs("second", (5, 2))
    with torch.no_grad():
        b.zero_()
    tactic = ClientTactic(ClientStrategy(trained="scales"), subject)
    target = torch.randn(5, 2, generator=torch.Generator().manual_seed(3))
    scales = nn.Parameter(torch.zeros(2))
    ours, theirs = (torch.optim.AdamW([one], lr=0.1, weight_decay=0.0, eps=1e-12) for one in (b, scales))
    for _ in range(20):
        for optimizer, value in ((ours, b), (theirs, sign * scales)):
            optimizer.zero_grad()
            (value - target).square().sum().backward()
        tactic.before_step()
        ours.step()
        tactic.after_step(0.1, 1.0)
        theirs.step()
    torch.testing.assert_close(b.detach(), (sign * scales).detach(), atol=1e-4, rtol=1e-4)
    assert set(signs("second", (5, 2)).unique().tolist()) == {-1.0, 1.0}


def test_sampling_and_silence_follow_their_shares_and_the_seed() -> None:
    names = [f"client-{n}" for n in range(20)]
    assert participants(5, 1, names, 1.0, 0.0) == names
    rounds = [participants(5, number, names, 0.5, 0.2) for number in range(300)]
    assert sum(map(len, rounds)) / 300 == pytest.approx(20 * 0.5 * 0.8, rel=0.05)
    assert rounds == [participants(5, number, names, 0.5, 0.2) for number in range(300)]
    assert rounds != [participants(6, number, names, 0.5, 0.2) for number in range(300)]


def test_tenants_that_share_an_example_are_one_client() -> None:
    tenants = [["a"], ["b"], ["c", "b"], ["d"], ["a"], ["e", "d"], ["c"], ["f"]]
    train = pl.DataFrame({"group_id": [f"g{n % 6}" for n in range(8)], "tenants": tenants})
    clients, unit = assign_clients(train, FederatedStrategy(clients=4))
    assert unit == "tenants"
    assert clients[0] == clients[4] and clients[1] == clients[2] == clients[6] and clients[3] == clients[5]
    assert clients.n_unique() == 4
    of_groups, unit = assign_clients(train, FederatedStrategy(clients=5))  # a, b + c, d + e, f are too few
    assert unit == "groups" and of_groups[0] == of_groups[6] and of_groups.n_unique() == 5
    with pytest.raises(InputError, match="4 tenants that share no example are too few for 5"):
        assign_clients(train, FederatedStrategy(clients=5, by="tenants"))
    with pytest.raises(InputError, match="not every train example names its tenant"):
        assign_clients(train.drop("tenants"), FederatedStrategy(clients=4, by="tenants"))


def test_rounds_end_before_the_budget_is_passed() -> None:
    choice = FederatedStrategy(clients=20, rounds=9, privacy=Privacy(noise_multiplier=8.0))
    budget = budget_of(choice)
    assert 0 < budget.rounds < choice.rounds
    assert dp_epsilon(8.0, 1.0, budget.rounds, 1e-5) <= 1.0 < dp_epsilon(8.0, 1.0, budget.rounds + 1, 1e-5)
    with pytest.raises(InputError, match=r"one round with noise_multiplier 1 has epsilon 4\.38, above the budget of 1"):
        budget_of(FederatedStrategy(clients=20, privacy=Privacy(noise_multiplier=1.0)))
    fitted = budget_of(FederatedStrategy(clients=20, rounds=2, privacy=Privacy()))
    assert fitted.rounds == 2 and dp_epsilon(fitted.noise_multiplier, 1.0, 2, 1e-5) == pytest.approx(1.0, rel=1e-4)


def said_of(choice: FederatedStrategy, numbers: int) -> list[str]:
    assert choice.privacy is not None
    return warnings_of(choice.privacy, budget_of(choice), choice.rounds, numbers)


def test_the_noise_is_said_beforehand_with_what_helps() -> None:
    one_round = FederatedStrategy(clients=20, rounds=1, privacy=Privacy())
    said = said_of(one_round, 1000)
    assert "1,000 trained numbers) / 20 clients = 5.9 x clip a round" in said[0] and "at most 0.17" in said[0]
    assert "118 clients in place of 20, or train 28 numbers in place of 1,000" in said[1]
    assert len(said_of(one_round, 20)) == 1
    declared = FederatedStrategy(clients=20, rounds=1, privacy=Privacy(seed=1))
    assert "no guarantee" in said_of(declared, 20)[-1]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that gets a copy of the voter's folder before it is cleared."""
    original = federated.write_combined

    def copying(run: VoterRun, *rest: Any) -> Path:
        shutil.copytree(run.folder, tmp_path / "kept")
        return original(run, *rest)

    monkeypatch.setattr(federated, "write_combined", copying)
    return tmp_path / "kept"


def strategy(**changes: Any) -> dict[str, Any]:
    return {"kind": "federated", "clients": 3, "rounds": 2} | changes


# Its noise is given: finding the least takes seconds, and has tests of its own.
PRIVATE = strategy(
    clients=4, trained="b_only", sampling_rate=0.6, privacy={"epsilon": 8.0, "noise_multiplier": 2.0, "clip": 0.2}
)


def test_a_private_run_tells_no_single_client_and_its_epsilon_is_recomputable(
    make_request: MakeRequest, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_seed, "secrets", SimpleNamespace(randbits=lambda bits: 2**100 + bits))
    events: list[dict[str, Any]] = []
    result = train(make_request(lora=QUIET, voters=voters(PRIVATE), max_steps=2), events=events)
    found = manifest(result)
    document = found["published"]["privacy"]
    assert not privacy_problems(document) and document["epsilon"] <= document["budget"] == 8.0
    assert (document["steps"], document["clients"], document["sampling_rate"]) == (2, 4, 0.6)
    assert document["denominator"] == pytest.approx(2.4) and document["unit"] == "groups"
    start, a = read_adapter(kept / "round-1" / "global"), read_adapter(result)
    assert document["dimensions"] == sum(a.b(module).numel() for module in a.modules)
    assert all(torch.equal(a.a(module), start.a(module)) for module in a.modules)
    assert not [event for event in events if "part" in event or "client" in json.dumps(event.get("clients", ""))]
    assert [event["event"] for event in events].count("warning") >= 1
    seed = json.loads((kept / "secret" / "seed.json").read_text())
    assert (kept / "secret").stat().st_mode & 0o077 == 0
    for path in result.rglob("*"):
        assert not path.is_file() or str(seed).encode() not in path.read_bytes()
    assert sorted(path.name for path in result.parent.iterdir()) == ["events.jsonl", "result"]
    assert all(set(row) == {"step", "validation_loss", "relative_error", "dimensions"}
               for row in found["published"]["rounds"])  # fmt: skip
    # The published change is the clipped mean of those who took part, and noise of the stated size.
    took = sorted(path.name for path in (kept / "round-1").iterdir() if path.name != "global")
    assert took == participants(seed, 1, [f"client-{n}" for n in range(4)], 0.6, 0.0)
    mean = {module: torch.zeros_like(start.b(module), dtype=torch.float64) for module in start.modules}
    for client in took:
        one = read_adapter(kept / "round-1" / client / "result")
        norm = math.sqrt(sum(float(one.b(module).double().square().sum()) for module in one.modules))
        for module in mean:
            mean[module] += min(1.0, 0.2 / norm) * one.b(module).double() / 2.4
    noise = torch.cat([(start.b(module).double() - mean[module]).flatten() for module in mean])
    assert float(noise.std()) == pytest.approx(document["noise_multiplier"] * 0.2 / 2.4, rel=0.15)


@pytest.mark.resume
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(
            strategy(trained="b_only", dropout=0.3, privacy=PRIVATE["privacy"] | {"seed": 5}),
            marks=pytest.mark.extended,
        ),
        # Interruptions of a private one are below, of rounds on clients in `test_parts.py`.
        pytest.param(
            strategy(trained="factors", proximal=0.1, server={"optimizer": "adam"}), marks=pytest.mark.extended
        ),
        pytest.param(strategy(trained="scales", sampling_rate=0.5), marks=pytest.mark.extended),
    ],
    ids=["private", "prox-adam", "scales"],
)
def test_stopped_and_resumed_it_is_the_same_to_the_bit(make_request: MakeRequest, changes: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"voters": voters(changes), "max_steps": 4}
    expected = digests(train(make_request(work="whole", **settings)))
    assert digests(train_stopped(make_request(work="stopped", **settings), calls=37)) == expected


def test_a_secret_seed_is_drawn_once_and_kept_over_interruptions(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def once(bits: int) -> int:
        drawn.append(12345)
        return drawn[-1]

    monkeypatch.setattr(secret_seed, "secrets", SimpleNamespace(randbits=once))
    settings: dict[str, Any] = {"voters": voters(PRIVATE | {"clients": 2}), "max_steps": 2}
    expected = digests(train(make_request(work="whole", **settings)))
    assert digests(train_stopped(make_request(work="stopped", **settings), calls=17, times=2)) == expected
    assert drawn == [12345] * 2  # one for each run, though one of them began several times


@pytest.mark.parametrize("trained", [pytest.param("b_only", marks=pytest.mark.extended), "scales"])
def test_clients_learn_with_fewer_numbers(make_request: MakeRequest, kept: Path, trained: str) -> None:
    made = make_request(lora=QUIET, voters=voters(strategy(trained=trained, rounds=1)), max_steps=6)
    result = train(made)
    found = manifest(result)
    assert found["validation_loss"] < found["base_validation_loss"]
    adapters = [read_adapter(kept / "round-1" / f"client-{n}" / "result") for n in range(3)]
    shares = [row["share"] for row in found["published"]["rounds"][0]["clients"].values()]
    whole = read_adapter(result)
    for module in whole.modules:
        assert all(torch.equal(one.a(module), whole.a(module)) for one in adapters)
        exact = sum(share * one.delta(module).double() for share, one in zip(shares, adapters, strict=True))
        torch.testing.assert_close(whole.delta(module).double(), exact, atol=1e-6, rtol=1e-4)
        if trained == "scales":
            sizes = whole.b(module).abs()
            assert torch.allclose(sizes, sizes[:1].expand_as(sizes)) and bool(sizes.any())


def test_nobody_answering_is_said(make_request: MakeRequest) -> None:
    choice = strategy(clients=2, rounds=1, sampling_rate=1e-9)
    with pytest.raises(InputError, match="no client answered in 1 rounds"):
        train(make_request(voters=voters(choice), max_steps=2))


def test_the_shipped_recipe_is_what_it_says() -> None:
    recipe = read_declared(resources_root() / "recipes" / "strategies" / "federated.yaml", TrainingRecipe)
    choice = recipe.voters[0].strategy
    assert isinstance(choice, FederatedStrategy) and choice.privacy is not None
    assert (choice.clients, choice.privacy.epsilon, choice.privacy.delta) == (20, 1.0, 1e-5)
    assert choice.privacy.seed is None and budget_of(choice).rounds == choice.rounds


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"privacy": {"delta": 0.5}}, "delta 0.5 is no less than 1 / 3 clients"),
        ({"proximal": 0.1, "precision": "fp16"}, "proximal term cannot be added"),
        ({"trained": "b_only", "backend": "fsdp2", "processes": 2}, "keeps them in parts"),
    ],
)
def test_what_does_not_fit_is_refused(make_request: MakeRequest, changes: dict[str, Any], said: str) -> None:
    hardware = {name: changes.pop(name) for name in ("precision", "backend", "processes") if name in changes}
    with pytest.raises(ValidationError, match=said):
        make_request(voters=voters(strategy(**changes)), **hardware)


def test_a_plan_says_how_much_noise_there_is(make_request: MakeRequest) -> None:
    choice = strategy(clients=3, trained="scales", privacy={})
    plan = plan_training(make_request(lora=QUIET, voters=voters(choice)))
    assert any("trained numbers) / 3 clients" in line for line in plan.warnings)
    assert any("the noise drowns the update" in line for line in plan_lines(plan))
