"""Batched generation: the tokens of Transformers' own generate, whatever the batch; draws follow the distribution."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from capibara_assets.errors import InputError
from capibara_assets.evaluation.answering import generation
from capibara_assets.evaluation.answering.generation import BatchLimits, Generated, choose, generate, stop_ids
from capibara_assets.evaluation.answering.slot_models import keeps_rows_apart
from capibara_assets.evaluation.decoding import Decoding
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.modeling.cpu.column_major import column_major

STOPS = frozenset({5, 17})
SIZES: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.6,  # logits far apart: no two tokens are as good as equal
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 5,
}
# architecture -> (config, whether rows share a batch)
MODELS: dict[str, tuple[Callable[[], Any], bool]] = {
    "Llama": (lambda: transformers.LlamaConfig(**SIZES), True),
    "Llama eager": (lambda: transformers.LlamaConfig(**SIZES, attn_implementation="eager"), True),
    "Qwen2": (lambda: transformers.Qwen2Config(**SIZES), True),
    "Qwen2 windows": (
        lambda: transformers.Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=1),
        True,
    ),
    "Mistral windows": (lambda: transformers.MistralConfig(**SIZES, sliding_window=5), True),
    "Gemma2": (lambda: transformers.Gemma2Config(**SIZES, head_dim=8, sliding_window=6), True),
    "Gemma3": (lambda: transformers.Gemma3TextConfig(**SIZES, head_dim=8, sliding_window=6), True),
    "Granite": (lambda: transformers.GraniteConfig(**SIZES, logits_scaling=3.0), True),
    "GPT-2": (
        lambda: transformers.GPT2Config(
            vocab_size=61, n_embd=32, n_layer=2, n_head=4, n_positions=128, initializer_range=0.6, eos_token_id=5
        ),
        True,
    ),
    "GPT-NeoX": (lambda: transformers.GPTNeoXConfig(**{k: v for k, v in SIZES.items() if "key" not in k}), True),
    "Bloom": (lambda: transformers.BloomConfig(vocab_size=61, hidden_size=32, n_layer=2, n_head=4), False),
    "LFM2": (lambda: transformers.Lfm2Config(**SIZES, layer_types=["conv", "full_attention"]), False),
    "Mamba": (lambda: transformers.MambaConfig(vocab_size=61, hidden_size=32, num_hidden_layers=2), False),
}
# Another attention, window or scale of one that is tried anyway: in `make test-all`.
MORE = {"Llama eager", "Qwen2 windows", "Gemma2", "Granite", "GPT-NeoX", "Bloom"}


def made(name: str) -> Any:
    torch.manual_seed(3)
    config = MODELS[name][0]()
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=config._attn_implementation)
    with torch.no_grad():
        for parameter in model.parameters():  # some architectures ignore initializer_range
            if parameter.ndim == 2:
                parameter.normal_(0, 0.4)
    return model.eval()


def prompts_of(seed: int, count: int, longest: int = 24) -> list[list[int]]:
    chance = random.Random(seed)
    return [[chance.randrange(20, 60) for _ in range(chance.randint(1, longest))] for _ in range(count)]


def greedy(model: Any, prompt: Sequence[int], most: int, stops: frozenset[int] = STOPS) -> Generated:
    """Transformers' own, one prompt at a time."""
    ids = torch.tensor([list(prompt)])
    with torch.no_grad():
        found = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=most,
            eos_token_id=sorted(stops),
            pad_token_id=1,
        )[0, len(prompt) :].tolist()
    ended = found[-1] in stops
    return Generated(tuple(found[:-1] if ended else found), len(found), "stop" if ended else "length")


def run(model: Any, prompts: Sequence[Sequence[int]], decoding: Decoding, **options: Any) -> list[list[Generated]]:
    seeds = [[100 * n + s for s in range(decoding.samples)] for n in range(len(prompts))]
    found: list[list[Any]] = [[None] * decoding.samples for _ in prompts]
    for index, sample, done in generate(model, prompts, seeds, decoding, STOPS, BatchLimits(**options)):
        assert found[index][sample] is None
        found[index][sample] = done
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.extended) if name in MORE else name for name in MODELS]
)
def test_greedy_answers_are_those_of_transformers(name: str):
    model, prompts = made(name), prompts_of(1, 6)
    assert keeps_rows_apart(model) is MODELS[name][1]
    expected = [greedy(model, prompt, 20) for prompt in prompts]
    assert {each.finish for each in expected} <= {"stop", "length"}
    assert [each for (each,) in run(model, prompts, Decoding(max_new_tokens=20), rows=4)] == expected


@pytest.fixture(scope="module")
def llama() -> Any:
    return made("Llama")


@settings(max_examples=4)
@given(
    seed=st.integers(0, 99),
    count=st.integers(1, 7),
    rows=st.integers(1, 9),
    most=st.integers(1, 8),
    budget=st.sampled_from([8, 64, 2048]),
)
def test_answers_do_not_depend_on_the_batch(llama: Any, seed: int, count: int, rows: int, most: int, budget: int):
    prompts, decoding = prompts_of(seed, count), Decoding(max_new_tokens=most, temperature=1.2, top_p=0.9, samples=2)
    alone = run(llama, prompts, decoding, rows=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation, "_PREFILL_TOKENS", budget)
        assert run(llama, prompts, decoding, rows=rows) == alone


def test_what_all_prompts_begin_with_is_read_once(llama: Any):
    shared = prompts_of(5, 1, 40)[0] * 40
    prompts = [shared[:40] + tail for tail in prompts_of(6, 7)] + [shared[:40]]
    read: list[int] = []
    inner = llama.base_model.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        if kwargs["input_ids"].shape[1] > 1:
            read.append(kwargs["input_ids"].numel())
        return inner(*args, **kwargs)

    llama.base_model.forward = counted
    try:
        found = run(llama, prompts, Decoding(max_new_tokens=12), rows=3)
    finally:
        llama.base_model.forward = inner
    assert sum(read) < sum(map(len, prompts)) - 5 * 39  # 39 or 40 tokens in common, once
    assert [each for (each,) in found] == [greedy(llama, prompt, 12) for prompt in prompts]


