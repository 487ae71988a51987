"""Voters that are several trainings: seeds and federated clients, each part once, and averages that are exact."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter
from capibara_assets.training.data.voter_run import Interrupted, VoterRun
from capibara_assets.training.loop.guards import TrainingDiverged
from capibara_assets.training.monitoring.progress import progress_lines
from capibara_assets.training.strategies import parts
from capibara_assets.training.strategies.clients import shared_out
from capibara_assets.training.strategies.parts import part_seed
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.strategy_runs import QUIET, digests, manifest, train, train_stopped, voters

SEEDS = {"kind": "huggingface", "k": 2, "epochs": 1}
CLIENTS = {"kind": "federated", "clients": 2, "rounds": 2}


def mean_delta(adapters: list[LoraAdapter], shares: list[float], module: str) -> torch.Tensor:
    """The best of rank 2 of the weighted mean of the deltas."""
    exact = sum(share * one.delta(module).double() for share, one in zip(shares, adapters, strict=True))
    left, singular, right = torch.linalg.svd(exact, full_matrices=False)
    return (left[:, :2] * singular[:2]) @ right[:2]


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that gets a copy of every finished part's folder before it is removed."""
    original = parts.write_result

    def copying(run: VoterRun, *rest: Any) -> Path:
        shutil.copytree(run.folder, tmp_path / "kept")
        return original(run, *rest)

    monkeypatch.setattr(parts, "write_result", copying)
    return tmp_path / "kept"


def test_seeds_are_trained_apart_and_averaged_by_perplexity(make_request: MakeRequest, kept: Path) -> None:
    request, events = make_request(lora=QUIET, voters=voters(SEEDS), max_steps=4), list[dict[str, Any]]()
    result = train(request, events=events)
    found = manifest(result)
    report, each = found["published"], [manifest(kept / f"seed-{n}" / "result") for n in (0, 1)]
    assert [one["voter_seed"] for one in each] == [row["seed"] for row in report["seeds"].values()]
    assert len({one["digest"] for one in each}) == 2
    assert [one["validation_loss"] for one in each] == [row["validation_loss"] for row in report["seeds"].values()]
    shares = [row["share"] for row in report["seeds"].values()]
    losses = torch.tensor([one["validation_loss"] for one in each], dtype=torch.float64)
    assert shares == pytest.approx(torch.softmax(-losses, 0).tolist())
    adapters, average = [read_adapter(kept / f"seed-{n}" / "result") for n in (0, 1)], read_adapter(result)
    for module in average.modules:
        expected = mean_delta(adapters, shares, module)
        assert torch.allclose(average.delta(module).double(), expected, atol=1e-6)
    assert found["steps"] == 2 * 4 and found["supervised_tokens"] == sum(one["supervised_tokens"] for one in each)
    assert found["validation_loss"] == report["validation_loss"] < found["base_validation_loss"]
    assert [point["step"] for point in json.loads((result / "curve.json").read_text())] == [4, 8, 8]
    steps = [event for event in events if event["event"] == "step"]
    assert [event["part"] for event in steps] == ["seed-0"] * 4 + ["seed-1"] * 4
    assert [event["event"] for event in events].count("finished") == 1
    line = progress_lines(1)
    said = [line({"domain": "python", "voter": "voter-0", **event}) or "" for event in events]
    assert sum(text.startswith("python/voter-0/seed-1 finished: validation loss") for text in said) == 1
    # Nothing of the work in progress stays.
    assert sorted(path.name for path in result.parent.iterdir()) == ["events.jsonl", "result"]


def test_finished_parts_are_not_repeated(make_request: MakeRequest) -> None:
    request, heard = make_request(voters=voters(SEEDS), max_steps=2), list[dict[str, Any]]()

    def stop_in_the_second() -> None:
        if any(event.get("part") == "seed-1" and event["event"] == "step" for event in heard):
            raise Interrupted

    with pytest.raises(Interrupted):
        train(request, stop_in_the_second, heard)
    events: list[dict[str, Any]] = []
    train(request, events=events)
    assert {event["part"] for event in events if event["event"] in ("step", "resumed")} == {"seed-1"}


