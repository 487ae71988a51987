"""The worker processes of an ingest: one that dies is told with what it did."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.executions.ingest import workers
from capibara_assets_tests.executions.ingest.test_ledger import numbers, record, run_ingest


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "logs"
    folder.mkdir()
    for at, name in enumerate("abcdef"):
        (folder / f"{name}.jsonl").write_bytes(b"".join(record(i) for i in range(at * 40, at * 40 + 40)))
    yield folder


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("read", r"'read .*/logs/[a-f]\.jsonl'"),
        pytest.param("finish", r"'finish \d+'", marks=pytest.mark.extended),
    ],
)
def test_a_worker_that_dies_ends_the_run_with_its_part_named_and_nothing_is_lost(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, named: str
) -> None:
    ask, killed = workers._ask, list[int]()

    def kill_and_ask(process: "subprocess.Popen[bytes]", asked: str, value: Any) -> Any:
        if asked == kind and not killed:
            killed.append(process.pid)
            os.kill(process.pid, signal.SIGKILL)
        return ask(process, asked, value)

    monkeypatch.setattr(workers, "_ask", kill_and_ask)
    with pytest.raises(RuntimeError, match=rf"a worker of the ingest ended \(exit code -9\) at {named}"):
        run_ingest(logs, tmp_path / "ledger", processes=2)
    assert killed and not Path(f"/proc/{killed[0]}").exists()
    _, executions = run_ingest(logs, tmp_path / "ledger", processes=2)
    assert numbers(executions) == list(range(240))
