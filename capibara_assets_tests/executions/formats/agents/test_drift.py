"""Real logs of agents as a later version, another tool or another system would have written them: the same is read."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets_tests.executions.conftest import NOW

pytestmark = pytest.mark.extended

Change = Callable[[dict[str, Any]], dict[str, Any]]
FILES = 3  # of each source, the smallest
AS_ONE_OBJECT = {"intercode"}  # its file is an object of sessions by number: another key would be another session


def rewritten(change: Change) -> Callable[[bytes], bytes]:
    """Every JSON object changed, in documents and in JSON lines."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return change({key: walk(inner) for key, inner in value.items()})
        return [walk(inner) for inner in value] if isinstance(value, list) else value

    def write(data: bytes) -> bytes:
        try:
            return json.dumps(walk(json.loads(data)), ensure_ascii=False).encode()
        except ValueError:
            pass
        try:
            lines = [json.loads(line) for line in data.splitlines() if line.strip()]
        except ValueError:
            return data  # Markdown, YAML
        return "".join(json.dumps(walk(line)) + "\n" for line in lines).encode()

    return write


def unknown_fields(value: dict[str, Any]) -> dict[str, Any]:
    """A field that nobody knows in each object of a type or role: those are records, not tables by name."""
    return value | ({"x_later": {"a": [1, None]}} if {"type", "role", "kind"} & value.keys() else {})


def unknown_events(data: bytes) -> bytes:
    """A record of an unknown type after every third line of typed JSON lines."""
    lines = data.splitlines(keepends=True)
    try:
        typed = [line.strip() and "type" in json.loads(line) for line in lines]
    except (ValueError, TypeError):
        return data
    event = b'{"type": "telemetry-v9", "payload": {"n": 1}, "uuid": "u1"}\n'
    return b"".join(line + event * bool(is_typed and not number % 3) for number, (line, is_typed)
                    in enumerate(zip(lines, typed, strict=True)))  # fmt: skip


DRIFTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "unknown fields": (rewritten(unknown_fields), ""),
    "another order of keys": (rewritten(lambda value: dict(sorted(value.items(), reverse=True))), ""),
    "no nulls": (rewritten(lambda value: {key: inner for key, inner in value.items() if inner is not None}), ""),
    "unknown events": (unknown_events, ""),
    "line ends of Windows": (lambda data: data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"), ""),
    "a byte order mark": (lambda data: b"\xef\xbb\xbf" + data, ""),
    "compressed": (gzip.compress, ".gz"),
}


def read(folder: Path) -> Counter[tuple[str, str]]:
    """Code and outcome of every execution."""
    executions = read_experience(folder, now=NOW).executions
    return Counter(executions.select("code", "outcome").iter_rows())


@pytest.fixture(scope="module")
def sources(shared_data: Path) -> dict[str, list[Path]]:
    found = {}
    for source in sorted(path for path in (shared_data / "agents").iterdir() if path.is_dir()):
        files = [path for path in (source / "raw").rglob("*") if path.is_file()]
        found[source.name] = sorted(files, key=lambda path: path.stat().st_size)[:FILES]
    return found


@pytest.mark.parametrize("drift", DRIFTS)
def test_the_same_executions_are_read(sources: dict[str, list[Path]], tmp_path: Path, drift: str) -> None:
    change, suffix = DRIFTS[drift]
    total, changed = 0, 0
    for name, files in sources.items():
        if drift == "unknown fields" and name in AS_ONE_OBJECT:
            continue
        for folder in ("plain", "drifted"):
            (tmp_path / folder / name).mkdir(parents=True)
        for file in files:
            data = file.read_bytes()
            (tmp_path / "plain" / name / file.name).write_bytes(data)
            (tmp_path / "drifted" / name / (file.name + suffix)).write_bytes(change(data))
            changed += change(data) != data
        expected = read(tmp_path / "plain" / name)
        assert read(tmp_path / "drifted" / name) == expected, name
        total += expected.total()
    assert total > 100 and changed > 10, "too little was read: the test proves nothing"
