"""The bench of tokenising measures what it says: the same tokens, everything packed, figures of every promised key."""

from pathlib import Path

import pytest

from benchmarks.datasets.tokenizing import measure, perturbed
from benchmarks.experience_input import BenchInput


@pytest.mark.extended
@pytest.mark.extended
def test_keys_and_counts(small_experience: Path, nano: Path) -> None:
    pytest.importorskip("transformers")
    given = BenchInput(small_experience, "small", None)
    found = measure(given, count=300, repeats=1, max_length=2048, folder=str(nano))
    assert found["same_tokens"] is True
    assert found["speed_ratio"] > 0 and len(found["speed_ratio_range"]) == 2
    assert found["packing_efficiency"] == pytest.approx(found["tokens"] / (found["packs"] * 2048), abs=1e-5)
    assert (found["examples"], found["left_out"], found["experience"]) == (300, {}, "small")


def test_copies_differ_from_each_other_and_stay_alike() -> None:
    messages = [{"role": "user", "content": "def total(items): return sum(items) + 10"}]
    copies = [perturbed(messages, number)[0]["content"] for number in range(6)]
    assert len(set(copies)) == 6
    assert all(len(copy.split()) == 6 for copy in copies)
