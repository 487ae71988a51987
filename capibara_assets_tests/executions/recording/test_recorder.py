"""The recorder: what it writes, what it never does to the agent's run, and what it costs."""

import asyncio
import base64
import io
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from capibara_assets.executions import record
from capibara_assets.executions.formats.envelope_reader import read_line
from capibara_assets.executions.recording.recorder import envelope_schema


@dataclass
class Logs:
    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)


@dataclass
class Failure:
    name: str
    value: str
    traceback: str


@dataclass
class Shown:
    """As the SDK's Result: attributes per format and `extra` for MIME types it does not know."""

    text: str | None = None
    html: str | None = None
    data: Any = None
    chart: Any = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Answer:
    results: list[Shown] = field(default_factory=list)
    logs: Logs = field(default_factory=Logs)
    error: Failure | None = None
    execution_count: int | None = 1


@dataclass
class Context:
    id: str
    language: str


class Sandbox:
    """Answers what it is told to; remembers what it was asked."""

    sandbox_id = "i0123"

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer or Answer()
        self.asked: list[tuple[Any, ...]] = []

    def run_code(self, code: str, language: str | None = None, **options: Any) -> Any:
        self.asked.append((code, language, options))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def kill(self) -> str:
        return "killed"


class AsyncSandbox(Sandbox):
    async def run_code(self, code: str, language: str | None = None, **options: Any) -> Any:  # type: ignore[override]
        await asyncio.sleep(0)
        return Sandbox.run_code(self, code, language, **options)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]


def test_one_execution_is_one_valid_envelope(tmp_path: Path) -> None:
    answer = Answer([Shown(text="42")], Logs(["a", "b\n"], ["w"]), Failure("ValueError", "no", "\x1b[31mtrace"))
    sandbox = record(Sandbox(answer), tmp_path, agent_id="ada", tenant="acme", licence="MIT", source="test")
    returned = sandbox.run_code("f()", task="Call f.", timeout=3, messages=[{"role": "user", "content": "Call f."}])
    assert returned is answer
    (line,) = lines(tmp_path)
    jsonschema.validate(line, envelope_schema())
    assert line["execution"] == {
        "results": [{"text": "42"}],
        "logs": '{"stdout": ["a", "b\\n"], "stderr": ["w"]}',
        "error": '{"name": "ValueError", "value": "no", "traceback": "\\u001b[31mtrace"}',
    }
    assert (line["sandbox_id"], line["agent_id"], line["tenant"]) == ("i0123", "ada", "acme")
    assert (line["task"], line["timeout_s"], line["language"]) == ("Call f.", 3, "python")
    assert line["messages"] == [{"role": "user", "content": "Call f."}]
    assert line["bullet_ids"] is None


def test_bullets_are_of_the_sandbox_or_of_one_call(tmp_path: Path) -> None:
    sandbox = record(Sandbox(), tmp_path, bullet_ids=("str-00001",))
    sandbox.run_code("1")
    sandbox.run_code("2", bullet_ids=["calc-00002", "str-00001"])
    sandbox.bullet_ids = None
    sandbox.run_code("3")
    written = lines(tmp_path)
    assert [line["bullet_ids"] for line in written] == [["str-00001"], ["calc-00002", "str-00001"], None]
    for line in written:
        jsonschema.validate(line, envelope_schema())


def test_own_keywords_are_not_passed_on_and_the_sandbox_shows_through(tmp_path: Path) -> None:
    inner = Sandbox()
    sandbox = record(inner, tmp_path, task="always")
    sandbox.run_code("1", "javascript", task="once")
    sandbox.run_code("2", context=Context("c1", "r"))
    assert inner.asked == [("1", "javascript", {}), ("2", None, {"context": Context("c1", "r")})]
    assert [(line["language"], line["task"], line["context_id"]) for line in lines(tmp_path)] == [
        ("javascript", "once", None),
        ("r", "always", "c1"),
    ]
    assert sandbox.kill() == "killed"


