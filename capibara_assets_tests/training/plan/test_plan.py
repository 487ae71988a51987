"""Plans before a run: published counts, PEFT's counts, and what a real run then did."""

import csv
import json
import shutil
import subprocess
import sys
from math import prod
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.errors import InputError
from capibara_assets.modeling import losses
from capibara_assets.planning.accounting import logits_at_once
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.models import ModelShape, read_shape
from capibara_assets.planning.presets import PRESETS
from capibara_assets.planning.weights import read_weights
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.plan.plan import plan_training
from capibara_assets.training.plan.schema import MeasuredSpeed, VoterPlan
from capibara_assets.training.plan.text import plan_lines
from capibara_assets.training.plan.time import ComputeSetup, predict_time
from capibara_assets.training.supervisor.run import train_domain
from capibara_assets_tests.modeling.tiny import MODULES
from capibara_assets_tests.training.conftest import MakeRequest

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LORA = {"rank": 4, "alpha": 8, "dropout": 0.0, "use_rslora": False}
ONE_VOTER = [{"name": "voter-0", "seed": 0, "shard": 0}]


def decoder_tensors(shape: ModelShape) -> dict[str, list[int]]:
    """Names and shapes of a Llama-like model's tensors, as Transformers stores them."""
    tensors = {"model.embed_tokens.weight": [shape.vocabulary, shape.hidden], "model.norm.weight": [shape.hidden]}
    tensors["lm_head.weight"] = [shape.vocabulary, shape.hidden]
    for layer in range(shape.layers):
        for module in shape.linear_modules:
            block = "mlp" if module.name in ("gate_proj", "up_proj", "down_proj") else "self_attn"
            tensors[f"model.layers.{layer}.{block}.{module.name}.weight"] = [module.outputs, module.inputs]
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{layer}.{norm}.weight"] = [shape.hidden]
    return tensors


