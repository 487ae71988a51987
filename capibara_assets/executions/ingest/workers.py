"""The worker processes of an ingest run: this process, and others that answer tasks over pipes, one JSON line each.

This process works while the others start. They are started here rather than by `concurrent.futures`, so that they start
the same way from a notebook, a script without a main guard (where each of its start methods breaks the pool) and a
Dagster run, inherit no threads, can be told to flush one by one, and end when the process that started them ends,
however it does. A worker that dies ends the run, which has then committed nothing.
"""

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from capibara_assets.errors import InputError
from capibara_assets.executions.ingest.forgotten import forgotten_tenants
from capibara_assets.executions.ingest.intake import FileRead, FileTask, Intake
from capibara_assets.executions.ingest.sandbox_rows import OF_A_BUCKET, write_sandbox_rows
from capibara_assets.executions.ingest.spill import Spill, drop_files
from capibara_assets.executions.parsing import rare_collections
from capibara_assets.processes.fork_servers import end_when_orphaned


@dataclass(frozen=True)
class WorkerSetup:
    """Settings that every process of an ingest run needs."""

    folder: str  # of the spill
    key: str
    now: str
    buckets: int
    indexes: int
    labelled: bool
    also: tuple[str, ...]  # personal data that is redacted
    base: str | None  # the last table of executions
    gone: tuple[str, ...] = ()  # digests of the tenants that were forgotten


class IngestWorker:
    """Runs tasks in this process.

    Args:
        name: of the files that it writes.
        out: the folder for them; None: the spill itself.
    """

    def __init__(self, setup: WorkerSetup, name: str, out: Path | None = None) -> None:
        self.setup = setup
        self.spill = Spill(Path(setup.folder), bytes.fromhex(setup.key), name, out)
        self.intake = Intake(
            self.spill,
            datetime.fromisoformat(setup.now),
            setup.buckets,
            setup.indexes,
            setup.labelled,
            forgotten_tenants(setup.gone),
        )

    def do(self, kind: str, value: Any) -> Any:
        """Runs one task: `read` or `fetch` a file, `finish` a bucket of sandboxes, or `flush` buffered rows."""
        match kind:
            case "read" | "fetch":
                task = FileTask(**value | {"only": tuple((line, offset) for line, offset in value["only"])})
                try:
                    return vars(self.intake.read(task)) if kind == "read" else self.intake.fetch(task)
                except FileNotFoundError:
                    return None
                except OSError as error:
                    return {"error": f"cannot read {task.path}: {error.strerror or error}"}
            case "finish":
                bucket, ranges = value
                base = Path(self.setup.base) if self.setup.base else None
                write_sandbox_rows(self.spill, bucket, ranges, base, self.setup.labelled, self.setup.also)
                return None
            case "flush":
                return self.intake.close()
        raise ValueError(kind)


class IngestWorkers:
    """This process and several others, which share a spill."""

    def __init__(self, setup: WorkerSetup, processes: Sequence["subprocess.Popen[bytes]"]) -> None:
        self._here = IngestWorker(setup, "0")
        self._processes = processes

    def do(self, kind: str, values: Sequence[Any]) -> list[Any]:
        """Runs tasks of one kind on all processes and flushes; returns the answers in order.

        Raises:
            InputError: a file cannot be read.
        """
        numbers = iter(range(len(values)))
        results: list[Any] = [None] * len(values)

        def serve(do: Callable[[str, Any], Any]) -> None:
            while (number := next(numbers, None)) is not None:
                results[number] = checked(do(kind, values[number]))
                if kind == "finish":
                    drop_bucket(self._here.setup, values[number][0])
            do("flush", None)

        with ThreadPoolExecutor(max(1, len(self._processes))) as threads, rare_collections():
            others = [threads.submit(serve, partial(_ask, process)) for process in self._processes]
            serve(self._here.do)
            for done in others:
                done.result()
        return results


@contextmanager
def start_workers(setup: WorkerSetup, count: int) -> Iterator[IngestWorkers]:
    """Context manager: `count` processes, this one included; the others end with the block."""
    with ExitStack() as stack:
        processes = []
        for number in range(1, count):
            process = _start(setup, str(number))
            stack.callback(_stop, process)
            processes.append(process)
        yield IngestWorkers(setup, processes)


def _start(setup: WorkerSetup, name: str) -> "subprocess.Popen[bytes]":
    environment = os.environ | {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    root = str(Path(__file__).resolve().parents[3])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        [sys.executable, "-m", "capibara_assets.executions.ingest.workers"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    _send(process, [asdict(setup), name])
    return process


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):  # what it was asked last was never sent: why it ended is told elsewhere
                stream.close()


def _send(process: "subprocess.Popen[bytes]", value: Any) -> None:
    if process.stdin is None:
        raise RuntimeError("the worker has no standard input")
    process.stdin.write(json.dumps(value).encode("ascii") + b"\n")
    process.stdin.flush()


def _ask(process: "subprocess.Popen[bytes]", kind: str, value: Any) -> Any:
    try:
        _send(process, [kind, value])
        answer = process.stdout.readline() if process.stdout is not None else b""
    except BrokenPipeError:
        answer = b""
    if not answer:
        part = f"{kind} {value['path']}" if kind in ("read", "fetch") else f"{kind} {value[0]}" if value else kind
        code = process.wait()
        raise RuntimeError(f"a worker of the ingest ended (exit code {code}) at {part!r}; what it says is above")
    return json.loads(answer)


def checked(answer: Any) -> Any:
    """An answer of `IngestWorker.do`; raises InputError: a file cannot be read."""
    if isinstance(answer, dict) and "error" in answer:
        raise InputError(answer["error"])
    return answer


def drop_bucket(setup: WorkerSetup, bucket: int) -> None:
    """Frees the disk of a bucket whose rows are written."""
    for name in OF_A_BUCKET:
        drop_files(Path(setup.folder), name, bucket)


def file_read(answer: Any) -> FileRead | None:
    """The state in an answer to `read`; None for a file that vanished."""
    return None if answer is None else FileRead(**answer | {"modified": tuple(answer["modified"])})


def main() -> None:
    """Answers tasks from standard input until it ends, or its parent does: a file may take it many minutes."""
    end_when_orphaned()
    setup, name = json.loads(sys.stdin.readline())
    worker = IngestWorker(WorkerSetup(**setup), name)
    # millions of small objects and hardly a cycle among them: the collector would walk them all again and again
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    for line in sys.stdin:
        kind, value = json.loads(line)
        answers.write(json.dumps(worker.do(kind, value)) + "\n")
        answers.flush()
        gc.collect()


if __name__ == "__main__":
    main()
