"""All contenders on the same examples: what is held out, the playbook arm, adapters that leave no trace."""

import json
import math
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from capibara_assets.datasets.schema import Example
from capibara_assets.datasets.tokens.tokenising import encode
from capibara_assets.errors import InputError
from capibara_assets.evaluation.contenders.contenders import Framing, ModelContender, with_system
from capibara_assets.evaluation.contenders.losses import contender_losses, held_out, mean_losses, routed_losses
from capibara_assets.evaluation.recipe import EvaluationRecipe
from capibara_assets.evaluation.schema import ExampleLoss
from capibara_assets.modeling.adapters import LoraAdapter, applied
from capibara_assets.modeling.base import Base, load_base
from capibara_assets.storage.records import table

LIMITS = EvaluationRecipe(max_test_examples=8, max_length=128)
PLAYBOOK = "Check the type of every argument before you use it."


def example(number: int, split: str = "test", **values: Any) -> Example:
    turns = [
        {"role": "user", "content": f"Return {number} squared in Python."},
        {"role": "assistant", "content": f"def answer():\n    return {number} ** 2"},
    ]
    defaults: dict[str, Any] = {
        "example_id": f"e{number:03}",
        "domain": "python",
        "kind": "solve",
        "language": "python",
        "messages": json.dumps(turns),
        "group_id": f"g{number // 2}",
        "split": split,
        "difficulty": 0.1,
        "quality": 0.8,
        "cluster_id": "c",
        "weight": 1.0,
        "balance": 1.0,
        "verified": "recorded",
        "not_replayed": None,
        "provenance": "experience",
        "execution_ids": [f"x{number}"],
        "bullet_ids": [],
        "sandbox_ids": [f"s{number}"],
        "licence": None,
        "source": None,
        "tenants": [],
        "source_places": [],
    }
    return Example(**defaults | values)


def adapter(seed: int, size: float = 0.5) -> LoraAdapter:
    """Rank 2 on the first layer's query projection (width 32) of the tiny model."""
    generator = torch.Generator().manual_seed(seed)
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {
        f"{module}.lora_A.weight": torch.randn(2, 32, generator=generator),
        f"{module}.lora_B.weight": size * torch.randn(32, 2, generator=generator),
    }
    return LoraAdapter({"peft_type": "LORA", "r": 2, "lora_alpha": 4}, tensors)


@pytest.fixture(scope="module")
def held() -> pl.DataFrame:
    return table(Example, [example(n) for n in range(6)])


def bits(base: Base) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in base.model.state_dict().items()}


def of(losses: pl.DataFrame, contender: str) -> pl.DataFrame:
    return losses.filter(pl.col("contender") == contender).drop("contender")


def losses_of(
    base: Base,
    test: pl.DataFrame,
    playbook: str = "",
    adapters: dict[str, LoraAdapter] | None = None,
    in_context: tuple[str, ...] = (),
    models: dict[str, Path] | None = None,
) -> pl.DataFrame:
    """Of the base, with the playbook where there is one, of adapters, some of them with the playbook, and of models."""
    given, framing = adapters or {}, Framing(playbook)
    contenders = [ModelContender("base", base)]
    contenders += [ModelContender("playbook", base, framing=framing)] if playbook else []
    contenders += [ModelContender(name, base, one) for name, one in given.items()]
    contenders += [ModelContender(f"{name}+playbook", base, given[name], framing) for name in in_context]
    contenders += [ModelContender(name, folder) for name, folder in (models or {}).items()]
    return contender_losses(base, test, contenders, LIMITS)


def test_only_the_test_split_is_held_out():
    frame = table(Example, [example(n, split) for n, split in enumerate(["train", "validation", "test", "test"])])
    assert held_out(frame, LIMITS)["example_id"].to_list() == ["e002", "e003"]


def test_no_test_example_gives_an_empty_table():
    frame = table(Example, [example(1, "train")])
    assert held_out(frame, LIMITS).height == 0 and held_out(frame, LIMITS).schema == frame.schema


@settings(max_examples=20)
@given(numbers=st.sets(st.integers(0, 500), min_size=1, max_size=30), seed=st.integers(0, 9))
def test_the_choice_stays_as_data_grows_and_does_not_depend_on_order(numbers: set[int], seed: int):
    small = table(Example, [example(n) for n in numbers])
    grown = table(Example, [example(n) for n in numbers | set(range(500, 520))])
    chosen = held_out(small, LIMITS)["example_id"].to_list()
    assert chosen == sorted(chosen) and len(chosen) == min(len(numbers), LIMITS.max_test_examples)
    shuffled = small.sample(fraction=1, shuffle=True, seed=seed)
    assert held_out(shuffled, LIMITS)["example_id"].to_list() == chosen
    after = set(held_out(grown, LIMITS)["example_id"]) & set(small["example_id"])
    assert after <= set(chosen)  # new examples may push old ones out, never let others in


