"""Exports read back: what ran is the same in code, output, outcome, order and origin, whatever stands in the texts."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.executions.export.adp import adp
from capibara_assets.executions.export.atif import atif
from capibara_assets.executions.export.trajectories import (
    Lacks,
    Trajectory,
    file_name,
    sessions_of,
    write_files,
    write_lines,
)
from capibara_assets.executions.formats.agents.recorded import agent_records
from capibara_assets.executions.formats.agents.runs import LogDocument
from capibara_assets.executions.formats.envelope_reader import ESTIMATED, UNDATED, Recorded
from capibara_assets.executions.schema import PATCH, Execution
from capibara_assets.storage.records import table
from capibara_assets_tests.datasets.conftest import START, frame, run

NOW = datetime(2027, 1, 1, tzinfo=UTC)
FORMATS = pytest.mark.parametrize("made", [atif, adp], ids=["atif", "adp"])
COMPARED = (
    "agent_id", "tenant", "context_id", "template_id", "language", "code", "task", "outcome", "stdout", "stderr",
    "result_text", "error_name", "error_value", "traceback", "execution_count", "duration_ms", "timeout_s", "licence",
    "source",
)  # fmt: skip


def read_back(made: Trajectory, rows: Sequence[Execution]) -> list[Recorded]:
    """The executions of one session, exported and read again."""
    ((name, listed),) = sessions_of(table(Execution, list(rows)))
    text = json.dumps(made(name, listed, Lacks()), ensure_ascii=False)
    records = agent_records(LogDocument(text.encode("utf-8")), NOW)
    assert records is not None
    found = list(records)
    assert all(isinstance(one, Recorded) for one in found), found
    return [one for one in found if isinstance(one, Recorded)]


# what agents' programs write into outputs, and readers take away where no export says otherwise
WORDS = (
    "", " ", "\n", "ok\n", "Exit code 1\n", "[error] tool reported failure", "<returncode>3</returncode>\n<output>\n",
    "no\n[The command completed with exit code 0.]", "Traceback (most recent call last):\n", "ValueError: x\n",
    "ERROR!! NONE of the actions", "Command timed out after 5", "<API_KEY:1>", "\x1b[31mred", "\x1b\x1b[0m[31m", "\r\n",
    "Process running with session ID 7\nOutput:\n", "\u2028", "🦫", '{"returncode": 7, "output": "no"}', "\x00",
)  # fmt: skip
texts = st.lists(
    st.sampled_from(WORDS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6), max_size=4
).map("".join)
maybe = st.none() | texts.filter(str.strip)


@st.composite
def executions(draw: st.DrawFn) -> list[Execution]:
    made = []
    for number in range(draw(st.integers(1, 3))):
        outcome = draw(st.sampled_from(["ok", "error", "timeout", "unknown"]))
        failed = outcome in ("error", "timeout")
        made.append(
            run(
                f"e{number}",
                draw(texts),
                language=draw(st.sampled_from(["python", "bash", "sql", "javascript", "deno"])),
                timestamp=START + timedelta(seconds=draw(st.integers(0, 3))),
                flags=draw(st.sampled_from([[], ["lone_surrogate"], ["exit_code_hidden_by_pipe"], ["solves_task"]])),
                outcome=outcome,
                task=draw(maybe),
                stdout=draw(texts),
                stderr=draw(texts),
                result_text=draw(maybe),
                error_name=draw(maybe) if failed else None,
                error_value=draw(maybe) if failed else None,
                traceback=draw(maybe) if failed else None,
                agent_id=draw(maybe),
                tenant=draw(maybe),
                context_id=draw(maybe),
                duration_ms=draw(st.none() | st.floats(0, 1e6)),
                timeout_s=draw(st.none() | st.just(30.0)),
                licence=draw(st.sampled_from([None, "MIT"])),
                bullet_ids=draw(st.sampled_from([[], ["str-1"], ["str-1", "str-2"]])),
            )
        )
    return made


@FORMATS
@given(rows=executions())
def test_what_is_exported_is_read_back(made: Trajectory, rows: list[Execution]) -> None:
    ordered = sorted(rows, key=lambda row: (row.timestamp, row.execution_id))
    back = read_back(made, rows)
    assert [one.code for one in back] == [row.code for row in ordered]
    for one, row in zip(back, ordered, strict=True):
        assert {name: getattr(one, name) for name in COMPARED} == {name: getattr(row, name) for name in COMPARED}
        assert (one.bullet_ids or "") == "\n".join(row.bullet_ids)
        assert set(row.flags) <= set(one.flags) <= {*row.flags, ESTIMATED}
    assert [one.timestamp for one in back] == sorted({one.timestamp for one in back})


@FORMATS
def test_times_that_were_not_told_stay_untold(made: Trajectory) -> None:
    rows = [run(f"e{n}", f"print({n})", timestamp=START + timedelta(seconds=n), flags=[UNDATED]) for n in range(2)]
    assert [(one.flags, one.code) for one in read_back(made, rows)] == [
        ([UNDATED], "print(0)"),
        ([UNDATED], "print(1)"),
    ]
    dated = read_back(made, [run("e", "print(0)", timestamp=START)])
    assert [(one.timestamp, one.flags) for one in dated] == [(START, [])]


@FORMATS
def test_an_edit_stays_an_edit(made: Trajectory) -> None:
    patch = run("e0", "a.py\n+x = 1\n", language=PATCH, outcome="unknown", domains=[], flags=[ESTIMATED], minute=0)
    (edit, ran) = read_back(made, [patch, run("e1", "pytest -q", language="bash", minute=1)])
    assert (edit.language, edit.code, edit.outcome) == (PATCH, "a.py\n+x = 1\n", "unknown")
    assert (ran.language, ran.code, ran.outcome) == ("bash", "pytest -q", "ok")
    (applied,) = read_back(made, [run("e0", "a.py\n+x = 1", language=PATCH, stdout="applied", task="Add x.")])
    assert (applied.language, applied.stdout, applied.task, applied.outcome) == (PATCH, "applied", "Add x.", "ok")


def test_readers_that_know_nothing_of_ours_find_calls_and_results() -> None:
    row = run("e1", "1 / 0", outcome="error", stdout="start\n", error_name="ZeroDivisionError", task="Divide.",
              error_value="division by zero")  # fmt: skip
    ((name, rows),) = sessions_of(frame([row]))
    user, step = atif(name, rows, Lacks())["steps"]
    assert (user["source"], user["message"], step["step_id"]) == ("user", "Divide.", 2)
    (call,), (result,) = step["tool_calls"], step["observation"]["results"]
    assert call == {"tool_call_id": "e1", "function_name": "run_code",
                    "arguments": {"language": "python", "code": "1 / 0"}}  # fmt: skip
    assert result == {"source_call_id": "e1", "content": "start\nZeroDivisionError: division by zero"}
    made = adp(name, rows, Lacks())
    assert made["available_code_languages"] == ["python"]
    asked, action, observed = made["content"]
    assert (asked["source"], asked["content"]) == ("user", "Divide.")
    assert (action["class_"], action["language"], action["content"]) == ("code_action", "python", "1 / 0")
    assert observed["tool_call_id"] == action["tool_call_id"] == "e1" and observed["content"] == result["content"]


def test_every_action_is_answered_once_as_the_protocol_asks() -> None:
    rows = [
        run(f"e{n}", f"a{n}.py\nx", language=PATCH if n % 2 else "deno", outcome="unknown", minute=n) for n in range(4)
    ]
    ((name, listed),) = sessions_of(frame(rows))
    content = adp(name, listed, Lacks())["content"]
    actions = [item["tool_call_id"] for item in content if item["class_"].endswith("_action")]
    assert actions == [item["tool_call_id"] for item in content if item["class_"] == "text_observation"]
    assert [item["function"] for item in content if item["class_"] == "api_action"] == ["run_code", "edit_file"] * 2


def test_what_a_format_has_no_place_for_is_counted() -> None:
    rows = [
        run("e1", "print(1)", stdout="1\n", licence=None, source=None),
        run("e2", "a.py\nx", language=PATCH, outcome="unknown", licence="MIT", source=None, minute=1),
    ]
    ((name, listed),) = sessions_of(frame(rows))
    lacks = Lacks()
    adp(name, listed, lacks)
    said = lacks.said("ADP", "details")
    assert said == "ADP has no place for outcome (1), timestamp (1): told in `details`; not told: licence (1)"
    assert Lacks().said("ATIF", "extra") == "ATIF tells all of it"


def test_whole_sessions_are_chosen_by_domain_or_name(tmp_path: Path) -> None:
    rows = [
        run("a1", "x", "a", domains=["sql"]),
        run("a2", "y", "a", domains=[], minute=1),
        run("b1", "z", "b/..", domains=["python", "debug"]),
    ]
    assert [(name, len(found)) for name, found in sessions_of(frame(rows), [Domain.SQL])] == [("a", 2)]
    assert [name for name, _ in sessions_of(frame(rows), None, ["b/.."])] == ["b/.."]
    with pytest.raises(InputError, match="no session zebra"):
        list(sessions_of(frame(rows), None, ["a", "zebra"]))
    assert write_files(sessions_of(frame(rows)), tmp_path / "atif", atif, Lacks()) == (2, 3)
    assert write_lines(sessions_of(frame(rows)), tmp_path / "adp" / "adp.jsonl", adp, Lacks()) == (2, 3)
    files = sorted(path.name for path in (tmp_path / "atif").iterdir())
    assert files == ["a.json", f"{file_name('b/..')}.json"] and [
        path.name for path in (tmp_path / "adp").iterdir()
    ] == ["adp.jsonl"]
    assert file_name("b/..") != file_name("b-..") and len(file_name("x" * 300)) < 120


def test_a_claim_of_another_type_is_not_taken() -> None:
    ((name, rows),) = sessions_of(frame([run("e1", "print(1)", stdout="1\n")]))
    damaged: dict[str, Any] = atif(name, rows, Lacks())
    told = next(iter(damaged["steps"][0]["extra"].values()))
    told |= {"stdout": 3, "licence": ["MIT"], "duration_ms": -1, "bullet_ids": "str-1", "flags": [1], "tenant": None}
    records = agent_records(LogDocument(json.dumps(damaged).encode()), NOW)
    (one,) = list(records or ())
    assert isinstance(one, Recorded) and (one.stdout, one.licence, one.duration_ms) == ("1\n", None, None)
    assert (one.bullet_ids, one.flags, one.outcome) == (None, [], "ok")
    told["outcome"] = "splendid"
    (one,) = list(agent_records(LogDocument(json.dumps(damaged).encode()), NOW) or ())
    assert isinstance(one, Recorded) and one.outcome == "unknown"


def test_the_table_is_not_changed() -> None:
    rows = frame([run("e2", "x", minute=1), run("e1", "y")])
    before = rows.clone()
    assert [row["execution_id"] for _, found in sessions_of(rows) for row in found] == ["e1", "e2"]
    assert rows.equals(before) and isinstance(rows, pl.DataFrame)
