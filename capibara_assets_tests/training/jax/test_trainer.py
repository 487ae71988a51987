"""The JAX trainer: the loss falls, a cut one goes on to the same weights, others can load them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.modeling.base import load_tokenizer
from capibara_assets.planning.accounting import Method, flops_per_token
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.writers.jax_config import JaxConfig
from capibara_assets.storage.mirror import mirror, upload
from capibara_assets.training.jax import measured, rows, saved, trainer
from capibara_assets_tests.late import late
from capibara_assets_tests.modeling.tiny import save_tiny

late("jax", reason="the extra tpu is not installed")

LAYERS = ("q_proj", "v_proj", "down_proj")
NANO = resources_root() / "base_models" / "capibara-nano"


def conversations(folder: Path) -> Path:
    lines = [
        {
            "messages": [
                {"role": "user", "content": f"Write a function that adds {number}."},
                {"role": "assistant", "content": f"```python\ndef add(x):\n    return x + {number}\n```"},
            ]
        }
        for number in range(12)
    ]
    file = folder / "train.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def config(folder: Path, **changes: Any) -> JaxConfig:
    settings = {
        "domain": "python",
        "model": read_shape(NANO).model_dump(),
        "base": str(NANO),
        "data": str(conversations(folder)),
        "output": str(folder / "out"),
        "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
        "sequences": 2,
        "sequence": 128,
        "remat": "none",
        "method": "lora",
        "lora": {"rank": 4, "alpha": 8.0, "modules": list(LAYERS)},
        "schedule": {"peak": 3e-3, "kind": "constant"},
        "steps": 6,
        "save_every": 2,
        "compute_dtype": "float32",
        "logit_chunks": 2,
    }
    return JaxConfig.model_validate(settings | changes)


def once(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The program of the first call for every later one, of the same settings."""
    made: list[Any] = []
    return lambda *arguments: made[0] if made else made.append(compiled(*arguments)) or made[0]


def test_the_loss_falls_and_a_cut_training_goes_on_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "_compiled", once(trainer._compiled))  # most of the time
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    base = save_tiny(tmp_path / "tiny", tokenizer_of=NANO)  # compiling for the shipped one takes longer
    tiny = {"base": str(base), "model": read_shape(base).model_dump(), "schedule": {"peak": 3e-2, "kind": "constant"}}
    whole = trainer.train(config(tmp_path / "whole", **tiny))
    assert whole.losses[-1] < whole.losses[0] - 0.1
    # A kill after step 5 leaves points 2 and 4; the newest is damaged, so 2 is what it goes on from.
    shutil.copytree(tmp_path / "whole" / "out" / "points", tmp_path / "cut" / "out" / "points")
    newest = sorted((tmp_path / "cut" / "out" / "points").iterdir())[-1] / "state.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    cut = trainer.train(config(tmp_path / "cut", **tiny))
    assert cut.started_at == 2
    assert cut.losses == whole.losses[2:]
    result = json.loads((cut.folder / "result.json").read_text())
    assert result["passed_over"] == ["step-000000004: state.safetensors changed since written"]
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        ours, theirs = (one.folder / "adapter" / name for one in (whole, cut))
        assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.extended
