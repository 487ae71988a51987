"""The ingest ledger: what earlier runs read, so that a run reads only new data. Generations, and a pointer to the last.

A generation holds the tables of one ingest run, the position of every line that holds an execution, and the state of
each file. It is written beside the others and renamed, and the pointer moves last, so a crash leaves the previous
generation in force. A lock admits one run at a time. Who reads a generation holds it: all others but the last go with
the next run. Without a ledger everything is read again, with the same result.
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.errors import IntegrityError
from capibara_assets.executions.ingest.duplicates import KNOWN
from capibara_assets.executions.ingest.intake import FileRead
from capibara_assets.executions.secrets.redact import digest_key, keyed_digest
from capibara_assets.executions.secrets.seen import SEEN, SeenSecrets
from capibara_assets.storage.foreign import read_stored, stored_table
from capibara_assets.storage.jsonfiles import (
    delete_durable,
    naming,
    parse_json,
    sync_folder,
    write_durable,
    write_json_atomic,
)
from capibara_assets.storage.locks import folder_locked, locked

EXECUTIONS, QUARANTINE, FILES, INDEX = "executions.parquet", "quarantine.parquet", "files.parquet", "index.parquet"
SEEN_SECRETS = "seen.parquet"
SUMMARY = "summary.json"
LEDGERS = ("e2b_logs", "_")
"""Folders, below the work folder, that hold the ledgers of a deployment."""
_STATE = "state.json"
_LARGEST_STATE = 4 << 30  # bytes: it names every file that was read
_INDEX_ROWS = 100_000
_POINTER = "current.json"
# Raise it with every change of what a line becomes: test_reading_version.py says when.
READING_VERSION = "44"


@dataclass(frozen=True)
class LedgerGeneration:
    """The immutable result of one ingest run."""

    folder: Path
    files: dict[str, FileRead]  # by name
    names: list[str]  # of every file the index points to, in the order of their numbers
    current: bool  # made by this READING_VERSION, under this key
    forgotten: str = ""  # digest of the tombstones that it was made under

    @property
    def executions(self) -> Path:
        return self.folder / EXECUTIONS

    @property
    def quarantine(self) -> Path:
        return self.folder / QUARANTINE

    @property
    def index(self) -> Path:
        return self.folder / INDEX

    def seen(self) -> pl.DataFrame:
        """Keyed digests of the values that were redacted; a generation of an older version has none."""
        path = self.folder / SEEN_SECRETS
        if not self.current or not path.exists():
            return pl.DataFrame(schema=SEEN)
        with ledger_table(path) as table:
            return table.collect()

    def summary(self) -> dict[str, Any]:
        summary: dict[str, Any] = parse_json(read_stored(self.folder / SUMMARY))
        return summary

    def lines(self) -> Iterator[pl.DataFrame]:
        """The rows of the index, in frames of bounded size."""
        with ledger_table(self.index) as scan:
            rows = scan.select(pl.len()).collect().item()
            for start in range(0, rows, _INDEX_ROWS):
                yield scan.slice(start, _INDEX_ROWS).collect()


def ledger_table(path: Path) -> AbstractContextManager[pl.LazyFrame]:
    """A table of a generation, to be read within the block. Raises IntegrityError: it is missing or damaged."""
    return stored_table(path, f"remove {path.parent}: the next run reads the logs again")


def seen_secrets(work: Path) -> SeenSecrets:
    """What the readers of logs redacted, by the ledgers in a work folder."""
    rows = []
    for path in sorted(work.joinpath(*LEDGERS).glob("*")):
        with Ledger(path).reading() as last:
            rows += [] if last is None else [last.seen()]
    return SeenSecrets.of(pl.concat(rows), digest_key()) if rows else SeenSecrets()


def fingerprint() -> str:
    """Identifies how lines are read, redacted and labelled; a generation with another one is read again in full.

    Another key makes other digests, so it makes another reading.
    """
    return hashlib.sha256(f"{keyed_digest(b'ledger')} {READING_VERSION}".encode("ascii")).hexdigest()


class Ledger:
    """The ledger of one folder of logs; `root` is its folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def locked(self) -> Iterator[Path]:
        """Waits for the ledger's lock and holds it; gives a scratch folder that is removed at the end."""
        with locked(self.root / "lock"):
            shutil.rmtree(self.root / "scratch", ignore_errors=True)  # of a run that was killed
            # a fresh name: processes of the killed run may not have noticed its end yet
            scratch = self.root / "scratch" / uuid.uuid4().hex
            scratch.mkdir(parents=True)
            try:
                yield scratch
            finally:
                shutil.rmtree(self.root / "scratch", ignore_errors=True)

    def last(self) -> LedgerGeneration | None:
        """The last generation; None where there is none, or it is damaged."""
        try:
            folder = self._folder()
            state = parse_json(read_stored(folder / _STATE, _LARGEST_STATE))
            if any((folder / file).stat().st_size != size for file, size in state["sizes"].items()):
                return None
            names = pl.read_parquet_schema(folder / INDEX)
            files = [FileRead(**read | {"modified": tuple(read["modified"])}) for read in state["files"]]
        except (OSError, ValueError, KeyError, TypeError, IntegrityError, pl.exceptions.PolarsError):
            return None  # as if nothing had been read: costs time, never a record
        if dict(names) != KNOWN:
            return None
        return LedgerGeneration(
            folder,
            {read.name: read for read in files},
            state["names"],
            state["fingerprint"] == fingerprint(),
            state.get("forgotten", ""),
        )

    @contextmanager
    def reading(self) -> Iterator[LedgerGeneration | None]:
        """The last generation, as `last`, which no run removes before the end of the block."""
        with ExitStack() as held:
            while (generation := self.last()) is not None:
                with suppress(FileNotFoundError):  # removed since: there is a newer one
                    held.enter_context(holding(generation.folder))
                    if (generation.folder / _STATE).exists():
                        break
            yield generation

    def _folder(self) -> Path:
        """The folder that the pointer names. Raises OSError, ValueError, KeyError: there is none, or it is damaged."""
        name: str = parse_json(read_stored(self.root / _POINTER))["generation"]
        return self.root / "generations" / name

    def read_again(self, names: Iterable[str]) -> None:
        """Marks files to be read whole by the next run, changed or not."""
        with self.locked():
            if (base := self.last()) is None:
                return
            state = parse_json(read_stored(base.folder / _STATE, _LARGEST_STATE))
            chosen = set(names)
            for read in state["files"]:
                read["again"] |= read["name"] in chosen
            write_json_atomic(base.folder / _STATE, state)

    def commit(self, tables: Path, files: list[FileRead], names: list[str], forgotten: str = "") -> Path:
        """Makes a folder of finished tables the last generation; returns its new path."""
        sizes = {path.name: path.stat().st_size for path in sorted(tables.iterdir())}
        state = {
            "fingerprint": fingerprint(),
            "files": [vars(read) for read in files],
            "names": names,
            "sizes": sizes,
            "forgotten": forgotten,
        }
        for path in tables.iterdir():
            with naming(path), path.open("rb") as file:
                os.fsync(file.fileno())
        write_durable(tables / _STATE, json.dumps(state).encode("utf-8"))
        sync_folder(tables)
        target = self.root / "generations" / uuid.uuid4().hex
        target.parent.mkdir(exist_ok=True)
        tables.rename(target)
        sync_folder(target.parent)
        write_json_atomic(self.root / _POINTER, {"generation": target.name})
        return target

    def remove_others(self, last: Path) -> None:
        """Removes all generations but the last and those that somebody reads: the next run will. Under the lock."""
        for folder in last.parent.iterdir():
            if folder != last and folder.is_dir():
                _remove_unheld(folder)

    def keep_last_only(self) -> list[Path]:
        """Removes every older generation now, because it may hold forgotten records; returns their folders."""
        with self.locked():
            last = self.last()
            kept = None if last is None else last.folder
            removed = [folder for folder in sorted(self.root.glob("generations/*")) if folder != kept]
            for folder in removed:
                delete_durable(folder)
            return removed


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Holds a generation, together with others that read it. Raises FileNotFoundError: it is gone."""
    with folder_locked(folder, LOCK_SH):
        yield


def _remove_unheld(folder: Path) -> None:
    """Removes a generation, unless somebody reads it."""
    with suppress(FileNotFoundError, BlockingIOError), folder_locked(folder, LOCK_EX | LOCK_NB):
        shutil.rmtree(folder, ignore_errors=True)
