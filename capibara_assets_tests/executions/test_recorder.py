"""The recorder: what it writes, what it never does to the agent's run, and what it costs."""

import asyncio
import base64
import json
import logging
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
from capibara_assets.executions.recorder import envelope_schema


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


@pytest.mark.parametrize("answer", [object(), None, Answer([Shown(chart=Explosive())])])
def test_an_answer_that_cannot_be_written_never_breaks_the_run(
    tmp_path: Path, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    inner = Sandbox()
    inner.answer = answer
    assert record(inner, tmp_path).run_code("x") is answer
    if answer is not None:
        assert "execution not recorded" in caplog.text


def test_a_folder_that_cannot_be_written_is_reported_not_raised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    sandbox = record(Sandbox(), tmp_path / "file" / "logs")
    with caplog.at_level(logging.ERROR, logger="capibara_assets.executions.recorder"):
        assert sandbox.run_code("x") is sandbox.answer
    assert "execution not recorded" in caplog.text


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


def test_one_write_per_line_even_from_many_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    write = os.write

    def counting(descriptor: int, data: bytes) -> int:
        written.append(data)
        return write(descriptor, data)

    sandboxes = [record(Sandbox(Answer(logs=Logs(["x" * 20_000]))), tmp_path / "log.jsonl") for _ in range(4)]
    monkeypatch.setattr("capibara_assets.executions.recorder.os.write", counting)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: sandboxes[number % 4].run_code(str(number)), range(200)))
    assert len(written) == 200
    assert all(data.endswith(b"\n") and data.count(b"\n") == 1 for data in written)
    assert sorted(int(line["code"]) for line in lines(tmp_path)) == list(range(200))


def test_recording_costs_less_than_a_millisecond(tmp_path: Path) -> None:
    answer = Answer([Shown("x" * 500, html="<p>" * 200)], Logs(["line\n"] * 20))
    sandbox, bare = record(Sandbox(answer), tmp_path), Sandbox(answer)

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
