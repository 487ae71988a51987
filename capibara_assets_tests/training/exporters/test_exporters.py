"""Exported figures are the log's, read back by each library's own reader; a resumed run shows no step twice."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from capibara_assets.errors import InputError
from capibara_assets.training.exporters import KINDS, ExportTarget, make_exporter
from capibara_assets.training.exporters.live import Copier
from capibara_assets.training.monitoring.logs import find_logs
from capibara_assets.training.monitoring.views import current_view, points_of, series_of
from capibara_assets_tests.training.monitoring.test_views import training

Series = dict[str, list[tuple[int, float]]]
tensorboard_alone = pytest.mark.parametrize(  # in `make test`, where each exporter follows a log that grows
    "kind", [kind if kind == "tensorboard" else pytest.param(kind, marks=pytest.mark.extended) for kind in KINDS]
)
ABSENT = "{} is not installed (extra `metrics`): its exporter cannot be read back"


def write_log(folder: Path, events: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "events.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def copier(kind: str, folder: Path) -> Copier:
    return Copier(kind, make_exporter(kind, ExportTarget(folder), {}))


def replay(kind: str, path: Path, folder: Path) -> None:
    made = copier(kind, folder)
    error = made.copy_new([path]) or made.close()
    if error:
        raise error


def tensorboard_series(folder: Path) -> Series:
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason=ABSENT.format("tensorboard")
    )
    accumulator = accumulators.EventAccumulator(str(folder / "tensorboard" / "voter-0"), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        name: [(point.step, point.value) for point in accumulator.Scalars(name)]
        for name in accumulator.Tags()["scalars"]
    }


def wandb_series(folder: Path) -> Series:
    pytest.importorskip("wandb", reason=ABSENT.format("wandb"))
    from wandb.proto import wandb_internal_pb2

    runs = (folder / "wandb").glob("offline-run-*/*.wandb")
    # The last attempt: W&B's service may still be writing an older one when the newest is done
    newest = max(runs, key=lambda path: (int(path.parent.name.rpartition("-")[2]), path.stat().st_mtime_ns))
    deadline, records = time.monotonic() + 120, list[Any]()
    while not any(record.WhichOneof("record_type") == "exit" for record in records):  # W&B's service writes behind us
        assert time.monotonic() < deadline, "the run was never ended"
        time.sleep(0.05)
        records = [
            wandb_internal_pb2.Record.FromString(data) for data in leveldb_records(newest.read_bytes()[7:], first=7)
        ]
    series: Series = {}
    for record in records:
        if record.WhichOneof("record_type") == "history":
            row = {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item}
            for name, value in row.items():
                if not name.startswith("_") and name != "optimizer_step":
                    series.setdefault(name, []).append((int(row["optimizer_step"]), value))
    return dict(sorted(series.items()))


def leveldb_records(data: bytes, first: int) -> list[bytes]:
    """Records of a log in LevelDB's format: blocks of 32 KiB with fragments of `checksum, length, type, bytes`.

    Args:
        first: bytes of the first block that come before `data`.
    """
    records, record, at = [], b"", 0
    while at + 7 <= len(data):
        if (room := 32768 - (at + first) % 32768) < 7:
            at += room
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last fragment
            records.append(record)
            record = b""
    return records


def mlflow_series(folder: Path) -> Series:
    mlflow = pytest.importorskip("mlflow", reason=ABSENT.format("mlflow"))
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("capibara").experiment_id
    (run,) = [
        run for run in client.search_runs([experiment]) if "capibara.superseded_by" not in run.data.tags
    ]  # one: an export of the same attempt replaces the older one
    return {
        name: sorted((metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name))
        for name in sorted(run.data.metrics)
    }


READERS: dict[str, Callable[[Path], Series]] = {
    "tensorboard": tensorboard_series,
    "wandb": wandb_series,
    "mlflow": mlflow_series,
}


def same(kind: str, seen: Series, events: list[dict[str, Any]]) -> bool:
    expected = series_of(points_of(current_view(events)))
    if kind == "tensorboard":  # keeps 32 bits
        expected = {name: [(step, float(np.float32(value))) for step, value in line] for name, line in expected.items()}
    return seen == expected


@tensorboard_alone
def test_a_replay_has_the_logs_figures_and_a_second_one_changes_nothing(kind: str, tmp_path: Path) -> None:
    pytest.importorskip(kind, reason=ABSENT.format(kind))
    events = training([(5, 2), (4, 0)])
    log = write_log(tmp_path / "voter-0", events)
    replay(kind, log, tmp_path / "out")
    assert same(kind, READERS[kind](tmp_path / "out"), events)
    replay(kind, log, tmp_path / "out")
    assert same(kind, READERS[kind](tmp_path / "out"), events)


@pytest.fixture(scope="module")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's database without a run: making one takes seconds, copying it none. To be copied only."""
    mlflow = pytest.importorskip("mlflow", reason=ABSENT.format("mlflow"))
    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def out(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Where an exporter writes; with MLflow's database, where that is the one."""
    folder = tmp_path / "out"
    folder.mkdir()
    if kind == "mlflow":
        shutil.copyfile(request.getfixturevalue("empty_mlflow"), folder / "mlflow.db")
    return folder


OFTEN = [(5, 2), (4, 3), (2, 0)]
ONCE = [(5, 2)]  # a run of W&B or MLflow takes seconds to begin, and each attempt is one


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("tensorboard", OFTEN),
        *((kind, ONCE) for kind in KINDS if kind != "tensorboard"),
        *(pytest.param(kind, OFTEN, marks=pytest.mark.extended) for kind in KINDS if kind != "tensorboard"),
    ],
)
def test_followed_while_it_grows_and_is_killed_a_log_ends_the_same(
    kind: str, kills: list[tuple[int, int]], tmp_path: Path, out: Path
) -> None:
    pytest.importorskip(kind, reason=ABSENT.format(kind))
    events = training(kills)
    made = copier(kind, out)
    for end in [*range(2, len(events), 5), len(events)]:
        log = write_log(tmp_path / "voter-0", events[:end])
        assert made.copy_new([log]) is None
    assert made.close() is None
    assert same(kind, READERS[kind](out), events)


