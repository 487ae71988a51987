"""LoRA on architectures that the planner has no formula for: planned, trained, loaded by PEFT; and doctor's data."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from peft import LoraConfig, PeftModel, get_peft_model

from capibara_assets.errors import InputError
from capibara_assets.planning.models import from_config, read_shape
from capibara_assets.training.plan.plan import plan_training
from capibara_assets.training.standalone.choices import RunOptions
from capibara_assets.training.standalone.run import prepare
from capibara_assets_tests.home import command_here
from capibara_assets_tests.modeling.tiny_architectures import ARCHITECTURES, config_of, random_model, save_random
from capibara_assets_tests.training.loop.test_train import train

BLOCK = re.compile(r"\.\d+\.")
# What PEFT adapts as experts, or refuses, where a linear layer has the name.
NOT_BY_PEFT = {"deepseek_v3": {"gate_proj", "up_proj", "down_proj"}, "mamba": {"out_proj"}}
ROWS = [{"prompt": f"Write a function that adds {n}", "completion": f"def add(x): return x + {n}"} for n in range(6)]


def options(model: Path, folder: Path, *settings: str) -> RunOptions:
    data = folder / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, ROWS)))
    short = ("training.max_steps=2", "data.max_length=64")
    return RunOptions(data=(data,), output=folder / "out", model=str(model), settings=(*short, *settings))


def adapted(model: Any) -> set[str]:
    names = (name for name, _ in model.named_modules() if name.endswith(".lora_A"))
    return {name.removeprefix("base_model.model.").removesuffix(".lora_A") for name in names}


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_the_targets_are_those_of_all_linear_in_the_blocks(kind: str) -> None:
    """Against PEFT itself: the named targets adapt what `all-linear` does, but for heads and poolers."""
    model = random_model(kind)
    shape = from_config(config_of(kind).to_dict(), kind)
    assert shape.parameters == model.num_parameters()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = adapted(get_peft_model(model, LoraConfig(r=2, target_modules=list(shape.lora_targets))))
    left_out = NOT_BY_PEFT.get(kind, set())
    theirs = {
        name
        for name, module in random_model(kind).named_modules()
        if type(module).__name__ in ("Linear", "Conv1D", "FalconLinear") and BLOCK.search(name)
    }
    assert ours == {name for name in theirs if name.rpartition(".")[2] not in left_out} and ours
    assert bool(shape.counted and shape.counted.left_out) == bool(left_out)
    if not left_out and kind != "roberta":  # whose all-linear has the head's transform, too
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert adapted(get_peft_model(random_model(kind), LoraConfig(r=2, target_modules="all-linear"))) == ours


@pytest.mark.parametrize(
    "kind", ["gpt_oss", *(pytest.param(kind, marks=pytest.mark.extended) for kind in [*ARCHITECTURES][1:])]
)
def test_a_random_model_is_planned_trained_and_loaded(kind: str, tmp_path: Path, nano: Path) -> None:
    base = save_random(kind, tmp_path / "base", nano)
    request, _ = prepare(options(base, tmp_path, "model.lora.modules=null"))
    plan = plan_training(request)
    assert "every linear layer of the blocks but the head" in plan.modules_reason
    assert set(plan.modules) == set(read_shape(base).lora_targets)
    folder = train(request)
    loaded = PeftModel.from_pretrained(random_model(kind, _vocabulary(base)), folder)
    found = adapted(loaded)
    assert len(found) == plan.adapted
    weights = [value for name, value in loaded.named_parameters() if "lora_" in name]
    assert sum(value.numel() for value in weights) == plan.trainable
    assert any(float(value.abs().max()) > 0 for name, value in loaded.named_parameters() if "lora_B" in name)


def _vocabulary(base: Path) -> int:
    return int(json.loads((base / "config.json").read_text())["vocab_size"])


def test_the_hint_names_a_key_that_is_taken(tmp_path: Path, nano: Path) -> None:
    base = save_random("granite", tmp_path / "base", nano)
    config = base / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": "never-heard-of"}))
    with pytest.raises(InputError, match="knows no model_type 'never-heard-of'") as refused:
        prepare(options(base, tmp_path, "model.lora.modules=null"))
    found = re.search(r"--set (model\.\S+)$", str(refused.value))
    assert found
    request, _ = prepare(options(base, tmp_path, found.group(1)))
    assert request.recipe.model.lora.modules == ("q_proj", "v_proj")


def test_doctor_takes_what_train_takes(tmp_path: Path) -> None:
    """From a JSONL file to the whole plan."""
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, ROWS)))
    words = ["doctor", "--data", str(data), "--output", str(tmp_path / "out"), "--quick", "--json"]
    document = json.loads(command_here({}, *words))
    assert document["ready"] and document["plan"]["examples"] == len(ROWS)
    assert str(tmp_path) in next(check["found"] for check in document["checks"] if check["check"] == "disk")
    assert not (tmp_path / "out").exists()