def test_a_full_training_is_a_model_that_transformers_loads(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    done = trainer.train(config(tmp_path, method="full", lora=None, steps=2, sequences=1, schedule={"peak": 1e-3}))
    model = AutoModelForCausalLM.from_pretrained(done.folder / "model")
    base = AutoModelForCausalLM.from_pretrained(NANO).float()
    changed = model.model.norm.weight.detach().numpy() - base.model.norm.weight.detach().numpy()
    assert 0 < np.abs(changed).max() < 0.01


@pytest.mark.extended
def test_what_lies_on_an_object_store_is_read_there_and_a_cut_training_goes_on_on_another_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = save_tiny(tmp_path / "tiny", tokenizer_of=NANO)
    root = "memory://bucket/capibara"
    for place, folder in (("base/tiny", base), ("python/data", conversations(tmp_path).parent)):
        upload(folder, f"{root}/{place}")
    remote = {"base": f"{root}/base/tiny", "data": f"{root}/python/data/train.jsonl", "output": f"{root}/python/jax"}
    remote |= {"validation": remote["data"], "model": read_shape(base).model_dump(), "publish": "best"}

    class Cut(Exception):
        pass

    polled = iter(range(100))

    def stop() -> None:
        if next(polled) == 3:
            raise Cut

    monkeypatch.setenv("CAPIBARA_JAX_SCRATCH", str(tmp_path / "host-0"))
    with pytest.raises(Cut):
        trainer.train(config(tmp_path, **remote), trainer.Watch(poll=stop))
    monkeypatch.setenv("CAPIBARA_JAX_SCRATCH", str(tmp_path / "host-1"))
    done = trainer.train(config(tmp_path, **remote))
    assert done.started_at == 3 and done.folder.is_relative_to(tmp_path / "host-1")
    published = mirror(f"{root}/python/jax", tmp_path / "published")
    result = json.loads((published / "result.json").read_text())
    assert result["validation_loss"] < result["base_validation_loss"]
    local = trainer.train(config(tmp_path, base=str(base), **{name: remote[name] for name in ("model", "publish")},
                                 validation=str(tmp_path / "train.jsonl")))  # fmt: skip
    ours, theirs = (read_adapter(folder / "adapter") for folder in (published, local.folder))
    assert all(np.array_equal(value, theirs.tensors[name]) for name, value in ours.tensors.items())


def test_the_share_of_the_peak_is_of_the_chips_that_the_plan_is_for(tmp_path: Path) -> None:
    settings = config(tmp_path, chip={"target": "tpu-v5e-1", "peak_tflops": 197.0, "step_seconds": [0.5, 1.0, 2.0]})
    on_chip = measured.StepMeter(settings, "tpu", "TPU v5 lite", 12.0, [(2.0, 100), (1.0, 100), (3.0, 100)])
    found = on_chip.document()
    per_token = flops_per_token(
        settings.model, 128, method=Method.LORA, lora_parameters=settings.model.lora_parameters(4, LAYERS)
    )
    assert found["tflops_per_chip"] == pytest.approx(per_token * 2 * 128 / 2.0 / 1e12)
    assert found["share_of_peak"] == pytest.approx(found["tflops_per_chip"] / 197)
    assert (found["compile_seconds"], found["step_seconds"], found["measured_over_predicted"]) == (12.0, 2.0, 2.0)
    elsewhere = measured.StepMeter(settings, "cpu", "cpu", 12.0, [(2.0, 100)]).document()
    assert (
        elsewhere["share_of_peak"] is None
        and "the devices are cpu, the plan is for tpu-v5e-1" in elsewhere["peak_note"]
    )


def test_a_step_holds_the_examples_that_pytorch_takes_in_it(tmp_path: Path) -> None:
    settings = config(tmp_path, examples=5, sequences=5, packing=False, order="7/1")
    read = rows.read_examples(settings, conversations(tmp_path), load_tokenizer(NANO))
    order, of_step = rows.example_order(settings, read), rows.step_rows(settings, read)
    for step in range(3):
        taken = [read.encoded[index] for index in order.step(step)]
        made = of_step(step)
        assert len(made) == 5 and made.examples == len(taken)
        for row, one in zip(made.arrays["tokens"], taken, strict=False):
            assert row[: len(one.input_ids)].tolist() == one.input_ids
        assert not made.arrays["mask"][len(taken) :].any()
    assert sorted(of_step(step).examples or 0 for step in range(3)) == [2, 5, 5]
    with pytest.raises(InputError, match="fill 5 rows, `sequences` is 4"):
        rows.step_rows(settings.model_copy(update={"sequences": 4}), read)(0)


def test_rows_of_a_step_depend_on_seed_and_step_alone(tmp_path: Path) -> None:
    settings = config(tmp_path)
    read = rows.read_examples(settings, conversations(tmp_path), load_tokenizer(NANO))
    packed = rows.rows_of(settings, read.encoded)
    assert {*packed.batch()} == {"tokens", "mask", "segments"}
    assert np.array_equal(packed.of_step(3, 2, 0).batch()["tokens"], packed.of_step(3, 2, 0).batch()["tokens"])
    epoch = np.concatenate([packed.of_step(number, 1, 7).batch()["tokens"] for number in range(len(packed))])
    assert sorted(map(tuple, epoch)) == sorted(map(tuple, packed.arrays["tokens"]))


def test_the_schedule_warms_up_and_falls(tmp_path: Path) -> None:
    plan = config(tmp_path, schedule={"peak": 1.0, "warmup_steps": 2, "final": 0.1}, steps=10)
    rates = [trainer.learning_rate(plan, step) for step in range(10)]
    assert rates[:2] == [0.5, 1.0]
    assert rates[-1] == pytest.approx(0.1)
    assert rates[1:] == sorted(rates[1:], reverse=True)


def test_what_cannot_be_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="devices"):
        trainer.train(config(tmp_path, mesh={"data": 64, "fsdp": 1, "tensor": 1}, sequences=64))
    with pytest.raises(InputError, match="8-bit"):
        trainer.step_settings(config(tmp_path, optimizer="adamw_8bit"), "cpu")
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"messages": []}\nnot json\n')
    with pytest.raises(InputError, match=r"broken\.jsonl:2"):
        rows.read_examples(config(tmp_path), broken, None)


def test_a_point_of_another_run_is_passed_over(tmp_path: Path) -> None:
    arrays = {"x": np.ones(3, np.float32)}
    for step in (1, 2, 3):
        saved.save_point(tmp_path, saved.JaxResumePoint(step, "mine", arrays, arrays))
    assert sorted(place.name for place in tmp_path.iterdir()) == ["step-000000002", "step-000000003"]
    found, passed = saved.newest_point(tmp_path, "another")
    assert found is None
    assert len(passed) == 2
