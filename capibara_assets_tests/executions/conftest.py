"""The real logs, read once for every test of this folder, and small envelopes to build records from."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.experience.measure import read_labels
from capibara_assets.executions.formats.envelope_reader import Recorded, read_line
from capibara_assets.executions.ingest.ingest import Ingest, read_experience

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def envelope(code: str = "print(1)", **changes: Any) -> dict[str, Any]:
    """One line of a log as an object: the recorder's envelope round the Python SDK's shape."""
    record = {
        "sandbox_id": "sandbox",
        "execution_id": "e1",
        "timestamp": "2026-10-05T00:15:13.964Z",
        "template_id": "code-interpreter-v1",
        "language": "python",
        "code": code,
        "execution": {"results": [], "logs": json.dumps({"stdout": [], "stderr": []}), "error": None},
        "execution_count": 1,
        "duration_ms": 5.7,
        "timeout_s": 10,
    }
    return record | changes


def executed(
    stdout: str = "", stderr: str = "", text: str | None = None, error: tuple[str, str, str] | None = None
) -> dict[str, Any]:
    """The `execution` field of an envelope."""
    named = None if error is None else json.dumps(dict(zip(("name", "value", "traceback"), error, strict=True)))
    logs = {"stdout": [stdout] if stdout else [], "stderr": [stderr] if stderr else []}
    return {"results": [] if text is None else [{"text": text}], "logs": json.dumps(logs), "error": named}


def line(record: Any) -> bytes:
    return json.dumps(record).encode()


def recorded(code: str = "print(1)", **changes: Any) -> Recorded:
    return read_line(line(envelope(code, **changes)), NOW)


@pytest.fixture
def ingest_lines(tmp_path: Path) -> Callable[..., Ingest]:
    """Writes records as one log and reads it."""

    def read(*records: dict[str, Any], name: str = "log.jsonl") -> Ingest:
        (tmp_path / name).write_bytes(b"".join(line(record) + b"\n" for record in records))
        return read_experience(tmp_path, now=NOW)

    return read


@pytest.fixture(
    scope="session",
    params=[pytest.param(3, id="a_third"), pytest.param(1, marks=pytest.mark.extended, id="whole")],
)
def real(request: pytest.FixtureRequest, shared_data: Path) -> Ingest:
    """Every third log of the shared collection of real executions; all of them in `make test-all`."""
    folder = shared_data / "experience"
    return read_experience(folder, now=NOW, files=sorted((folder / "e2b_logs").iterdir())[:: request.param])


def labels_of(real: Ingest, shared_data: Path) -> list[dict[str, Any]]:
    """The labels of the executions that were read."""
    read = set(real.executions["execution_id"])
    labels = read_labels(shared_data / "experience" / "labels.jsonl.gz")
    return [label for label in labels if label["execution_id"] in read]
