"""Tombstones: forgotten records must not come back, and are recognised by keyed digests that reveal nothing."""

import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field

from capibara_assets.errors import InputError
from capibara_assets.executions.ingest.intake import INDEX, FileRead, keyed, microseconds
from capibara_assets.executions.quality import novelty_text
from capibara_assets.executions.secrets.redact import digest_key, keyed_digest, redacted_names
from capibara_assets.storage.removal import add_tombstone, read_tombstones

if TYPE_CHECKING:
    from capibara_assets.storage.store import ArtifactStore

# also where the JSON is a string inside JSON
_NAMED = re.compile(r'\\*"execution_id\\*"\s*:\s*\\*"([^"\\]+)\\*"')
# a field of a record, or an attribute of a span: {"key": "tenant.id", "value": {"stringValue": "acme"}}
_TENANT = re.compile(
    r'\\*"tenant(?:\.id)?\\*"\s*[:,]\s*(?:\\*"value\\*"\s*:\s*\{\s*\\*"stringValue\\*"\s*:\s*)?\\*"([^"\\]+)\\*"'
)
_NAMES_KEPT = 4096  # names of tenants whose answer a reader keeps


class Tombstone(BaseModel):
    """Digests that recognise a forgotten execution, or all of a tenant's; each is made with CAPIBARA_DIGEST_KEY."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    execution: str | None = Field(default=None, description="Of its id; None where a tenant is named")
    tenant: str | None = Field(default=None, description="Of a tenant's name, whose later records are dropped, too")
    contents: tuple[str, ...] = Field(default=(), description="Of all that it said, as the ledger has it")
    codes: tuple[str, ...] = Field(default=(), description="Of its code, as the ledger has it")
    bodies: tuple[str, ...] = Field(default=(), description="Of sandbox, time and code, whatever the id")
    lines: tuple[str, ...] = Field(default=(), description="Of quarantined bytes that hold parts of it")


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


def tenant_digest(name: str) -> str:
    """Keyed digest of a tenant's name."""
    return _mac(b"tenant\0" + name.encode("utf-8", "surrogatepass"))


def forgotten_tenants(digests: Collection[str]) -> Callable[[str | None], bool]:
    """A function that says whether a tenant, as a line or a table names it, is one of the forgotten ones."""
    if not digests:
        return lambda _: False
    among = frozenset(digests)

    @lru_cache(_NAMES_KEPT)
    def gone(name: str | None) -> bool:
        # tables have a name that is a secret under another one
        return name is not None and any(tenant_digest(one) in among for one in (name, *redacted_names([name]).values()))

    return gone


def tenants_named(text: str) -> set[str]:
    """The tenants that a damaged line names."""
    return set(_TENANT.findall(text))


def as_indexed(row: dict[str, Any]) -> pl.DataFrame:
    """A row of a table as a row of the ledger's index (equal to it where the record held no secrets)."""
    key = digest_key()
    values = {
        "execution_id": row["execution_id"],
        "sandbox_id": row["sandbox_id"],
        "content": keyed(bytes.fromhex(row["record_digest"]), key),
        "timestamp": microseconds(row["timestamp"]),
        "code": keyed(novelty_text(row["language"], row["code"]).encode("utf-8"), key),
    }
    return pl.DataFrame([values | {name: 0 for name in INDEX if name not in values}], schema=INDEX)


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
        every = sorted({_text(one) for one in self.tombstones})
        return hashlib.sha256("\n".join(every).encode("ascii")).hexdigest() if every else ""

    def holds(self, execution_id: str) -> bool:
        """Whether this execution was forgotten."""
        return bool(self) and execution_digest(execution_id) in self._executions

    @cached_property
    def tenants(self) -> frozenset[str]:
        """Digests of the tenants that were forgotten."""
        return frozenset(one.tenant for one in self.tombstones if one.tenant is not None)

    @cached_property
    def holds_tenant(self) -> Callable[[str | None], bool]:
        """Whether the tenant of this name was forgotten."""
        return forgotten_tenants(self.tenants)

    def of_tenants(self, executions: pl.LazyFrame) -> pl.Series:
        """Ids of the executions in a table whose tenant was forgotten."""
        if not self.tenants:
            return pl.Series("execution_id", [], dtype=pl.String)
        names = executions.select(pl.col("tenant").unique()).collect(engine="streaming")["tenant"]
        gone = pl.col("tenant").is_in([name for name in names.drop_nulls() if self.holds_tenant(name)])
        return executions.filter(gone).select("execution_id").collect(engine="streaming")["execution_id"]

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
        """Which rows of the quarantine hold a forgotten execution: by their bytes, or by the id or tenant they name."""
        lines = set(self._all("lines"))
        named = [
            any(map(self.holds, _NAMED.findall(text))) or any(map(self.holds_tenant, tenants_named(text)))
            for text in rows["text"]
        ]
        return rows["digest"].is_in(sorted(lines)) | pl.Series(named, dtype=pl.Boolean)

    @cached_property
    def _executions(self) -> frozenset[str]:
        return frozenset(one.execution for one in self.tombstones if one.execution is not None)

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
            by_text[_text(one)] = one
    return Forgotten(tuple(by_text[text] for text in sorted(by_text)))


def write_tombstones(store: "ArtifactStore", tombstones: Iterable[Tombstone], reason: str) -> None:
    """Adds tombstones to a store, durably; what others add at the same time stays."""
    ordered = sorted(tombstones, key=_text)
    values = [one.model_dump(mode="json", exclude_none=True) for one in ordered]
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


def _text(one: Tombstone) -> str:
    return one.model_dump_json(exclude_none=True)


def _body(sandbox_id: str, moment: int, code: bytes) -> str:
    return _mac(b"body\0" + f"{sandbox_id}\0{moment}\0".encode("utf-8", "surrogatepass") + code)


def _mac(data: bytes) -> str:
    return hmac.digest(digest_key(), data, "sha256").hex()
