"""Shingles in numpy are those that plain Python finds, and their hashes never change."""

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.datasets.duplicates import shingles as module
from capibara_assets.datasets.duplicates.shingles import ShingleSets, hash_sets, joined, shingle_texts

SEPARATORS = [" ", "\n", "-", "(", ".", "\0", "  "]
WORDS = ["a", "B1", "_x", "größe", "été", "日本", "word" * 3, "x" * 70, "y" * 64, "z" * 65, "12345678", "123456789"]
texts = st.lists(
    st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(SEPARATORS)), max_size=14).map(
        lambda parts: "".join(word + separator for word, separator in parts)
    ),
    max_size=8,
)


def words(text: str) -> list[str]:
    """Runs of ASCII letters, digits, underscores and whatever is beyond ASCII, in lower case."""
    out = "".join(c if not c.isascii() or c.isalnum() or c == "_" else " " for c in text.lower())
    return out.split(" ")


def runs(text: str, size: int) -> set[tuple[str, ...]]:
    found = [word for word in words(text) if word]
    return {tuple(found[i : i + size]) for i in range(max(1, len(found) - size + 1))} if found else set()


@given(texts, st.integers(1, 6))
def test_sets_equal_those_of_plain_python(drawn: list[str], size: int) -> None:
    sets = shingle_texts(drawn, size)
    expected = [runs(text, size) for text in drawn]
    assert sets.sizes.tolist() == [len(found) for found in expected]
    number: dict[int, tuple[str, ...]] = {}
    for index in range(len(drawn)):
        mine = sets.values[sets.offsets[index] : sets.offsets[index + 1]].tolist()
        assert mine == sorted(set(mine))
        alone = shingle_texts([" ".join(run) for run in sorted(expected[index])], size).values.tolist()
        assert sorted(alone) == mine  # a shingle's hash depends on its words alone, wherever they stand
        for value, run in zip(alone, sorted(expected[index]), strict=True):
            assert number.setdefault(value, run) == run  # and differs from that of any other


def test_batches_do_not_matter() -> None:
    drawn = [f"line {n} of the text number {n % 7} stays as it is {'x' * (n % 50)}" for n in range(500)]
    whole = shingle_texts(drawn, 5)
    parts = joined(shingle_texts(drawn[start : start + 37], 5) for start in range(0, 500, 37))
    module_batch, module._BATCH = module._BATCH, 300
    try:
        small = shingle_texts(drawn, 5)
    finally:
        module._BATCH = module_batch
    for other in (parts, small):
        assert np.array_equal(whole.values, other.values)
        assert np.array_equal(whole.offsets, other.offsets)


def test_hashes_are_the_same_in_every_process_and_version() -> None:
    code = "from capibara_assets.datasets.duplicates.shingles import *; import sys; print(*{})"
    calls = [
        "shingle_texts(['One two, three four five six ' + 'x' * 99], 5).values.tolist()",
        "hash_sets([{'a', 'bc', 'größe' * 20}]).values.tolist()",
    ]
    for call, known in zip(calls, KNOWN, strict=True):
        for seed in ("0", "77"):
            done = subprocess.run(
                [sys.executable, "-c", code.format(call)],
                env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
                capture_output=True,
                text=True,
                check=True,
            )
            assert done.stdout.split() == known


KNOWN = [
    ["388875583880125225", "3099974424868223395", "8502115102702778287"],
    ["710111094028006181", "1744216578155538546", "2898091840812425125"],
]


@given(st.lists(st.frozensets(st.sampled_from(WORDS)), max_size=6), st.lists(st.integers(0, 5), max_size=6))
def test_ready_made_sets_and_taking(drawn: list[frozenset[str]], chosen: list[int]) -> None:
    sets = hash_sets(drawn)
    assert sets.sizes.tolist() == [len(document) for document in drawn]
    for left, one in enumerate(drawn):
        for right, other in enumerate(drawn):
            assert len(np.intersect1d(of(sets, left), of(sets, right))) == len(one & other)
    inside = np.array([index for index in chosen if index < len(drawn)], np.int64)
    taken = sets.take(inside)
    assert [of(taken, n).tolist() for n in range(len(inside))] == [of(sets, n).tolist() for n in inside.tolist()]


def of(sets: ShingleSets, index: int) -> np.ndarray:
    return sets.values[sets.offsets[index] : sets.offsets[index + 1]]


def test_lone_surrogates_and_nothing_at_all() -> None:
    assert shingle_texts(["\ud800 a b", ""], 2).sizes.tolist() == [2, 0]
    assert len(shingle_texts([], 5)) == 0
    assert len(hash_sets([])) == 0
    assert hash_sets([frozenset()]).sizes.tolist() == [0]
