"""What each epoch leaves: the figures are right, also after stops, and every checkpoint loads."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.modeling.base import load_base
from capibara_assets.storage.digests import sha256_file
from capibara_assets.training.data.batches import Curriculum, CurriculumLevel
from capibara_assets.training.data.order import ExampleOrder
from capibara_assets.training.data.voter_run import Interrupted, VoterRun
from capibara_assets.training.loop.train import train_voter
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.recipe import TrainingRecipe
from capibara_assets.training.request import Start, TrainingRequest
from capibara_assets.training.resume.epoch_folders import begin_at
from capibara_assets.training.resume.epoch_info import (
    KEYS,
    epoch_folder,
    epoch_of,
    existing_epochs,
    read_epoch_info,
    write_epoch_info,
)
from capibara_assets_tests.training.conftest import MakeRequest

ONE = [{"name": "voter", "seed": 0, "shard": 0}]
STEPS = 4  # an epoch: 48 train examples in steps of 12


def of_its_own(make_request: MakeRequest, name: str, **changes: Any) -> TrainingRequest:
    """A request whose one voter works in an output folder."""
    sizes = {"global_batch": 12, "micro_batch_tokens": 600}
    changes = {"voters": ONE, "epochs": 3, "max_steps": None, "evaluate_every": 4} | sizes | changes
    request = make_request(work=f"{name}/.capibara", **changes)
    return request.model_copy(update={"output": request.work.parent, "keep_points": True})


def train(request: TrainingRequest, stop_at: int | None = None) -> Path:
    """Train to the end, or up to an interruption after so many steps; the output folder."""
    (voter,) = request.recipe.voters
    folder, steps = request.folder(voter), list[int]()

    def poll() -> None:
        if stop_at is not None and steps and steps[-1] >= stop_at:
            raise Interrupted

    def report(event: dict[str, Any]) -> None:
        if event["event"] == "step":
            steps.append(event["step"])

    try:
        train_voter(VoterRun(request, voter, folder, report, poll))
    except Interrupted:
        assert stop_at is not None
    return folder


def without_time(folder: Path) -> list[dict[str, Any]]:
    kept = [key for key in KEYS if key not in ("timestamp", "checkpoint_path")]
    return [{key: row[key] for key in kept} for row in read_epoch_info(folder)]


def test_an_epoch_has_the_mean_loss_of_its_tokens_and_weights_that_peft_loads(make_request: MakeRequest) -> None:
    request = of_its_own(make_request, "whole", epochs=2.5)
    folder = train(request)
    document = json.loads((folder / "epoch_info.json").read_text())
    assert [list(row) for row in document] == [list(KEYS)] * 3
    assert [(row["epoch"], row["global_step"]) for row in document] == [(1, STEPS), (2, 2 * STEPS), (3, 10)]

    steps = [event for event in read_events(folder / "events.jsonl") if event["event"] == "step"]
    losses = {event["step"]: event["loss"] for event in steps}
    for row, begin in zip(document, (0, STEPS, 2 * STEPS), strict=True):
        of_epoch = [losses[step] for step in range(begin + 1, row["global_step"] + 1)]
        assert min(of_epoch) < row["train_loss"] < max(of_epoch)
        assert row["learning_rate"] == next(e["learning_rate"] for e in steps if e["step"] == row["global_step"])
        assert datetime.fromisoformat(row["timestamp"]).tzinfo is not None
        assert Path(row["checkpoint_path"]) == epoch_folder(folder, row["epoch"]).resolve()
    assert document[-1]["train_loss"] < document[0]["train_loss"]

    # The resume points stay, the last step's among them; each loads, and the last epoch's weights are the last step's.
    assert (folder / "checkpoint-10" / "state.json").is_file()
    for path in folder.glob("checkpoint-*"):
        model = PeftModel.from_pretrained(load_base(request.base_model).model, path)
        assert any(bool(value.any()) for name, value in model.named_parameters() if "lora_B" in name), path
    last, point = read_adapter(epoch_folder(folder, 3)), read_adapter(folder / "checkpoint-10")
    assert all(torch.equal(last.tensors[name], point.tensors[name]) for name in last.tensors)


def test_the_loss_of_an_epoch_weighs_steps_by_their_tokens(make_request: MakeRequest) -> None:
    request = of_its_own(make_request, "weighed", epochs=1, learning_rate=1e-12, global_batch=31)
    folder = train(
        request
    )  # two steps, of 31 and 17 examples, on weights that stay: the mean does not depend on the cut
    (row,) = read_epoch_info(folder)
    (whole,) = read_epoch_info(
        train(of_its_own(make_request, "at-once", epochs=1, learning_rate=1e-12, global_batch=48))
    )
    losses = [e["loss"] for e in read_events(folder / "events.jsonl") if e["event"] == "step"]
    plain = sum(losses) / len(losses)
    assert len(losses) == 2 and row["train_loss"] == pytest.approx(whole["train_loss"], abs=1e-5)
    assert row["train_loss"] != pytest.approx(plain, abs=1e-4)


@pytest.mark.resume
@pytest.mark.parametrize("stop_at", [pytest.param(3, marks=pytest.mark.extended), STEPS + 3])
def test_stopped_anywhere_the_epochs_end_the_same(make_request: MakeRequest, stop_at: int) -> None:
    changes: dict[str, Any] = {"epochs": 2, "ema": {"decay": 0.9}}
    expected = train(of_its_own(make_request, "whole", **changes))
    request = of_its_own(make_request, "stopped", **changes)
    folder = train(request, stop_at=stop_at)
    assert len(read_epoch_info(folder)) == stop_at // STEPS
    assert train(request) == folder
    assert without_time(folder) == without_time(expected)
    for epoch in (1, 2):
        one, other = (epoch_folder(where, epoch) / "adapter_model.safetensors" for where in (folder, expected))
        assert sha256_file(one) == sha256_file(other)


def test_a_new_start_from_an_epoch_has_its_weights_and_goes_on_with_the_next(make_request: MakeRequest) -> None:
    first = train(of_its_own(make_request, "first", epochs=1))
    start = Start(
        adapter=epoch_folder(first, 1),
        digest=sha256_file(epoch_folder(first, 1) / "adapter_model.safetensors"),
        epoch=1,
    )
    frozen = of_its_own(make_request, "next", epochs=2, learning_rate=1e-12).model_copy(update={"start": start})
    folder = train(frozen)
    assert [(row["epoch"], row["global_step"]) for row in read_epoch_info(folder)] == [(2, 2 * STEPS)]
    before, after = read_adapter(start.adapter), read_adapter(epoch_folder(folder, 2))
    assert max(float((before.tensors[n] - after.tensors[n]).abs().max()) for n in before.tensors) < 1e-8
    events = read_events(folder / "events.jsonl")
    assert [e["step"] for e in events if e["event"] == "started_anew"] == [STEPS]
    assert frozen.input_digest() != of_its_own(make_request, "next", epochs=2, learning_rate=1e-12).input_digest()

    with pytest.raises(InputError, match="epoch 1 is where this training starts, and it has 1 epochs"):
        train(of_its_own(make_request, "none-left", epochs=1).model_copy(update={"start": start}))
    changed = start.model_copy(update={"digest": "0" * 64})
    with pytest.raises(InputError, match="has changed or is gone since the training was requested"):
        train(of_its_own(make_request, "changed").model_copy(update={"start": changed}))
    other = {"rank": 3, "alpha": 4, "dropout": 0.0, "use_rslora": False}
    with pytest.raises(InputError, match="leave the LoRA settings as they were"):
        train(of_its_own(make_request, "other", lora=other).model_copy(update={"start": start}))


def test_an_epoch_is_over_with_its_last_step_or_with_its_level() -> None:
    def level(examples: int, steps: int) -> CurriculumLevel:
        ids = [f"e{number}" for number in range(examples)]
        order = ExampleOrder(ids, [1] * examples, seed=1, global_batch=4, window=1)
        return CurriculumLevel("level", ids, [], order, steps, peak=1.0)

    levels = [level(10, steps=7), level(3, steps=2), level(8, steps=1)]  # 3, 1 and 2 steps an epoch
    curriculum = Curriculum(levels, shipped_recipe("nano_cpu", TrainingRecipe))
    assert curriculum.epoch_ends() == (3, 6, 7, 8, 9, 10)


def test_a_start_knows_the_names_that_it_needs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has changed or is gone since the training was requested"):
        begin_at(Start(adapter=tmp_path, digest="", epoch=1), (3, 6), {}, {})


@pytest.mark.parametrize("text", ["[{}]", "{}", '[{"epoch": 1}]', "[", "[1]"])
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "epoch_info.json").write_text(text)
    with pytest.raises(InputError, match=r"epoch_info\.json"):
        read_epoch_info(tmp_path)


def test_names_of_folders(tmp_path: Path) -> None:
    for name in ("checkpoint-epoch-2", "checkpoint-epoch-10", "checkpoint-7", "checkpoint-epoch-x"):
        (tmp_path / name).mkdir()
    assert existing_epochs(tmp_path) == [2, 10]
    assert [epoch_of(tmp_path / name) for name in ("checkpoint-epoch-2", "checkpoint-7")] == [2, None]
    assert read_epoch_info(tmp_path) == []
    row = dict.fromkeys(KEYS, 1)
    write_epoch_info(tmp_path, [dict(reversed(row.items()))])
    assert list(read_epoch_info(tmp_path)[0]) == list(KEYS)