@pytest.mark.resume
@pytest.mark.parametrize(
    "strategy", [pytest.param(SEEDS, marks=pytest.mark.extended), CLIENTS], ids=["seeds", "clients"]
)
def test_stopped_and_resumed_it_is_the_same_to_the_bit(make_request: MakeRequest, strategy: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"voters": voters(strategy), "max_steps": 2}
    expected = digests(train(make_request(work="whole", **settings)))
    assert digests(train_stopped(make_request(work="stopped", **settings), calls=29, times=2)) == expected


def test_one_client_and_one_round_are_plain_training(make_request: MakeRequest, tmp_path: Path) -> None:
    strategy, few = {"kind": "federated", "clients": 1, "rounds": 1, "local_epochs": 2}, {"lora": QUIET, "max_steps": 3}
    federated = read_adapter(result := train(make_request(work="federated", voters=voters(strategy), **few)))
    plain = voters({"kind": "plain"})
    specification = make_request().recipe.voters[0]
    plain[0]["seed"] = part_seed(specification, 1, "client-0")
    alone = read_adapter(other := train(make_request(work="plain", voters=plain, **few)))
    for module in alone.modules:
        assert torch.allclose(federated.delta(module), alone.delta(module), atol=1e-5)
    assert manifest(result)["validation_loss"] == pytest.approx(manifest(other)["validation_loss"], rel=1e-5)
    assert manifest(result)["supervised_tokens"] == manifest(other)["supervised_tokens"]


def test_rounds_average_clients_by_their_tokens_and_go_on_from_there(make_request: MakeRequest, kept: Path) -> None:
    result = train(make_request(lora=QUIET, voters=voters(CLIENTS), max_steps=4))
    report = manifest(result)["published"]
    datasets = [pl.read_parquet(kept / "clients" / f"client-{n}.parquet") for n in (0, 1)]
    train_parts = [set(table.filter(split="train")["group_id"]) for table in datasets]
    assert not train_parts[0] & train_parts[1] and len(train_parts[0] | train_parts[1]) >= 24
    previous = None
    for number, row in enumerate(report["rounds"], start=1):
        adapters = [read_adapter(kept / f"round-{number}" / f"client-{n}" / "result") for n in (0, 1)]
        manifests = [manifest(kept / f"round-{number}" / f"client-{n}" / "result") for n in (0, 1)]
        tokens = [one["supervised_tokens"] for one in manifests]
        shares = [client["share"] for client in row["clients"].values()]
        assert shares == [count / sum(tokens) for count in tokens]
        # max_steps bounds a client's steps of both rounds together
        assert [one["steps"] for one in manifests] == [2, 2]
        whole = read_adapter(kept / f"round-{number}" / "global")
        lost = total = 0.0
        for module in whole.modules:
            expected = mean_delta(adapters, shares, module)
            assert torch.allclose(whole.delta(module).double(), expected, atol=1e-6)
            exact = sum(share * one.delta(module).double() for share, one in zip(shares, adapters, strict=True))
            lost += float((exact - expected).square().sum())
            total += float(exact.square().sum())
        assert row["relative_error"] == pytest.approx((lost / total) ** 0.5, rel=1e-4)
        if previous is not None:  # what a client begins with is what the round before came to
            assert [one["base_validation_loss"] for one in manifests] == [previous["validation_loss"]] * 2
        previous = row
    best = report["best_round"]
    published = read_adapter(kept / f"round-{best}" / "global").tensors
    assert all(torch.equal(value, published[name]) for name, value in read_adapter(result).tensors.items())
    losses = [row["validation_loss"] for row in report["rounds"]]
    assert manifest(result)["validation_loss"] == min(losses) == losses[best - 1]


def test_groups_are_dealt_whole_and_evenly() -> None:
    groups = pl.Series([f"g{number % 11}" for number in range(50)])
    client_of = shared_out(groups, 4)
    assert sorted(list(client_of.values()).count(client) for client in range(4)) == [2, 3, 3, 3]
    assert shared_out(groups.reverse(), 4) == client_of
    with pytest.raises(InputError, match="11 train groups are too few for 12 clients"):
        shared_out(groups, 12)


def test_a_part_that_diverges_fails_the_voter(make_request: MakeRequest) -> None:
    with pytest.raises(TrainingDiverged):
        train(make_request(voters=voters(SEEDS), learning_rate=1e38, max_skipped_steps=0))
