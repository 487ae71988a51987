"""Heads: a T5 and a BERT learn, stop and go on like a causal model; PEFT loads their adapters with the same loss."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForMaskedLM, AutoModelForSeq2SeqLM, AutoTokenizer

from capibara_assets.datasets.tokens.tokenising import encode_examples
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.planning.models import read_shape
from capibara_assets.training.data.batches import view_of
from capibara_assets.training.data.order import validation_shard
from capibara_assets.training.data.voter_run import Interrupted, VoterRun
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.supervisor.worker import train_by_strategy
from capibara_assets_tests.modeling.tiny_heads import save_bert, save_t5
from capibara_assets_tests.training.conftest import MakeRequest
from capibara_assets_tests.training.loop.test_train import (
    StopAt,
    digests,
    go_on,
    greatest_difference,
    manifest,
    train,
)

SAVE: dict[str, Callable[[Path], Path]] = {"seq2seq": partial(save_t5, layers=1), "masked": save_bert}
MODELS: dict[str, Any] = {"seq2seq": AutoModelForSeq2SeqLM, "masked": AutoModelForMaskedLM}


@pytest.fixture(scope="session", params=["seq2seq", "masked"])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A head, and a base that has it."""
    return request.param, SAVE[request.param](tmp_path_factory.mktemp(request.param))


masked_alone = pytest.mark.parametrize(  # in `make test`
    "other", [pytest.param("seq2seq", marks=pytest.mark.extended), "masked"], indirect=True
)


def make(make_request: MakeRequest, base: tuple[str, Path], **changes: Any) -> TrainingRequest:
    modules = read_shape(base[1]).lora_targets
    lora = {"rank": 4, "alpha": 8, "dropout": 0.0, "use_rslora": False, "modules": list(modules)}
    return make_request(base=base[1], lora=lora, learning_rate=0.02, micro_batch_tokens=600, **changes)


def loss_by_peft(head: str, folder: Path, adapter: Path, request: TrainingRequest) -> float:
    """Of the validation shard: the adapter as PEFT loads it, the loss as Transformers computes it from labels."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = PeftModel.from_pretrained(MODELS[head].from_pretrained(folder), adapter).eval()
    table = pl.read_parquet(request.dataset)
    judged = validation_shard(table, 0, len(request.recipe.voters))
    found = encode_examples(judged, tokenizer, 128, head=head)
    examples = found.encoded
    if view := view_of(head, tokenizer, f"{request.seed}/{request.recipe.voters[0].seed}"):
        examples = view(found.example_ids, examples, "validation")
    total, tokens = 0.0, 0
    for example in examples:
        ids, labels = example.input_ids, example.labels
        if head == "seq2seq":
            begin = next(at for at, label in enumerate(labels) if label != -100)
            ids, labels = ids[:begin], labels[begin:]
        with torch.no_grad():
            loss = float(model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss)
        total, tokens = total + loss * example.supervised, tokens + example.supervised
    return total / tokens


def test_it_learns_and_peft_gives_the_same_loss(make_request: MakeRequest, other: tuple[str, Path]) -> None:
    steps = {"seq2seq": 40, "masked": 80}[other[0]]
    request = make(make_request, other, epochs=15, max_steps=steps, evaluate_every=20)
    events = list[dict[str, Any]]()
    result = train(request, events=events)
    found = manifest(result)
    assert found["validation_loss"] < 0.8 * found["base_validation_loss"]
    assert found["base_validation_loss"] > 1.0
    assert found["validation_loss"] == pytest.approx(loss_by_peft(*other, result, request), abs=1e-5)
    assert next(event for event in events if event["event"] == "started")["head"] == other[0]
    assert len(read_adapter(result).modules) > 8


@pytest.mark.resume
@masked_alone
def test_stopped_and_resumed_it_is_the_same_to_the_bit(make_request: MakeRequest, other: tuple[str, Path]) -> None:
    expected = digests(train(make(make_request, other, work="whole", max_steps=5)))
    request, stops = make(make_request, other, work="stopped", max_steps=5), 0
    while True:
        try:
            result = train(request, poll=StopAt(7))
            break
        except Interrupted:
            stops += 1
    assert stops > 1 and digests(result) == expected


@masked_alone
def test_micro_batches_do_not_change_the_result(make_request: MakeRequest, other: tuple[str, Path]) -> None:
    by_one, by_two, by_six = (
        # Adam's first steps would make much of rounding, which differs between processors: gradients that are next to
        # nothing count for nothing.
        read_adapter(train(make(make_request, other, work=f"by-{size}", micro_batch=size, epsilon=1e-4, max_steps=4)))
        for size in (1, 2, 6)
    )
    assert greatest_difference(by_one, by_six) < 1e-4
    assert greatest_difference(by_two, by_six) < 1e-4


def test_a_head_that_the_base_does_not_have_is_refused(make_request: MakeRequest, other: tuple[str, Path]) -> None:
    with pytest.raises(InputError, match=r"model\.head is causal, but the base is a"):
        train(make(make_request, other, head="causal"))
    with pytest.raises(InputError, match=r"model\.head is masked, but the base is a causal language model"):
        train(make_request(head="masked"))


def test_a_random_base_knows_nothing(make_request: MakeRequest, other: tuple[str, Path]) -> None:
    """What the loss of an untrained model has to be at least, if no label leaks into the input."""
    found = manifest(train(make(make_request, other, max_steps=1)))
    words = len(AutoTokenizer.from_pretrained(other[1]))
    assert found["base_validation_loss"] > 0.7 * math.log(words)


@masked_alone
def test_several_trainings_are_averaged_and_judged_with_that_head(
    make_request: MakeRequest, other: tuple[str, Path]
) -> None:
    seeds = {"kind": "huggingface", "k": 2, "epochs": 1}
    voters = [{"name": "voter-0", "seed": 0, "shard": 0, "strategy": seeds}]
    request = make(make_request, other, voters=voters, max_steps=4)
    found = manifest(
        train_by_strategy(VoterRun(request, request.recipe.voters[0], request.work / "voter-0", print, go_on))
    )
    result = request.work / "voter-0" / "result"
    assert found["validation_loss"] == pytest.approx(loss_by_peft(*other, result, request), abs=1e-4)