def test_every_contender_scores_the_same_examples_and_tokens(base: Base, held: pl.DataFrame, folder: Path):
    losses = losses_of(
        base,
        held,
        playbook=PLAYBOOK,
        adapters={"voter-0": adapter(1), "consensus": adapter(2)},
        models={"merged": folder},
    )
    assert set(losses["contender"]) == {"base", "playbook", "voter-0", "consensus", "merged"}
    reference = of(losses, "base").drop("nll")
    assert reference["example_id"].to_list() == held["example_id"].to_list()
    assert reference["group_id"].to_list() == held["group_id"].to_list()
    for name in set(losses["contender"]):
        assert of(losses, name).drop("nll").equals(reference), name
        assert name in ("base", "merged") or not of(losses, name)["nll"].equals(of(losses, "base")["nll"]), name


def test_losses_are_those_that_transformers_computes(
    base: Base, folder: Path, held: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
):
    """Independently: Transformers' own loss over the tokens of the assistant's turn, one example at a time."""
    monkeypatch.setattr("capibara_assets.evaluation.contenders.losses.fast_precision", lambda _: "fp32")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = of(losses_of(base, held), "base")
    for row, messages in zip(found.to_dicts(), held["messages"], strict=True):
        turns = json.loads(messages)
        prompt = base.tokenizer.apply_chat_template(turns[:1], tokenize=True, add_generation_prompt=True)["input_ids"]
        whole = base.tokenizer.apply_chat_template(turns, tokenize=True)["input_ids"]
        assert whole[: len(prompt)] == prompt
        supervised = whole[len(prompt) :][: row["tokens"]]
        assert len(supervised) == row["tokens"] >= 10
        with torch.no_grad():
            logits = model(torch.tensor([whole])).logits[0].log_softmax(-1)
        expected = -sum(logits[len(prompt) + i - 1, token].item() for i, token in enumerate(supervised))
        assert row["nll"] == pytest.approx(expected, rel=1e-4)


def test_adapters_are_taken_off_exactly(base: Base, held: pl.DataFrame):
    before = bits(base)
    alone = losses_of(base, held)
    losses = losses_of(base, held, adapters={"big": adapter(1, 1e4), "small": adapter(2, 1e-6)})
    assert bits(base) == before
    assert of(losses, "base").equals(of(alone, "base"))
    assert of(losses_of(base, held, adapters={"small": adapter(2, 1e-6)}), "small").equals(of(losses, "small"))


def test_an_adapter_that_does_not_fit_leaves_no_trace_either(base: Base, held: pl.DataFrame):
    before = bits(base)
    foreign = LoraAdapter(
        adapter(1).config, {name.replace("layers.0", "layers.9"): t for name, t in adapter(1).tensors.items()}
    )
    with pytest.raises(InputError, match=r"layers\.9"):
        losses_of(base, held, adapters={"voter-0": adapter(1), "voter-1": foreign})
    assert bits(base) == before


def test_a_zero_adapter_and_an_unchanged_merge_equal_the_base(base: Base, held: pl.DataFrame, folder: Path):
    losses = losses_of(base, held, adapters={"zero": adapter(1, 0.0)}, models={"merged": folder})
    for name in ("zero", "merged"):
        assert of(losses, name).equals(of(losses, "base")), name


def test_without_a_playbook_there_is_no_such_arm(base: Base, held: pl.DataFrame):
    assert set(losses_of(base, held)["contender"]) == {"base"}


def test_what_fits_only_without_the_playbook_is_left_out_of_all_arms(base: Base, held: pl.DataFrame):
    words = " ".join(random.Random(1).choices(["list", "dict", "print", "return"], k=80))
    turns = [{"role": "user", "content": words}, {"role": "assistant", "content": "return 1"}]
    rows = pl.concat([held, table(Example, [example(900, messages=json.dumps(turns))])])
    alone = losses_of(base, rows, adapters={"consensus": adapter(1)})
    assert "e900" in of(alone, "base")["example_id"]
    losses = losses_of(base, rows, playbook=" ".join([PLAYBOOK] * 4), adapters={"consensus": adapter(1)})
    assert "e900" not in losses["example_id"] and losses["example_id"].n_unique() == 6


