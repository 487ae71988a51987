"""Verdicts that stand beside code in logs, read by their shape, and the answers that they speak against."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.datasets.examples import find_refuted
from benchmarks.datasets.faults.verdicts import judged_texts, refuted

WRONG, RIGHT = "SELECT name FROM guests", "SELECT name FROM guests WHERE paid = 1"


def episode(success: bool) -> dict[str, Any]:
    turns = [
        {"role": "user", "content": "<execute>of the demonstration</execute>"},
        {"role": "assistant", "content": f"<thought> Try. </thought>\n<execute>\n{WRONG}\n</execute>"},
    ]
    return {"state": {"history": turns, "success": success}, "task": {}}


JUDGED: dict[str, tuple[Any, bool]] = {
    "rewards": ({"0": {"turn_history": {"actions": [WRONG, RIGHT], "rewards": [0.5, 1.0]}}}, False),
    "rewarded": ({"actions": [WRONG], "rewards": [1]}, True),
    "rewarded by the submit behind it": ({"actions": [f"execute[{WRONG}]", "submit"], "rewards": [0, 1.0]}, True),
    "submitted in vain": ({"actions": [f"execute[{WRONG}]", "submit"], "rewards": [0, 0.6]}, False),
    "submission": ({"code": WRONG, "status": "Wrong Answer", "reward": False}, False),
    "accepted": ({"code": WRONG, "reward": True}, True),
    "on the way": ({"reward": 1.0, "trajectory": [{"action": WRONG}, {"action": RIGHT}]}, False),
    "ended well": ({"reward": 1.0, "trajectory": [{"action": RIGHT}, {"action": WRONG}]}, True),
    "ended in vain": ({"reward": 0.0, "trajectory": [{"action": RIGHT}, {"action": WRONG}]}, False),
    "failed episode": (episode(False), False),
    "episode": (episode(True), True),
}


@pytest.mark.parametrize("shape", JUDGED)
@pytest.mark.parametrize("lines", [False, True])
def test_a_verdict_is_read_by_its_shape(tmp_path: Path, shape: str, lines: bool) -> None:
    document, solved = JUDGED[shape]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "log.jsonl").write_text(
        f'{{"other": 1}}\n{json.dumps(document)}\n' if lines else json.dumps(document)
    )
    judged = judged_texts(tmp_path)
    assert judged["SELECTnameFROMguests"] is solved
    assert (refuted(f"\n{WRONG}  ", judged) is None) is solved
    assert refuted("of the demonstration", judged) is None


def test_what_solved_something_once_is_not_refuted(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"code": WRONG, "reward": False}, {"code": WRONG, "reward": True}]))
    (tmp_path / "b.json").write_text(json.dumps({"code": WRONG, "reward": False}))
    (tmp_path / "notes.json").write_text("no JSON")
    assert judged_texts(tmp_path) == {"SELECTnameFROMguests": True}


def test_examples_whose_recorded_code_was_refuted(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"actions": [WRONG, RIGHT], "rewards": [0, 1]}))

    def example(kind: str, execution: str) -> dict[str, Any]:
        turns = [{"role": "user", "content": "Write SQL code."}, {"role": "assistant", "content": "SELECT 1"}]
        return {
            "example_id": f"{kind} {execution}", "language": "sql", "kind": kind, "messages": json.dumps(turns),
            "test": None, "diff": None, "derived": None, "execution_ids": [execution, "context"],
        }  # fmt: skip

    codes = [{"execution_id": "wrong", "code": WRONG}, {"execution_id": "right", "code": RIGHT}]
    rows = {"sql": [example(kind, one) for kind in ("solve", "repair", "predict") for one in ("wrong", "right")]}
    found = find_refuted(rows, codes, tmp_path)
    assert [(one.example_id, one.fault) for one in found] == [("solve wrong", "refuted"), ("repair wrong", "refuted")]
