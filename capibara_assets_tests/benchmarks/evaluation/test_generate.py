"""The bench of generation: both sides answer the same prompts with the same tokens, and the figures say how fast."""

from pathlib import Path

import pytest

from benchmarks.evaluation import generate
from benchmarks.evaluation.generate import run_generation


@pytest.mark.extended
def test_both_sides_give_the_same_tokens(small_experience: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(generate, "BATCH_SIZES", (2, 4))
    found = run_generation(str(small_experience), prompts=6, new_tokens=8, rounds=2)
    assert found["answers_equal"] and set(found["answers_equal_by_batch_size"].values()) == {6}
    assert found["batched_ratio"] > 0 and len(found["ratio_by_round"]) == 2
    assert set(found["tokens_per_second"]) == {"ours", *(f"transformers, batches of {size}" for size in (2, 4))}
    for speed in found["tokens_per_second"].values():
        assert 0 < speed["lowest"] <= speed["median"] <= speed["highest"]
    assert found["prompts"] == 6 and found["answer_tokens"] <= 48
