"""A log's JSON lines: which documents have some, and what is told of the damaged ones."""

import json

import pytest

from capibara_assets.executions.formats.agents.runs import LogDocument

ROWS = [json.dumps({"row": row}) for row in range(4)]


@pytest.mark.parametrize("head", [['w": 1}'], ["", 'w": 1}'], ["3", "", "[", '"w"}'], ["[1, 2]"], ["null"]])
def test_a_cut_head_is_one_fault(head: list[str]) -> None:
    document = LogDocument("\n".join([*head, *ROWS, ROWS[0], ROWS[1], "{", *ROWS, ""]).encode())
    assert [line["row"] for line in document.lines] == [0, 1, 2, 3, 0, 1, 0, 1, 2, 3]
    cut, damaged = document.faults
    assert (cut.reason, cut.value) == ("invalid_json", "\n".join(head))
    assert damaged.detail.startswith(f"line {len(head) + 7}: ") and not document.unfinished


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(["# Title", "", "Some text.", *ROWS[:3], "", "More."]),
        "\n".join(["a,b", "1,2", "3,4"]),
        "\n".join(["a", "b", "c", "d", *ROWS * 4]),
        "\n".join(["# Title", *ROWS[:1]]),
        json.dumps([json.loads(row) for row in ROWS]),
        "[\n" + ",\n".join(ROWS) + "\n]",
        '"text"',
        "",
    ],
)
def test_what_is_no_json_lines_has_none(text: str) -> None:
    document = LogDocument(text.encode())
    assert not document.lines and not document.faults and not document.unfinished


def test_a_line_that_two_writers_shared_holds_the_objects_of_both() -> None:
    document = LogDocument(b'{"a": 1}\n{"a": 2}{"a": 3} {"a": 4}\n{"a": 5}[1]\n')
    assert document.lines == [{"a": 1}, {"a": 2}, {"a": 3}, {"a": 4}]
    assert [fault.reason for fault in document.faults] == ["invalid_json"]
