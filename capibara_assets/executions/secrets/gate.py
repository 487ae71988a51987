"""The last gate: no table and no document is published with a value that the readers of logs redacted elsewhere."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import polars as pl

from capibara_assets.executions.secrets.seen import SeenSecrets

_NO_TEXT = ("_id", "_ids", "digest")  # ends of the names of columns that hold names and digests


def secrets_in_frame(frame: pl.DataFrame, seen: SeenSecrets) -> Iterator[str]:
    """A line for each column of text that holds such a value: the first row's key and the kinds; never the value."""
    for column in frame.get_columns():
        texts = column.list.join("\n") if column.dtype == pl.List(pl.String) else column
        if texts.dtype != pl.String or column.name.endswith(_NO_TEXT):
            continue
        places = seen.holding(texts).arg_true()
        if len(places):
            kinds = sorted({secret.kind for place in places for secret in seen.find(texts[place])})
            first = f"{frame.columns[0]} {frame.item(places[0], 0)}"
            yield f"{column.name} of {len(places)} row(s), such as {first}, holds {', '.join(kinds)}"


def secrets_in_document(document: Any, seen: SeenSecrets) -> Iterator[str]:
    """As `secrets_in_frame`, for what becomes JSON."""
    kinds = sorted({s.kind for s in seen.find(orjson.dumps(document, default=str, option=_ANY_KEY).decode("utf-8"))})
    if kinds:
        yield f"it holds {', '.join(kinds)}"


def held_back(tables: Mapping[str, Any], documents: Mapping[str, Any], seen: SeenSecrets) -> list[str]:
    """What must not be published, a line each.

    Args:
        tables: name -> frame; tables in files come from the readers themselves.
    """
    if not seen:
        return []
    frames = [(name, frame) for name, frame in tables.items() if isinstance(frame, pl.DataFrame)]
    return [
        *(f"{name}: {line}" for name, frame in frames for line in secrets_in_frame(frame, seen)),
        *(f"{name}: {line}" for name, one in documents.items() for line in secrets_in_document(one, seen)),
    ]


_ANY_KEY = orjson.OPT_NON_STR_KEYS
