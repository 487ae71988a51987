"""Readings of code: the same with and without what was kept, and nothing kept that is not used."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from capibara_assets.datasets.code.structure import shingles, tokens
from capibara_assets.datasets.duplicates import readings as subject
from capibara_assets.datasets.duplicates.near import near_pairs, similar
from capibara_assets.datasets.duplicates.readings import (
    Code,
    CodeReading,
    code_key,
    packed,
    readings,
    unpacked,
)
from capibara_assets.datasets.duplicates.shingles import ShingleSets
from capibara_assets.datasets.groups import assign_groups
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.processes.ray_map import RayCluster
from capibara_assets.storage.cache import Cache
from capibara_assets_tests.datasets.conftest import fleet, frame, no_repairs, problem, run

RECIPE = shipped_recipe("dataset", DatasetRecipe)
DOCUMENTED = '''def area(width, height):
    """Return the area of a rectangle of this size."""
    return width * height

assert area(2, 3) == 6
'''
CODES: list[Code] = [
    ("python", DOCUMENTED),
    ("python", DOCUMENTED.replace("width", "w").replace("height", "h")),
    ("python", ""),
    ("python", "not ( python"),
    ("python", "text = '\ud800'"),  # a lone surrogate, as logs hold them
    ("sql", "-- the number of all orders there are\nSELECT count(*) FROM orders;"),
    ("javascript", "const total = (a, b) => a + b;\nconsole.log(total(1, 2));"),
    ("cobol", "MOVE A TO B."),
]


def plain(found: dict[Code, CodeReading]) -> dict[Code, tuple[object, ...]]:
    return {
        code: (
            [(v.keys, v.shingles.tolist(), v.tokens) for v in reading.views],
            reading.statement_key,
            *(hashed.tolist() for hashed in (reading.problem.words, reading.problem.cases, reading.problem.names)),
        )
        for code, reading in found.items()
    }


def kept(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def held(folder: Path) -> set[bytes]:
    return set(Cache(kept(folder), "readings").read().values)


def test_what_is_read_off_a_text() -> None:
    found = readings(CODES, 5)
    one, renamed = found[CODES[0]], found[CODES[1]]
    assert len(one.views) == 2  # the definition, and the cell with its check
    assert [view.keys[0] for view in one.views] == [view.keys[0] for view in renamed.views]
    assert [view.keys[1] for view in one.views] != [view.keys[1] for view in renamed.views]
    assert one.statement_key == subject.statement_key("  Return the AREA of a rectangle of this size")
    assert one.views[1].tokens == len(tokens(DOCUMENTED, "python"))
    assert found["python", ""].views[0].shingles.size == 0
    assert subject.statement_key("Plot the result") is None


def test_kept_readings_are_those_that_would_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = plain(readings(CODES, 5))
    assert plain(readings(CODES[:3], 5, tmp_path)) == {code: fresh[code] for code in CODES[:3]}
    read: list[Code] = []
    plainly = subject._read

    def counted(codes: list[Code], shingle: int) -> dict[Code, CodeReading]:
        read.extend(codes)
        return plainly(codes, shingle)

    monkeypatch.setattr(subject, "_read", counted)
    assert plain(readings(CODES, 5, tmp_path)) == fresh
    assert sorted(read) == sorted(CODES[3:])  # the new ones alone
    assert plain(readings(CODES, 5, tmp_path)) == fresh
    assert len(read) == len(CODES) - 3
    assert plain(readings(CODES, 3, tmp_path)) == plain(readings(CODES, 3))  # other shingles: read again


def test_only_what_was_asked_for_last_is_kept_and_none_of_it_is_text(tmp_path: Path) -> None:
    (tmp_path / "readings-5-0123.safetensors").write_bytes(b"of the former form")
    readings(CODES, 5, tmp_path)
    assert len(held(tmp_path)) == len(CODES)
    readings(CODES[2:], 5, tmp_path)
    assert held(tmp_path) == {code_key(*code) for code in CODES[2:]}
    assert b"orders" not in kept(tmp_path).read_bytes()
    readings([], 5, tmp_path)
    assert held(tmp_path) == set()


def test_another_program_reads_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings(CODES, 5, tmp_path)
    before = kept(tmp_path)
    monkeypatch.setattr(subject, "program_digest", lambda: "0" * 64)
    assert plain(readings(CODES, 5, tmp_path)) == plain(readings(CODES, 5))
    assert kept(tmp_path) != before  # and the former one's are gone


@pytest.mark.parametrize("place", [0, 100, -40])
def test_a_damaged_file_is_made_again(tmp_path: Path, place: int) -> None:
    fresh = plain(readings(CODES, 5, tmp_path))
    whole = kept(tmp_path).read_bytes()
    damaged = bytearray(whole)
    damaged[place] ^= 0xFF
    kept(tmp_path).write_bytes(damaged)
    assert plain(readings(CODES, 5, tmp_path)) == fresh
    assert kept(tmp_path).read_bytes() == whole
    kept(tmp_path).write_bytes(whole[: len(whole) // 2])
    assert plain(readings(CODES, 5, tmp_path)) == fresh


@given(st.lists(st.text(alphabet="ab c\n()=", max_size=60), max_size=12))
def test_pairs_of_hashed_shingles_are_those_of_shingles(texts: list[str]) -> None:
    found = readings([("python", text) for text in texts], 2)
    views = [found["python", text].views[-1] for text in texts]  # of the whole cells
    bags = [shingles(tokens(text, "python"), 2) for text in texts]
    assert [view.shingles.size for view in views] == [len(bag) for bag in bags]
    near = similar(ShingleSets.of([view.shingles for view in views]), RECIPE.near_duplicates)
    assert list(zip(near.left.tolist(), near.right.tolist(), strict=True)) == near_pairs(bags, RECIPE.near_duplicates)


def test_a_round_trip_through_bytes() -> None:
    found = readings(CODES, 5)
    assert any(reading.statement_key for reading in found.values())
    assert plain({code: unpacked(packed(reading)) for code, reading in found.items()}) == plain(found)


def test_groups_are_the_same_with_and_without(tmp_path: Path) -> None:
    some = fleet(30)
    more = [*some, run("new-1", problem(3), sandbox="new"), run("new-2", problem(71), sandbox="new")]
    for executions in (some, more, some):
        without = assign_groups(frame(executions), no_repairs(), None, RECIPE)
        assert_frame_equal(assign_groups(frame(executions), no_repairs(), None, RECIPE, cache=tmp_path), without)


@pytest.mark.extended
def test_a_clusters_workers_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    codes = [("python", f"def f{n}(x):\n    return x + {n}\n") for n in range(20)] + [("sql", "SELECT a FROM t")]
    monkeypatch.setattr(subject, "_AT_ONCE", 4)
    here = readings(codes, 3)
    there = readings(codes, 3, None, RayCluster(workers=2))
    assert {code: packed(one) for code, one in there.items()} == {code: packed(one) for code, one in here.items()}