def test_an_exception_is_recorded_and_passed_on_unchanged(tmp_path: Path) -> None:
    class TimeoutException(Exception):
        pass

    error = TimeoutException("too slow")
    with pytest.raises(TimeoutException) as caught:
        record(Sandbox(error), tmp_path).run_code("while True: pass")
    assert caught.value is error
    (line,) = lines(tmp_path)
    assert line["execution"] is None
    assert line["exception"] == {"name": "TimeoutException", "message": "too slow"}
    jsonschema.validate(line, envelope_schema())


def test_an_asynchronous_sandbox_stays_asynchronous(tmp_path: Path) -> None:
    sandbox = record(AsyncSandbox(), tmp_path)

    async def both() -> None:
        await asyncio.gather(sandbox.run_code("1"), sandbox.run_code("2"))

    asyncio.run(both())
    assert sorted(line["code"] for line in lines(tmp_path)) == ["1", "2"]


class Widget:
    """A value no JSON encoder knows."""

    def __repr__(self) -> str:
        return "<widget>"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (Shown(extra={"application/vnd.x": Widget()}), {"text": None, "application/vnd.x": "<widget>"}),
        (Shown("t", data={"a": [1.5, float("nan"), float("inf")]}), {"text": "t", "data": {"a": [1.5, None, None]}}),
        (Shown(extra={"image/x": b"\x00\xff"}), {"text": None, "image/x": base64.b64encode(b"\x00\xff").decode()}),
        (Shown("t", data={1: datetime(2026, 1, 2)}), {"text": "t", "data": {"1": "2026-01-02T00:00:00"}}),
        (Shown("t", data={"big": 2**80}), {"text": "t", "data": {"big": 2**80}}),
    ],
)
def test_results_that_the_sdk_cannot_serialise(tmp_path: Path, shown: Shown, expected: dict[str, Any]) -> None:
    record(Sandbox(Answer([shown])), tmp_path).run_code("x")
    assert lines(tmp_path)[0]["execution"]["results"] == [expected]


def test_lone_surrogates_do_not_lose_the_line(tmp_path: Path) -> None:
    record(Sandbox(Answer(logs=Logs(["a\ud800b"]))), tmp_path).run_code("print('\ud800')")
    assert json.loads(lines(tmp_path)[0]["execution"]["logs"])["stdout"] == ["a\ufffdb"]


class Explosive:
    def to_dict(self) -> dict[str, Any]:
        raise RuntimeError("no")


def test_an_answer_that_is_none_of_the_sdks_never_breaks_the_run(tmp_path: Path, logged: io.StringIO) -> None:
    inner = Sandbox()
    inner.answer = object()
    assert record(inner, tmp_path).run_code("x") is inner.answer
    assert "execution not recorded" in logged.getvalue()


def cyclic() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


@pytest.mark.parametrize(
    ("chart", "expected"),
    [
        (Explosive(), "<Explosive>"),
        ({1: "a", "1": "b"}, {"1": "b"}),  # a duplicate key would cost the line
        ({"set": {1}}, {"set": [1]}),
    ],
)
def test_a_value_that_cannot_be_written_does_not_cost_the_line(tmp_path: Path, chart: Any, expected: Any) -> None:
    record(Sandbox(Answer([Shown("t", chart=chart)], Logs(["out"]))), tmp_path).run_code("x")
    (line,) = lines(tmp_path)
    assert line["execution"]["results"] == [{"text": "t", "chart": expected}]
    assert json.loads(line["execution"]["logs"])["stdout"] == ["out"]


def test_a_cyclic_value_is_cut_not_followed(tmp_path: Path) -> None:
    record(Sandbox(Answer([Shown("t", data=cyclic())])), tmp_path).run_code("x")
    assert "nested deeper" in json.dumps(lines(tmp_path))


def test_a_folder_that_cannot_be_written_is_reported_not_raised(tmp_path: Path, logged: io.StringIO) -> None:
    (tmp_path / "file").write_text("")
    sandbox = record(Sandbox(), tmp_path / "file" / "logs")
    assert sandbox.run_code("x") is sandbox.answer
    assert "execution not recorded" in logged.getvalue()


