"""Searches files of any form, objects and databases for secrets: values that the readers of logs redacted, and shapes.

Where no reader passed (captured output, notes, copies), a value that no log held is told by its provider's shape.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import sqlalchemy as sql

from capibara_assets.errors import InputError
from capibara_assets.executions.secrets.rules import Secret
from capibara_assets.executions.secrets.seen import SeenSecrets
from capibara_assets.executions.secrets.shaped import find_shaped
from capibara_assets.lineage.checkpoints import has_checkpoints, searched_checkpoints, title
from capibara_assets.lineage.history import objects, stored_texts, text_columns
from capibara_assets.lineage.traces import readings
from capibara_assets.processes.progress import tracked
from capibara_assets.storage.foreign import read_document
from capibara_assets.storage.mirror import file_system
from capibara_assets.storage.store import ArtifactStore

NOTE = "(removed: a secret)"
_AT_ONCE = 1000  # texts of a database


@dataclass(frozen=True)
class SecretPlace:
    """A file, object or database with secrets. They are not shown and not kept, only used to rewrite it."""

    place: str
    kinds: tuple[str, ...]
    values: frozenset[str] = field(repr=False)


def require_unshaped(files: Iterable[Path]) -> None:
    """Check JSON files of strangers before they are published: no export passes that finds such a value later.

    Raises:
        InputError: one holds a value with a provider's precise shape, not shown here; or is too large for a document.
    """
    for file in files:
        if file.suffix == ".json" and file.is_file():
            kinds = sorted({secret.kind for secret in find_shaped(read_document(file).decode("utf-8", "replace"))})
            if kinds:
                raise InputError(
                    f"{file} holds what has the shape of a secret ({', '.join(kinds)}), which no export would pass: "
                    "whoever wrote the file has to take it out, and a round that it was signed for has to be repeated"
                )


def scan(folders: Collection[Path], seen: SeenSecrets, skip: Sequence[Path] = ()) -> list[SecretPlace]:
    """The files below some folders that hold a secret: raw, compressed, as table, or in a database.

    Args:
        skip: folders and files that are left out.
    """
    files = sorted({path for folder in folders for path in folder.rglob("*") if path.is_file()})
    wanted = [path for path in files if not any(path.is_relative_to(other) for other in skip)]
    return [place for path in tracked(wanted, "files") if (place := _of_file(path, seen, str(path))) is not None]


def scan_objects(location: str, seen: SeenSecrets) -> list[SecretPlace]:
    """As `scan`, for a folder on an object store: one object after the other is fetched."""
    system, _ = file_system(location)
    places = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "object"
        for name in objects(location):
            system.get_file(name, str(path))
            places.append(_of_file(path, seen, name))
    return [one for one in places if one is not None]


def scan_database(name: str, connection: sql.Connection, seen: SeenSecrets) -> list[SecretPlace]:
    """As `scan`, for a database on a server, which is called `name`."""
    places = [
        _of_texts(_together(text for _, text in stored_texts(connection, column)), seen, f"{name}: {column}")
        for column in text_columns(connection)
    ]
    return [one for one in places if one is not None]


def scan_checkpoints(store: ArtifactStore, seen: SeenSecrets) -> list[str]:
    """Titles of the checkpoints with a secret in their files or description."""
    if not has_checkpoints(store):
        return []
    titles = searched_checkpoints(
        store, lambda text: bool(_secrets(text, seen)), lambda path: _of_file(path, seen, path.name) is not None
    )
    return [title(one) for one in titles]


def _together(texts: Iterator[str]) -> Iterator[str]:
    """The texts, many in one: a search costs more to begin than to carry on."""
    while some := list(islice(texts, _AT_ONCE)):
        yield "\n".join(some)


def _of_file(path: Path, seen: SeenSecrets, name: str) -> SecretPlace | None:
    return _of_texts((data.decode("utf-8", "ignore") for data in readings(path)), seen, name)


def _of_texts(texts: Iterable[str], seen: SeenSecrets, name: str) -> SecretPlace | None:
    values: dict[str, str] = {}
    for text in texts:
        values |= {text[secret.start : secret.end]: secret.kind for secret in _secrets(text, seen)}
    return SecretPlace(name, tuple(sorted(set(values.values()))), frozenset(values)) if values else None


def _secrets(text: str, seen: SeenSecrets) -> list[Secret]:
    redacted = seen.find(text) if seen.holding(pl.Series([text]))[0] else []
    return [*find_shaped(text), *redacted]  # of one value under two kinds the session's stays
