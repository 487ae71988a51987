"""The bench `dedup`: its truth is brute force, planted similarities are what they say, missing peers are named."""

import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.datasets.dedup import measure, measure_alone, recalled, true_pairs, write_parquet
from benchmarks.datasets.documents import SIMILARITIES, experience_documents, planted_documents, replaced
from benchmarks.experience_input import bench_input
from capibara_assets.datasets.duplicates.near import components, near_texts
from capibara_assets.datasets.recipe import NearDuplicates
from capibara_assets.errors import InputError

SETTINGS = NearDuplicates.model_validate({})


def sets_of(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[i : i + 5]) for i in range(max(1, len(words) - 4))} if words else set()


def similarity(left: str, right: str) -> float:
    a, b = sets_of(left), sets_of(right)
    return len(a & b) / len(a | b) if a | b else 0.0


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=9).map(" ".join), min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_the_truth_is_every_pair(texts: list[str]) -> None:
    left, right, found = true_pairs(texts, SETTINGS)
    expected = {
        (i, j): similarity(texts[i], texts[j])
        for j in range(len(texts))
        for i in range(j)
        if similarity(texts[i], texts[j]) >= SETTINGS.jaccard
    }
    assert dict(zip(zip(left.tolist(), right.tolist(), strict=True), found.tolist(), strict=True)) == pytest.approx(
        expected
    )


def test_near_duplicates_are_planted_at_the_similarities_named() -> None:
    words = [f"w{n}" for n in range(300)]
    vocabulary = [f"v{n}" for n in range(1000)]
    for wanted in SIMILARITIES:
        made = replaced(words, wanted, 5, vocabulary, random.Random(1))
        assert similarity(" ".join(words), " ".join(made)) == pytest.approx(wanted, abs=0.02)


def test_recall_is_one_on_real_and_planted_documents(small_experience: Path) -> None:
    originals = experience_documents(small_experience)
    texts = list(planted_documents(originals, 3000, 5))
    assert len(texts) == 3000
    assert texts == list(planted_documents(originals, 3000, 5))
    left, right, found = true_pairs(texts, SETTINGS)
    assert (found < 0.85).sum() > 50  # the hard ones are there
    pairs = near_texts(texts, SETTINGS)
    listed = dict(zip(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True), pairs.similarity, strict=True))
    true = dict(zip(zip(left.tolist(), right.tolist(), strict=True), found, strict=True))
    assert listed == pytest.approx(true)
    assert recalled(components(pairs.left, pairs.right, 3000), left, right) == 1.0
    assert recalled(np.arange(3000), left, right) == 0.0


@pytest.mark.extended
def test_alone_spills_and_tells_its_time_and_memory(small_experience: Path) -> None:
    result = measure_alone(bench_input(str(small_experience), None), 600, SETTINGS)
    assert [run["documents"] for run in result["runs"]] == [60, 600]
    assert result["peak_memory_mib"] > 0
    assert 0 < result["runs"][1]["clusters"] < 600


def test_files_of_documents_keep_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.datasets.dedup._PER_FILE", 4)
    write_parquet(iter([str(n) for n in range(10)]), tmp_path / "d")
    read = [text for path in sorted((tmp_path / "d").iterdir()) for text in pl.read_parquet(path)["text"]]
    assert read == [str(n) for n in range(10)]


def test_a_missing_peer_is_named_before_anything_is_measured(
    small_experience: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPIBARA_BENCH_ENV", str(tmp_path))
    with pytest.raises(InputError, match="make bench-env"):
        measure(bench_input(str(small_experience), None), 100, 1, SETTINGS)
