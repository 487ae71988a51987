"""Predicted memory against what torch's own allocator hands out during a training step: within 5 %."""

import gc
import json
from typing import Any

import pytest

from capibara_assets.planning.accounting import DeviceStep, Loss, Method, Remat, training_memory
from capibara_assets.planning.claims.measured import most_bytes
from capibara_assets.planning.models import from_config

SMALL: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 352,
    "vocab_size": 1024,
    "tie_word_embeddings": False,
}
# (shape, settings): full fine-tuning and LoRA; kept and recomputed layers; fused and written-out attention; gradients
# that lie there from the pass before; a vocabulary, an attention matrix and weights that are each the largest part.
CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({}, {"rank": 8, "loss": "chunked"}),
    ({"vocab_size": 64}, {"checkpointing": True}),
    ({"num_hidden_layers": 1}, {"attention": "eager", "sequences": 1, "sequence": 512}),
    ({"hidden_size": 256, "intermediate_size": 704}, {"sequences": 1, "sequence": 32, "passes": 2}),
]
# One setting at a time, and two and three of them at once.
MORE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"passes": 2}),
    ({}, {"checkpointing": True}),
    ({}, {"attention": "eager"}),
    ({}, {"rank": 8}),
    ({}, {"rank": 8, "dropout": 0.05}),
    ({}, {"rank": 8, "modules": ("q_proj", "v_proj")}),
    ({"hidden_size": 256, "intermediate_size": 704}, {"sequences": 1, "sequence": 32}),
    ({}, {"checkpointing": True, "passes": 2}),
    ({}, {"rank": 8, "checkpointing": True}),
    ({}, {"rank": 8, "attention": "eager"}),
    ({"vocab_size": 64}, {"rank": 8, "checkpointing": True, "dropout": 0.05}),
    ({"vocab_size": 64}, {"rank": 8, "checkpointing": True, "attention": "eager"}),
    ({"vocab_size": 8192}, {"rank": 8, "sequences": 2}),
]


def named(part: dict[str, Any]) -> str:
    return "-".join(f"{key}={value}" for key, value in part.items())


@pytest.mark.parametrize(
    ("sizes", "options"), [*CASES, *(pytest.param(*case, marks=pytest.mark.extended) for case in MORE)], ids=named
)
def test_a_step_takes_what_was_predicted(sizes: dict[str, Any], options: dict[str, Any]) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    rank, dropout = options.get("rank", 0), options.get("dropout", 0.0)
    sequences, sequence = options.get("sequences", 8), options.get("sequence", 128)
    passes, attention = options.get("passes", 1), options.get("attention", "sdpa")
    whole = options.get("loss", "whole") == "whole"
    config = LlamaConfig(**(SMALL | sizes), max_position_embeddings=sequence, attn_implementation=attention)
    shape = from_config(json.loads(config.to_json_string()), "measured")
    modules = options.get("modules", tuple(module.name for module in shape.linear_modules)) if rank else ()
    model: Any = LlamaForCausalLM(config)
    if rank:
        model = get_peft_model(model, LoraConfig(r=rank, lora_dropout=dropout, target_modules=list(modules)))
    if options.get("checkpointing"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if rank:
            model.enable_input_require_grads()
    model.train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    tokens = torch.randint(0, config.vocab_size, (sequences, sequence))

    def train() -> None:
        for _ in range(passes):
            outputs = model(input_ids=tokens, labels=tokens, use_cache=False)
            loss = outputs.loss
            if not whole:
                del outputs  # and with them the logits, as our own loss drops them
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    train()  # the optimizer's state appears
    gc.collect()
    state = [value for values in optimizer.state.values() for value in values.values()]
    resident = sum(tensor.nbytes for tensor in [*model.parameters(), *state])
    measured = resident + most_bytes(train)
    predicted = training_memory(
        shape,
        DeviceStep(
            sequences=sequences,
            sequence=sequence,
            weight_bytes=4,
            compute_bytes=4,
            method=Method.LORA if rank else Method.FULL,
            lora_rank=rank,
            lora_modules=modules,
            lora_dropout=dropout > 0,
            remat=Remat.FULL if options.get("checkpointing") else Remat.NONE,
            eager=attention == "eager",
            loss=Loss.WHOLE if whole else Loss.CHUNKED,
            accumulates=passes > 1,
        ),
    )
    assert predicted.total == pytest.approx(measured, rel=0.05), predicted.arithmetic()


@pytest.mark.parametrize(
    ("projection", "checkpointing"),
    [
        ("gated-gelu", True),
        pytest.param("relu", False, marks=pytest.mark.extended),
        pytest.param("gated-gelu", False, marks=pytest.mark.extended),
        pytest.param("relu", True, marks=pytest.mark.extended),
    ],
)
def test_a_step_of_t5_takes_what_was_predicted(checkpointing: bool, projection: str) -> None:
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        d_model=128,
        d_kv=32,
        d_ff=352,
        num_layers=3,
        num_decoder_layers=3,
        num_heads=4,
        vocab_size=1024,
        feed_forward_proj=projection,
        decoder_start_token_id=0,
    )
    shape = from_config(json.loads(config.to_json_string()), "measured")
    model = T5ForConditionalGeneration(config).train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, config.vocab_size, (8, 96))

    def train() -> None:
        outputs = model(input_ids=tokens, labels=tokens, use_cache=False)
        outputs.loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    train()
    gc.collect()
    state = [value for values in optimizer.state.values() for value in values.values()]
    measured = sum(tensor.nbytes for tensor in [*model.parameters(), *state]) + most_bytes(train)
    remat = Remat.FULL if checkpointing else Remat.NONE
    step = DeviceStep(8, 96, 4, 4, Method.FULL, remat=remat, loss=Loss.WHOLE, accumulates=False)
    predicted = training_memory(shape, step)
    assert predicted.total == pytest.approx(measured, rel=0.05), predicted.arithmetic()
