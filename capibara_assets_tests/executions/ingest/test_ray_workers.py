"""An ingest on a Ray cluster gives, byte for byte, the tables of one machine, whatever its workers die of."""

import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.deployment.locations import resources_root
from capibara_assets.errors import InputError
from capibara_assets.executions.ingest import ingest as ingest_module
from capibara_assets.executions.ingest import ray_workers
from capibara_assets.executions.ingest.ingest import TABLES, ingest
from capibara_assets.executions.ingest.ray_workers import _Group
from capibara_assets.processes.ray_map import RayCluster, connected, ray_map, ray_shuffle
from capibara_assets_tests.executions.conftest import NOW
from capibara_assets_tests.executions.ingest.test_ledger import SECRET, record
from capibara_assets_tests.late import late
from capibara_assets_tests.processes.handed_over import map_here

ray = late("ray", reason="the extra ray is not installed")
LATER = NOW + timedelta(days=400)  # the shipped experience has been recorded by then


@pytest.fixture(scope="module")
def four_workers() -> Iterator[None]:
    with connected(RayCluster(workers=4)):
        yield


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    for at, name in enumerate("abcdef"):
        lines = [
            record(i, code=f"token = {SECRET!r}" if i % 50 == 0 else f"x = {i}") for i in range(at * 40, at * 40 + 43)
        ]
        (folder / f"{name}.jsonl").write_bytes(b"".join(lines) + b"no execution\n")
    return folder


def tables(folder: Path, ledger: Path | None, workers: int | None) -> dict[str, Any]:
    cluster = None if workers is None else RayCluster(workers=workers, from_mib=0)
    with ingest(folder, now=LATER, ledger=ledger, cluster=cluster) as read:
        return {name: read.path(name).read_bytes() for name in TABLES} | {"summary": read.summary}


def grow(logs: Path) -> None:
    with (logs / "b.jsonl").open("ab") as file:
        file.write(b"".join(record(i, sandbox="s20") for i in range(900, 930)))  # a sandbox with a secret
    (logs / "new.jsonl").write_bytes(b"".join(record(i) for i in range(930, 940)))


def ray_files_with_the_secret() -> list[Path]:
    session = Path(ray._private.worker._global_node.get_session_dir_path())
    return [path for path in session.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


@pytest.mark.extended
@pytest.mark.usefixtures("four_workers")
@pytest.mark.parametrize("workers", [2, 4])
def test_the_tables_of_one_machine_also_after_files_grew(logs: Path, tmp_path: Path, workers: int) -> None:
    assert tables(logs, tmp_path / "ray", workers) == tables(logs, tmp_path / "here", None)
    grow(logs)
    assert tables(logs, tmp_path / "ray", workers) == tables(logs, tmp_path / "here", None)
    assert not ray_files_with_the_secret()


def _below(number: int) -> dict[int, list[int]]:
    """The numbers below another by their remainder."""
    if number < 0:
        raise InputError(f"nothing is below {number}: give a positive number")
    return {rest: list(range(rest, number, 3)) for rest in range(3)}


def test_a_map_and_a_shuffle() -> None:
    """By one worker: each takes seconds to start. Deaths, and what two do, are in `processes/test_ray_map.py`."""
    expected = [sorted(n for below in (4, 7, 5) for n in range(below) if n % 3 == rest) for rest in range(3)]
    with connected(one := RayCluster(workers=1)):
        assert sorted(ray_map(one, _below, [1, 4])) == [(0, {0: [0], 1: [], 2: []}), (1, {0: [0, 3], 1: [1], 2: [2]})]
        assert ray_shuffle(one, _below, [4, 7, 5], _joined) == expected
        with pytest.raises(InputError, match="nothing is below -1: give a positive number"):
            list(ray_map(one, _below, [3, -1]))


def _joined(parts: list[list[int]]) -> list[int]:
    return sorted(number for part in parts for number in part)


@pytest.mark.extended
@pytest.mark.usefixtures("four_workers")
@pytest.mark.parametrize("workers", [2, 4])
def test_the_shipped_experience(tmp_path: Path, workers: int) -> None:
    assert tables(resources_root() / "experience", None, workers) == tables(resources_root() / "experience", None, None)


@dataclass(frozen=True)
class _DiesBeforeItAnswers(_Group):
    """Everything of a group is written, and nobody is told: once, or always."""

    kind: str
    marker: Path
    always: bool = False

    def __call__(self, task: tuple[str, list[Any]]) -> tuple[str, list[Any]]:
        done = super().__call__(task)
        if task[0] == self.kind and (self.always or not self.marker.exists()):
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return done


@dataclass(frozen=True)
class _DoneTwice(_Group):
    """What a worker leaves that dies before it answers, and what does its group again."""

    kind: str

    def __call__(self, task: tuple[str, list[Any]]) -> tuple[str, list[Any]]:
        if task[0] == self.kind:
            super().__call__(task)
        return super().__call__(task)


@pytest.mark.parametrize("kind", ["read", "finish"])
def test_groups_done_twice_double_nothing_and_no_secret_goes_through_ray(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Also after files grew. What workers get and answer is handed over here, as bytes."""
    passed: list[bytes] = []

    def map_and_keep(cluster: RayCluster, do: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        passed.append(pickle.dumps((do, tasks)))
        for result in map_here(cluster, do, tasks):
            passed.append(pickle.dumps(result))
            yield result

    monkeypatch.setattr(ray_workers, "ray_map", map_and_keep)
    monkeypatch.setattr(ingest_module, "connected", nullcontext)
    monkeypatch.setattr(ray_workers, "_Group", lambda setup: _DoneTwice(setup, kind))
    assert tables(logs, tmp_path / "ray", 2) == tables(logs, tmp_path / "here", None)
    grow(logs)
    assert tables(logs, tmp_path / "ray", 2) == tables(logs, tmp_path / "here", None)
    assert passed and SECRET.encode() not in b"".join(passed)


@pytest.mark.extended
@pytest.mark.usefixtures("four_workers")
@pytest.mark.parametrize("kind", ["read", "finish"])
def test_a_worker_that_dies_before_it_answers_doubles_and_loses_nothing(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nor after files grew: by then it lives."""
    marker = tmp_path / "died"
    monkeypatch.setattr(ray_workers, "_Group", lambda setup: _DiesBeforeItAnswers(setup, kind, marker))
    killed = tables(logs, tmp_path / "ray", 2)
    assert marker.exists()
    assert killed == tables(logs, tmp_path / "here", None)
    grow(logs)
    assert tables(logs, tmp_path / "ray", 2) == tables(logs, tmp_path / "here", None)
    assert not ray_files_with_the_secret()


@pytest.mark.extended
@pytest.mark.usefixtures("four_workers")
def test_a_run_that_no_worker_survives_commits_nothing(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(
            ray_workers, "_Group", lambda setup: _DiesBeforeItAnswers(setup, "read", tmp_path / "died", always=True)
        )
        with pytest.raises(RuntimeError, match="died with the same task under way"):
            tables(logs, tmp_path / "ray", 2)
    assert tables(logs, tmp_path / "ray", 2) == tables(logs, tmp_path / "here", None)
