"""Files in HumanEval's and MBPP's format as items."""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.errors import InputError
from capibara_assets.evaluation.items.public_benchmarks import read_benchmark

HUMAN_EVAL: dict[str, Any] = {
    "task_id": "HumanEval/0",
    "prompt": 'from typing import List\n\n\ndef doubled(numbers: List[int]) -> List[int]:\n    """Twice each."""\n',
    "entry_point": "doubled",
    "canonical_solution": "    return [2 * n for n in numbers]\n",
    "test": "M = {}\n\ndef check(candidate):\n    assert candidate([1, 2]) == [2, 4]\n    assert candidate([]) == []\n",
}
MBPP: dict[str, Any] = {
    "task_id": 11,
    "text": "Write a function to add two numbers.",
    "code": "def add(a, b):\n    return a + b",
    "test_list": ["assert add(1, 2) == 3", "assert add(-1, 1) == 0"],
    "test_setup_code": "import math",
}


def written(path: Path, *rows: dict[str, Any]) -> Path:
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


def test_human_eval(tmp_path: Path) -> None:
    path = written(tmp_path / "HumanEval.jsonl.gz", HUMAN_EVAL)
    benchmark = read_benchmark(path)
    (item,) = benchmark.items
    assert benchmark.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (item.item_id, item.domain, item.kind, item.language) == (
        "HumanEval/HumanEval/0", "HumanEval", "benchmark", "python",
    )  # fmt: skip
    assert item.prompt[0]["content"].endswith(HUMAN_EVAL["prompt"])
    assert item.check.before == "from typing import List"
    assert item.check.tests.rstrip().endswith("check(doubled)")
    compile(item.reference, "reference", "exec")


def test_mbpp(tmp_path: Path) -> None:
    (item,) = read_benchmark(written(tmp_path / "mbpp.jsonl", MBPP)).items
    assert item.item_id == "mbpp/11"
    assert item.check.tests == "import math\nassert add(1, 2) == 3\nassert add(-1, 1) == 0"
    assert "assert add(1, 2) == 3" in item.prompt[0]["content"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([MBPP, MBPP], "twice"),
        ([MBPP | {"test_list": []}], "test_list"),
        ([HUMAN_EVAL | {"test": ""}], "no test"),
        ([HUMAN_EVAL, {"task_id": 1}], ":2"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, rows: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_benchmark(written(tmp_path / "b.jsonl", *rows))
