"""Damages the fields of a log's JSON, one at a time, for tests that nothing of it makes a reader fail."""

import json
import os
from collections.abc import Iterator
from typing import Any

from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, LogDocument, NotRun, Reader
from capibara_assets.executions.formats.strict_json import Fault

_VALUES: tuple[Any, ...] = (None, 10**400, "x", [3, None, "y"], {"type": 4, "text": []})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each field in a parsed document."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in rows:
        yield (*path, key)
        yield from places(inner, (*path, key))


def damaged(value: Any) -> Iterator[Any]:
    """The document with one field of another type, or gone: one object, changed and mended.

    Each field once, by one type after the other; for each field all types in `make test-all`.
    """
    all_types = os.environ.get("HYPOTHESIS_PROFILE") == "extended"
    for number, path in enumerate(list(places(value))):
        holder = value
        for key in path[:-1]:
            holder = holder[key]
        kept = holder[path[-1]]
        for at, bad in enumerate(_VALUES):
            if all_types or at == number % (len(_VALUES) + 1):
                holder[path[-1]] = bad
                yield value
        if isinstance(holder, dict) and (all_types or number % (len(_VALUES) + 1) == len(_VALUES)):
            del holder[path[-1]]
            yield value
        holder[path[-1]] = kept


def jsonl(*records: Any) -> bytes:
    """Records as JSON lines."""
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def entries(reader: Reader, data: bytes | str) -> list[Entry]:
    """The entries of a document that the reader has to read."""
    document = LogDocument(data.encode() if isinstance(data, str) else data)
    assert any(mark in document.data for mark in reader.marks)
    assert reader.reads(document)
    return list(reader.entries(document))


def runs(reader: Reader, data: bytes | str) -> list[AgentRun]:
    """The runs of a document that the reader has to read."""
    return [entry for entry in entries(reader, data) if isinstance(entry, AgentRun)]


def reads(reader: Reader, data: bytes | str) -> bool:
    """Whether a reader takes a document for one of its own."""
    document = LogDocument(data.encode() if isinstance(data, str) else data)
    return any(mark in document.data for mark in reader.marks) and reader.reads(document)


def survives(reader: Reader, data: bytes) -> None:
    """Reads a damaged document, whether the reader takes it or not, and checks the type of what comes."""
    document = LogDocument(data)
    reader.reads(document)
    for entry in reader.entries(document):
        assert isinstance(entry, AgentRun | Edit | NotRun | Fault)
        if isinstance(entry, AgentRun):
            assert isinstance(entry.code, str) and entry.code
            assert isinstance(entry.output, str) and isinstance(entry.stderr, str) and isinstance(entry.session, str)
            assert entry.success in (None, True, False)
            assert all(isinstance(text, str | None) for text in (entry.task, entry.model, entry.call_id))
            assert isinstance(entry.exit_code, int | None) and isinstance(entry.duration_ms, float | None)
        if isinstance(entry, Edit):
            assert all(isinstance(text, str) for text in entry)
