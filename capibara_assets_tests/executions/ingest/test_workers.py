"""The worker processes of an ingest: one that dies is told with what it did."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
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


def test_a_worker_does_not_outlive_a_parent_that_was_killed() -> None:
    """Also in the middle of a task, when it would not notice that nobody asks any more: here its input stays open."""
    started = (
        "import subprocess, sys; w = subprocess.Popen([sys.executable, '-m', sys.argv[1]]); print(w.pid, flush=True)"
    )
    reading, writing = os.pipe()
    parent = subprocess.Popen(
        [sys.executable, "-c", f"{started}; w.wait()", workers.__name__], stdin=reading, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    status = Path(f"/proc/{worker.pid}/status")
    for _ in range(600):  # as long as it imports
        if int(status.read_text().partition("SigCgt:")[2].split()[0], 16) >> (signal.SIGALRM - 1) & 1:
            break
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    assert not psutil.wait_procs([worker], timeout=10)[1]
    os.close(writing)
