"""The bench `agent_logs`: what is read of real agents' logs, against labels by session and code."""

import gzip
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from benchmarks.output import print_result

LABELS = "labels.jsonl.gz"
Session = tuple[str, str]  # file, the label's name of the session


@dataclass(frozen=True)
class Label:
    """One labelled execution; `ok` is None where the log does not tell."""

    session: Session
    n: int
    code: str  # SHA-256
    ok: bool | None
    repaired_by: int | None


@dataclass(frozen=True)
class Found:
    """One execution in the table, with the SHA-256 of its code as it stands in the log."""

    execution_id: str
    sandbox_id: str
    code: str
    stated: bool | None  # success as the log states it, also where a pipe hides it


@click.command("agent_logs")
@click.option(
    "--dir",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of sources, each with labels.jsonl.gz and raw/; default: ../shared/data/agents.",
)
@click.option("--source", "chosen", multiple=True, help="Only this source (repeat for several).")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def agent_logs(folder: Path | None, chosen: tuple[str, ...], as_json: bool) -> None:
    """Recall and precision of executions, success and repairs in real agents' logs, by source, against labels."""
    root = folder or Path("../shared/data/agents")
    sources = sorted(path.parent for path in root.glob(f"*/{LABELS}") if not chosen or path.parent.name in chosen)
    if not sources:
        raise click.UsageError(f"no source with {LABELS} in {root}: name their folder with --dir")
    by_source = {path.name: measure_source(path) for path in sources}
    worst = {
        name: min((shares for one in by_source.values() if (shares := one[name]) is not None), default=None)
        for name in ("recall", "precision", "success", "repairs_recall")
    }
    print_result({"dir": root.name, "sources": by_source, "worst": worst}, as_json)


def measure_source(folder: Path) -> dict[str, Any]:
    """The figures of one source: its logs are ingested as any experience is, and their codes read from the logs."""
    from capibara_assets.executions.ingest.ingest import ingest
    from capibara_assets.executions.patterns.repairs import find_repairs

    now = datetime.now(UTC)
    with ingest(folder / "raw", now=now) as tables:
        read = tables.load()
    files = read.files
    in_logs, not_run = codes_in_logs(folder / "raw", now)
    rows = read.executions.filter(read.executions["language"] != "patch").iter_rows(named=True)
    by_id = {row["execution_id"]: row for row in rows}
    codes = {execution_id: code for of_file in in_logs.values() for execution_id, code in of_file}
    # an execution that stands in several files, such as two checkpoints of a session, is one in the table
    found = {
        file: [
            Found(execution_id, by_id[execution_id]["sandbox_id"], code, _stated(by_id[execution_id]))
            for execution_id, code in of_file
            if execution_id in by_id
        ]
        for file, of_file in in_logs.items()
    }
    every = [_of_log(label, in_logs) for label in read_labels(folder)]
    matched = match(every, found)
    # labels without a verdict name calls that did not run as well: what we say did not run is found, and no execution
    labels = [label for label in every if _key(label) in matched or not _is_named(label, not_run)]
    labelled = {label.session[0] for label in every}
    told = [label for label in labels if label.ok is not None and _key(label) in matched]
    pairs = [label for label in labels if label.repaired_by is not None]
    pairs_found = find_repairs(read.executions)
    by_failing = dict(pairs_found.select("failing_execution_id", "fixed_execution_id").iter_rows())
    repaired = [label for label in pairs if _is_repaired(label, matched, by_failing, codes)]
    # cells of a notebook beside an agent's dialogue ran as well, and are no agent's
    cells = sum(one.sandbox_id.startswith("nb") for executions in found.values() for one in executions)
    number = sum(not one.sandbox_id.startswith("nb") for file in labelled for one in found.get(file, ()))
    return {
        "files": len(files),
        "files_read": int((files["kind"] == "executions").sum()),
        "not_logs": sorted(files.filter(files["kind"] == "other")["path"]),
        "quarantined": read.quarantine.height,
        "labels": len(every),
        "named_as_not_run": len(every) - len(labels),
        "executions": number,
        "cells_of_notebooks": cells,
        "in_files_without_labels": sum(map(len, found.values())) - number - cells,
        "edits": int((read.executions["language"] == "patch").sum()),
        "recall": _share(len(matched), len(labels)),
        "precision": _share(len(matched), number),
        "sessions": _share(_together(matched), len(matched)),
        "success": _share(sum(matched[_key(label)].stated == label.ok for label in told), len(told)),
        "hidden_by_pipe": sum("exit_code_hidden_by_pipe" in flags for flags in read.executions["flags"]),
        "repairs": len(pairs),
        "repairs_recall": _share(len(repaired), len(pairs)),
    }


