"""Voters trained in one pass over one base: the losses of each are those of its training alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from peft import PeftModel
from transformers import AutoModelForCausalLM

from benchmarks.training.batched import train_batched
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.training.data.voter_run import Interrupted, VoterRun
from capibara_assets.training.loop.train import train_voter
from capibara_assets.training.request import TrainingRequest
from capibara_assets_tests.training.conftest import MakeRequest

PLAIN_LORA = {"rank": 2, "alpha": 4, "dropout": 0.0, "use_rslora": False}


def nothing() -> None:
    pass


def run(request: TrainingRequest, poll: Any = nothing) -> dict[str, Path]:
    folders = {voter.name: request.work / voter.name for voter in request.recipe.voters}
    return train_batched(request, folders, lambda event: None, poll)


def curve(folder: Path) -> list[dict[str, float]]:
    return list(json.loads((folder / "curve.json").read_text("utf-8")))


@pytest.mark.parametrize("micro_batch", [None, pytest.param(1, marks=pytest.mark.extended)])
def test_each_voter_has_the_losses_and_weights_of_its_training_alone(
    make_request: MakeRequest, micro_batch: int | None
) -> None:
    few = {"lora": PLAIN_LORA, "micro_batch": micro_batch, "max_steps": 3}
    together, alone = (make_request(work=work, **few) for work in ("together", "alone"))
    results = run(together)
    for voter in alone.recipe.voters:
        single = train_voter(VoterRun(alone, voter, alone.work / voter.name, lambda event: None, nothing))
        ours, theirs = curve(results[voter.name]), curve(single)
        assert [point["step"] for point in ours] == [point["step"] for point in theirs]
        for mine, its in zip(ours, theirs, strict=True):
            assert mine.keys() == its.keys()
            for key in mine.keys() & {"loss", "validation_loss", "gradient_norm"}:
                assert mine[key] == pytest.approx(its[key], rel=1e-4, abs=1e-4)
        one, other = read_adapter(results[voter.name]), read_adapter(single)
        assert one.config == other.config
        for name, tensor in other.tensors.items():
            assert (one.tensors[name] - tensor).abs().max() < 1e-3
    finals = [curve(folder)[-1]["validation_loss"] for folder in results.values()]
    assert len(set(finals)) == len(finals)


@pytest.mark.extended
def test_voters_may_be_a_step_apart(make_request: MakeRequest) -> None:
    """One voter's only resume point is damaged: it starts anew beside the other, and ends a step after it."""
    request = make_request(lora=PLAIN_LORA, epochs=1, max_steps=3, voters=[
        {"name": "one", "seed": 1, "shard": 0}, {"name": "two", "seed": 2, "shard": 1}])  # fmt: skip
    calls = []

    def stop_second() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise Interrupted(15)

    with pytest.raises(Interrupted):
        run(request, stop_second)
    (request.work / "two" / "checkpoint-1" / "state.json").write_text("damaged")
    results = run(request)  # "two" starts anew, "one" goes on: they are a step apart
    whole = run(make_request(work="whole", lora=PLAIN_LORA, epochs=1, max_steps=3, voters=[
        {"name": "one", "seed": 1, "shard": 0}, {"name": "two", "seed": 2, "shard": 1}]))  # fmt: skip
    for name in ("one", "two"):
        expected = curve(whole[name])[-1]["validation_loss"]
        assert curve(results[name])[-1]["validation_loss"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.extended
@pytest.mark.resume
def test_stopped_and_started_again_it_ends_where_the_uninterrupted_one_does(make_request: MakeRequest) -> None:
    whole = run(make_request(work="whole", lora=PLAIN_LORA))
    request = make_request(work="stopped", lora=PLAIN_LORA)
    calls = []

    def stop() -> None:
        calls.append(1)
        if len(calls) == 5:
            raise Interrupted(15)

    with pytest.raises(Interrupted):
        run(request, stop)
    resumed = run(request)
    for name, folder in whole.items():
        assert (folder / "adapter_model.safetensors").read_bytes() == (
            resumed[name] / "adapter_model.safetensors"
        ).read_bytes()


@pytest.mark.extended
def test_peft_loads_what_comes_out(make_request: MakeRequest, tiny_folder: Path) -> None:
    request = make_request(lora=PLAIN_LORA, max_steps=1)
    for folder in run(request).values():
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_folder), folder)
        layer = model.get_submodule("base_model.model.model.layers.0.mlp.up_proj")
        assert float(layer.lora_B["default"].weight.detach().norm()) > 0


def test_what_a_stack_cannot_do_is_refused(make_request: MakeRequest) -> None:
    with pytest.raises(InputError, match="dropout"):
        run(make_request())
