"""Searches files of any form for values that the readers of logs redacted; rewrites Dagster's history without them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from capibara_assets.executions.secrets.seen import SeenSecrets
from capibara_assets.lineage.checkpoints import has_checkpoints, searched_checkpoints, title
from capibara_assets.lineage.history import Traces, databases, scrub_files, scrub_text
from capibara_assets.lineage.traces import readings
from capibara_assets.storage.store import ArtifactStore

NOTE = "(removed: a secret)"


@dataclass(frozen=True)
class SecretFile:
    """A file that holds redacted values. What they are is not shown and not kept, only used to rewrite it."""

    path: Path
    kinds: tuple[str, ...]
    values: frozenset[str] = field(repr=False)


def scan(folders: Collection[Path], seen: SeenSecrets, skip: Sequence[Path] = ()) -> list[SecretFile]:
    """The files below some folders that hold a redacted value: raw, compressed, as table, or in a database.

    Args:
        skip: folders and files that are left out.
    """
    if not seen:
        return []
    files = sorted({path for folder in folders for path in folder.rglob("*") if path.is_file()})
    wanted = (path for path in files if not any(path.is_relative_to(other) for other in skip))
    return [found for path in wanted if (found := _scanned(path, seen)) is not None]


def scan_checkpoints(store: ArtifactStore, seen: SeenSecrets) -> list[str]:
    """Titles of the checkpoints with a redacted value in their files or description."""
    if not seen or not has_checkpoints(store):
        return []
    found = searched_checkpoints(
        store, lambda text: bool(seen.find(text)), lambda path: _scanned(path, seen) is not None
    )
    return [title(one) for one in found]


def _scanned(path: Path, seen: SeenSecrets) -> SecretFile | None:
    values: dict[str, str] = {}
    for data in readings(path):
        text = data.decode("utf-8", "ignore")
        if seen.holding(pl.Series([text]))[0]:
            values |= {text[secret.start : secret.end]: secret.kind for secret in seen.find(text)}
    return SecretFile(path, tuple(sorted(set(values.values()))), frozenset(values)) if values else None


def cleaned(home: Path, found: Sequence[SecretFile]) -> Iterator[Path]:
    """Rewrites what Dagster keeps (`home`: databases, captured output) without the values; yields what it rewrote.

    Raises:
        InputError: another process holds a database open.
    """
    traces = Traces(tuple(sorted({value for one in found for value in one.values})), frozenset(), NOTE)
    yield from scrub_files(home, traces)
    stored = {companion for path in databases(home) for companion in (path, *path.parent.glob(f"{path.name}-*"))}
    for one in found:
        if one.path.is_relative_to(home) and one.path not in stored:
            scrub_text(one.path, traces)
            yield one.path
