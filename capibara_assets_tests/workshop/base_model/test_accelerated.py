"""Pre-training beside processes that draw: the loss falls, the model loads, each window is used before one is again."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from workshop.base_model.accelerated import Pool, pretrain
from workshop.base_model.corpus import build_corpus
from workshop.base_model.files import write_json
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
    pool.add([(np.array([[0, 32_767]], np.uint16), np.array([[True, True]]))])
    assert pool.take(1)[0].tolist() == [[0, 32_767]]


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
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.3 and lines[-1]["drawn"] > 0
    summary = json.loads((out / "training_summary.json").read_text())
    assert summary["steps"] * 4 * 256 == summary["tokens"] and summary["drawn_windows"] > 0
    assert AutoModelForCausalLM.from_pretrained(out).config.vocab_size == 512
    assert len(list(tmp_path.glob("at-*M/model.safetensors"))) >= 1
