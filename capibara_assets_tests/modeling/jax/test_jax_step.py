"""The JAX step computes what PyTorch computes: Llama, Mistral, Qwen and T5 shapes, full and LoRA, any remat."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.modeling.jax import lora, step, weights
from capibara_assets.modeling.jax.sizes import StepSettings
from capibara_assets.planning.models import ModelShape, from_config, read_shape
from capibara_assets_tests.late import late

jax = late("jax", reason="the extra tpu is not installed")
NANO = resources_root() / "base_models" / "capibara-nano"
POLICIES = (StepSettings(), StepSettings(remat="full", chunks=4), StepSettings(remat="minimal", chunks=2))
POLICY_OF = {"llama-biased": 1, "mistral": 1, "qwen2": 0, "qwen3": 2}  # together, all of them
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def batch_of(vocabulary: int, length: int = 32, seed: int = 0) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(seed)
    return {
        "tokens": chance.integers(2, vocabulary, (3, length)).astype(np.int32),
        "mask": (chance.random((3, length)) < 0.5).astype(np.float32),
        "inputs": chance.integers(2, vocabulary, (3, length)).astype(np.int32),
        "inputs_mask": (np.arange(length)[None, :] < np.array([[length], [length - 5], [length // 2]])).astype(
            np.int32
        ),
    }


def torch_loss(model: Any, batch: dict[str, np.ndarray], seq2seq: bool = False) -> Any:
    labels = torch.where(torch.tensor(batch["mask"]) > 0, torch.tensor(batch["tokens"]).long(), -100)
    if not seq2seq:
        return model(input_ids=torch.tensor(batch["tokens"]).long(), labels=labels).loss
    tokens = torch.tensor(batch["tokens"]).long()
    shifted = torch.cat([torch.zeros_like(tokens[:, :1]), tokens[:, :-1]], dim=1)
    return model(
        input_ids=torch.tensor(batch["inputs"]).long(),
        attention_mask=torch.tensor(batch["inputs_mask"]),
        decoder_input_ids=shifted,
        labels=labels,
    ).loss


def ours(shape: ModelShape, settings: StepSettings, trained: Any, frozen: Any, batch: Any) -> float:
    used = step.batch_table(shape, settings, 1, 1)
    compute = jax.jit(partial(step.loss, shape, settings))
    return float(compute(trained, frozen, {name: batch[name] for name in used}))


def arrays(model: Any) -> dict[str, np.ndarray]:
    return {name: value.detach().float().numpy() for name, value in model.state_dict().items()}


def randomise(model: Any, deviation: float = 0.2) -> Any:
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if parameter.ndim == 1 and "bias" not in name else 0.0, std=deviation)
    return model.eval()


@pytest.mark.parametrize(
    "kind", ["llama-biased", pytest.param("mistral", marks=pytest.mark.extended), "qwen2", "qwen3"]
)
def test_each_decoder_has_the_loss_of_its_pytorch_model(kind: str) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = {
        "model_type": kind.removesuffix("-biased"),
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "vocab_size": 128,
        "tie_word_embeddings": kind == "qwen2",
        "rms_norm_eps": 1e-5,
        **({"attention_bias": True, "mlp_bias": True} if kind == "llama-biased" else {}),
    }
    shape = from_config(config, kind)
    model = randomise(AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)))
    batch = batch_of(128)
    loaded = weights.from_transformers(shape, arrays(model))
    assert sum(value.size for value in loaded.values()) == shape.parameters
    expected = torch_loss(model, batch).item()
    assert ours(shape, POLICIES[POLICY_OF[kind]], loaded, {}, batch) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("projection", "tied", "kind"),
    [
        # That its step changed at all is seen in `planning/test_step_version.py`.
        pytest.param("gated-gelu", False, "t5", marks=pytest.mark.extended),
        pytest.param("relu", True, "t5", marks=pytest.mark.extended),
        ("gated-gelu", True, "umt5"),
    ],
)
def test_t5_has_the_loss_of_its_pytorch_model(projection: str, tied: bool, kind: str) -> None:
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    config = {
        "model_type": kind,
        "d_model": 48,
        "d_kv": 16,
        "d_ff": 80,
        "num_layers": 2,
        "num_decoder_layers": 3,
        "num_heads": 4,
        "vocab_size": 96,
        "feed_forward_proj": projection,
        "tie_word_embeddings": tied,
        "dropout_rate": 0.0,
        "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 128,
    }
    shape = from_config(config, kind)
    model = randomise(AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(**config)))
    batch = batch_of(96, length=200)  # beyond the farthest bucket
    loaded = weights.from_transformers(shape, arrays(model))
    assert sum(value.size for value in loaded.values()) == shape.parameters
    expected = torch_loss(model, batch, seq2seq=True).item()
    for settings in POLICIES if projection == "relu" else POLICIES[1:2]:
        assert ours(shape, settings, loaded, {}, batch) == pytest.approx(expected, abs=1e-4)


@pytest.fixture(scope="module")
def nano() -> tuple[ModelShape, dict[str, np.ndarray], Any]:
    from transformers import AutoModelForCausalLM

    shape = read_shape(NANO)
    return (
        shape,
        weights.read_model(shape, NANO),
        AutoModelForCausalLM.from_pretrained(NANO, dtype=torch.float32).eval(),
    )


def test_the_nano_model_has_pytorchs_loss_and_gradients(nano: Any) -> None:
    shape, loaded, model = nano
    batch = batch_of(shape.vocabulary, length=32)
    loss = torch_loss(model, batch)
    loss.backward()
    batch = {name: batch[name] for name in step.batch_table(shape, POLICIES[1], 1, 1)}
    both = jax.jit(jax.value_and_grad(lambda part: step.loss(shape, POLICIES[1], part, {}, batch)))
    value, slopes = both(loaded)
    assert float(value) == pytest.approx(loss.item(), abs=1e-4)
    theirs = dict(model.named_parameters())
    for name, gradient in weights.to_transformers(shape, {k: np.asarray(v) for k, v in slopes.items()}).items():
        np.testing.assert_allclose(gradient, theirs[name].grad.numpy(), atol=1e-4)
    model.zero_grad()


def test_lora_on_the_nano_model_has_pefts_loss(nano: Any, tmp_path: Path) -> None:
    import copy

    from peft import PeftModel

    shape, loaded, model = nano
    settings = StepSettings(method="lora", lora_rank=4, lora_scale=2.0, lora_modules=LINEAR, remat="full", chunks=4)
    factors = lora.initial(lora.factors(step.base_table(shape), settings), seed=3)
    assert sum(value.size for value in factors.values()) == shape.lora_parameters(4, LINEAR)
    chance = np.random.default_rng(5)  # B is zero at the start: then any factor would pass
    factors = {name: value + chance.normal(0, 0.05, value.shape).astype(np.float32) for name, value in factors.items()}
    weights.save_adapter(shape, settings, factors, str(NANO), tmp_path)
    adapted = PeftModel.from_pretrained(copy.deepcopy(model), str(tmp_path)).eval()
    batch = batch_of(shape.vocabulary, length=32)
    expected = torch_loss(adapted, batch).item()
    assert abs(expected - torch_loss(model, batch).item()) > 0.01
    assert ours(shape, settings, factors, loaded, batch) == pytest.approx(expected, abs=1e-4)


def test_weights_come_back_as_they_were(nano: Any, tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    shape, loaded, model = nano
    weights.save_model(shape, loaded, NANO, tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    kept = {name: value for name, value in arrays(model).items() if name in saved}
    assert {*saved} == {*kept}
    assert all(np.array_equal(saved[name], kept[name]) for name in saved)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "float32"


@pytest.mark.extended  # the loss of a whole training falls in `training/jax/test_trainer.py`
@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
def test_a_step_lowers_the_loss(optimizer: Any) -> None:
    shape = read_shape(NANO).model_copy(update={"layers": 1, "hidden": 128, "intermediate": 128, "vocabulary": 256})
    settings = StepSettings(optimizer=optimizer, chunks=2)
    chance = np.random.default_rng(0)
    trained_table, _, state_table = step.tables(shape, settings)
    trained = {name: chance.normal(0, 0.05, entry.size).astype(np.float32) for name, entry in trained_table.items()}
    state = {name: np.zeros(entry.size, np.float32) for name, entry in state_table.items()}
    batch = {"tokens": chance.integers(0, 256, (2, 16)).astype(np.int32), "mask": np.ones((2, 16), np.float32)}
    compiled, count = jax.jit(step.train_step(shape, settings)), np.float32(0)
    losses = []
    for _ in range(5):
        trained, state, count, loss = compiled(trained, {}, state, count, np.float32(1e-2), batch)
        losses.append(float(loss))
    assert losses == sorted(losses, reverse=True)
    assert float(count) == 5


@pytest.fixture
def small() -> tuple[ModelShape, dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """A shape of one layer, random weights of it, and four rows of tokens with their mask."""
    shape = read_shape(NANO).model_copy(update={"layers": 1, "hidden": 64, "intermediate": 64, "vocabulary": 64})
    chance = np.random.default_rng(0)
    trained = {
        name: chance.normal(0, 0.2, entry.size).astype(np.float32) for name, entry in step.base_table(shape).items()
    }
    tokens = chance.integers(0, 64, (4, 16)).astype(np.int32)
    return shape, trained, tokens, np.tile((np.arange(16) > 3).astype(np.float32), (4, 1))


def test_packed_rows_change_nothing_but_the_layout(small: Any) -> None:
    shape, trained, tokens, mask = small
    alone = ours(shape, StepSettings(), trained, {}, {"tokens": tokens, "mask": mask})
    packed = {
        "tokens": tokens.reshape(2, 32),
        "mask": mask.reshape(2, 32),
        "segments": np.tile(np.repeat([0, 1], 16).astype(np.int32), (2, 1)),
    }
    assert ours(shape, StepSettings(packed=True), trained, {}, packed) == pytest.approx(alone, abs=1e-5)


@pytest.mark.extended  # that a step of two passes is what it was: `planning/test_step_version.py`
def test_micro_steps_change_nothing_but_the_layout(small: Any) -> None:
    shape, trained, tokens, mask = small
    chance = np.random.default_rng(1)
    # Of LoRA on one module: passes are summed in the same way for each trained weight, and compiling few is quick.
    adapting = StepSettings(method="lora", lora_rank=2, lora_scale=1.0, lora_modules=("q_proj",))
    table = lora.factors(step.base_table(shape), adapting)
    factors = {name: chance.normal(0, 0.2, entry.size).astype(np.float32) for name, entry in table.items()}
    whole, parts = (
        jax.jit(step.train_step(shape, replace(adapting, micro_steps=count)))(
            factors,
            trained,
            {f"{m}.{name}": np.zeros_like(value) for name, value in factors.items() for m in ("first", "second")},
            np.float32(0),
            np.float32(0),
            {"tokens": tokens, "mask": np.where(np.arange(4)[:, None] > 1, mask, 0 * mask)},
        )
        for count in (1, 2)
    )
    assert float(whole[3]) == pytest.approx(float(parts[3]), abs=1e-5)
    for name, value in whole[1].items():
        np.testing.assert_allclose(np.asarray(value), np.asarray(parts[1][name]), atol=1e-6)


def test_adamw_is_pytorchs() -> None:
    from capibara_assets.modeling.jax.optimizers import Update, updated
    from capibara_assets.modeling.jax.sizes import Weight

    settings = StepSettings(weight_decay=0.1, clip_norm=2.0)
    table = {"layers.x": Weight((2, 3, 4), (None, None, None))}
    chance = np.random.default_rng(0)
    value = chance.normal(size=(2, 3, 4)).astype(np.float32)
    theirs = torch.nn.Parameter(torch.tensor(value))
    optimizer = torch.optim.AdamW([theirs], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    trained = {"layers.x": value}
    state = {f"{moment}.layers.x": np.zeros_like(value) for moment in ("first", "second")}
    for count in (1, 2, 3):
        gradient = chance.normal(size=value.shape).astype(np.float32)
        theirs.grad = torch.tensor(gradient)
        torch.nn.utils.clip_grad_norm_([theirs], 2.0)
        optimizer.step()
        trained, state = updated(Update(settings, 0.01, count), trained, {"layers.x": gradient}, state, table)
    np.testing.assert_allclose(np.asarray(trained["layers.x"]), theirs.detach().numpy(), atol=1e-6)


def test_adafactor_is_transformers() -> None:
    from transformers import Adafactor

    from capibara_assets.modeling.jax.optimizers import Update, updated
    from capibara_assets.modeling.jax.sizes import Weight

    table = {"embedding": Weight((130, 140), ("tensor", "fsdp")), "norm": Weight((7,), (None,))}
    chance = np.random.default_rng(0)
    trained = {name: chance.normal(size=entry.size).astype(np.float32) for name, entry in table.items()}
    theirs = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in trained.items()}
    options = {"lr": 0.01, "scale_parameter": True, "relative_step": False, "warmup_init": False}
    optimizer = Adafactor([*theirs.values()], **options)
    settings = StepSettings(optimizer="adafactor")
    state = {
        "row.embedding": np.zeros(130, np.float32),
        "column.embedding": np.zeros(140, np.float32),
        "second.norm": np.zeros(7, np.float32),
    }
    for count in (1, 2, 3):
        slopes = {name: chance.normal(size=entry.size).astype(np.float32) for name, entry in table.items()}
        for name, parameter in theirs.items():
            parameter.grad = torch.tensor(slopes[name])
        optimizer.step()
        trained, state = updated(Update(settings, 0.01, np.float32(count)), trained, slopes, state, table)
    for name, value in trained.items():
        np.testing.assert_allclose(np.asarray(value), theirs[name].detach().numpy(), atol=1e-5)


def test_what_cannot_be_expressed_is_refused(tmp_path: Path) -> None:
    shape = read_shape(NANO)
    with pytest.raises(InputError, match="mixtures"):
        step.base_table(shape.model_copy(update={"experts": 8}))
    with pytest.raises(InputError, match="rank"):
        StepSettings(method="lora")
    with pytest.raises(InputError, match="nothing_proj"):
        lora.factors(step.base_table(shape), StepSettings(method="lora", lora_rank=2, lora_modules=("nothing_proj",)))
    with pytest.raises(InputError, match="do not divide"):
        ours(shape, replace(POLICIES[0], chunks=5), weights.read_model(shape, NANO), {}, batch_of(64))
    with pytest.raises(InputError, match="no tensor"):
        weights.from_transformers(shape, {})
    config = json.loads((NANO / "config.json").read_text()) | {"rope_parameters": {"rope_type": "llama3"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="llama3"):
        weights.read_model(shape, tmp_path)
