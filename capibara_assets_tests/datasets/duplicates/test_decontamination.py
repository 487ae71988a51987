"""Decontamination: planted items are found however they are dressed up, boilerplate and real experience raise none."""

import gzip
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capibara_assets.datasets.duplicates.decontamination import Contaminated, contaminated
from capibara_assets.datasets.duplicates.public_benchmarks import read_items
from capibara_assets.datasets.recipe import Decontamination
from capibara_assets.errors import InputError
from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets.storage.records import problems

PROMPT = '''from typing import List


def longest_plateau(heights: List[int], tolerance: int) -> int:
    """ Return the length of the longest stretch of neighbouring heights in which no two differ by more than the
    tolerance given; an empty ridge has length zero.
    >>> longest_plateau([3, 3, 4, 9], 1)
    3
    """
'''
SOLUTION = """    best = start = 0
    for end in range(len(heights)):
        while max(heights[start:end + 1]) - min(heights[start:end + 1]) > tolerance:
            start += 1
        best = max(best, end - start + 1)
    return best
"""
HUMANEVAL = {
    "task_id": "HumanEval/900",
    "prompt": PROMPT,
    "canonical_solution": SOLUTION,
    "test": "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate([3, 3, 4, 9], 1) == 3\n",
    "entry_point": "longest_plateau",
}
TRIVIAL = {
    "task_id": "HumanEval/901",
    "prompt": "from typing import List, Optional, Tuple\n\n\ndef add(x: int, y: int):\n"
    '    """Add two numbers x and y"""\n',
    "canonical_solution": "    return x + y\n",
    "test": "def check(candidate):\n    assert candidate(0, 1) == 1\n",
    "entry_point": "add",
}
MBPP = {
    "task_id": 7001,
    "text": "Write a function to count how many lanterns stay lit after all the wardens toggled those on their beat.",
    "code": "def lit_lanterns(wardens, lanterns):\n    state = [False] * lanterns\n    for beat in wardens:\n"
    "        for place in beat:\n            state[place % lanterns] = not state[place % lanterns]\n"
    "    return sum(state)\n",
    "test_list": ["assert lit_lanterns([[0, 1], [1]], 3) == 1", "assert lit_lanterns([], 4) == 0"],
}
BOILERPLATE = {
    "task_id": "HumanEval/902",
    "prompt": "from starlette.applications import Starlette\nfrom starlette.responses import JSONResponse\n"
    "from starlette.routing import Route\nfrom starlette.testclient import TestClient\nimport numpy as np\n"
    "import pandas as pd\nimport matplotlib.pyplot as plt\nimport os\nimport sys\n"
    'if __name__ == "__main__":\n    main()\n',
    "canonical_solution": "import json\nimport re\nfrom typing import Any, Dict, List, Optional, Tuple\n\n\n"
    "def main():\n    pass\n",
    "test": "",
    "entry_point": "main",
}
JAVASCRIPT = {
    "task_id": "JavaScript/7",
    "prompt": "/* Tell how far the ferry drifts when each gust pushes it, and stop at the pier. */\n"
    "const ferryDrift = (gusts, pier) => {\n",
    "declaration": "const ferryDrift = (gusts, pier) => {\n",
    "canonical_solution": "  let drift = 0;\n  for (const gust of gusts) {\n"
    "    drift = Math.min(pier, drift + gust * 2);\n  }\n  return drift;\n}\n",
    "test": "",
    "entry_point": "ferryDrift",
}


def recipe_of(tmp_path: Path, *entries: Any) -> Decontamination:
    path = tmp_path / "items.jsonl"
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    return Decontamination.model_validate({"benchmarks": {"own": str(path)}})


def examples_of(*turns: tuple[str, str], language: str = "python") -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "example_id": f"e{number}",
                "language": language,
                "messages": json.dumps(
                    [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
                ),
            }
            for number, (user, assistant) in enumerate(turns)
        ],
        schema={"example_id": pl.String, "language": pl.String, "messages": pl.String},
    )


def found(table: pl.DataFrame) -> set[tuple[str, str, str]]:
    return set(table.select("example_id", "item", "how").iter_rows())


RENAMED = '''def ridge(levels, slack):
    """Quite another story."""
    widest = left = 0  # both count positions
    for right in range(len(levels)):
        while max(levels[left:right + 1]) - min(levels[left:right + 1]) > slack:
            left += 1
        widest = max(widest, right - left + 1)

    return widest
'''
REFORMATTED = PROMPT.replace("    ", "  ").replace("\n\n", "\n") + SOLUTION.replace("    ", "\t").replace(" - ", "-")


@pytest.mark.parametrize(
    ("user", "assistant", "how"),
    [
        (PROMPT, "Done.", {"ngram"}),
        ("Please help.\n\n" + PROMPT.upper(), "Done.", {"ngram"}),
        ("Do it.", "def f():\n    pass\n\n\n" + PROMPT + SOLUTION + "\n\nprint(1)\n", {"ngram", "structural"}),
        ("Do it.", REFORMATTED, {"ngram"}),
        ("Do it.", RENAMED, {"structural"}),
        (
            "Do it.",
            "Sure:\n```python\nclass A:\n" + "    " + RENAMED.replace("\n", "\n    ") + "\n```\n",
            {"structural"},
        ),
        ("Explain this Python code.\n\nCode:\n" + RENAMED, "It looks for a stretch.", {"structural"}),
    ],
    ids=["prompt", "upper case", "answer", "re-formatted", "renamed", "in a fence and a class", "in the prompt"],
)
def test_planted_items_are_found(tmp_path: Path, user: str, assistant: str, how: set[str]) -> None:
    table = contaminated(examples_of(("Sort a list.", "sorted(x)"), (user, assistant)), recipe_of(tmp_path, HUMANEVAL))
    assert found(table) == {("e1", "HumanEval/900", kind) for kind in how}
    assert problems(Contaminated, table) == []