def parts() -> list[dict[str, Any]]:
    """A voter of two parts, one after the other, the second of them killed and resumed, and the whole's last word."""
    first = [event | {"part": "client-0", "run": "r0"} for event in training([], total=5)]
    second = [event | {"part": "client-1", "run": "r1"} for event in training([(4, 2)], total=6)]
    return [*first, *second, {"run": "r", "attempt": 2, "step": 11, "event": "finished", "time": 1.0, "seconds": 3.0}]


@tensorboard_alone
def test_the_parts_of_a_voter_have_curves_of_their_own(kind: str, tmp_path: Path, out: Path) -> None:
    events = parts()
    expected = series_of(points_of(current_view(events)))
    assert [step for step, _ in expected["client-0/train/loss"]] == [1, 2, 3, 4, 5]
    assert [step for step, _ in expected["client-1/train/loss"]] == [1, 2, 3, 4, 5, 6]
    pytest.importorskip(kind, reason=ABSENT.format(kind))
    made = copier(kind, out)
    for end in [*range(1, len(events), 4), len(events)]:
        log = write_log(tmp_path / "voter-0", events[:end])
        assert made.copy_new([log]) is None
    assert made.close() is None
    assert same(kind, READERS[kind](out), events)


def test_an_exporter_whose_library_is_absent_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"wandb is not installed: .*capibara-assets\[metrics\]"):
        make_exporter("wandb", ExportTarget(Path("anywhere")), {})
    with pytest.raises(InputError, match="no exporter 'trackio': choose from tensorboard, wandb, mlflow"):
        make_exporter("trackio", ExportTarget(Path("anywhere")), {})


def test_copies_of_one_log_are_found_once_and_named_by_their_voter(tmp_path: Path) -> None:
    events = training([])
    events[0] |= {"domain": "python", "voter": "voter-0"}
    write_log(tmp_path / "work" / "voter-0", events)
    write_log(tmp_path / "work" / "voter-0" / "result", events[:-1])
    write_log(tmp_path / "work" / ".out.part" / "voters" / "voter-0", events)
    other = [event | {"run": "other"} for event in training([(3, 1)])]
    write_log(tmp_path / "old" / "voters" / "voter-1" / "result", other)
    found = find_logs(tmp_path)
    assert [(log.info.name, log.info.run, log.info.attempt) for log in found] == [
        ("python/voter-0", "r", 1),
        ("voter-1", "other", 2),
    ]
    assert found[0].path == tmp_path / "work" / "voter-0" / "events.jsonl"
    with pytest.raises(InputError, match=r"no training log in .*: it has no events\.jsonl"):
        find_logs(tmp_path / "work" / ".out.part")
    with pytest.raises(InputError, match="does not exist"):
        find_logs(tmp_path / "absent")
