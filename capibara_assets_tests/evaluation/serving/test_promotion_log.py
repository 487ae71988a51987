"""The history of what served: whole, in order, and of two moves at once none is lost."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.evaluation.serving.promotion import NOTHING, promote_manually, roll_back, served
from capibara_assets.evaluation.serving.promotion_log import Move, PromotionLog, state_before
from capibara_assets.storage.store import ArtifactStore


@pytest.fixture
def log(tmp_path: Path) -> PromotionLog:
    return PromotionLog(ArtifactStore(tmp_path))


Change = Callable[[dict[str, Any] | None, list[Move]], tuple[dict[str, Any], str]]


def putting(slot: str, digest: str) -> Change:
    return lambda now, _: (promote_manually(now, slot, digest, "why"), "because")


def going_back(slots: list[str] | None = None) -> Change:
    def change(now: dict[str, Any] | None, history: list[Move]) -> tuple[dict[str, Any], str]:
        return roll_back(now or NOTHING, state_before(history, slots)[1], slots, "by hand"), "back"

    return change


def test_every_move_is_noted_with_when_who_why_and_what(log: PromotionLog):
    assert log.head() is None and log.moves() == []
    log.move("gate", putting("sql", "a"), by="gate")
    log.move("promote", putting("sql", "b"), by="ana")
    first, second = log.moves()
    assert (first.number, second.number) == (1, 2) and log.head() == second == log.find(2)
    assert second.moved == {"sql": ("a", "b")} and (second.by, second.action, second.reason) == (
        "ana",
        "promote",
        "because",
    )
    assert first.at <= second.at and second.before is not None and first.before is None
    with pytest.raises(InputError, match="no promotion has number 3: there are 1 to 2"):
        log.find(3)


def test_what_moves_nothing_is_not_noted(log: PromotionLog):
    log.move("gate", putting("sql", "a"), by="gate")
    document, move = log.move("gate", putting("sql", "a"), by="gate")
    assert move is None and len(log.moves()) == 1 and served(document)["sql"] == "a"
    _, nothing = PromotionLog(ArtifactStore(Path(log._place.root).parent / "new")).move(
        "gate", lambda *_: (dict(NOTHING), ""), by="gate"
    )
    assert nothing is None


def test_what_served_before_there_was_a_history_is_its_first_move(log: PromotionLog):
    old = promote_manually(None, "sql", "old", "why")
    log.move("gate", putting("python", "p"), by="gate", imported=old)
    first, second = log.moves()
    assert first.action == "imported" and first.promotion == old
    assert served(second.promotion)["sql"] == "old" and second.moved == {"python": (None, "p")}


def test_going_back_twice_goes_back_two_steps(log: PromotionLog):
    for digest in ("a", "b", "c"):
        log.move("promote", putting("sql", digest), by="ana")
    for expected in ("b", "a", None):
        document, _ = log.move("rollback", going_back(), by="ana")
        assert served(document).get("sql") == expected
    with pytest.raises(InputError, match="nothing was promoted that could be rolled back"):
        log.move("rollback", going_back(), by="ana")
    log.move("promote", putting("sql", "d"), by="ana")
    assert served(log.move("rollback", going_back(), by="ana")[0]).get("sql") is None  # not "a": that was taken back


def test_one_domain_goes_back_by_its_own_steps(log: PromotionLog):
    for slot, digest in (("sql", "a"), ("python", "p"), ("sql", "b"), ("python", "q")):
        log.move("promote", putting(slot, digest), by="ana")
    document, _ = log.move("rollback", going_back(["sql"]), by="ana")
    assert (served(document)["sql"], served(document)["python"]) == ("a", "q")
    with pytest.raises(InputError, match="nothing of merged was promoted"):
        log.move("rollback", going_back(["merged"]), by="ana")


@pytest.mark.parametrize("attempt", range(3))
def test_of_many_at_once_one_wins_each_number_and_none_is_lost(log: PromotionLog, attempt: int):
    writers = 8
    start = Barrier(writers)

    def one(number: int) -> Move | None:
        start.wait()
        return log.move("promote", putting(f"slot{number}", f"d{number}"), by=str(number))[1]

    with ThreadPoolExecutor(writers) as pool:
        made = list(pool.map(one, range(writers)))
    history = log.moves()
    assert sorted(move.number for move in made if move) == list(range(1, writers + 1)) == [m.number for m in history]
    final = served(history[-1].promotion)
    assert {f"slot{i}": f"d{i}" for i in range(writers)}.items() <= final.items()


def test_who_loses_the_race_sees_what_won(log: PromotionLog):
    seen = []

    def change(now: dict[str, Any] | None, _: list[Move]) -> tuple[dict[str, Any], str]:
        if not seen:
            log.move("promote", putting("python", "theirs"), by="bo")  # between the look and the move
        seen.append(served(now).get("python"))
        return promote_manually(now, "sql", "ours", "why"), "because"

    document, move = log.move("promote", change, by="ana")
    assert seen == [None, "theirs"] and move is not None and move.number == 2
    assert (served(document)["python"], served(document)["sql"]) == ("theirs", "ours")


def test_a_history_that_somebody_changed_is_damaged(log: PromotionLog, tmp_path: Path):
    for digest in ("a", "b", "c"):
        log.move("promote", putting("sql", digest), by="ana")
    file = tmp_path / "promotions" / "000002.json"
    whole = file.read_bytes()
    file.write_text(json.dumps(json.loads(whole) | {"by": "nobody"}))
    for read in (log.moves, log.head):  # what serves is only known of a whole history
        with pytest.raises(IntegrityError, match=r"000003\.json does not follow from the move before it"):
            read()
    file.write_bytes(whole[:-5])
    with pytest.raises(IntegrityError, match=r"000002\.json is damaged"):
        log.moves()
    file.unlink()
    with pytest.raises(IntegrityError, match="not a whole history"):
        log.moves()


@pytest.mark.parametrize("served_by", ["../../../../etc", "", 7, ["a"]])
def test_what_serves_is_a_digest(log: PromotionLog, tmp_path: Path, served_by: object):
    log.move("promote", putting("sql", "a"), by="ana")
    file = tmp_path / "promotions" / "000001.json"
    document = json.loads(file.read_text())
    document["promotion"]["serving"]["experts"]["sql"] = served_by
    file.write_text(json.dumps(document))
    with pytest.raises(IntegrityError, match=r"000001\.json is damaged: .*is no digest"):
        log.head()
    del document["promotion"]["serving"]["merged"]
    file.write_text(json.dumps(document))
    with pytest.raises(IntegrityError, match="does not say what serves"):
        log.head()


def test_a_move_nested_deeper_than_is_read_is_damage(log: PromotionLog):
    log.move("gate", putting("sql", "a"), by="gate")
    (written,) = [file for file in Path(log._place.root).rglob("000001.json") if file.is_file()]
    written.write_bytes(b'{"a":' * 100_000)
    with pytest.raises(IntegrityError, match=r"000001\.json is damaged: it is nested too deeply"):
        log.moves()
