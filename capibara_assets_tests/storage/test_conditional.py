"""Pointers on gs:// through the real client: what is delivered late, or raced for, has one outcome."""

import json
import multiprocessing
import urllib.error
import urllib.request
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from upath import UPath

from capibara_assets.checkpoints.store.places import open_place
from capibara_assets.errors import InputError
from capibara_assets.evaluation.serving.promotion import NOTHING, promote_manually
from capibara_assets.evaluation.serving.promotion_log import PromotionLog
from capibara_assets.storage.conditional import NEVER, delete_seen, move, replace_seen, seen
from capibara_assets.storage.removal import remove_artifact
from capibara_assets.storage.store import ArtifactStore
from capibara_assets_tests.storage.gcs import gcs_emulator

pytestmark = pytest.mark.gcs
SPAWN = multiprocessing.get_context("spawn")  # gcsfs has a thread of its own, which a fork would lose
MOVES = 6


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    with gcs_emulator() as url:
        yield url


def options(emulator: str) -> dict[str, Any]:
    return {"token": "anon", "endpoint_url": emulator, "use_listings_cache": False}


def at(emulator: str, name: str) -> UPath:
    return UPath(f"gs://bucket/{name}", **options(emulator))


def store(emulator: str, name: str, work: Path) -> ArtifactStore:
    return ArtifactStore(at(emulator, name), work=work)


def published(one: ArtifactStore, value: int) -> str:
    return one.publish("plan", "sql", documents={"value": value}).digest


def test_a_state_that_is_no_more_is_not_replaced(emulator: str) -> None:
    path = at(emulator, "one/pointer")
    nothing = seen(path)
    assert (nothing.generation, nothing.data) == (NEVER, None)
    assert replace_seen(path, nothing, b"first") and not replace_seen(path, nothing, b"second")
    first = seen(path)
    assert first.data == b"first" and replace_seen(path, first, b"second")
    assert not replace_seen(path, first, b"third") and not delete_seen(path, first)
    assert seen(path).data == b"second"
    assert delete_seen(path, seen(path)) and seen(path).data is None
    assert delete_seen(path, first)  # it is gone, as was asked for


def test_a_write_whose_answer_was_lost_is_known_as_ones_own(emulator: str) -> None:
    path = at(emulator, "lost/pointer")
    former = seen(path)
    assert replace_seen(path, former, b"ours")
    assert replace_seen(path, former, b"ours")  # as the client repeats it


def test_who_never_comes_first_is_told(emulator: str) -> None:
    path = at(emulator, "never/pointer")

    def overtaken(former: bytes | None) -> bytes:
        path.write_bytes(b"another's " + (former or b"")[:100])
        return b"ours"

    with pytest.raises(InputError, match="others changed gs://bucket/never/pointer 3 times meanwhile"):
        move(path, overtaken, tries=3)
    assert (seen(path).data or b"").startswith(b"another's")


def test_a_pointer_is_not_put_back_by_a_write_that_is_delivered_late(emulator: str, tmp_path: Path) -> None:
    one, other = store(emulator, "late", tmp_path / "a"), store(emulator, "late", tmp_path / "b")
    hold = quote("late/artifacts/plan/sql/latest.json", safe="")
    urllib.request.urlopen(f"{emulator}/hold?name={hold}").close()
    first = published(one, 1)  # its first attempt is held back; the client's second one arrives
    second = published(other, 2)
    urllib.request.urlopen(f"{emulator}/release").close()
    assert first != second and one.latest_digest("plan", "sql") == second


def test_what_is_published_while_another_is_removed_stays_the_latest(
    emulator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = store(emulator, "removed", tmp_path / "a"), store(emulator, "removed", tmp_path / "b")
    first, looked, made = published(one, 1), one.latest_digest, list[str]()

    def look(name: str, partition: str | None) -> str | None:
        found = looked(name, partition)
        if not made:
            made.append(published(other, 2))
        return found

    monkeypatch.setattr(one, "latest_digest", look)
    remove_artifact(one, "plan", "sql", first)
    assert other.latest_digest("plan", "sql") == made[0]
    remove_artifact(one, "plan", "sql", made[0])
    assert other.latest("plan", "sql") is None


def test_a_file_of_a_place_is_swapped_by_one(emulator: str, tmp_path: Path) -> None:
    remote = open_place(at(emulator, "swap"), work=tmp_path / "work")
    for place in (remote, open_place(tmp_path / "local"), open_place(f"memory://{tmp_path}", work=tmp_path / "work")):
        place.replace("state", b"a")
        assert place.swap("state", b"a", b"b") and not place.swap("state", b"a", b"c")
        assert place.read("state") == b"b"


def race(emulator: str, name: str, number: int, work: Path, ready: Barrier, answers: Any) -> None:
    """One process: moves a pointer that both have seen in the same state, then the promotion log, several times."""
    path, log = at(emulator, f"{name}/pointer"), PromotionLog(store(emulator, name, work))
    former = seen(path)
    ready.wait(300)  # one that died before it comes here is told, not waited for
    won = replace_seen(path, former, f"of {number}".encode())
    for step in range(MOVES):
        change = lambda now, known, step=step: (  # noqa: E731
            promote_manually(now or NOTHING, "sql", f"{number}{step:063d}", "by a test"),
            f"{number}-{step}",
        )
        log.move("promote", change, by=str(number))
    answers.put((number, won))


def test_of_two_processes_one_moves_a_pointer_and_no_promotion_is_lost(emulator: str, tmp_path: Path) -> None:
    ready, answers = SPAWN.Barrier(2), SPAWN.Queue()
    racing = [(emulator, "race", number, tmp_path / str(number), ready, answers) for number in range(2)]
    other = SPAWN.Process(target=race, args=racing[1])
    other.start()
    race(*racing[0])  # this process is the one
    said = dict(answers.get(timeout=300) for _ in racing)
    other.join()
    (winner,) = [number for number, won in said.items() if won]
    assert seen(at(emulator, "race/pointer")).data == f"of {winner}".encode()
    moves = PromotionLog(store(emulator, "race", tmp_path / "look")).moves()  # raises where the chain is broken
    assert sorted(one.reason for one in moves) == sorted(f"{n}-{step}" for n in range(2) for step in range(MOVES))


def test_the_bucket_of_the_tests_refuses_what_a_real_one_does(emulator: str) -> None:
    """The emulator alone would take both."""
    url = f"{emulator}/upload/storage/v1/b/bucket/o?uploadType=media&name=bare&ifGenerationMatch=0"
    first = urllib.request.urlopen(urllib.request.Request(url, b"one", method="POST"))
    assert int(json.load(first)["generation"]) > 0
    with pytest.raises(urllib.error.HTTPError, match="412"):
        urllib.request.urlopen(urllib.request.Request(url, b"two", method="POST"))