def read_labels(folder: Path) -> Iterator[Label]:
    """The labels of one source, in their order."""
    with gzip.open(folder / LABELS, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield Label((row["file"], str(row["session"])), row["n"], row["code_sha256"], row["ok"], row["repaired_by"])


def _of_log(label: Label, logs: Mapping[str, Any]) -> Label:
    """The label, by the folder where its file is one of a session's events: these are one log."""
    file, session = label.session
    folder = file.rpartition("/")[0]
    return replace(label, session=(folder, session)) if file not in logs and folder in logs else label


def codes_in_logs(folder: Path, now: datetime) -> tuple[dict[str, list[tuple[str, str]]], Counter[tuple[str, str]]]:
    """Codes as they stand in the logs, since the tables are redacted, as SHA-256.

    Returns:
        file -> (execution id, code) in the order of the log, and how often a code that did not run stands in a file.
    """
    from capibara_assets.executions.formats.agents.readers import find_reader
    from capibara_assets.executions.formats.agents.runs import LogDocument, NotRun
    from capibara_assets.executions.formats.detection import read_parts
    from capibara_assets.executions.formats.envelope_reader import Recorded
    from capibara_assets.executions.formats.lines import LineReader
    from capibara_assets.executions.formats.opening import source_lines
    from capibara_assets.executions.ingest.file_plan import log_files

    ran: dict[str, list[tuple[str, str]]] = defaultdict(list)
    not_run: Counter[tuple[str, str]] = Counter()
    for name, path in sorted(log_files(folder, None).items()):
        file = f"raw/{name}"
        for line in source_lines(LineReader(path)):
            for part in read_parts(line.data, now):
                if isinstance(one := part.content, Recorded):
                    ran[file].append((one.execution_id, _digest(one.code)))
            document = LogDocument(line.data)
            reader = find_reader(document)
            for entry in reader.entries(document) if reader else ():
                if isinstance(entry, NotRun) and entry.code is not None:
                    not_run[file, _digest(entry.code)] += 1
    return ran, not_run


def match(labels: list[Label], found: dict[str, list[Found]]) -> dict[tuple[Session, int], Found]:
    """Pairs labels with executions of the same file and code, each once, those of a session with one sandbox's first.

    Sandboxes and the labels' sessions have names of their own, and some labels name a session after its file: a
    session's own sandbox is the one that holds most of its codes.
    """
    by_session: dict[Session, list[Label]] = defaultdict(list)
    for label in labels:
        by_session[label.session].append(label)
    left: dict[str, list[Found]] = {file: list(executions) for file, executions in found.items()}
    matched: dict[tuple[Session, int], Found] = {}
    for own_sandbox in (True, False):
        for session, own in sorted(by_session.items(), key=lambda it: (not _is_named_alike(it[0], found), -len(it[1]))):
            open_ones = left.get(session[0], [])
            home = _home(session, own, open_ones) if own_sandbox else None
            by_code: dict[str, list[Label]] = defaultdict(list)
            for label in own:
                if _key(label) not in matched:
                    by_code[label.code].append(label)
            for code, alike in by_code.items():
                fits = [one for one in open_ones if one.code == code and home in (None, one.sandbox_id)]
                for label, one in zip(_likeliest(alike, len(fits)), fits, strict=False):
                    matched[_key(label)] = one
                    open_ones.remove(one)
    return matched


def _is_named_alike(session: Session, found: dict[str, list[Found]]) -> bool:
    return any(session[1] in one.sandbox_id for one in found.get(session[0], ()))


def _likeliest(labels: list[Label], count: int) -> list[Label]:
    """So many labels of one code, in order: those without a verdict, which may not have run, yield."""
    surplus = max(0, len(labels) - count)
    silent = [label for label in labels if label.ok is None][:surplus]
    return [label for label in labels if label not in silent]


def _home(session: Session, own: list[Label], executions: list[Found]) -> str:
    """The sandbox that holds most of a session's codes; of several the one that is named like it."""
    held: dict[str, Counter[str]] = defaultdict(Counter)
    for one in executions:
        held[one.sandbox_id][one.code] += 1
    wanted = Counter(label.code for label in own)
    ranked = sorted(held, key=lambda name: ((held[name] & wanted).total(), session[1] in name, name))
    return ranked[-1] if ranked else ""


def _together(matched: dict[tuple[Session, int], Found]) -> int:
    """How many of the executions found stand in the sandbox that holds most of their label's session."""
    sandboxes: dict[Session, Counter[str]] = defaultdict(Counter)
    for (session, _), one in matched.items():
        sandboxes[session][one.sandbox_id] += 1
    return sum(max(held.values()) for held in sandboxes.values())


def _is_repaired(
    label: Label, matched: dict[tuple[Session, int], Found], by_failing: dict[str, str], codes: dict[str, str]
) -> bool:
    """Whether the failure is paired with the labelled execution, or with another of the same code."""
    failing = matched.get(_key(label))
    fixed = matched.get((label.session, label.repaired_by)) if label.repaired_by is not None else None
    if failing is None or fixed is None or failing.execution_id not in by_failing:
        return False
    return codes[by_failing[failing.execution_id]] == fixed.code


def _is_named(label: Label, not_run: Counter[tuple[str, str]]) -> bool:
    """Whether a label without a verdict is a call that the reader says did not run; each such call counts once."""
    place = label.session[0], label.code
    if label.ok is not None or not not_run[place]:
        return False
    not_run[place] -= 1
    return True


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()


def _stated(row: dict[str, Any]) -> bool | None:
    if row["outcome"] == "unknown":
        return True if "exit_code_hidden_by_pipe" in row["flags"] else None
    return bool(row["outcome"] == "ok")


def _key(label: Label) -> tuple[Session, int]:
    return label.session, label.n


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