def test_mbpp_in_both_shapes_and_a_zipped_list(tmp_path: Path) -> None:
    sanitized = {**{k: v for k, v in MBPP.items() if k != "text"}, "task_id": 7002, "prompt": MBPP["text"]}
    path = tmp_path / "mbpp"  # no ending: the content tells
    path.write_bytes(gzip.compress(json.dumps([MBPP, sanitized]).encode()))
    recipe = Decontamination.model_validate({"benchmarks": {"mbpp": str(path)}})
    examples = examples_of((MBPP["text"], "?"), ("?", MBPP["code"].replace("state", "lamps").replace("beat", "walk")))
    table = contaminated(examples, recipe)
    assert found(table) == {
        (example, item, how) for item in ("7001", "7002") for example, how in (("e0", "ngram"), ("e1", "structural"))
    }
    assert table.filter(pl.col("how") == "structural")["overlap"].to_list() == [1.0, 1.0]


def test_short_items_count_as_a_whole(tmp_path: Path) -> None:
    short = {**MBPP, "text": "Weave kelp ropes into nets.", "code": "weave = nets", "test_list": []}
    examples = examples_of(("Please: weave kelp ropes, into nets!", "."), ("Weave kelp ropes into sails.", "."))
    assert found(contaminated(examples, recipe_of(tmp_path, short))) == {("e0", "7001", "ngram")}


def test_javascript_under_other_names(tmp_path: Path) -> None:
    whole = JAVASCRIPT["declaration"] + JAVASCRIPT["canonical_solution"]
    other = whole.replace("drift", "moved").replace("gusts", "winds").replace("gust", "wind").replace("ferryDrift", "f")
    recipe = recipe_of(tmp_path, JAVASCRIPT, HUMANEVAL)
    assert found(contaminated(examples_of(("Go.", other), language="javascript"), recipe)) == {
        ("e0", "JavaScript/7", "structural")
    }
    assert contaminated(examples_of(("Go.", other.replace("* 2", "* 3")), language="javascript"), recipe).is_empty()


def test_boilerplate_and_trivial_solutions_raise_no_alarm(tmp_path: Path) -> None:
    code = BOILERPLATE["prompt"] + BOILERPLATE["canonical_solution"]
    examples = examples_of(("Plot.", code), ("Add.", "def plus(a, b):\n    return a + b\n"))
    assert contaminated(examples, recipe_of(tmp_path, BOILERPLATE, TRIVIAL)).is_empty()


def test_what_many_items_of_a_benchmark_share_is_its_boilerplate(tmp_path: Path) -> None:
    licence = (
        "granted hereby royalty free worldwide permission under warranty disclaimer notice copies merge sublicense"
    )
    items = [{**HUMANEVAL, "task_id": f"HumanEval/{n}", "test": licence} for n in range(3)]
    assert contaminated(examples_of((licence, ".")), recipe_of(tmp_path, *items)).is_empty()
    alone = recipe_of(tmp_path, {**HUMANEVAL, "test": licence})
    assert found(contaminated(examples_of((licence, ".")), alone)) == {("e0", "HumanEval/900", "ngram")}


def test_real_experience_raises_no_alarm(tmp_path: Path, small_experience: Path) -> None:
    executions = read_experience(small_experience, now=datetime(2026, 12, 1, tzinfo=UTC)).executions
    turns = [(task or "?", code) for task, code in executions.select("task", "code").iter_rows()]
    recipe = recipe_of(tmp_path, HUMANEVAL, TRIVIAL, MBPP, BOILERPLATE)
    assert contaminated(examples_of(*turns), recipe).is_empty()


def test_no_benchmark_no_work() -> None:
    assert contaminated(examples_of(("a", "b")), Decontamination.model_validate({})).is_empty()


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ([json.dumps(HUMANEVAL), "{not json"], ":2 is not JSON"),
        ([json.dumps(HUMANEVAL), "", "3"], ":3 is int"),
        ([json.dumps({"task_id": 1, "question": "?"})], "question"),
        ([json.dumps({**HUMANEVAL, "prompt": None})], "prompt is missing or no text"),
        ([json.dumps({k: v for k, v in MBPP.items() if k != "task_id"})], "no task_id"),
        ([json.dumps({**MBPP, "test_list": "assert"})], "test_list"),
        (["[1, 2"], "starts like a JSON list"),
        ([""], "holds no item"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, lines: list[str], place: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(InputError, match="own") as caught:
        read_items("own", path)
    assert place in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_and_a_cut_off_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file at"):
        read_items("own", tmp_path / "none.jsonl")
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(json.dumps(HUMANEVAL).encode())[:-20])
    with pytest.raises(InputError, match="damaged gzip"):
        read_items("own", cut)


@given(st.text(max_size=40), st.text(max_size=40))
@settings(max_examples=15, deadline=None)
def test_an_item_is_found_between_any_texts(before: str, after: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        recipe = recipe_of(Path(folder), HUMANEVAL)
        text = f"{before}\n{PROMPT}\n{after}"
        assert ("e0", "HumanEval/900", "ngram") in found(contaminated(examples_of((text, "?")), recipe))