def save_hollow(folder: Path, preset: str, tokenizer_of: Path) -> Path:
    """A model whose weight file has a true header and the true length, and no bytes on the disk."""
    folder.mkdir()
    config = {**PRESETS[preset], "architectures": ["MistralForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(tokenizer_of / name, folder / name)
    header: dict[str, Any] = {}
    at = 0
    for name, sizes in decoder_tensors(read_shape(preset)).items():
        header[name] = {"dtype": "BF16", "shape": sizes, "data_offsets": [at, at + 2 * prod(sizes)]}
        at += 2 * prod(sizes)
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
    return folder


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_hollow(tmp_path_factory.mktemp("hollow") / "mistral-7b", "mistral-7b", nano)


def test_known_answers_of_mistral_7b(mistral: Path) -> None:
    weights = read_weights(mistral)
    assert weights.parameters == read_shape("mistral-7b").parameters == 7_241_732_096
    assert weights.lora_parameters(8, ("q_proj", "v_proj")) == 3_407_872
    assert weights.lora_parameters(64, ALL) == 167_772_160
    assert len(weights.adapted(ALL)) == 7 * 32


def test_the_published_recipe_on_eight_h100_and_on_a_laptop(mistral: Path, make_request: MakeRequest) -> None:
    request = make_request(
        lora={"rank": 64, "alpha": 128, "dropout": 0.05, "use_rslora": False, "modules": ALL},
        backend="zero2", processes=8, global_batch=128, micro_batch=8, accumulation=2, max_length=2048, epochs="auto",
        max_steps=None, precision="auto", attention="flash_attention_2", voters=ONE_VOTER,
    )  # fmt: skip
    request = request.model_copy(update={"base_model": mistral})  # a digest would read all of it
    plan = plan_training(request, find_target("h100-8"))
    assert plan.trainable == 167_772_160
    assert plan.accumulation == "128 examples a step = 8 x 8 processes x 2 micro-steps"
    assert plan.precision == "bf16" and plan.attention == "flash_attention_2"
    assert plan.voters[0].epochs == 5 and plan.voters[0].steps == 5  # 48 examples: five passes of one step
    assert plan.size.adapter == pytest.approx(4 * 167_772_160, rel=0.001)
    assert plan.size.optimizer == pytest.approx(8 * 167_772_160, rel=0.001)
    assert plan.time.seconds is not None and 0 < plan.time.seconds[0] < plan.time.seconds[1]
    assert plan.time.usd is None and "contract" in plan.time.usd_note  # no certain price, and it says so
    assert plan.memory.total < plan.budget_bytes
    assert plan.warnings == ("flash-attn has to be installed on h100-8: without it the start is refused",)
    text = "\n".join(plan_lines(plan))
    assert "167,772,160 trainable of 7,241,732,096 (2.317%)" in text and "optimizer steps" in text
    assert json.loads(json.dumps(plan.document()))["bytes"] == plan.bytes

    tight = plan_training(request.model_copy(update={"recipe": small(request.recipe)}), find_target("cpu-laptop"))
    assert any("cpu-laptop has 4 GiB usable" in warning and "GiB weights" in warning for warning in tight.warnings)
    assert tight.time.seconds is None and "measured" in tight.time.source


def small(recipe: Any) -> Any:
    """The recipe in one process, with an attention that a processor has."""
    hardware = recipe.hardware.model_copy(update={"backend": "single", "processes": 1})
    return recipe.model_copy(
        update={"hardware": hardware, "model": recipe.model.model_copy(update={"attention": "auto"})}
    )


def test_what_cannot_work_is_refused_with_the_sum(make_request: MakeRequest, tmp_path: Path) -> None:
    gpu, cpu = find_target("h100-8"), find_target("cpu-laptop")
    with pytest.raises(InputError, match="max_length 300 is above the base's 256 positions"):
        plan_training(make_request(max_length=300))
    with pytest.raises(InputError, match="16 processes, but h100-8 has 8 devices"):
        plan_training(make_request(backend="ddp", processes=16), gpu)
    with pytest.raises(InputError, match="adamw_8bit needs CUDA"):
        plan_training(make_request(optimizer="adamw_8bit"), cpu)
    with pytest.raises(InputError, match="no linear layer named c_attn; it has down_proj, gate_proj"):
        plan_training(make_request(lora=LORA | {"modules": ["c_attn"]}))
    with pytest.raises(InputError, match="none of the train examples can be used with max_length 8"):
        plan_training(make_request(max_length=8))
    with pytest.raises(InputError, match="does not exist"):
        plan_training(make_request(data=tmp_path / "none.parquet"))


@pytest.mark.parametrize(
    ("rank", "modules", "dora"), [(2, MODULES, False), (8, ("q_proj", "v_proj"), False), (4, ("down_proj",), True)]
)
def test_trainable_parameters_are_pefts(rank: int, modules: tuple[str, ...], dora: bool, tiny_folder: Path) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_folder)
    adapted = get_peft_model(model, LoraConfig(r=rank, target_modules=list(modules), use_dora=dora))
    assert (
        read_weights(tiny_folder).lora_parameters(rank, modules, dora=dora) == adapted.get_nb_trainable_parameters()[0]
    )


def test_an_architecture_without_a_known_shape_is_counted_too(
    make_request: MakeRequest, nano: Path, tmp_path: Path
) -> None:
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=4096, n_positions=256, n_embd=32, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path / "gpt2")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(nano / name, tmp_path / "gpt2" / name)
    modules = ["c_attn", "c_proj"]
    plan = plan_training(make_request(base=tmp_path / "gpt2", lora=LORA | {"modules": modules}))
    assert plan.parameters == model.num_parameters()
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules=modules, fan_in_fan_out=True))
    assert plan.trainable == adapted.get_nb_trainable_parameters()[0]
    assert plan.memory.note and "estimated" in plan.memory.note
    assert plan.memory.parts["weights"] == 4 * plan.parameters


def test_a_run_does_what_its_plan_said_and_reports_the_difference(make_request: MakeRequest) -> None:
    request = make_request(voters=ONE_VOTER, checkpoint_every=3, micro_batch_tokens=150)
    before = plan_training(request)
    assert not before.tokens_exact and before.tokens_source.startswith("estimated")
    outcome = train_domain(request, lambda event: None)
    after = plan_training(request)
    assert after.tokens_exact
    assert before.voters[0].tokens == pytest.approx(after.voters[0].tokens, rel=0.05)

    events = [event for event in read_events(request.work / "voter-0" / "events.jsonl") if event["event"] == "step"]
    planned = after.voters[0]
    assert planned.steps == len(events) == 8
    assert planned.micro_steps == sum(event["micro_steps"] for event in events)
    assert planned.examples == outcome.summary["voters"]["voter-0"]["examples"]
    assert planned.validation_examples == outcome.summary["voters"]["voter-0"]["validation_examples"]
    assert planned.validations == len(outcome.summary["voters"]["voter-0"]["curve"])
    assert after.trainable == outcome.summary["voters"]["voter-0"]["trainable_parameters"]
    adapter = request.out / "voters" / "voter-0" / "adapter_model.safetensors"
    assert after.size.adapter == pytest.approx(adapter.stat().st_size, rel=0.1)

    prediction = outcome.summary["prediction"]
    assert prediction["optimizer_steps"] == {"predicted": 8, "measured": 8, "error": 0.0}
    assert prediction["memory_bytes"]["predicted"] == before.memory.total
    assert prediction["memory_bytes"]["measured"] > 0
    assert prediction["voter_seconds"]["predicted"] is None  # nothing was measured before
    assert prediction["voter_seconds"]["measured"] == outcome.summary["voters"]["voter-0"]["seconds"]