def test_mean_losses_are_per_token_not_per_example():
    rows = [("base", "a", 10.0, 10), ("base", "b", 90.0, 20), ("merged", "a", 3.0, 10), ("merged", "b", 3.0, 20)]
    frame = table(
        ExampleLoss, [ExampleLoss(contender=c, example_id=e, group_id=e, nll=n, tokens=t) for c, e, n, t in rows]
    )
    assert mean_losses(frame) == {"base": pytest.approx(100 / 30), "merged": pytest.approx(0.2)}


def test_the_playbook_is_the_one_system_message():
    user, answer = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}
    system = {"role": "system", "content": "s"}
    assert with_system([user, answer], "p") == [{"role": "system", "content": "p"}, user, answer]
    assert with_system([system, user, answer], "p") == [{"role": "system", "content": "p\n\ns"}, user, answer]
    assert with_system([system, user, answer], "") == [system, user, answer]
    assert system == {"role": "system", "content": "s"}


def test_an_adapter_with_the_playbook_is_scored_on_the_same_tokens(base: Base, held: pl.DataFrame):
    adapters = {"consensus": adapter(2), "voter-0": adapter(1)}
    losses = losses_of(base, held, playbook=PLAYBOOK, adapters=adapters, in_context=["consensus"])
    assert set(losses["contender"]) == {"base", "playbook", "consensus", "voter-0", "consensus+playbook"}
    assert of(losses, "consensus+playbook").drop("nll").equals(of(losses, "base").drop("nll"))
    with applied(base.model, adapter(2)):
        by_hand = losses_of(base, held, playbook=PLAYBOOK)
    assert of(losses, "consensus+playbook").equals(of(by_hand, "playbook"))


def test_other_whole_models_are_scored_with_the_bases_tokens(
    base: Base, held: pl.DataFrame, folder: Path, tmp_path: Path
):
    losses = losses_of(base, held, models={"promoted": folder})
    assert of(losses, "promoted").equals(of(losses, "base"))
    other = AutoModelForCausalLM.from_pretrained(folder)
    other.resize_token_embeddings(5000)
    other.save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(InputError, match="vocabulary of 5000"):
        losses_of(base, held, models={"promoted": tmp_path})


def test_routed_losses_are_those_of_whoever_was_picked(base: Base, held: pl.DataFrame):
    losses = losses_of(base, held, adapters={"consensus": adapter(2), "expert:sql": adapter(1)})
    picks = {f"e{n:03}": ("base", "consensus", "expert:sql")[n % 3] for n in range(6)} | {"elsewhere": "consensus"}
    routed = routed_losses(losses, picks)
    assert routed.schema == losses.schema and routed["contender"].unique().to_list() == ["routed"]
    for row in routed.to_dicts():
        assert (
            row["nll"]
            == losses.filter(
                (pl.col("example_id") == row["example_id"]) & (pl.col("contender") == picks[row["example_id"]])
            )["nll"].item()
        )
    assert table(ExampleLoss, [ExampleLoss(**row) for row in routed.to_dicts()]).height == 6
    with pytest.raises(InputError, match="picked no contender for 1 examples, e003"):
        routed_losses(losses, {key: value for key, value in picks.items() if key != "e003"})
    with pytest.raises(InputError, match="expert:ml, picked for example e000"):
        routed_losses(losses, picks | {"e000": "expert:ml"})


def test_perplexity_is_that_of_transformers_to_five_digits(
    nano: Path, held: pl.DataFrame, monkeypatch: pytest.MonkeyPatch
):
    """The shipped base, and Transformers' own mean cross-entropy over the assistant's tokens of all examples."""
    monkeypatch.setattr("capibara_assets.evaluation.contenders.losses.fast_precision", lambda _: "fp32")
    shipped = load_base(nano)
    mean = mean_losses(losses_of(shipped, held))["base"]
    sums, tokens = 0.0, 0
    for messages in held["messages"]:
        found = encode(json.loads(messages), shipped.tokenizer, LIMITS.max_length)
        ids, labels = torch.tensor([list(found.input_ids)]), torch.tensor([list(found.labels)])
        with torch.no_grad():
            loss = shipped.model(input_ids=ids, labels=labels).loss.item()
        supervised = int((labels != -100).sum())
        sums, tokens = sums + loss * supervised, tokens + supervised
    assert math.exp(mean) == pytest.approx(math.exp(sums / tokens), rel=1e-5)
