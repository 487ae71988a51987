"""Tombstones: forgotten records must not come back, and are recognised by keyed digests that reveal nothing."""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.errors import InputError
from capibara_assets.executions.secrets.redact import digest_key, keyed_digest
from capibara_assets.storage.removal import add_tombstone, read_tombstones

if TYPE_CHECKING:
    from capibara_assets.executions.ingest.intake import FileRead
    from capibara_assets.storage.store import ArtifactStore

_NAMED = re.compile(r'\\*"execution_id\\*"\s*:\s*\\*"([^"\\]+)\\*"')  # also where the JSON is a string inside JSON


class Tombstone(BaseModel):
    """Digests that recognise one forgotten execution; every value is made with CAPIBARA_DIGEST_KEY."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    execution: str = Field(description="Of its id")
    contents: tuple[str, ...] = Field((), description="Of all that it said, before redaction, as the ledger has it")
    codes: tuple[str, ...] = Field((), description="Of its code, as the ledger has it")
    bodies: tuple[str, ...] = Field((), description="Of sandbox, time and code: the same record under another id")
    lines: tuple[str, ...] = Field((), description="Of quarantined bytes that hold parts of it")


def tombstone(execution_id: str, places: pl.DataFrame, lines: Iterable[str] = ()) -> Tombstone:
    """The tombstone of an execution.

    Args:
        places: its lines as the ledger's index has them (intake.INDEX); empty where the ledger is lost.
        lines: digests of quarantined bytes that hold parts of it.
    """
    columns = ("sandbox_id", "timestamp", "code")
    bodies = {_body(*row) for row in places.select(columns).unique().iter_rows()} if places.height else set()
    return Tombstone(
        execution=execution_digest(execution_id),
        contents=tuple(sorted({value.hex() for value in places["content"]} if places.height else ())),
        codes=tuple(sorted({value.hex() for value in places["code"]} if places.height else ())),
        bodies=tuple(sorted(bodies)),
        lines=tuple(sorted(set(lines))),
    )


def execution_digest(execution_id: str) -> str:
    """Keyed digest of an execution's id."""
    return _mac(b"execution\0" + execution_id.encode("utf-8", "surrogatepass"))


def key_check() -> str:
    """A digest that identifies the key under which tombstones were written, without revealing it."""
    return keyed_digest(b"tombstones")


def require_key(written_under: str) -> None:
    """Refuses tombstones of another key, which would recognise nothing.

    Raises:
        InputError: CAPIBARA_DIGEST_KEY is not the one that the tombstones were written under.
    """
    if written_under != key_check():
        raise InputError(
            "the store's tombstones were written under another CAPIBARA_DIGEST_KEY: forgotten records would not be "
            "recognised and come back; set the key that `capibara forget` ran with"
        )


@dataclass(frozen=True)
class Forgotten:
    """The set of all tombstones, which the ingest matches lines against. Falsy when it is empty."""

    tombstones: tuple[Tombstone, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tombstones)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the whole set, whatever its order; empty for an empty set."""
        every = sorted({one.model_dump_json() for one in self.tombstones})
        return hashlib.sha256("\n".join(every).encode("ascii")).hexdigest() if every else ""

    def holds(self, execution_id: str) -> bool:
        """Whether this execution was forgotten."""
        return bool(self) and execution_digest(execution_id) in self._executions

    def among(self, execution_ids: Iterable[str]) -> list[str]:
        """Those of the ids that were forgotten, sorted."""
        return sorted({name for name in execution_ids if self.holds(name)})

    def of_lines(self, rows: pl.DataFrame) -> pl.Series:
        """Which rows of the ledger's index (intake.INDEX) are forgotten: by id, by content, or under another id."""
        contents = pl.Series([bytes.fromhex(value) for value in self._all("contents")], dtype=pl.Binary)
        codes = pl.Series([bytes.fromhex(value) for value in self._all("codes")], dtype=pl.Binary)
        matching = rows["content"].is_in(contents.implode()) | pl.Series(
            [self.holds(name) for name in rows["execution_id"]], dtype=pl.Boolean
        )
        known_code = rows["code"].is_in(codes.implode())
        if not known_code.any():
            return matching
        columns = rows.select("sandbox_id", "timestamp", "code").iter_rows()
        bodies = set(self._all("bodies"))
        pairs = zip(known_code, columns, strict=True)
        return matching | pl.Series([bool(known) and _body(*row) in bodies for known, row in pairs], dtype=pl.Boolean)

    def of_quarantine(self, rows: pl.DataFrame) -> pl.Series:
        """Which rows of the quarantine hold a forgotten execution: by their bytes, or by the id that they name."""
        lines = set(self._all("lines"))
        named = [any(self.holds(name) for name in _NAMED.findall(text)) for text in rows["text"]]
        return rows["digest"].is_in(sorted(lines)) | pl.Series(named, dtype=pl.Boolean)

    @cached_property
    def _executions(self) -> frozenset[str]:
        return frozenset(one.execution for one in self.tombstones)

    def _all(self, name: str) -> list[str]:
        return sorted({value for one in self.tombstones for value in getattr(one, name)})


NOTHING = Forgotten()


def read_forgotten(store: "ArtifactStore") -> Forgotten:
    """The tombstones of a store.

    Raises:
        InputError: they were written under another key.
        IntegrityError: a file of them is damaged.
    """
    by_text: dict[str, Tombstone] = {}
    for document in read_tombstones(store):
        require_key(document["key"])
        for value in document["tombstones"]:
            one = Tombstone.model_validate(value)
            by_text[one.model_dump_json()] = one
    return Forgotten(tuple(by_text[text] for text in sorted(by_text)))


def write_tombstones(store: "ArtifactStore", tombstones: Iterable[Tombstone], reason: str) -> None:
    """Adds tombstones to a store, durably; what others add at the same time stays."""
    ordered = sorted(tombstones, key=lambda one: one.model_dump_json())
    values = [one.model_dump(mode="json") for one in ordered]
    add_tombstone(store, {"key": key_check(), "reason": reason, "tombstones": values})


def count_forgotten(reads: dict[str, "FileRead"], lines: Iterable[tuple[str, int]]) -> int:
    """Adds forgotten lines (file, line) to the state of their files, and returns how many there were.

    A line behind those that a file's state stands for is read again by the next ingest run, and counted apart.
    """
    total = 0
    for name, line in lines:
        total += 1
        if (read := reads.get(name)) is None:
            continue
        if line > read.lines:
            read.last_forgotten += 1
        else:
            read.forgotten += 1
    return total


def _body(sandbox_id: str, moment: int, code: bytes) -> str:
    return _mac(b"body\0" + f"{sandbox_id}\0{moment}\0".encode("utf-8", "surrogatepass") + code)


def _mac(data: bytes) -> str:
    return hmac.digest(digest_key(), data, "sha256").hex()
