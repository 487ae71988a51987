"""The local sandbox: runs code as an E2B code interpreter does, without E2B.

Python runs in a real ipykernel (through jupyter_client), JavaScript in a Node `vm` context, SQL on an in-memory SQLite;
each (sandbox, context) is a process of its own, and results, chunks and tracebacks have E2B's shape.

What is isolated: processes, their variables and environment (no variable of ours is passed on), the working directory
(a temporary folder), resource limits (memory, CPU seconds, file size, open files), and time: a timeout interrupts.
What is NOT isolated: the file system can be read and the network can be reached with this user's rights, and a Node
`vm` context is no security boundary. It runs the tasks that are written in this folder, nothing else: recorded code and
answers of models run under `capibara_assets/executions/sandbox/isolation.py`, without network and files.
"""

from __future__ import annotations

import json
import os
import queue
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

from capibara_assets.errors import InputError
from capibara_assets.executions.sandbox import results as session_scripts
from capibara_assets.executions.sandbox.isolation import clean_environment
from capibara_assets.executions.sandbox.results import (
    LANGUAGES,
    DisplayedResult,
    ExecutionError,
    Logs,
    SandboxExecution,
    bundle_result,
)

DEFAULT_TIMEOUT_S = 10.0
#: Seconds that an interrupted process has to return before it is killed.
GRACE_S = 3.0
START_S = 30.0

LIMITS = {
    "RLIMIT_AS": 4 << 30,
    "RLIMIT_CPU": 600,
    "RLIMIT_FSIZE": 64 << 20,
    "RLIMIT_NOFILE": 256,
    "RLIMIT_CORE": 0,
}

_HERE = Path(__file__).resolve().parent
_SESSIONS = Path(session_scripts.__file__).resolve().parent  # scripts that replays run too


class TimeoutException(Exception):
    """The code ran past its timeout and was interrupted (the name is that of E2B's exception)."""


class SandboxError(Exception):
    """The sandbox cannot run code: its process could not start, or died."""


@dataclass(frozen=True)
class CodeContext:
    """A code context: variables are shared within (sandbox, context) and nowhere else."""

    id: str
    language: str
    cwd: str


class LanguageWorker(Protocol):
    """A process that runs cells of one language."""

    def run(self, code: str, timeout_s: float) -> SandboxExecution: ...

    def close(self) -> None: ...


def _pipe_process(command: Sequence[str], cwd: str, errors: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=cwd,
            env=clean_environment(cwd),
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"cannot start {command[0]}: {error}") from error


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