def test_the_size_of_a_resume_point(make_request: MakeRequest, tmp_path: Path) -> None:
    from capibara_assets.training.data.voter_run import Interrupted
    from capibara_assets.training.loop.train import train_voter

    request = make_request(voters=ONE_VOTER, ema={"decay": 0.9}, spike={"snapshot_every": 1})
    said = []

    def poll() -> None:
        if sum(event["event"] == "step" for event in said) == 5:
            raise Interrupted

    with pytest.raises(Interrupted):
        train_voter(VoterRun(request, request.recipe.voters[0], tmp_path / "voter", said.append, poll))
    points = list((tmp_path / "voter").glob("checkpoint-*"))
    largest = max(sum(file.stat().st_size for file in point.iterdir()) for point in points)
    assert plan_training(request).size.resume_point == pytest.approx(largest, rel=0.15)


def test_strategies_multiply_the_steps(make_request: MakeRequest) -> None:
    def planned(strategy: dict[str, Any], **changes: Any) -> VoterPlan:
        voters = [{"name": "voter-0", "seed": 0, "shard": 0, "strategy": strategy}]
        return plan_training(make_request(voters=voters, max_steps=None, epochs=2, **changes)).voters[0]

    plain = planned({"kind": "plain"})
    assert plain.trainings == 1 and plain.steps == 2 * 8  # 48 examples in steps of six, twice
    seeds = planned({"kind": "huggingface", "k": 3, "epochs": 2})
    assert seeds.trainings == 3 and seeds.steps == 3 * plain.steps and seeds.tokens == 3 * plain.tokens
    federated = planned({"kind": "federated", "clients": 4, "rounds": 3, "local_epochs": 1})
    assert federated.trainings == 12 and federated.steps == 12 * 2 and federated.epochs == 3
    levels = planned({"kind": "hierarchical"})
    assert levels.trainings == 3 and levels.steps == (3 + 2 + 1) * 8


def test_seconds_that_were_measured_and_voters_side_by_side() -> None:
    voter = VoterPlan("v", "plain", 1, 10, 1.0, 10, 10, tokens=1000, validations=2, validation_examples=5,
                      validation_tokens=500)  # fmt: skip
    speed = MeasuredSpeed(tokens_per_s=100.0, validation_tokens_per_s=500.0, start_s=3.0, memory_bytes=1, steps=4)
    laptop = find_target("cpu-laptop")
    three = predict_time([voter] * 3, 1.0, laptop, speed, ComputeSetup("fp32", processes=1, parallel=2))
    assert three.each == (15.0, 15.0, 15.0) and three.seconds == (30.0, 30.0) and three.usd == (0.0, 0.0)


def test_published_runs_lie_between_the_best_and_the_typical_seconds(shared_data: Path) -> None:
    """Of H100 runs in bf16: their FLOP/s are within the range that the seconds are computed from."""
    target = find_target("h100-8")
    voter = VoterPlan("v", "plain", 1, 1, 1.0, 1, 1, tokens=10**9, validations=0, validation_examples=0,
                      validation_tokens=0)  # fmt: skip
    flops = 6.0 * read_shape("llama2-7b").parameters
    found = predict_time([voter], flops, target, None, ComputeSetup("bf16", processes=8, parallel=1))
    assert found.seconds is not None
    with (shared_data / "hardware" / "published_training.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["hardware"] == "h100-80gb" and row["model"] == "llama2-7b"]
    published = [float(row["tflops_per_s_per_chip"]) * 1e12 for row in rows if row["tflops_per_s_per_chip"]]
    assert len(published) >= 3
    for rate in published:
        seconds = flops * 1e9 / (8 * rate)
        assert 0.99 * found.seconds[0] <= seconds <= 1.01 * found.seconds[1]


def test_the_lora_rule_gives_a_published_rate() -> None:
    """NeMo 24.12, Llama 2 7B LoRA on eight H100: 24,824 tokens/s and 663 TFLOP/s a GPU; 4 x N x tokens/s is 1 % off."""
    rate = 4 * read_shape("llama2-7b").parameters * 24_824
    assert rate / 663e12 == pytest.approx(1.0, abs=0.015)


def test_no_torch_is_imported_and_the_losses_chunks_are_the_planners() -> None:
    code = (
        "import sys, capibara_assets.training.plan.preflight, capibara_assets.training.plan.text, "
        "capibara_assets.training.plan.prediction, capibara_assets.training.standalone.scripts, "
        "capibara_assets.cli.training.doctor; "
        "print([name for name in ('torch', 'transformers', 'peft') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert logits_at_once("cpu") == losses._CHUNK_ELEMENTS
    assert logits_at_once("gpu") == losses._CHUNK_ELEMENTS * losses._TIMES_ON_A_GPU
