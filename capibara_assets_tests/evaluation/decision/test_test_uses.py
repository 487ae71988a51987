"""One use of the test split: what is the same use, what is refused, what is counted, and two runs at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from capibara_assets.errors import IntegrityError
from capibara_assets.evaluation.decision.test_uses import TestUse as Use
from capibara_assets.evaluation.decision.test_uses import Trial, record_test_use, recorded_uses, spent_level

ITEMS = [f"item-{n}" for n in range(20)]


def use(
    ledger: Path,
    candidate: str,
    contest: str,
    items: list[str] = ITEMS,
    settings: dict[str, str] | None = None,
    scope: str = "python",
) -> Use:
    return record_test_use(ledger, scope, Trial(items, candidate, contest, settings or {}), alpha=0.05)


def test_the_first_use_gets_most_of_the_level(tmp_path: Path):
    found = use(tmp_path, "c1", "voters-1")
    assert found == Use(1, pytest.approx(0.0304, abs=1e-4), None)


def test_the_same_candidate_on_the_same_items_is_the_same_use(tmp_path: Path):
    first = use(tmp_path, "c1", "voters-1")
    use(tmp_path, "c2", "voters-2")
    assert use(tmp_path, "c1", "voters-1") == first
    assert use(tmp_path, "c1", "voters-1", items=ITEMS[::-1]) == first
    assert len(recorded_uses(tmp_path, "python")) == 2


def test_another_candidate_of_the_same_voters_is_refused(tmp_path: Path):
    """The best of k voters by their test results: the second one asks in vain, also after other candidates."""
    first = use(tmp_path, "consensus", "voters-1")
    use(tmp_path, "c2", "voters-2")
    for voter in ("voter-0", "voter-1"):
        found = use(tmp_path, voter, "voters-1")
        assert found.refused is not None and "consensus" in found.refused and "same voters" in found.refused
        assert found.number == first.number
    assert len(recorded_uses(tmp_path, "python")) == 2
    assert use(tmp_path, "consensus", "voters-1") == first


def test_an_item_more_or_less_is_no_way_round(tmp_path: Path):
    use(tmp_path, "c1", "voters-1")
    assert use(tmp_path, "c2", "voters-1", items=[*ITEMS, "one more"]).refused
    assert use(tmp_path, "c2", "voters-1", items=ITEMS[:1]).refused


def test_new_items_and_new_voters_are_new_uses(tmp_path: Path):
    first = use(tmp_path, "c1", "voters-1")
    fresh = [f"fresh-{n}" for n in range(20)]
    assert use(tmp_path, "c2", "voters-1", items=fresh) == first  # nothing of it was seen
    assert use(tmp_path, "c2", "voters-1", scope="sql") == first
    retrained = use(tmp_path, "c3", "voters-2")
    assert retrained.refused is None and retrained.number == 2
    assert retrained.level == pytest.approx(first.level / 4)


def test_an_earlier_use_counts_by_the_share_of_items_it_included(tmp_path: Path):
    use(tmp_path, "c1", "voters-1")
    half = [*ITEMS[:10], *(f"fresh-{n}" for n in range(10))]
    found = use(tmp_path, "c2", "voters-2", items=half)
    assert found.number == 2 and found.level == pytest.approx(spent_level(0.05, 1.5))


def test_another_rule_is_another_use(tmp_path: Path):
    """Bars that are moved after the result was seen are one more chance to pass."""
    first = use(tmp_path, "c1", "voters-1", settings={"rule": "a"})
    moved = use(tmp_path, "c1", "voters-1", settings={"rule": "b"})
    assert moved.refused is None and moved.number == 2 and moved.level < first.level


@given(alpha=st.floats(0.001, 0.2), count=st.integers(1, 2_000))
def test_however_many_uses_the_level_is_not_spent(alpha: float, count: int):
    assert sum(spent_level(alpha, position) for position in range(1, count + 1)) < alpha


def test_the_ledger_is_only_added_to(tmp_path: Path):
    before: dict[str, bytes] = {}
    for number in range(5):
        use(tmp_path, f"c{number}", f"voters-{number}")
        files = {path.name: path.read_bytes() for path in (tmp_path / "python").iterdir()}
        assert {name: files[name] for name in before} == before and len(files) == number + 1
        before = files
    document = json.loads(before["000003.json"])
    assert document["candidate"] == "c2" and document["number"] == 3 and document["schema_version"] == 1
    assert "item-0" not in before["000003.json"].decode()  # digests: a forgotten example leaves no text


@pytest.mark.parametrize("how", ["torn", "missing", "newer"])
def test_a_damaged_ledger_is_not_read_as_if_nothing_were_there(how: str, tmp_path: Path):
    for number in range(3):
        use(tmp_path, f"c{number}", f"voters-{number}")
    file = tmp_path / "python" / "000002.json"
    if how == "missing":
        file.unlink()
    else:
        file.write_text(file.read_text()[:40] if how == "torn" else '{"schema_version": 9}')
    with pytest.raises(IntegrityError, match=r"000002|test use 2"):
        use(tmp_path, "c9", "voters-9")


def test_an_object_store_keeps_a_ledger_too():
    ledger = UPath("memory://uses-of-a-test")
    first = record_test_use(ledger, "sql", Trial(ITEMS, "a", "v", {}), alpha=0.05)
    assert record_test_use(ledger, "sql", Trial(ITEMS, "a", "v", {}), alpha=0.05) == first
    assert record_test_use(ledger, "sql", Trial(ITEMS, "b", "v", {}), alpha=0.05).refused


def test_a_use_of_no_items_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="needs test items"):
        use(tmp_path, "c", "v", items=[])


def test_runs_at_once_count_each_other(tmp_path: Path):
    """Four processes, each with a candidate of its own: four uses, four levels, none lost."""
    code = (
        "import sys; from pathlib import Path\n"
        "from capibara_assets.evaluation.decision.test_uses import Trial, record_test_use\n"
        "for n in range(4):\n"
        "    name = f'{sys.argv[2]}-{n}'\n"
        "    record_test_use(Path(sys.argv[1]), 'ml', Trial(['a', 'b'], name, name, {}), alpha=0.05)"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), f"run{n}"]) for n in range(4)]
    assert [process.wait(timeout=120) for process in running] == [0] * 4
    entries = recorded_uses(tmp_path, "ml")
    assert len({entry["candidate"] for entry in entries}) == 16
    assert [entry["number"] for entry in entries] == list(range(1, 17))
    assert len({entry["level"] for entry in entries}) == 16
    assert not [path for path in (tmp_path / "ml").iterdir() if path.name.endswith(".part")]