class KernelNursery:
    """A process with ipykernel and `preload`ed modules in memory that forks fresh kernels; sandboxes can share it.

    Preloaded modules save their import in every session; they must not start threads when they are imported.
    """

    def __init__(self, preload: Sequence[str] = ()) -> None:
        self._folder = tempfile.mkdtemp(prefix="capibara-kernels-")
        self._one = threading.Lock()
        # -P: the folder of the script must not shadow the standard library.
        command = [sys.executable, "-P", str(_HERE / "kernel.py"), *preload]
        self._errors = Path(self._folder, "errors.txt")
        with self._errors.open("wb") as errors:
            self._process = _pipe_process(command, self._folder, errors.fileno())

    def fork(self, connection: Path, cwd: str) -> int:
        """Starts a kernel that listens as the connection file says; returns its process id. Raises SandboxError."""
        assert self._process.stdin is not None and self._process.stdout is not None
        request = {"connection": str(connection), "cwd": cwd, "limits": LIMITS}
        try:
            with self._one:  # or a thread reads the process id of another's kernel, and kills that in the end
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
                answer = self._process.stdout.readline()
        except OSError as error:
            raise self._death() from error
        if not answer:
            raise self._death()
        return int(json.loads(answer)["pid"])

    def _death(self) -> SandboxError:
        status, said = self._process.wait(), self._errors.read_text(errors="replace").strip()
        return SandboxError(f"the kernel nursery died with status {status}: {said or 'it said nothing'}")

    def close(self) -> None:
        _stop(self._process)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> KernelNursery:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class PythonKernel:
    """An ipykernel, forked by a `KernelNursery`, and its client."""

    def __init__(self, nursery: KernelNursery, cwd: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="capibara-kernel-"))
        path = self._folder / "k.json"
        write_connection_file(str(path), ip=str(self._folder / "s"), transport="ipc")
        self._pid = nursery.fork(path, cwd)
        self._client = BlockingKernelClient(connection_file=str(path))
        self._client.load_connection_file()
        self._client.start_channels(hb=False)
        self._wait_until_heard()

    def _wait_until_heard(self) -> None:
        """Waits for an answer over the output channel: before that, the first cell's output could be missed."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._alive():
            request = self._client.kernel_info()
            pause = time.monotonic() + 0.5
            while (message := self._next_message(pause)) is not None:
                if message["parent_header"].get("msg_id") == request:
                    return
        self.close()
        raise SandboxError(f"the Python kernel did not answer within {START_S:g} s")

    def run(self, code: str, timeout_s: float) -> SandboxExecution:
        """Runs one cell. Raises TimeoutException or SandboxError."""
        request = self._client.execute(code, allow_stdin=False)
        execution = SandboxExecution()
        deadline = time.monotonic() + timeout_s
        interrupted = False
        while True:
            message = self._next_message(deadline)
            if message is None:
                if interrupted or not self._alive():
                    died = "was killed" if interrupted else "died"
                    self.close()
                    if interrupted:
                        raise TimeoutException(f"execution exceeded {timeout_s:g} s and the kernel {died}")
                    raise SandboxError(f"the Python kernel {died} while it ran code")
                os.kill(self._pid, signal.SIGINT)
                interrupted, deadline = True, time.monotonic() + GRACE_S
            elif message["parent_header"].get("msg_id") == request:
                content = message["content"]
                if message["msg_type"] == "status" and content["execution_state"] == "idle":
                    break
                _collect(execution, message["msg_type"], content)
        if interrupted:
            raise TimeoutException(f"execution exceeded {timeout_s:g} s and was interrupted")
        return execution

    def _next_message(self, deadline: float) -> Any | None:
        """The next message, or None when the deadline passed or the kernel is gone."""
        while (remaining := deadline - time.monotonic()) > 0:
            try:
                return self._client.get_iopub_msg(timeout=min(remaining, 1.0))
            except queue.Empty:
                if not self._alive():
                    return None
        return None

    def _alive(self) -> bool:
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return False
        return True

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        self._client.stop_channels()
        shutil.rmtree(self._folder, ignore_errors=True)


def _collect(execution: SandboxExecution, kind: str, content: dict[str, Any]) -> None:
    """Adds one message of the kernel to the execution."""
    match kind:
        case "stream":
            chunks = execution.logs.stdout if content["name"] == "stdout" else execution.logs.stderr
            chunks.append(content["text"])
        case "display_data" | "execute_result":
            execution.results.append(bundle_result(content["data"], is_main=kind == "execute_result"))
        case "error":
            traceback = "".join(content["traceback"])
            execution.error = ExecutionError(content["ename"], content["evalue"], traceback)
        case "execute_input":
            execution.execution_count = content["execution_count"]


class PipeWorker:
    """A child process that runs JavaScript or SQL: one `{"code", "timeout"}` and one answer in JSON per line."""

    def __init__(self, command: Sequence[str], cwd: str) -> None:
        self._process = _pipe_process(command, cwd)
        self._buffer = b""
        self._count = 0

    def run(self, code: str, timeout_s: float) -> SandboxExecution:
        """Runs one cell. Raises TimeoutException or SandboxError."""
        assert self._process.stdin is not None
        self._count += 1
        request = json.dumps({"code": code, "timeout": timeout_s}).encode() + b"\n"
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
        except OSError as error:
            raise SandboxError(f"the sandbox process died: {error}") from error
        answer = self._answer(timeout_s)
        if answer.get("timeout"):
            raise TimeoutException(f"execution exceeded {timeout_s:g} s and was interrupted")
        failure = answer["error"]
        return SandboxExecution(
            results=[DisplayedResult(formats, is_main_result=True) for formats in answer["results"]],
            logs=Logs(answer["stdout"], answer["stderr"]),
            error=None if failure is None else ExecutionError(**failure),
            execution_count=self._count,
        )

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s + GRACE_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self.close()
                    raise TimeoutException(f"execution exceeded {timeout_s:g} s and the process was killed")
                chunk = os.read(self._process.stdout.fileno(), 1 << 16)
                if not chunk:
                    raise SandboxError(f"the sandbox process died with status {self._process.wait()}")
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        _stop(self._process)


def _javascript_worker(cwd: str) -> PipeWorker:
    node = shutil.which("node")
    if node is None:
        raise InputError("no `node` on the PATH: install Node.js 20 or newer to run JavaScript in the local sandbox")
    command = [
        node,
        "--expose-internals",
        "--no-warnings",
        "--max-old-space-size=512",
        str(_SESSIONS / "javascript_session.js"),
    ]
    return PipeWorker(command, cwd)


def _sql_worker(cwd: str) -> PipeWorker:
    return PipeWorker([sys.executable, "-I", str(_SESSIONS / "sql_worker.py")], cwd)


class LocalSandbox:
    """A sandbox with E2B's interface whose processes run on this machine (the module says what is isolated).

    Processes start when they are first needed. Give several sandboxes one `nursery` to start their kernels faster.
    """

    def __init__(
        self,
        languages: Sequence[str] = LANGUAGES,
        *,
        nursery: KernelNursery | None = None,
        sandbox_id: str | None = None,
        template_id: str | None = None,
    ) -> None:
        unknown = sorted(set(languages) - set(LANGUAGES))
        if unknown:
            raise InputError(f"the local sandbox does not run {', '.join(unknown)}; it runs {', '.join(LANGUAGES)}")
        self.languages = tuple(languages)
        self.sandbox_id = sandbox_id or f"i{uuid.uuid4().hex[:20]}"
        self.template_id = template_id
        self._nursery = nursery
        self._own_nursery: KernelNursery | None = None
        self._cwd = tempfile.mkdtemp(prefix="capibara-sandbox-")
        self._workers: dict[str, LanguageWorker] = {}
        self._killed = False

    @classmethod
    def create(cls, **options: Any) -> LocalSandbox:
        """Creates a sandbox, as E2B's `Sandbox.create()`."""
        return cls(**options)

    def create_code_context(self, language: str = "python") -> CodeContext:
        """Creates a context with variables of its own."""
        self._check(language)
        return CodeContext(f"{language}-{uuid.uuid4().hex[:12]}", language, self._cwd)

    def run_code(
        self,
        code: str,
        language: str | None = None,
        *,
        context: CodeContext | None = None,
        timeout: float | None = DEFAULT_TIMEOUT_S,
    ) -> SandboxExecution:
        """Runs one cell in its context (each language has a default one) and returns its results and output.

        Raises:
            TimeoutException: the code ran longer than `timeout` seconds; interrupted, or killed if it did not react.
            SandboxError: the process died or the sandbox was killed.
            InputError: a language this sandbox does not run.
        """
        if self._killed:
            raise SandboxError(f"sandbox {self.sandbox_id} was killed")
        language = language or (context.language if context else "python")
        self._check(language)
        key = context.id if context else language
        if key not in self._workers:
            self._workers[key] = self._start(language)
        return self._workers[key].run(code, DEFAULT_TIMEOUT_S if timeout is None else timeout)

    def kill(self) -> None:
        """Ends all processes and removes the working directory."""
        self._killed = True
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        if self._own_nursery is not None:
            self._own_nursery.close()
        shutil.rmtree(self._cwd, ignore_errors=True)

    def __enter__(self) -> LocalSandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _check(self, language: str) -> None:
        if language not in self.languages:
            raise InputError(f"this sandbox does not run {language!r}; it runs {', '.join(self.languages)}")

    def _start(self, language: str) -> LanguageWorker:
        if language == "javascript":
            return _javascript_worker(self._cwd)
        if language == "sql":
            return _sql_worker(self._cwd)
        if self._nursery is None:
            self._nursery = self._own_nursery = KernelNursery()
        return PythonKernel(self._nursery, self._cwd)
