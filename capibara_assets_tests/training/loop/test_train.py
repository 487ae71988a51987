"""The loop: learns, counts right, and gives the same bits however often it is stopped."""

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from peft import PeftModel

from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, read_adapter
from capibara_assets.modeling.base import load_base
from capibara_assets.storage.digests import sha256_file
from capibara_assets.training.callbacks import SAVED
from capibara_assets.training.data.voter_run import Interrupted, VoterRun
from capibara_assets.training.environment import one_order
from capibara_assets.training.loop import setup
from capibara_assets.training.loop import train as loop
from capibara_assets.training.loop.guards import TrainingDiverged
from capibara_assets.training.loop.train import train_voter
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.step import subject
from capibara_assets_tests.training.conftest import MakeRequest


def go_on() -> None:
    """A poll that never stops anything."""


def train(
    request: TrainingRequest, voter: int = 0, poll: Callable[[], None] = go_on, events: list[Any] | None = None
) -> Path:
    spec = request.recipe.voters[voter]
    return train_voter(
        VoterRun(request, spec, request.work / spec.name, (events if events is not None else []).append, poll)
    )


def manifest(result: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((result / "manifest.json").read_text())
    return found


def digests(result: Path) -> dict[str, str]:
    """Of everything that must be equal between equal runs."""
    names = ("adapter_model.safetensors", "adapter_config.json", "curve.json", "manifest.json")
    return {name: sha256_file(result / name) for name in names}


def greatest_difference(one: LoraAdapter, other: LoraAdapter) -> float:
    return max(float((one.tensors[name] - other.tensors[name]).abs().max()) for name in one.tensors)


def test_it_learns_and_peft_loads_the_adapter(make_request: MakeRequest) -> None:
    request, events = make_request(epochs=10, max_steps=30, evaluate_every=10), list[dict[str, Any]]()
    result = train(request, events=events)
    found = manifest(result)
    assert found["validation_loss"] < 0.8 * found["base_validation_loss"]
    assert found["steps"] == 30 and found["status"] == "finished"
    model = PeftModel.from_pretrained(load_base(request.base_model).model, result)
    assert any(bool(value.any()) for name, value in model.named_parameters() if "lora_B" in name)
    curve = json.loads((result / "curve.json").read_text())
    assert [point["step"] for point in curve if "loss" in point] == list(range(1, 31))
    assert [point["step"] for point in curve if "validation_loss" in point] == [0, 10, 20, 30]
    steps = [event for event in events if event["event"] == "step"]
    assert {(event["attempt"], event["run"]) for event in steps} == {(1, steps[0]["run"])}
    assert all(event["tokens_per_s"] > 0 and event["gradient_norm"] > 0 for event in steps)
    # Nothing of the work in progress stays.
    assert sorted(path.name for path in result.parent.iterdir()) == ["events.jsonl", "result"]


def test_the_best_validation_is_what_is_kept(make_request: MakeRequest, nano: Path, tmp_path: Path) -> None:
    # What is learnt is the opposite of what is validated, so that more steps are worse
    rows = []
    for number in range(60):
        split, answer = ("validation", "beta ") if number % 5 == 0 else ("train", "alpha ")
        messages = [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": answer * 8}]
        rows.append({"example_id": f"e{number:03}", "group_id": f"g{number:03}", "split": split,
                     "messages": json.dumps(messages)})  # fmt: skip
    pl.DataFrame(rows).write_parquet(tmp_path / "opposites.parquet")
    learn = {"max_steps": 4, "epochs": 9, "learning_rate": 0.02, "evaluate_every": 1, "warmup": 0.0}
    result = train(make_request(base=nano, data=tmp_path / "opposites.parquet", **learn))
    found = manifest(result)
    curve = json.loads((result / "curve.json").read_text())
    losses = {point["step"]: point["validation_loss"] for point in curve if "validation_loss" in point}
    del losses[0]
    assert found["best_step"] == min(losses, key=losses.__getitem__) < 4
    assert found["validation_loss"] == min(losses.values())


def test_micro_batches_do_not_change_the_result(make_request: MakeRequest) -> None:
    quiet = {"lora": {"rank": 2, "alpha": 4, "dropout": 0.0, "use_rslora": False}, "max_steps": 4}
    whole = read_adapter(train(make_request(work="whole", micro_batch_tokens=100_000, **quiet)))
    single = read_adapter(train(make_request(work="single", micro_batch_tokens=1, **quiet)))
    assert greatest_difference(whole, single) < 2e-5


def test_voters_start_alike_and_end_apart(make_request: MakeRequest) -> None:
    frozen = make_request(work="frozen", learning_rate=1e-12, max_steps=1)
    started = [read_adapter(train(frozen, voter)) for voter in (0, 1)]
    assert greatest_difference(*started) < 1e-9
    request = make_request(max_steps=4)
    ended = [read_adapter(train(request, voter)) for voter in (0, 1)]
    assert greatest_difference(*ended) > 1e-3


def test_the_same_again_gives_the_same_bytes_and_another_seed_others(make_request: MakeRequest) -> None:
    first, again = (train(make_request(work=work, max_steps=3)) for work in ("first", "again"))
    assert digests(first) == digests(again)
    assert digests(train(make_request(work="other", seed=2, max_steps=3))) != digests(first)


class StopAt:
    """A poll that asks to stop at its n-th call."""

    def __init__(self, call: int):
        self.left = call

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Interrupted


@pytest.mark.resume
@pytest.mark.parametrize("calls", [(1, 13), pytest.param((2, 3, 4, 5, 8, 21), marks=pytest.mark.extended)])
def test_stopped_anywhere_and_resumed_it_is_the_same_to_the_bit(
    make_request: MakeRequest, calls: tuple[int, ...]
) -> None:
    expected = digests(train(make_request(work="whole", max_steps=6)))
    for call in calls:  # while loading, in the first validation, between micro-batches and steps
        request, stops = make_request(work=f"stopped-{call}", max_steps=6), 0
        for _ in range(200):
            try:
                result = train(request, poll=StopAt(call))
                break
            except Interrupted:
                stops += 1
                points = sorted((request.work / "voter-0").glob("checkpoint-*/state.json"))
                assert bool(points) == (call > 3)  # before the loop there is nothing to save
                if call <= 5:  # too often to get anywhere: let it finish
                    result = train(request)
                    break
        assert stops >= 1 and digests(result) == expected, f"stopped at every poll number {call}"


@pytest.mark.resume
@pytest.mark.parametrize("step", [4, *(pytest.param(step, marks=pytest.mark.extended) for step in (2, 6))])
def test_going_back_to_an_older_point_gives_the_same_bits_and_a_new_attempt(
    make_request: MakeRequest, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after kill -9: what was done after the last resume point is done again."""
    request = make_request(keep_checkpoints=9)
    kept = request.work.parent / "kept"
    monkeypatch.setattr(loop, "drop_points", lambda folder: shutil.copytree(folder, kept))
    expected = digests(train(request))
    again = make_request(work="again")
    (again.work / "voter-0").mkdir(parents=True)
    shutil.copytree(kept / f"checkpoint-{step}", again.work / "voter-0" / f"checkpoint-{step}")
    shutil.copyfile(kept / "events.jsonl", again.work / "voter-0" / "events.jsonl")
    monkeypatch.undo()
    events = list[dict[str, Any]]()
    result = train(again, events=events)
    assert digests(result) == expected
    assert {event["attempt"] for event in events if event["event"] != SAVED} == {2}
    assert next(event for event in events if event["event"] == "resumed")["continuation"] == "exact"
    assert min(event["step"] for event in events if event["event"] == "step") == step + 1


@pytest.mark.resume
def test_another_environment_resumes_and_says_so(make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    request = make_request()
    with pytest.raises(Interrupted):
        train(request, poll=StopAt(15))
    events = list[dict[str, Any]]()
    fingerprint = setup.fingerprint
    monkeypatch.setattr(setup, "fingerprint", lambda *a: fingerprint(*a) | {"torch": "another"})
    train(request, events=events)
    assert next(event for event in events if event["event"] == "resumed")["continuation"] == "statistical"


def poison(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Make the loss NaN in the first steps."""
    original, calls = subject.token_nll, [0]

    def poisoned(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        calls[0] += model.training
        return original(model, batch) * (float("nan") if model.training and calls[0] <= steps else 1.0)

    monkeypatch.setattr(subject, "token_nll", poisoned)


def test_steps_with_nan_are_skipped_counted_and_named(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(monkeypatch, steps=2)
    result = train(make_request(micro_batch_tokens=100_000))
    found = manifest(result)
    assert [skipped["step"] for skipped in found["skipped_steps"]] == [1, 2]
    assert all(len(skipped["examples"]) == 6 for skipped in found["skipped_steps"])
    assert all(bool(torch.isfinite(value).all()) for value in read_adapter(result).tensors.values())
    assert found["validation_loss"] < found["base_validation_loss"]


def test_too_many_of_them_stop_it_with_a_diagnosis(make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, steps=99)
    with pytest.raises(TrainingDiverged, match=r"3 steps gave NaN or infinity \(steps 1, 2, 3\).*lower learning_rate"):
        train(make_request(max_skipped_steps=2))


def test_an_operation_without_an_order_is_taken_as_it_is_and_named(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, whose context is entered; the operation has no order on a processor either."""
    original = subject.token_nll

    def unordered(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        torch.zeros(2).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))
        return original(model, batch)

    whole = digests(train(request := make_request()))
    shutil.rmtree(request.work)
    monkeypatch.setattr(subject, "token_nll", unordered)
    monkeypatch.setattr(setup, "compute_settings", lambda *_: torch.use_deterministic_algorithms(True, warn_only=True))
    monkeypatch.setattr(loop, "one_order", lambda _device: one_order(torch.device("cuda")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = train(request)
    named = [event for event in read_events(result / "events.jsonl") if event["event"] == "any_order"]
    assert [event["step"] for event in named] == [0] and "put_" in named[0]["reason"]
    assert digests(result) == whole


def test_what_cannot_be_trained_on_is_refused(make_request: MakeRequest, tmp_path: Path, dataset: Path) -> None:
    with pytest.raises(InputError, match=r"none of the \d+ train examples can be used with max_length 8: longer than"):
        train(make_request(max_length=8))
    with pytest.raises(InputError, match="do not fit base"):
        train(make_request(lora={"modules": ["nothing"], "rank": 2, "alpha": 2, "dropout": 0, "use_rslora": False}))
    with pytest.raises(InputError, match="files have changed"):
        train(make_request().model_copy(update={"base_digest": "another"}))
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "odd.parquet")
    with pytest.raises(InputError, match="not a table of examples"):
        train(make_request(data=tmp_path / "odd.parquet"))
