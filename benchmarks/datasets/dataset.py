"""The bench `dataset`: from logs to datasets in fresh folders: whole, after one new file, and in other orders."""

import gzip
import io
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.experience_input import BenchInput, bench_input
from benchmarks.output import print_result
from capibara_assets.errors import InputError

_PROCESSES = 2
_LINES = (".jsonl", ".jsonl.gz")


@click.command("dataset")
@click.option("--experience", help="Folder of experience; default: the shared collection, else what ships.")
@click.option("--reexecution/--no-reexecution", default=True, show_default=True, help="Also execute examples again.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def dataset(experience: str | None, reexecution: bool, as_json: bool) -> None:
    """Seconds from logs to the datasets of all domains, for everything and for one new file; equal in any order?"""
    print_result(measure(bench_input(experience, None), reexecution), as_json)


def measure(source: BenchInput, reexecution: bool) -> dict[str, Any]:
    """All figures; every look at the experience is of new processes, the domains of one asset on two of them.

    Raises:
        InputError: there are fewer than two log files, so that none can arrive later.
    """
    from benchmarks.datasets.stages import Place, materialize_all

    if len(logs := _logs(source.folder)) < 2:
        raise InputError(f"{source.folder} has {len(logs)} log file: at least two are needed, so that one comes later")
    with TemporaryDirectory(prefix="capibara-bench-dataset-") as scratch:
        folder = Path(scratch)
        whole = Place(_copy(source.folder, folder / "whole"), folder / "whole-store")
        first = materialize_all(whole, processes=_PROCESSES)
        result = {
            "seconds": round(first.seconds, 2),
            "cpu_seconds": round(first.cpu_seconds, 2),
            "stages": _stages(first),
            "processes": _PROCESSES,
            **_rows(whole),
        }
        result |= _one_file(source.folder, folder, first)
        result |= _orders(whole, folder)
        if reexecution:
            result |= _executed_again(whole)
        result["experience"] = source.name
    return result


def _one_file(experience: Path, folder: Path, whole: Any) -> dict[str, Any]:
    """One log file (the last by name) comes to all others: what that costs, and how much of the text it is.

    `one_file_read_share`: of the code texts that the results are made of, those that were read for it. The playbooks
    stay as they are and are not looked at: the sensor asks for the logs alone.
    """
    from benchmarks.datasets.stages import ASSETS, Place, materialize_all

    logs = _logs(experience)
    later = logs[-1]
    place = Place(_copy(experience, folder / "later", without=later), folder / "later-store")
    materialize_all(place, processes=_PROCESSES)
    arrived = place.experience / later.relative_to(experience)
    arrived.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(later, arrived)
    before = _kept_keys(place)
    after = materialize_all(place, processes=_PROCESSES, stages=ASSETS[ASSETS.index("e2b_logs") :])
    kept = _kept_keys(place)
    sizes = {log: len(_text(log)) for log in logs}
    return {
        "one_file_seconds": round(after.seconds, 2),
        "one_file_cpu_seconds": round(after.cpu_seconds, 2),
        "one_file_stages": _stages(after),
        "one_file": later.name,
        "one_file_cpu_share": round(after.cpu_seconds / whole.cpu_seconds, 4),
        "one_file_read_share": round(len(kept - before) / len(kept), 4),
        "one_file_share_of_text": round(sizes[later] / sum(sizes.values()), 4),
    }


def _kept_keys(place: Any) -> set[tuple[str, bytes]]:
    """Folder and key of every text whose reading is kept (storage/kept.py, datasets/duplicates/readings.py)."""
    from capibara_assets.storage.cache import Cache

    work = place.open().work
    files = [file for name in ("readings-*.sqlite", "texts-*.sqlite") for file in work.rglob(name)]
    return {(str(file.parent), key) for file in files for key in Cache(file, "readings").read().values}


def _orders(whole: Any, folder: Path) -> dict[str, Any]:
    """The same records in other files and orders, and by other numbers of processes: which results differ?

    `same_bytes`: files written in another order, one process everywhere: every Parquet file has the same bytes.
    `same`: also, every line in another file of another name: every data version is the same, and so is every table
    without the columns that name files. Quarantined lines are named by their file, so of the logs only the executions
    are compared there.
    """
    from benchmarks.datasets.stages import ASSETS, Place, materialize_all

    alone = Place(_copy(whole.experience, folder / "reversed", backwards=True), folder / "reversed-store", readers=1)
    materialize_all(alone, processes=1)
    shuffled = Place(_shuffled(whole.experience, folder / "shuffled"), folder / "shuffled-store", readers=1)
    materialize_all(shuffled, processes=1)
    bytes_differ = [
        f"{ours.name}|{ours.partition or '_'}/{file}"
        for ours, theirs in _pairs(whole, alone, ASSETS)
        for file in sorted({*ours.manifest.files, *theirs.manifest.files})
        if file.endswith(".parquet") and not _volatile(file, ours.manifest.volatile)
        if ours.manifest.files.get(file) != theirs.manifest.files.get(file)
    ]
    versions_differ, tables_differ, tables = [], [], 0
    for ours, theirs in _pairs(whole, shuffled, ASSETS):
        name = f"{ours.name}|{ours.partition or '_'}"
        if ours.digest != theirs.digest and ours.name != "e2b_logs":
            versions_differ.append(name)
        for table in _tables(ours):
            tables += 1
            if _compact(ours, table) != _compact(theirs, table):
                tables_differ.append(f"{name}/{table}")
    return {
        "same": not (bytes_differ or versions_differ or tables_differ),
        "differ": {"bytes": bytes_differ, "data_versions": versions_differ, "tables": tables_differ},
        "compared_tables": tables,
    }


def _executed_again(place: Any) -> dict[str, Any]:
    """The datasets once more, with their answers executed and judged by their tests; an empty cache of verdicts."""
    from benchmarks.datasets.stages import materialize_all
    from capibara_assets.domains import DOMAINS

    look = materialize_all(replace(place, reexecute=True), processes=_PROCESSES, stages=("moe_dataset",))
    store = place.open()
    summaries = [store.latest("moe_dataset", domain).document("reexecution") for domain in DOMAINS]
    spent = [*summaries, *(summary["judged"] for summary in summaries)]
    asked = sum(summary["executions"] for summary in summaries)
    verdicts = sum((Counter(summary.get("verdicts", {})) for summary in summaries), Counter[str]())
    return {
        "reexecution_seconds": round(sum(summary.get("seconds", 0.0) for summary in spent), 2),
        "reexecution_cpu_seconds": round(sum(summary.get("cpu_seconds", 0.0) for summary in spent), 2),
        "reexecution_stage_seconds": round(look.seconds, 2),
        "reexecution_share": round(1 - verdicts["recorded"] / asked, 4) if asked else 0.0,
        "reexecution_executions": asked,
        "reexecution_of_examples": sum(summary["of_examples"] for summary in summaries),
        "reexecution_verdicts": dict(sorted(verdicts.items())),
        "isolation": next((summary["isolation"] for summary in summaries if "isolation" in summary), None),
    }


def _stages(look: Any) -> dict[str, dict[str, float]]:
    return {
        name: {"seconds": round(s.seconds, 2), "cpu_seconds": round(s.cpu_seconds, 2), "made": s.made}
        for name, s in look.stages.items()
    }


def _rows(place: Any) -> dict[str, Any]:
    from capibara_assets.domains import DOMAINS

    store = place.open()
    return {
        "executions": store.latest("e2b_logs", None).frame("executions").height,
        "examples": {str(d): store.latest("moe_dataset", d).frame("examples").height for d in DOMAINS},
    }


def _pairs(one: Any, other: Any, names: Sequence[str]) -> list[tuple[Any, Any]]:
    """The last result of each asset and partition, in both stores."""
    ours, theirs = one.open(), other.open()
    found = []
    for name in names:
        for partition in sorted({artifact.partition for artifact in ours.list(name)}, key=str):
            found.append((ours.latest(name, partition), theirs.latest(name, partition)))
    return found


def _tables(artifact: Any) -> list[str]:
    """The tables of its content that do not name files."""
    if artifact.name == "e2b_logs":
        return ["executions"]
    files = [file for file in artifact.manifest.files if file.endswith(".parquet")]
    return [file.removesuffix(".parquet") for file in files if not _volatile(file, artifact.manifest.volatile)]


def _volatile(file: str, patterns: Sequence[str]) -> bool:
    return file in patterns


def _compact(artifact: Any, table: str) -> bytes:
    """A table as Parquet without the columns that name files and lines."""
    named = ("source_file", "source_line", "source_offset", "source_places")
    buffer = io.BytesIO()
    artifact.frame(table).drop(named, strict=False).write_parquet(buffer)
    return buffer.getvalue()


# --- folders of experience --------------------------------------------------------------------------------------------


def _logs(experience: Path) -> list[Path]:
    from capibara_assets.executions.ingest.file_plan import log_files

    found = log_files(experience, None)
    return [found[name] for name in sorted(found)]


def _text(log: Path) -> bytes:
    return gzip.decompress(log.read_bytes()) if log.suffix == ".gz" else log.read_bytes()


def _copy(experience: Path, folder: Path, *, without: Path | None = None, backwards: bool = False) -> Path:
    """The logs and playbooks of an experience in a folder of their own, written in the order of names or backwards."""
    playbooks = sorted(path for path in (experience / "playbooks").rglob("*") if path.is_file())
    for path in sorted({*_logs(experience), *playbooks} - {without}, reverse=backwards):
        target = folder / path.relative_to(experience)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return folder


def _shuffled(experience: Path, folder: Path, seed: int = 0) -> Path:
    """The same lines of JSON dealt anew over as many files of other names; files of other forms under other names."""
    chance = random.Random(seed)
    _copy(experience, folder)
    logs = [log for log in _logs(folder) if log.name.endswith(_LINES)]
    lines = [line for log in logs for line in _text(log).split(b"\n") if line.strip()]
    chance.shuffle(lines)
    for number, log in enumerate(_logs(folder)):
        if log not in logs:
            log.rename(log.with_name(f"other-{number:03d}-{log.name}"))
            continue
        log.unlink()
    for number, log in enumerate(logs):
        dealt = b"".join(line + b"\n" for line in lines[number :: len(logs)])
        log.with_name(f"part-{len(logs) - number:03d}.jsonl").write_bytes(dealt)
    return folder