def test_a_prompt_with_several_samples_is_read_once_and_its_samples_differ(llama: Any):
    decoding = Decoding(max_new_tokens=12, temperature=1.5, samples=6)
    (samples,) = run(llama, prompts_of(2, 1), decoding, rows=4)
    assert len({each.tokens for each in samples}) > 3
    assert samples == run(llama, prompts_of(2, 1), decoding, rows=4)[0]


def test_rows_leave_and_others_join_at_once(llama: Any):
    """The batch is never larger than asked, and no pass is made for rows that are done."""
    widths: list[int] = []
    inner = llama.base_model.forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        if kwargs["input_ids"].shape[1] == 1:
            widths.append(kwargs["input_ids"].shape[0])
        return inner(*args, **kwargs)

    prompts = [[30 + n, 31, 32 + n] for n in range(16)]
    llama.base_model.forward = counted
    try:
        found = run(llama, prompts, Decoding(max_new_tokens=30), rows=4)
    finally:
        llama.base_model.forward = inner
    counts = [each.count for (each,) in found]
    assert len(set(counts)) > 2 and max(widths) <= 4
    # every token but the first of an answer costs a row of a step (and the probe of the slots its three)
    assert sum(widths) <= sum(counts) - len(counts) + 3
    assert len(widths) < sum(counts) / 2


def test_draws_follow_the_softmax():
    logits = torch.tensor([1.0, 0.0, 2.0, -1.0, 2.0])
    draws = (np.arange(20_000) + 0.5) / 20_000
    for temperature in (0.5, 1.0, 2.0):
        tokens = choose(logits.expand(20_000, -1), Decoding(temperature=temperature), draws)
        shares = np.bincount(tokens, minlength=5) / 20_000
        assert shares == pytest.approx(torch.softmax(logits / temperature, -1).numpy(), abs=2e-4)


@given(
    values=st.lists(st.floats(-4, 4, width=16), min_size=2, max_size=12),
    top_p=st.floats(0.05, 1.0),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_the_nucleus_is_the_smallest_set_that_reaches_top_p(values: list[float], top_p: float, draw: float):
    logits = torch.tensor([values])
    (token,) = choose(logits, Decoding(temperature=1.0, top_p=top_p), np.array([draw]))
    shares = torch.softmax(logits.double(), -1)[0].numpy()
    order = sorted(range(len(values)), key=lambda n: (-values[n], n))
    before = sum(shares[n] for n in order[: order.index(token)])
    assert before < top_p + 1e-12  # it is needed to reach top_p


def test_top_p_of_almost_nothing_is_greedy(llama: Any):
    prompts = prompts_of(4, 5)
    narrow = run(llama, prompts, Decoding(max_new_tokens=8, temperature=1.0, top_p=1e-9))
    assert narrow == run(llama, prompts, Decoding(max_new_tokens=8))


def test_logits_that_are_not_finite_are_an_error():
    with pytest.raises(ValueError, match="not finite"):
        choose(torch.tensor([[0.0, float("nan")], [0.0, 1.0]]), Decoding(), None)


def test_each_prompt_has_its_budget(llama: Any):
    prompts, budgets = prompts_of(1, 5), [1, 7, 3, 40, 2]
    expected = [greedy(llama, prompt, min(budget, 12)) for prompt, budget in zip(prompts, budgets, strict=True)]
    assert [each for (each,) in run(llama, prompts, Decoding(max_new_tokens=12), rows=2, budgets=budgets)] == expected


def test_a_prompt_without_room_or_tokens_is_refused(llama: Any):
    for prompts, match in (([[3]], r"context is 128"), ([[3], []], "prompt 1 has no tokens")):
        with pytest.raises(InputError, match=match):
            run(llama, prompts, Decoding(max_new_tokens=128 if len(prompts) == 1 else 4))
    assert list(generate(llama, [], [], Decoding(), STOPS)) == []


def test_stops_are_those_of_the_generation_config_and_the_tokenizer(nano: Path, base: Base):
    assert stop_ids(load_base(nano)) == {0, 5}
    assert stop_ids(base) == {5}


def test_memory_for_keys_and_values_bounds_the_batch(llama: Any, monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []
    made_cache = generation.SlotCache

    def noted(layers: int, rows: int, capacity: int) -> Any:
        sizes.append(rows)
        return made_cache(layers, rows, capacity)

    monkeypatch.setattr(generation, "SlotCache", noted)
    prompts = [[30] * 60 + [n] for n in range(40, 44)]
    found = run(llama, prompts, Decoding(max_new_tokens=20), cache_mib=0)
    assert sizes[-1] == 2  # one row, and the slot of what they have in common
    assert [each for (each,) in found] == [greedy(llama, prompt, 20) for prompt in prompts]


def test_weights_lie_by_columns_inside_only(base: Base):
    model = base.model
    before = {name: (p.data_ptr(), p.stride(), p.detach().clone()) for name, p in model.named_parameters()}
    with column_major(model):
        inside = dict(model.named_parameters())
        assert inside["model.layers.0.mlp.up_proj.weight"].stride() == (1, 64)
        assert all(torch.equal(p, before[name][2]) for name, p in inside.items())
        assert model.lm_head.weight is model.model.embed_tokens.weight
    for name, parameter in model.named_parameters():
        assert (parameter.data_ptr(), parameter.stride()) == before[name][:2], name