def test_a_new_day_is_a_new_file(tmp_path: Path) -> None:
    start = datetime(2026, 10, 1, 23, 59, tzinfo=UTC)
    times: Iterator[datetime] = iter([start, start + timedelta(minutes=2)])
    sandbox = record(Sandbox(), tmp_path, clock=lambda: next(times))
    sandbox.run_code("1")
    sandbox.run_code("2")
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        "executions-2026-10-01.jsonl",
        "executions-2026-10-02.jsonl",
    ]
    assert lines(tmp_path)[1]["timestamp"] == "2026-10-02T00:01:00.000Z"


def test_a_line_cut_off_by_a_crash_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"code": "cut o')
    record(Sandbox(), path).run_code("1")
    cut, good = path.read_text().splitlines()
    assert cut == '{"code": "cut o'
    assert json.loads(good)["code"] == "1"


def test_a_full_disk_costs_that_line_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    sandbox = record(Sandbox(), path)
    sandbox.run_code("before")
    with monkeypatch.context() as patched:
        write = os.write
        patched.setattr("os.write", lambda descriptor, data: write(descriptor, data[:10]))
        assert sandbox.run_code("torn") is sandbox.answer
    sandbox.run_code("after")
    first, torn, last = path.read_text().splitlines()
    assert (json.loads(first)["code"], torn, json.loads(last)["code"]) == ("before", '{"schema_v', "after")


