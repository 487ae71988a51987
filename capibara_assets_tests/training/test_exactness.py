"""All that is in a training's state comes back to the bit wherever it was stopped; other inputs are refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from capibara_assets.errors import InputError
from capibara_assets.storage.digests import canonical_json, sha256_file
from capibara_assets.training.data.batches import Curriculum, StepData
from capibara_assets.training.data.voter_run import Interrupted
from capibara_assets.training.loop import train as loop
from capibara_assets.training.loop.guards import TrainingDiverged
from capibara_assets.training.loop.result import write_result
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.step import subject
from capibara_assets.training.supervisor.run import train_domain
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.kills import what_came_of
from capibara_assets_tests.training.loop.test_train import StopAt, manifest, train

pytestmark = pytest.mark.resume

Make = Callable[..., TrainingRequest]


@pytest.fixture
def make(make_request: MakeRequest) -> Make:
    """A training of one voter whose last resume point stays, so that it can be looked at."""

    def one(work: str = "work", **changes: Any) -> TrainingRequest:
        voters = changes.pop("voters", [{"name": "voter-0", "seed": 0, "shard": 0}])
        of_request = {name: changes.pop(name) for name in ("resume_from", "lora_plan") if name in changes}
        if "lora_plan" in of_request:
            of_request["lora"] = of_request.pop("lora_plan")
        request = make_request(work=work, voters=voters, **changes)
        return request.model_copy(update={"keep_points": True} | of_request)

    return one


def until_done(request: TrainingRequest, call: int, events: list[Any]) -> int:
    """Train, stopped at every `call`-th poll, until it is done; how often it was stopped."""
    for stops in range(100):
        try:
            train(request, poll=StopAt(call), events=events)
            return stops
        except Interrupted:
            continue
    raise AssertionError("it got nowhere")


def came(request: TrainingRequest) -> dict[str, str]:
    return what_came_of(request, request.work / "voter-0" / "result")


def kinds(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


def spoil(monkeypatch: pytest.MonkeyPatch, steps: set[int], factor: float = 30.0) -> None:
    """The batches of these steps (1-based) are bad: their losses are multiplied."""
    original, real, bad = Curriculum.step, subject.token_nll, [False]

    def step(self: Curriculum, number: int) -> StepData:
        bad[0] = number + 1 in steps
        return original(self, number)

    def token_nll(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        return real(model, batch) * (factor if bad[0] and model.training else 1.0)

    monkeypatch.setattr(Curriculum, "step", step)
    monkeypatch.setattr(subject, "token_nll", token_nll)


SPIKE = {"window": 4, "snapshot_every": 9, "max_rollbacks": 2}


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        # Two processes stop and resume with it in `parallel/test_backends.py`.
        pytest.param("ema", {"ema": {"decay": 0.8, "every": 2}}, marks=pytest.mark.extended),
        ("roll-backs", {"spike": SPIKE, "max_steps": 9, "epochs": 3}),
        ("early stopping", {"early_stopping": {"patience": 1, "min_delta": 9.0}, "evaluate_every": 2}),
        ("fp16", {"precision": "fp16", "scaler": {"init_scale": 2.0**24, "growth_interval": 2}, "max_steps": 10,
                  "epochs": 3, "max_skipped_steps": 0, "evaluate_every": 7}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("call", [13, pytest.param(4, marks=pytest.mark.extended)])
def test_stopped_anywhere_it_is_the_same_to_the_bit_with(
    make: Make, monkeypatch: pytest.MonkeyPatch, what: str, changes: dict[str, Any], call: int
) -> None:
    if what == "roll-backs":
        spoil(monkeypatch, {5, 8})
    whole, events = make("whole", **changes), list[dict[str, Any]]()
    train(whole, events=events)
    expected, found = came(whole), manifest(whole.work / "voter-0" / "result")
    if what == "roll-backs":
        rolled = kinds(events, "rolled_back")
        assert [event["step"] for event in rolled] == [5, 8]
        assert [event["examples"] for event in rolled] == [one["examples"] for one in found["rolled_back_steps"]]
        assert all(len(event["examples"]) == 6 for event in rolled)
    if what == "early stopping":
        assert kinds(events, "stopped_early")[0]["step"] == found["steps"] == 4
    if what == "fp16":  # looking for the scale takes steps, and is no fault
        assert all(skipped["loss_scale"] for skipped in found["skipped_steps"]) and len(found["skipped_steps"]) > 5
        last = load_file(whole.work / "voter-0" / "checkpoint-10" / "optimizer.safetensors")
        assert 1 < float(last["loss_scaler.scale"]) < 2.0**24
    request, stops = make("stopped", **changes), list[dict[str, Any]]()
    if call == 4:  # as often as this it gets nowhere: once is enough
        with pytest.raises(Interrupted):
            train(request, poll=StopAt(call))
        train(request)
    else:
        assert until_done(request, call, stops) >= 1
        assert {event["continuation"] for event in kinds(stops, "resumed")} == {"exact"}
    assert came(request) == expected


def test_rolled_back_too_often_it_stops_with_a_diagnosis(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, {5, 6, 8})
    with pytest.raises(TrainingDiverged, match=r"3 steps had a loss far above .* rolled back \(5, 6, 8\).*e\d\d\d"):
        train(make(spike=SPIKE, max_steps=13, epochs=3))


def test_killed_between_the_early_stop_and_the_result(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    early = {"early_stopping": {"patience": 1, "min_delta": 9.0}, "evaluate_every": 2}
    train(whole := make("whole", **early))

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "write_result", killed)
    with pytest.raises(KeyboardInterrupt):
        train(again := make("again", **early))
    monkeypatch.setattr(loop, "write_result", write_result)
    events = list[dict[str, Any]]()
    train(again, events=events)
    assert not kinds(events, "step") and kinds(events, "stopped_early")
    assert came(again) == came(whole)


def test_gradients_that_are_not_finite_leave_their_step_out(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    original, real, bad = Curriculum.step, subject.token_nll, [False]

    def step(self: Curriculum, number: int) -> StepData:
        bad[0] = number == 3
        return original(self, number)

    def token_nll(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        if not (bad[0] and model.training):
            return real(model, batch)
        weight = next(value for value in model.parameters() if value.requires_grad)
        return real(model, batch) + (0.0 * weight).sum().sqrt()  # adds nothing, and its gradient is infinity * 0

    monkeypatch.setattr(Curriculum, "step", step)
    monkeypatch.setattr(subject, "token_nll", token_nll)
    train(request := make())
    (skipped,) = manifest(request.work / "voter-0" / "result")["skipped_steps"]
    assert skipped["step"] == 4 and len(skipped["examples"]) == 6 and "loss_scale" not in skipped


# --- longer ---------------------------------------------------------------------------------------------------------


def test_a_finished_training_goes_on_when_it_is_made_longer(make: Make) -> None:
    train(short := make("work", max_steps=2))
    events = list[dict[str, Any]]()
    longer = make("work", max_steps=4)
    assert longer.input_digest() != short.input_digest() and longer.run_id is not None
    train(longer, events=events)
    expected = {"from": 2, "to": 4, "step": 2}
    (event,) = kinds(events, "extended")
    assert {name: event[name] for name in expected} == expected
    assert [event["step"] for event in kinds(events, "step")] == [3, 4]
    found = manifest(longer.work / "voter-0" / "result")
    assert found["extended"] == [expected] and found["steps"] == 4
    # The rate is where the longer schedule has it.
    train(whole := make("whole", max_steps=4))
    rates = []
    for folder in (longer.work, whole.work):
        curve = json.loads((folder / "voter-0" / "result" / "curve.json").read_text())
        rates.append([point["learning_rate"] for point in curve if "loss" in point and point["step"] > 2])
    assert len(rates[0]) == 2 and rates[0] == rates[1]

    with pytest.raises(InputError, match=r"of a training of 4 steps, this one would have 2: .* longer .* not shorter"):
        train(make("work", max_steps=2))


@pytest.mark.extended  # both alone: above, and `test_from_a_point_elsewhere_and_back_to_an_older_one`
def test_stopped_while_it_is_made_longer_it_ends_the_same_to_the_bit(make: Make) -> None:
    for work in ("whole", "stopped"):
        train(make(work, max_steps=4))
    train(whole := make("whole", max_steps=8))
    assert until_done(make("stopped", max_steps=8), 12, []) >= 1
    assert came(make("stopped")) == came(whole)


def test_the_supervisor_knows_what_is_finished_and_what_became_longer(make: Make) -> None:
    train(make(max_steps=3))
    events = list[dict[str, Any]]()
    train_domain(make(max_steps=3), events.append)
    assert [event["event"] for event in events] == ["reused"]
    train_domain(make(max_steps=3, resume_from="latest"), lambda event: None)
    train_domain(make(max_steps=5, resume_from="latest"), events.append)
    assert [event["step"] for event in kinds(events, "step")] == [4, 5]
    with pytest.raises(InputError, match=r"there is no resume point in .*elsewhere: leave resume_from out"):
        train_domain(make("elsewhere", resume_from="latest"), lambda event: None)


# --- refused, by name -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "update", "changes"),
    [
        ("base", {"base_digest": "another"}, {}),
        ("dataset", {"dataset_digest": "another"}, {}),
        ("LoRA plan", {"lora": {"modules": ["q_proj"]}}, {}),
        ("recipe", {}, {"learning_rate": 0.02}),
        ("seed", {"seed": 2}, {}),
        ("domain", {"domain": "sql"}, {}),
        ("voter", {}, {"voters": [{"name": "voter-0", "seed": 9, "shard": 0}]}),
    ],
)
def test_other_inputs_are_refused_by_name(
    make: Make, tmp_path: Path, name: str, update: dict[str, Any], changes: dict[str, Any]
) -> None:
    request = make()
    inputs = request.inputs(request.recipe.voters[0])
    other = make(**changes).model_copy(update=update)
    assert {key for key, value in other.inputs(other.recipe.voters[0]).items() if inputs[key] != value} == {name}
    if name == "recipe":  # once with a real point: what the point holds is compared
        with pytest.raises(Interrupted):
            train(request, poll=StopAt(20))
        with pytest.raises(InputError, match=r"resume point .*checkpoint-\d+ was made from another recipe: remove"):
            train(other)


# --- from a point that is named -------------------------------------------------------------------------------------


def test_from_a_point_elsewhere_and_back_to_an_older_one(make: Make, tmp_path: Path) -> None:
    train(whole := make("whole", keep_checkpoints=9))
    points = whole.work / "voter-0"
    events = list[dict[str, Any]]()
    train(make("other", keep_checkpoints=9, resume_from=str(points / "checkpoint-4")), events=events)
    assert [event["step"] for event in kinds(events, "step")] == [5, 6, 7, 8]
    assert came(make("other")) == came(whole)
    # Back to an older one in its own folder: newer ones go, once; stopped, it goes on from where it was.
    back = make("other", keep_checkpoints=9, resume_from=str(tmp_path / "other" / "voter-0" / "checkpoint-4"))
    events.clear()
    stops = until_done(back, 12, events)
    starts = [event["step"] for event in kinds(events, "resumed")]
    assert stops >= 1 and starts[0] == 4 and starts == sorted(starts) and starts[-1] > 4
    assert came(back) == came(whole)

    (points / "checkpoint-6" / "optimizer.safetensors").write_bytes(b"damaged")
    for wrong in (points / "checkpoint-6", points / "checkpoint-99", tmp_path):
        with pytest.raises(InputError, match=f"{wrong} is no whole resume point"):
            train(make("third", resume_from=str(wrong)))
    with pytest.raises(InputError, match="checkpoint-4 was made from another recipe"):
        train(make("third", learning_rate=0.5, resume_from=str(points / "checkpoint-4")))


def test_all_points_damaged_is_said_and_where_one_was_wanted_refused(make: Make) -> None:
    with pytest.raises(Interrupted):
        train(make(), poll=StopAt(5))
    (only,) = (make().work / "voter-0").glob("checkpoint-*")
    (only / "state.json").write_text("{}")
    with pytest.raises(InputError, match=rf"all resume points in .* are damaged \({only.name}\): remove them"):
        train(make(resume_from="latest"))
    events = list[dict[str, Any]]()
    train(make(), events=events)
    assert kinds(events, "damaged")[0]["points"] == [only.name] and not kinds(events, "resumed")


# --- elsewhere ------------------------------------------------------------------------------------------------------


def carried(request: TrainingRequest, noise: float) -> None:
    """Stop at some step, and make the point one of another environment, with noise on its weights."""
    with pytest.raises(Interrupted):
        train(request, poll=StopAt(100))
    (*_, point) = sorted((request.work / "voter-0").glob("checkpoint-*"), key=lambda path: path.stat().st_mtime)
    weights = load_file(point / "adapter_model.safetensors")
    torch.manual_seed(1)
    weights = {name: value + noise * torch.randn_like(value) for name, value in weights.items()}
    save_file(weights, point / "adapter_model.safetensors")
    state = json.loads((point / "state.json").read_bytes())
    state["files"]["adapter_model.safetensors"] = sha256_file(point / "adapter_model.safetensors")
    state["fingerprint"] |= {"threads": 99, "numpy": "0.1"}
    (point / "state.json").write_bytes(canonical_json(state))


@pytest.mark.extended  # that it goes on and says so: `test_another_environment_resumes_and_says_so` of `loop`
def test_in_another_environment_it_goes_on_and_its_loss_is_watched(make: Make) -> None:
    learnt = {"max_steps": 32, "epochs": 9, "learning_rate": 0.03}
    carried(benign := make("benign", **learnt), noise=0.0)
    events = list[dict[str, Any]]()
    train(benign, events=events)
    (resumed,) = kinds(events, "resumed")
    assert (resumed["continuation"], resumed["differs"]) == ("statistical", ["numpy", "threads"])
    assert not kinds(events, "discontinuity") and resumed["step"] >= 10

    carried(corrupted := make("corrupted", **learnt), noise=3.0)
    advice = r"the loss jumped .* \(numpy, threads\): .* Resume where the points were made"
    for _ in range(2):  # and again: it does not slip through at the next start
        events.clear()
        with pytest.raises(TrainingDiverged, match=advice):
            train(corrupted, events=events)
        (jump,) = kinds(events, "discontinuity")
        assert jump["since"] > 1.2 * jump["before"] and jump["resumed_at"] == resumed["step"]
    train(make("corrupted", continuity=None, **learnt), events=events)
    assert kinds(events, "finished")
