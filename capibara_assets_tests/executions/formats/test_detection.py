"""Which format a file is in, and what each line or document of it holds."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.executions.formats.detection import CountedEntry, FileLayout, LogPart, is_whole, layout, read_parts
from capibara_assets.executions.formats.envelope_reader import Fault, Recorded, read_line
from capibara_assets.executions.formats.strict_json import written_values
from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets_tests.executions.conftest import NOW, envelope, line

EVENT = {
    "version": "v1",
    "id": "5f2a",
    "type": "sandbox.lifecycle.paused",
    "eventData": None,
    "sandboxId": "i0",
    "timestamp": "2026-10-05T00:00:00Z",
}
ENTRY = {"timestamp": "2026-10-05T00:00:00Z", "message": "started", "level": "info", "fields": {"pid": "1"}}
OLD_ENTRY = {"timestamp": "2026-10-05T00:00:00Z", "line": "started"}
CELL = {"cell_type": "code", "source": ["1 + 1"], "execution_count": 1, "outputs": [], "metadata": {}}
NOTEBOOK = {"cells": [CELL], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
TRACE = {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "chat"}]}]}]}
CODE_TRACE = {
    "resourceSpans": [
        {
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": "5b8efff798038103d269b633813fc60c",
                            "spanId": "eee19b7ec3c1b174",
                            "name": "execute_tool python",
                            "startTimeUnixNano": "1791201600000000000",
                            "attributes": [
                                {"key": "gen_ai.tool.call.arguments", "value": {"stringValue": '{"code": "x"}'}}
                            ],
                        }
                    ]
                }
            ]
        }
    ]
}


def parts(data: bytes | Any) -> list[LogPart]:
    return list(read_parts(data if isinstance(data, bytes) else line(data), NOW))


def found(value: bytes | Any) -> list[Recorded | CountedEntry | str]:
    return [part.content.reason if isinstance(part.content, Fault) else part.content for part in parts(value)]


def counts(value: bytes | Any) -> dict[str, int]:
    """Kind → how many of it, where nothing else is found."""
    total: Counter[str] = Counter()
    for item in found(value):
        assert isinstance(item, CountedEntry)
        total[item.kind] += item.number
    return dict(total)


def pretty(value: Any) -> list[bytes]:
    return json.dumps(value, indent=1).encode().split(b"\n")


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ([], FileLayout.LINES),
        ([b"", b"  "], FileLayout.LINES),
        ([line(envelope())], FileLayout.LINES),
        ([line({"a": 1}), line(envelope())], FileLayout.LINES),
        ([b"[" + line(envelope()) + b"]"], FileLayout.LINES),
        ([line(EVENT)], FileLayout.LINES),
        ([line([EVENT, EVENT])], FileLayout.LINES),
        ([line(ENTRY)], FileLayout.LINES),
        ([line(OLD_ENTRY)], FileLayout.LINES),
        ([line({"logs": [ENTRY]})], FileLayout.LINES),
        ([line(NOTEBOOK)], FileLayout.LINES),
        ([line(TRACE)], FileLayout.LINES),
        (pretty(envelope()), FileLayout.DOCUMENT),
        (pretty([envelope()]), FileLayout.DOCUMENT),
        ([b"[", line(envelope()) + b",", line(envelope()), b"]"], FileLayout.DOCUMENT),
        (pretty(NOTEBOOK), FileLayout.DOCUMENT),
        (pretty(TRACE), FileLayout.DOCUMENT),
        (pretty([EVENT]), FileLayout.DOCUMENT),
        (pretty({"logs": [ENTRY]}), FileLayout.DOCUMENT),
        ([b"[" + line(envelope()) + b",", line(envelope()) + b",", line(envelope()) + b"]"], FileLayout.DOCUMENT),
        ([b"[" + line(envelope()), b"," + line(envelope()), b"]"], FileLayout.DOCUMENT),
        ([b"[" + line(envelope()) + b",", line(envelope()), b"]"], FileLayout.DOCUMENT),
        ([b"[" + line(envelope()) + b", " + line(EVENT) + b",", *pretty(envelope()), b"]"], FileLayout.DOCUMENT),
        ([b"[" + line(envelope()) + b","] * 1 + [line(envelope()) + b","] * 19, FileLayout.DOCUMENT),
        ([b'{"sandbox_id": "i0",', line(envelope())], FileLayout.LINES),  # its first line was cut off
        ([b"[" + line(envelope()) + b",", line(envelope())], FileLayout.LINES),
        ([b"[" + line(envelope()) + b",", *[line(envelope())] * 19], FileLayout.LINES),
        ([b"[" + line(envelope()), line(envelope())], FileLayout.LINES),
        ([line([envelope()]), line([envelope()])], FileLayout.LINES),
        ([line({"bullets": {}, "sections": {}})], FileLayout.OTHER),
        (pretty({"bullets": {"a-1": {"content": "code"}}}), FileLayout.OTHER),
        ([b"## STRATEGIES", b"[shr-00001] read the code first"], FileLayout.OTHER),
        ([b"sandbox_id,execution_id", b"1,2"], FileLayout.OTHER),
        ([line({"level": "info", "text": "an application's log"})], FileLayout.OTHER),
    ],
)
def test_the_layout_is_told_by_the_content(head: list[bytes], expected: FileLayout) -> None:
    assert layout(head) is expected


def test_an_envelopes_line_is_one_part_with_its_own_bytes() -> None:
    data = line(envelope())
    assert parts(data) == [LogPart(read_line(data, NOW), data)]


def test_events_and_log_entries_are_counted_by_kind() -> None:
    assert counts(EVENT) == {"sandbox.lifecycle.paused": 1}
    assert counts([EVENT, EVENT | {"type": "sandbox.lifecycle.killed"}]) == {
        "sandbox.lifecycle.paused": 1,
        "sandbox.lifecycle.killed": 1,
    }
    assert counts(ENTRY) == counts(OLD_ENTRY) == {"sandbox_log_entry": 1}
    # version 1 of the logs API gives each entry twice, as text and as object
    assert counts({"logs": [OLD_ENTRY, OLD_ENTRY], "logEntries": [ENTRY, ENTRY]}) == {"sandbox_log_entry": 2}
    assert counts({"logs": [ENTRY]}) == {"sandbox_log_entry": 1}
    assert counts({"logs": []}) == {"sandbox_log_entry": 0}


def test_a_document_may_hold_many_envelopes_and_each_is_judged_alone() -> None:
    records = [envelope(execution_id="a"), envelope(execution_id="b", code=3), envelope(execution_id="c")]
    for data in (b"\n".join(pretty(records)), line(records), b"\n".join(b for r in records for b in pretty(r))):
        first, second, third = parts(data)
        assert isinstance(first.content, Recorded) and isinstance(third.content, Recorded)
        assert (first.content.execution_id, third.content.execution_id) == ("a", "c")
        assert isinstance(second.content, Fault)
        assert (second.content.reason, second.content.detail[:7]) == ("type:code", "part 2:")
        assert json.loads(second.data) == records[1]


BAD = {
    b"null": "not_an_object",
    b"7": "not_an_object",
    b'{"a": 1}': "missing:sandbox_id",
    b'{"a": 1, "a": 2}': "duplicate_key:a",
    b'{"a": "\xff, [{"}': "invalid_utf8",
    b'{"a": oops}': "invalid_json",
    b"": "invalid_json",
    b"[" * 300 + b"]" * 300: "invalid_record",
    b"[" * 200_000 + b"]" * 200_000: "invalid_record",
}


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad[:12].decode("ascii", "replace"))
@pytest.mark.parametrize("between", [b", ", b",\n", b"\n,"])
def test_a_bad_element_costs_itself(bad: bytes, between: bytes, tmp_path: Path) -> None:
    records = [envelope(f'print("[{n}, {{")', execution_id=f"e{n}") for n in range(5)]
    written = [line(record) for record in records]
    (tmp_path / "a.json").write_bytes(b"[" + between.join([*written[:3], bad, *written[3:]]) + b"]")
    ingest = read_experience(tmp_path, now=NOW)
    assert sorted(ingest.executions["code"]) == [record["code"] for record in records]
    (refused,) = ingest.quarantine.rows(named=True)
    assert (refused["reason"], refused["detail"][:7]) == (BAD[bad], "part 4:")
    assert refused["text"].encode() == bad[: 64 << 10].decode("utf-8", "replace").encode()
    assert ingest.summary["pending"] == 0


def test_of_values_that_follow_one_another_a_bad_one_costs_itself(tmp_path: Path) -> None:
    documents = [json.dumps(envelope(execution_id=f"e{n}"), indent=1).encode() for n in range(3)]
    documents[1] = documents[1].replace(b'"code"', b'"sandbox_id": "", "code"')
    (tmp_path / "a.json").write_bytes(b"\n".join(documents) + b"\n")
    ingest = read_experience(tmp_path, now=NOW)
    assert sorted(ingest.executions["execution_id"]) == ["e0", "e2"]
    assert ingest.quarantine["reason"].to_list() == ["duplicate_key:sandbox_id"]


def test_a_token_that_a_line_names_as_a_key_or_a_time_is_in_no_part_of_its_quarantine(tmp_path: Path) -> None:
    """A token that is cut before it is redacted would not be known for one."""
    token = "sk-ant-api03-" + "Zk3Qw9Xv7Lm2Rt8Yp4Bn6Hj1Gf5Ds0AcUeIoTqWrMyVbNxKz" * 2
    twice = json.dumps(envelope()).replace('"code"', f'"{token}": 1, "{token}": 2, "code"')
    (tmp_path / "a.jsonl").write_text(f"{twice}\n{json.dumps(envelope(timestamp=f'{token} is the key'))}\n")
    ingest = read_experience(tmp_path, now=NOW)
    assert ingest.quarantine["reason"].str.extract("^([a-z_]+)").to_list() == ["duplicate_key", "value"]
    assert not any(token[start : start + 20] in str(ingest.quarantine.rows()) for start in range(0, 90, 5))


@pytest.mark.parametrize(
    ("data", "written"),
    [
        (b' [1, {"a,": [2, 3]} ,"]" ] ', [b"1", b'{"a,": [2, 3]}', b'"]"']),
        (b'{"a": "\\"}"}\n[1, 2]', [b'{"a": "\\"}"}', b"[1, 2]"]),
        (b"[1]", [b"[1]"]),
        (b"[]", [b"[]"]),
        (b"[1, 2", []),
        (b'[1, "2]', []),
        (b"[1, 2] 3", []),
        (b"1, [2]", []),
        (b"]", []),
        (b"", []),
    ],
)
def test_values_are_told_apart_as_they_are_written(data: bytes, written: list[bytes]) -> None:
    assert written_values(data) == written


@pytest.mark.parametrize("data", [b"[]", b"[1, 2]", b'["a"]', b"42", b'"x"', b"null", b"[[]]"])
def test_values_that_are_no_objects_are_refused(data: bytes) -> None:
    assert found(data) == ["not_an_object"]


def test_what_is_unknown_says_what_is_missing() -> None:
    assert found({"a": 1}) == ["missing:sandbox_id"]
    assert found(b"{\n") == ["invalid_json"]
    assert found(b"\xff") == ["invalid_utf8"]


def test_a_line_is_whole_when_it_cannot_grow() -> None:
    assert is_whole(line(TRACE)) and is_whole(line([EVENT])) and is_whole(line(envelope()))
    assert not any(is_whole(line(envelope())[:-cut]) for cut in range(1, 200))
    assert not is_whole(b"12")
    assert not is_whole(b"\xff")


def test_a_shell_command_is_an_execution_of_bash() -> None:
    done = {"stdout": "a\n", "stderr": "", "exit_code": 0, "error": None}
    ok = found(envelope("ls", language="bash", execution=done))[0]
    failed = found(envelope("ls x", language="sh", execution={"stdout": "", "stderr": "no x\n", "exitCode": 2}))[0]
    assert isinstance(ok, Recorded) and isinstance(failed, Recorded)
    assert (ok.outcome, ok.stdout, ok.language) == ("ok", "a\n", "bash")
    assert (failed.outcome, failed.error_name, failed.error_value) == ("error", "CommandExitException", "exit code 2")
    assert (failed.stderr, failed.language) == ("no x\n", "bash")
    assert found(envelope(execution={"stdout": "", "exit_code": True})) == ["type:execution"]
    # retain_output=False keeps none
    silent = found(envelope(execution={"stdout": None, "stderr": None, "exit_code": 0}))[0]
    assert isinstance(silent, Recorded) and silent.stdout == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KNOWN = [envelope(), EVENT, ENTRY, NOTEBOOK, TRACE, {"logs": [ENTRY]}]


@given(st.binary(max_size=200))
def test_any_bytes_are_parts(data: bytes) -> None:
    if data.strip():
        assert parts(data)
    layout(data.split(b"\n"))


@given(st.lists(st.sampled_from(KNOWN) | JSON, min_size=1, max_size=4), st.sampled_from([None, 1]))
def test_any_json_is_read_counted_or_refused(values: list[Any], indent: int | None) -> None:
    data = json.dumps(values if len(values) > 1 else values[0], indent=indent).encode()
    for part in parts(data):
        assert isinstance(part.content, Recorded | Fault | CountedEntry)


@given(st.lists(st.sampled_from(KNOWN), min_size=1, max_size=6), st.data())
def test_a_cut_document_never_gives_more_than_the_whole(values: list[Any], data: st.DataObject) -> None:
    whole = json.dumps(values, indent=1).encode()
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    assert [type(part.content) for part in parts(cut)] == [Fault]


def test_every_format_in_one_folder_whatever_the_files_are_called(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\n".join(pretty(NOTEBOOK)))
    (tmp_path / "copy.ipynb").write_bytes(line(NOTEBOOK))
    (tmp_path / "trace").write_bytes(gzip.compress(line(CODE_TRACE) + b"\n" + line(TRACE) + b"\n"))
    (tmp_path / "events.json").write_bytes(b"\n".join(pretty([EVENT, EVENT])))
    (tmp_path / "entries.log").write_bytes(line(ENTRY) + b"\n" + line(OLD_ENTRY) + b"\n")
    (tmp_path / "log.csv").write_bytes(zstandard.compress(line(envelope(execution_id="z")) + b"\n"))
    (tmp_path / "growing.ipynb").write_bytes(b"\n".join(pretty(NOTEBOOK))[:-10])
    (tmp_path / "notes.md").write_text("# a notebook has cells\n")
    ingest = read_experience(tmp_path, now=NOW)
    assert sorted(ingest.executions["code"].to_list()) == ["1 + 1", "print(1)", "x"]
    assert ingest.quarantine.is_empty()
    assert ingest.summary["known"] == {"span": 1, "sandbox.lifecycle.paused": 2, "sandbox_log_entry": 2}
    assert (ingest.summary["duplicates"], ingest.summary["pending"], ingest.summary["logs"]) == (1, 1, 7)


def test_a_document_beyond_any_notebook_is_refused_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capibara_assets.executions.formats.opening.MAX_DOCUMENT", 1000)
    (tmp_path / "big.ipynb").write_bytes(b"\n".join(pretty(NOTEBOOK | {"metadata": {"a": ["x"] * 1000}})))
    ingest = read_experience(tmp_path, now=NOW)
    assert ingest.quarantine["reason"].to_list() == ["document_too_large"]


def test_an_agent_that_edits_notebooks_leaves_no_faults() -> None:
    """Its log speaks of cells, and its lines are none of ours."""

    def said(role: str, block: dict[str, Any]) -> bytes:
        message = {"role": role, "content": [block]}
        about = {"parentUuid": None, "isSidechain": False, "sessionId": "s", "uuid": "u", "timestamp": NOW.isoformat()}
        return line({**about, "type": role, "message": message})

    asked = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
    given = {"notebook_path": "a.ipynb", "new_source": "x", "cell_type": "code"}
    edits = {"type": "tool_use", "id": "toolu_2", "name": "NotebookEdit", "input": given}
    told = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a", "is_error": False}
    log = b"\n".join([said("assistant", asked), said("user", told), said("assistant", edits)]) + b"\n"
    items = found(log)
    assert next(item.code for item in items if isinstance(item, Recorded)) == "ls"
    assert not [item for item in items if isinstance(item, str)]