def test_a_line_torn_by_another_writer_does_not_swallow_ours(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    sandbox = record(Sandbox(), path)
    sandbox.run_code("1")
    with path.open("a") as other:
        other.write('{"code": "cut o')
    sandbox.run_code("2")
    assert [line[:7] for line in path.read_text().splitlines()] == ['{"schem', '{"code"', '{"schem']


def test_full_files_are_followed_by_the_next_part_and_never_changed_again(tmp_path: Path) -> None:
    sandbox = record(Sandbox(Answer(logs=Logs(["x" * 1000]))), tmp_path, max_bytes=4000)
    for number in range(10):
        sandbox.run_code(str(number))
    again = record(Sandbox(), tmp_path, max_bytes=4000)  # another process goes on where there is room
    again.run_code("10")
    paths = sorted(tmp_path.iterdir(), key=lambda path: (len(path.name), path.name))
    assert len(paths) >= 4
    assert [path.name.split(".", 1)[1] for path in paths] == ["jsonl", *(f"{n}.jsonl" for n in range(1, len(paths)))]
    assert all(path.stat().st_size <= 4000 for path in paths)
    codes = [json.loads(line)["code"] for path in paths for line in path.read_text().splitlines()]
    assert codes == [str(number) for number in range(11)]


def test_a_line_larger_than_a_file_is_written_whole(tmp_path: Path) -> None:
    sandbox = record(Sandbox(), tmp_path, max_bytes=10)
    sandbox.run_code("1")
    sandbox.run_code("2")
    assert sorted(line["code"] for line in lines(tmp_path)) == ["1", "2"]


def test_a_deleted_file_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    sandbox = record(Sandbox(), path)
    sandbox.run_code("1")
    path.unlink()
    sandbox.run_code("2")
    assert [line["code"] for line in lines(tmp_path)] == ["2"]


_KILLED = """
import os, sys
from types import SimpleNamespace as N
from capibara_assets.executions import record
answer = N(results=[], logs=N(stdout=["x" * 100_000], stderr=[]), error=None)
sandbox = record(N(sandbox_id="i0", run_code=lambda code: answer), sys.argv[1])
number = 0
while True:
    sandbox.run_code(str(number))
    number += 1
    print(number, flush=True)
"""


def test_nothing_that_was_recorded_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    child = subprocess.Popen([sys.executable, "-c", _KILLED, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    told = [int(child.stdout.readline()) for _ in range(30)]
    child.kill()
    child.wait()
    child.stdout.close()
    record(Sandbox(), path).run_code("after")
    whole = [json.loads(line)["code"] for line in path.read_text().splitlines() if line.endswith("}")]
    assert whole[: told[-1]] == [str(number) for number in range(told[-1])]
    assert whole[-1] == "after"


@dataclass
class Ended:
    """As the core SDK's CommandResult."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    error: str | None = None


class EndedBadly(Exception, Ended):
    """As its CommandExitException."""

    def __init__(self) -> None:
        Ended.__init__(self, "", "no x\n", 2, "exit status 2")


class Handle:
    pid = 7

    def wait(self, on_stdout: Any = None) -> Ended:
        return Ended("later\n")

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])


class Commands:
    def run(self, cmd: str, background: bool | None = None, **options: Any) -> Any:
        if cmd == "bad":
            raise EndedBadly()
        return Handle() if background else Ended(f"{cmd} {sorted(options)}\n")

    def kill(self, pid: int) -> bool:
        return True


class AsyncCommands(Commands):
    async def run(self, cmd: str, background: bool | None = None, **options: Any) -> Any:
        return Commands.run(self, cmd, background, **options)


def test_shell_commands_are_executions_of_bash(tmp_path: Path) -> None:
    inner = Sandbox()
    inner.commands = Commands()  # type: ignore[attr-defined]
    sandbox = record(inner, tmp_path, agent_id="ada")
    assert sandbox.commands.run("ls", timeout=3, task="List.").stdout == "ls ['timeout']\n"
    with pytest.raises(EndedBadly):
        sandbox.commands.run("bad")
    handle = sandbox.commands.run("sleep", background=True)
    assert (handle.pid, list(handle), len(lines(tmp_path))) == (7, ["a"], 2)
    assert handle.wait().stdout == handle.wait().stdout == "later\n"
    assert sandbox.commands.kill(1)
    first, second, third = lines(tmp_path)
    for line in (first, second, third):
        jsonschema.validate(line, envelope_schema())
        assert (line["language"], line["agent_id"], line["exception"]) == ("bash", "ada", None)
    assert (first["code"], first["task"], first["timeout_s"]) == ("ls", "List.", 3)
    assert second["execution"] == {"stdout": "", "stderr": "no x\n", "exit_code": 2, "error": "exit status 2"}
    assert third["execution"]["stdout"] == "later\n"
    read = [read_line(json.dumps(line).encode(), datetime(2100, 1, 1, tzinfo=UTC)) for line in (first, second)]
    assert [(each.language, each.outcome) for each in read] == [("bash", "ok"), ("bash", "error")]


def test_shell_commands_of_an_asynchronous_sandbox(tmp_path: Path) -> None:
    inner = AsyncSandbox()
    inner.commands = AsyncCommands()  # type: ignore[attr-defined]
    sandbox = record(inner, tmp_path)

    async def both() -> None:
        assert (await sandbox.commands.run("ls")).exit_code == 0
        handle = await sandbox.commands.run("sleep", background=True)
        handle.wait()

    asyncio.run(both())
    assert [line["code"] for line in lines(tmp_path)] == ["ls", "sleep"]


def test_a_sandbox_without_a_shell_has_none(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="commands"):
        _ = record(Sandbox(), tmp_path).commands


def test_streaming_callbacks_are_passed_on_and_called(tmp_path: Path) -> None:
    class Streaming(Sandbox):
        def run_code(self, code: str, language: str | None = None, **options: Any) -> Any:
            options["on_stdout"]("chunk")
            return super().run_code(code, language, **options)

    heard: list[str] = []
    inner = Streaming()
    record(inner, tmp_path).run_code("x", on_stdout=heard.append)
    assert heard == ["chunk"]
    assert inner.asked == [("x", None, {"on_stdout": heard.append})]


def test_contexts_are_told_apart_also_by_position(tmp_path: Path) -> None:
    class Positional(Sandbox):
        def run_code(self, code: str, language: Any = None, context: Any = None, **options: Any) -> Any:
            return self.answer

    sandbox = record(Positional(), tmp_path)
    sandbox.run_code("1", None, Context("c1", "python"))
    sandbox.run_code("2", context=Context("c2", "javascript"))
    sandbox.run_code("3")
    told = [(line["context_id"], line["language"]) for line in lines(tmp_path)]
    assert told == [("c1", "python"), ("c2", "javascript"), (None, "python")]


def test_a_sandbox_stays_recorded_over_pause_and_resume(tmp_path: Path) -> None:
    class Resumable(Sandbox):
        def pause(self) -> str:
            return self.sandbox_id

        def connect(self, timeout: int | None = None) -> Any:
            return self

        def resume(self) -> Any:
            return Sandbox()  # another object for the same sandbox, as older SDKs give

    sandbox = record(Resumable(), tmp_path, task="t", tenant="acme")
    sandbox.run_code("1")
    assert sandbox.pause() == "i0123"
    assert sandbox.connect(timeout=3) is sandbox
    sandbox.resume().run_code("2")
    record(Sandbox(), tmp_path, task="t", tenant="acme").run_code("3")  # resumed by another process
    kept = [(line["sandbox_id"], line["code"], line["task"], line["tenant"]) for line in lines(tmp_path)]
    assert kept == [("i0123", code, "t", "acme") for code in "123"]


def test_an_asynchronous_sandbox_stays_recorded_over_resume(tmp_path: Path) -> None:
    class Resumable(AsyncSandbox):
        async def connect(self) -> Any:
            return AsyncSandbox()

    async def both() -> None:
        await (await record(Resumable(), tmp_path).connect()).run_code("1")

    asyncio.run(both())
    assert [line["code"] for line in lines(tmp_path)] == ["1"]


def test_an_awaitable_answer_is_recorded_once_it_is_there(tmp_path: Path) -> None:
    class Wrapped(Sandbox):
        """An asynchronous sandbox behind a decorator: its `run_code` is no coroutine function."""

        def run_code(self, code: str, language: str | None = None, **options: Any) -> Any:
            return AsyncSandbox(self.answer).run_code(code)

    async def one() -> Any:
        return await record(Wrapped(), tmp_path).run_code("1")

    assert asyncio.run(one()).execution_count == 1
    assert [line["execution"]["results"] for line in lines(tmp_path)] == [[]]


def test_one_write_per_line_even_from_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    write = os.write

    def counting(descriptor: int, data: bytes) -> int:
        written.append(data)
        return write(descriptor, data)

    sandboxes = [record(Sandbox(Answer(logs=Logs(["x" * 20_000]))), tmp_path / "log.jsonl") for _ in range(4)]
    monkeypatch.setattr("capibara_assets.executions.recording.recorder.os.write", counting)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: sandboxes[number % 4].run_code(str(number)), range(200)))
    assert len(written) == 200
    # a line end too many does no harm: a thread cannot tell another's slow line from a torn one
    assert all(data.endswith(b"}\n") and data.strip(b"\n").count(b"\n") == 0 for data in written)
    text = (tmp_path / "log.jsonl").read_text()
    assert sorted(int(json.loads(line)["code"]) for line in text.splitlines() if line) == list(range(200))


def test_recording_costs_less_than_a_millisecond(tmp_path: Path) -> None:
    answer = Answer([Shown("x" * 500, html="<p>" * 200)], Logs(["line\n"] * 20))
    talk = [{"role": "user", "content": "Sum the second column. " * 50}] * 20  # a conversation of 20 kB
    sandbox, bare = record(Sandbox(answer), tmp_path, messages=talk), Sandbox(answer)

    def cost(run: Any) -> float:
        began = time.perf_counter()
        run("print('hello')\n" * 20)
        return time.perf_counter() - began

    extra = [cost(sandbox.run_code) - cost(bare.run_code) for _ in range(500)]
    assert statistics.median(extra) < 1e-3


def test_importing_record_is_light() -> None:
    code = (
        "import sys; from capibara_assets.executions import record;"
        "print(*sorted({'numpy', 'pandas', 'polars', 'torch', 'jupyter_client', 'zmq'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
