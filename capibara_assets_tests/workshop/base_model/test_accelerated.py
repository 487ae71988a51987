"""Pre-training beside processes that draw: the loss falls, the model loads, each window is used before one is again."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from workshop.base_model.accelerated import Pool, learn, pretrain, summed_loss
from workshop.base_model.corpus import build_corpus
from workshop.base_model.files import write_json
from workshop.base_model.model import make_model
from workshop.base_model.settings import Settings
from workshop.base_model.skills import lent_functions
from workshop.base_model.streams import FUNCTIONS, tokenize_corpus

_TINY = Settings(
    minutes=0.2, corpus_bytes=1_500_000, vocabulary=512, hidden=32, intermediate=64, layers=2, heads=2, sequence=256,
    batch=4, micro_batch=2, skills=0.5, workers=1,
)  # fmt: skip


def test_every_window_is_used_once_before_any_is_used_again() -> None:
    pool = Pool(6, 3, torch.device("cpu"), seed=0)
    windows = np.arange(12, dtype=np.uint16).reshape(4, 3)
    pool.add([(windows, windows > 5)])
    ids, targets = pool.take(3)
    assert ids.tolist() == windows[:3].tolist() and targets.tolist() == (windows > 5)[:3].tolist()
    ids, _ = pool.take(2)
    assert ids[0].tolist() == windows[3].tolist() and (pool.added, pool.used, pool.again) == (4, 4, 1)
    pool.add([(windows + 100, windows > 5)])  # the oldest two go
    assert sorted(pool.take(4)[0][:, 0].tolist()) == [100, 103, 106, 109]
    assert 0 not in pool.take(50)[0][:, 0].tolist()


def test_ids_of_a_large_vocabulary_stay_whole() -> None:
    pool = Pool(1, 2, torch.device("cpu"), seed=0)
    pool.add([(np.array([[0, 65_535]], np.uint16), np.array([[True, True]]))])
    assert pool.take(1)[0].tolist() == [[0, 65_535]]


def test_the_gradient_is_that_of_the_mean_over_all_targets_however_the_batch_is_cut() -> None:
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2,
    )  # fmt: skip
    draw = torch.Generator().manual_seed(0)
    ids, targets = torch.randint(50, (4, 9), generator=draw), torch.rand(4, 9, generator=draw) < 0.3
    found = []
    for micro_batch in (4, 1):
        model = make_model(config, seed=1)
        model.set_attn_implementation("sdpa")
        loss, norm = learn(model, ids, targets, summed_loss, micro_batch)
        found.append([float(loss), float(norm), *(float(weight.grad.norm()) for weight in model.parameters())])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(input_ids=ids[:, :-1]).logits.float()
    assert found[0] == pytest.approx(found[1], rel=0.02)  # bfloat16
    counted = targets[:, 1:]
    known = torch.nn.functional.cross_entropy(logits[counted], ids[:, 1:][counted])
    assert found[0][0] == pytest.approx(float(known), rel=0.01)


@pytest.mark.extended
def test_a_run_beside_a_drawing_process_learns(tmp_path: Path) -> None:
    out, state = tmp_path / "out", tmp_path / "state"
    for folder in (out, state):
        folder.mkdir()
    corpus = build_corpus(_TINY.corpus_bytes, _TINY.seed, ("click",))
    write_json(state / FUNCTIONS, lent_functions(corpus))
    tokenize_corpus(corpus, _TINY, out, state)
    pretrain(replace(_TINY, minutes=0.5), out, state)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["loss"] < math.log(512) - 0.8 and lines[-1]["drawn"] > 0  # at first all tokens are as likely
    summary = json.loads((out / "training_summary.json").read_text())
    assert summary["steps"] * 4 * 256 == summary["tokens"] and summary["drawn_windows"] > 0
    assert AutoModelForCausalLM.from_pretrained(out).config.vocab_size == 512
    assert len(list(tmp_path.glob("at-*M/model.safetensors"))) >= 1
