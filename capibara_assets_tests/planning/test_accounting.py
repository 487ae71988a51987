"""FLOPs and bytes: against published runs, against what autograd really keeps, and by their own laws."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.planning.accounting import (
    Attention,
    DeviceStep,
    Method,
    Optimizer,
    Remat,
    Sharding,
    flops_per_token,
    optimizer_bytes,
    training_memory,
)
from capibara_assets.planning.models import from_config, read_shape
from capibara_assets_tests.planning.shapes import NANO

EVERY = tuple(module.name for module in NANO.linear_modules)


def step(**options: Any) -> DeviceStep:
    defaults: dict[str, Any] = {
        "sequences": 4,
        "sequence": 128,
        "weight_bytes": 4,
        "compute_bytes": 4,
        "method": Method.FULL,
    }
    return DeviceStep(**(defaults | options))


def test_dense_flops_are_six_per_weight_and_attention_is_twelve_per_position() -> None:
    shape = read_shape("llama2-7b")
    dense = 6 * (shape.parameters - shape.embedding_parameters - shape.vector_parameters)
    assert flops_per_token(shape, 2048) == dense + 12 * 32 * 4096 * 2048
    assert flops_per_token(shape, 2048, attention=Attention.CAUSAL) == dense + 6 * 32 * 4096 * 2048


def test_lora_skips_the_frozen_weights_gradients() -> None:
    shape = read_shape("llama2-7b")
    adapter = shape.lora_parameters(16, ("q_proj", "v_proj"))
    lora = flops_per_token(shape, 1, method=Method.LORA, lora_parameters=adapter)
    full = flops_per_token(shape, 1)
    assert lora == pytest.approx(full * 2 / 3 + 6 * adapter, rel=1e-3)


def test_published_runs_get_their_own_tflops_back(shared_data: Any) -> None:
    """Rows of dense bf16 decoders that state step time and TFLOP/s: our count over their time gives their figure."""
    polars = pytest.importorskip("polars")
    rows = polars.read_csv(shared_data / "hardware" / "published_training.csv", infer_schema_length=0)
    rows = rows.filter(
        polars.col("framework").str.starts_with("maxtext")
        & polars.col("model").is_in(["llama3.1-8b", "llama3.1-70b"])
        & (polars.col("precision") == "bf16")
        & polars.col("attention_flops_convention").str.starts_with("full")
        & (polars.col("tokens_per_s_per_chip") != "")
    )
    errors = []
    for row in rows.iter_rows(named=True):
        shape = read_shape(row["model"])
        ours = flops_per_token(shape, int(row["seq_len"])) * float(row["tokens_per_s_per_chip"]) / 1e12
        errors.append(abs(ours / float(row["tflops_per_s_per_chip"]) - 1))
    assert len(errors) >= 4
    assert max(errors) < 0.02


@pytest.mark.parametrize(("rank", "dropout"), [(0, 0.0), (8, 0.0), (8, 0.05)])
def test_activations_equal_what_autograd_keeps(rank: int, dropout: float) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=352,
        vocab_size=512,
        tie_word_embeddings=True,
    )
    shape = from_config(json.loads(config.to_json_string()), "measured")
    model: Any = LlamaForCausalLM(config)
    inner = model.model
    if rank:
        adapted = get_peft_model(model, LoraConfig(r=rank, lora_dropout=dropout, target_modules=list(EVERY)))
        assert sum(p.numel() for p in adapted.parameters() if p.requires_grad) == shape.lora_parameters(rank, EVERY)
        inner = adapted.base_model.model.model
    inner.train()
    measured = kept_bytes(model, lambda: inner(torch.zeros(4, 128, dtype=torch.long)))
    wanted = step(
        method=Method.LORA if rank else Method.FULL,
        lora_rank=rank,
        lora_modules=EVERY if rank else (),
        lora_dropout=dropout > 0,
    )
    assert training_memory(shape, wanted).activations == pytest.approx(measured, rel=0.05)


def test_activations_of_t5_equal_what_autograd_keeps() -> None:
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=128,
        d_kv=32,
        d_ff=256,
        num_layers=4,
        num_heads=4,
        vocab_size=64,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        decoder_start_token_id=0,
    )
    shape = from_config(json.loads(config.to_json_string()), "t5")
    model = T5ForConditionalGeneration(config).train()
    tokens = torch.zeros(4, 128, dtype=torch.long)
    measured = kept_bytes(model, lambda: model(input_ids=tokens, decoder_input_ids=tokens))
    assert training_memory(shape, step()).activations == pytest.approx(measured, rel=0.08)


def kept_bytes(model: Any, forward: Any) -> int:
    """Bytes of the distinct storages that a forward pass saves for its backward pass, weights not counted."""
    import torch

    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    storages: dict[int, int] = {}
    alive = []

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor)  # a freed storage could give its address to the next
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    return sum(storages.values())


def test_adamw_state_equals_torchs() -> None:
    import torch

    weight = torch.nn.Parameter(torch.zeros(37, 11))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    held = sum(value.nbytes for value in optimizer.state[weight].values() if value.ndim)
    assert held == optimizer_bytes(NANO, step(), weight.numel())


def test_logits_are_the_commonest_surprise() -> None:
    shape = read_shape("llama3.1-8b")
    memory = training_memory(shape, step(sequences=4, sequence=8192, compute_bytes=2))
    # Three times batch x sequence x vocabulary x 4 bytes: log-probabilities, their gradient and the logits' gradient.
    assert memory.logits == 3 * 4 * 8192 * 128256 * 4
    tiled = training_memory(shape, step(sequences=4, sequence=8192, compute_bytes=2, logit_chunks=8))
    assert tiled.logits * 8 == memory.logits


def test_four_bit_weights_take_about_half_a_byte() -> None:
    shape = read_shape("mistral-7b")
    memory = training_memory(
        shape,
        step(method=Method.LORA, lora_rank=8, lora_modules=("q_proj",), weight_bytes=2, compute_bytes=2, nf4=True),
    )
    blocks = sum(module.parameters for module in shape.linear_modules)
    assert 0.51 < (memory.weights - 2 * (shape.parameters - blocks)) / blocks < 0.52


def test_adafactor_keeps_rows_and_columns_only() -> None:
    shape = read_shape("t5_1_1-large")
    assert optimizer_bytes(shape, step(optimizer=Optimizer.ADAFACTOR), shape.parameters) < 0.01 * 8 * shape.parameters


@given(
    sequences=st.integers(1, 64),
    sequence=st.sampled_from([64, 128, 512, 2048]),
    shards=st.sampled_from([1, 2, 8, 64]),
    remat=st.sampled_from(list(Remat)),
)
def test_more_work_never_takes_less_memory_and_more_shards_never_more(
    sequences: int, sequence: int, shards: int, remat: Remat
) -> None:
    shape = read_shape("llama2-7b")

    def total(**options: Any) -> int:
        layout = Sharding(weights=shards, gradients=shards, optimizer=shards)
        return training_memory(
            shape, step(**{"sequences": sequences, "sequence": sequence, "remat": remat, "layout": layout} | options)
        ).total

    assert total(sequences=sequences + 1) > total()
    assert total(sequence=2 * sequence) > total()
    wider = Sharding(weights=2 * shards, gradients=2 * shards, optimizer=2 * shards)
    # Going from one shard to two, the gathered copies are new.
    if shards > 1:
        assert total(layout=wider) < total()


def test_recomputation_trades_memory_in_order() -> None:
    shape = read_shape("llama2-7b")
    kept = [training_memory(shape, step(sequence=2048, remat=remat)).activations for remat in Remat]
    assert kept == sorted(kept, reverse=True)
    assert kept[-1] < kept[0] / 4


def test_the_arithmetic_is_the_sum() -> None:
    memory = training_memory(NANO, step())
    assert memory.total == sum(memory.document().values()) - memory.total
    assert memory.arithmetic().endswith(f"= {memory.total / 2**20:.1f} MiB")
