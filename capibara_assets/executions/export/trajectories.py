"""Sessions of the table of executions as trajectories: which are written, and what a format has no place for."""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.executions.formats.agents.told import LISTS, NUMBERS, STREAMS, TEXTS
from capibara_assets.executions.formats.envelope_reader import ESTIMATED, UNDATED
from capibara_assets.executions.schema import PATCH
from capibara_assets.storage.jsonfiles import write_bytes_atomic

Row = Mapping[str, Any]  # one Execution as a dictionary
_NOT_IN_A_NAME = re.compile(r"[^\w.-]+")
_OF_THE_TIME = frozenset({UNDATED, ESTIMATED})


@dataclass
class Lacks:
    """Fields of executions that a format's own fields do not tell, each with the number of executions."""

    beside: Counter[str] = field(default_factory=Counter)  # told in the format's place for fields of one's own
    lost: Counter[str] = field(default_factory=Counter)  # not told at all

    def said(self, name: str, where: str) -> str:
        """One sentence on a format called `name` whose own fields are called `where`."""
        sentence = f"{name} has no place for {_listed(self.beside)}: told in `{where}`" if self.beside else ""
        lost = f"not told: {_listed(self.lost)}" if self.lost else ""
        return "; ".join(part for part in (sentence, lost) if part) or f"{name} tells all of it"


Session = tuple[str, list[Row]]  # name of the sandbox, and its executions in order
Trajectory = Callable[[str, Sequence[Row], Lacks], dict[str, Any]]
"""Makes a session (its name, its executions in order) one JSON object of a format."""


def sessions_of(
    executions: pl.DataFrame, domains: Collection[Domain] | None = None, names: Collection[str] | None = None
) -> Iterator[Session]:
    """(sandbox, its executions in order), by name: whole sessions, since code stands on what ran before it.

    Args:
        executions: a table Execution.
        domains: only sessions with an execution of one of these.
        names: only these sandboxes.

    Raises:
        InputError: a name that no sandbox has.
    """
    chosen = executions
    if names is not None:
        if unknown := sorted(set(names) - set(executions["sandbox_id"])):
            raise InputError(f"no session {', '.join(unknown)}: `sandbox_id` of the table of executions names them")
        chosen = chosen.filter(pl.col("sandbox_id").is_in(list(names)))
    if domains is not None:
        ours = chosen.filter(
            pl.col("domains").list.set_intersection(pl.lit([str(one) for one in domains])).list.len() > 0
        )
        chosen = chosen.filter(pl.col("sandbox_id").is_in(ours["sandbox_id"].unique().to_list()))
    ordered = chosen.sort("sandbox_id", "timestamp", "execution_id")
    for (sandbox,), rows in ordered.group_by(["sandbox_id"], maintain_order=True):
        yield str(sandbox), list(rows.iter_rows(named=True))


@contextmanager
def empty_unless_whole(folder: Path) -> Iterator[None]:
    """What is written to a folder that was empty goes again where the writing fails, so that it can be repeated."""
    try:
        yield
    except BaseException:
        for file in folder.iterdir() if folder.is_dir() else ():
            file.unlink(missing_ok=True)
        raise


def write_files(sessions: Iterable[Session], folder: Path, made: Trajectory, lacks: Lacks) -> tuple[int, int]:
    """Write one JSON file per session; returns the numbers of sessions and executions."""
    count = executions = 0
    for name, rows in sessions:
        text = json.dumps(made(name, rows, lacks), ensure_ascii=False, indent=1)
        write_bytes_atomic(folder / f"{file_name(name)}.json", text.encode("utf-8"))
        count, executions = count + 1, executions + len(rows)
    return count, executions


def write_lines(sessions: Iterable[Session], file: Path, made: Trajectory, lacks: Lacks) -> tuple[int, int]:
    """Write one file of JSON lines, a session each; returns the numbers of sessions and executions."""
    count = executions = 0
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.part")
    with unfinished.open("w", encoding="utf-8", newline="\n") as lines:
        for name, rows in sessions:
            lines.write(json.dumps(made(name, rows, lacks), ensure_ascii=False) + "\n")
            count, executions = count + 1, executions + len(rows)
    unfinished.replace(file)
    return count, executions


def file_name(session: str) -> str:
    """A file name for a session, another one for each."""
    plain = _NOT_IN_A_NAME.sub("-", session).strip(".-")[:80]
    return plain if plain == session else f"{plain}-{sha256(session.encode()).hexdigest()[:12]}"


def shown(row: Row) -> str:
    """All that an execution printed, as an agent sees it: both streams, the result and the error, each on new lines."""
    said = "\n".join((row["stdout"], row["stderr"]))
    error = row["traceback"] or ": ".join(part for part in (row["error_name"], row["error_value"]) if part)
    parts = [row["stdout"], row["stderr"], row["result_text"], None if error in said else error]
    text = ""
    for part in parts:
        text += f"\n{part}" if part and text and not text.endswith("\n") else part or ""
    return text


def beside(row: Row, content: str, lacks: Lacks) -> dict[str, Any]:
    """The fields of an execution that no format of agents' logs has a place for, and that a reader cannot conclude."""
    told: dict[str, Any] = {"outcome": row["outcome"]}
    for name in (*TEXTS, *NUMBERS):
        if row[name] is not None:
            told[name] = row[name]
    if row["outcome"] in ("error", "timeout"):
        told |= {name: row[name] for name in ("error_name", "error_value", "traceback")}
    if row["stdout"] != content or "\x1b" in content:
        told |= {name: row[name] for name in STREAMS}
    flags = [flag for flag in row["flags"] if flag not in _OF_THE_TIME]
    told |= {name: value for name, value in zip(LISTS, (row["bullet_ids"], flags), strict=True) if value}
    lacks.beside.update(name for name, value in told.items() if value)
    return told


def edited(row: Row, lacks: Lacks) -> tuple[str, str] | None:
    """Path and text of an execution that is an edit by a tool; None: it is code that ran."""
    path, line, text = row["code"].partition("\n")
    if row["language"] != PATCH or not line or row["outcome"] != "unknown" or shown(row):
        return None
    lacks.lost.update(name for name in (*TEXTS, *NUMBERS, "bullet_ids") if row[name])
    return path, text


def dated(row: Row) -> str | None:
    """The execution's time where its log told one."""
    return None if _OF_THE_TIME & set(row["flags"]) else row["timestamp"].isoformat()


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
