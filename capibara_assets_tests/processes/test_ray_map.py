"""A map over Ray's workers: every task answered once, through workers that die, and errors that say what to do.

In `make test` the ingest's tests map and shuffle a few numbers on the cluster that they have started.
"""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from capibara_assets.errors import InputError
from capibara_assets.processes.ray_map import RayCluster, divided, ray_map, ray_shuffle
from capibara_assets_tests.late import late

late("ray", reason="the extra ray is not installed")
TWO = RayCluster(workers=2)


@dataclass(frozen=True)
class Doubling:
    """Doubles numbers; dies with some of them, once or always."""

    folder: Path
    dies_once: frozenset[int] = frozenset()
    dies_always: frozenset[int] = frozenset()
    refuses: frozenset[int] = frozenset()

    def __call__(self, number: int) -> int:
        with (self.folder / f"{number}").open("a") as file:
            file.write(f"{os.getpid()}\n")
        runs = (self.folder / f"{number}").read_text().count("\n")
        if number in self.dies_always or (number in self.dies_once and runs == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        if number in self.refuses:
            raise InputError(f"{number} cannot be doubled: give another")
        return 2 * number


@pytest.mark.extended
@pytest.mark.usefixtures("ray_cluster")
def test_tasks_of_workers_that_die_are_done_by_others(tmp_path: Path) -> None:
    doubling = Doubling(tmp_path, dies_once=frozenset({2, 5}))
    assert sorted(ray_map(TWO, doubling, range(8))) == [(n, 2 * n) for n in range(8)]
    pids = [(tmp_path / "2").read_text().split(), (tmp_path / "5").read_text().split()]
    assert all(len(set(each)) == 2 for each in pids)


@pytest.mark.extended
@pytest.mark.usefixtures("ray_cluster")
def test_a_task_that_every_worker_dies_with_ends_the_map(tmp_path: Path) -> None:
    doubling = Doubling(tmp_path, dies_always=frozenset({3}))
    with pytest.raises(RuntimeError, match="4 died with the same task under way") as raised:
        list(ray_map(TWO, doubling, range(8)))
    assert raised.value.__cause__ is None  # a run tells the innermost cause
    assert len((tmp_path / "3").read_text().split()) == 4


@dataclass(frozen=True)
class Remainders:
    """Sorts the numbers below another by their remainder; dies once with some of them."""

    folder: Path
    dies_once: frozenset[int] = frozenset()

    def __call__(self, below: int) -> dict[int, list[int]]:
        if below in self.dies_once and not (self.folder / str(below)).exists():
            (self.folder / str(below)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {rest: [n for n in range(below) if n % 3 == rest] for rest in range(3)}


@dataclass(frozen=True)
class Joined:
    """Joins lists; dies once if they begin with a given number."""

    folder: Path
    dies_once_at: int = -1

    def __call__(self, parts: list[list[int]]) -> list[int]:
        marker = self.folder / "joined"
        if parts[0][:1] == [self.dies_once_at] and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return [n for part in parts for n in part]


@pytest.mark.extended
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("deaths", [False, True])
def test_a_shuffle_brings_each_partition_what_all_tasks_made_for_it(tmp_path: Path, deaths: bool) -> None:
    spread = Remainders(tmp_path, frozenset({7} if deaths else ()))
    gather = Joined(tmp_path, dies_once_at=1 if deaths else -1)
    expected = [[n for below in (4, 7, 5) for n in range(below) if n % 3 == rest] for rest in range(3)]
    assert ray_shuffle(TWO, spread, [4, 7, 5], gather) == expected
    assert {"7", "joined"} & {path.name for path in tmp_path.iterdir()} == ({"7", "joined"} if deaths else set())
    assert ray_shuffle(TWO, spread, [], gather) == []


@pytest.mark.extended
@pytest.mark.usefixtures("ray_cluster")
def test_bad_input_is_told_as_it_is_here(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 cannot be doubled: give another"):
        list(ray_map(TWO, Doubling(tmp_path, refuses=frozenset({1})), range(2)))


def test_tasks_are_dealt_so_that_none_is_waited_for_long() -> None:
    dealt = divided(range(100), RayCluster(workers=3), each=4)
    assert len(dealt) == 12 and sorted(n for part in dealt for n in part) == list(range(100))
    assert {len(part) for part in dealt} == {8, 9}
    assert divided([], TWO) == [] and divided([1], TWO) == [[1]]


@pytest.mark.extended
def test_a_cluster_starts_with_the_first_map_and_lasts_until_the_block_ends(tmp_path: Path) -> None:
    """In a process of its own: the others of this file share a cluster."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom operator import neg\n"
        "from capibara_assets.processes.ray_map import RayCluster, lasting, ray_map\n"
        "with lasting():\n"
        "    assert 'ray' not in sys.modules\n"
        "    assert list(ray_map(RayCluster(workers=1), neg, [1])) == [(0, -1)]\n"
        "    import ray\n"
        "    node = ray.get_runtime_context().get_node_id()\n"
        "    assert list(ray_map(RayCluster(workers=1), neg, [2])) == [(0, -2)]\n"
        "    assert ray.get_runtime_context().get_node_id() == node\n"
        "assert not ray.is_initialized()\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    subprocess.run([sys.executable, script], env=environment, check=True, capture_output=True, timeout=300)
