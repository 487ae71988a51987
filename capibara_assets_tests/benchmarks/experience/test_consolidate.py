"""The consolidation bench on the playbooks that ship: rephrasings merge, changed advice does not, files survive."""

import pytest

from benchmarks.experience.consolidate import (
    groups_of,
    lessons_of,
    measure_duplicates,
    measure_order,
    measure_round_trips,
    measure_speed,
)
from benchmarks.experience.seeded_advice import OTHER, SAME, seeded_copies
from capibara_assets.deployment.locations import resources_root

pytestmark = pytest.mark.extended

SHIPPED = resources_root() / "experience"


def test_rephrasings_merge_and_changed_advice_does_not() -> None:
    found = measure_duplicates(SHIPPED, seed=7)
    assert set(found["merged_share"]) == {*SAME, *OTHER}
    assert found["recall"] >= 0.9 and found["precision"] >= 0.97


def test_every_edit_changes_its_text_and_is_repeatable() -> None:
    texts = lessons_of(SHIPPED)[:40]
    copies = seeded_copies(texts, 3)
    assert copies == seeded_copies(texts, 3) != seeded_copies(texts, 4)
    assert all(copy.text != texts[copy.base] for copy in copies)
    assert {copy.edit for copy in copies if not copy.same} == {*OTHER}


def test_texts_of_their_own_stay_apart() -> None:
    assert len(set(groups_of(["Cache the token", "Sort by date", "Cache the token!"]))) == 2


def test_round_trips_and_order() -> None:
    trips = measure_round_trips(SHIPPED)
    assert trips["round_trips"] == trips["round_trips_equal"] >= 20
    assert measure_order(SHIPPED, 5) == {"order_independent": True}


def test_speed_runs_in_a_process_of_its_own() -> None:
    found = measure_speed(SHIPPED, 600, 1)
    assert found["bullets"] == 600 and found["kept"] + found["duplicates_merged"] <= 600
    assert found["duplicates_merged"] > 100 and 0 < found["compressed"]["tokens"] <= 2048
