"""Items from files: tables of examples, chats, benchmarks; what is none of them is refused with its place."""

import json
from pathlib import Path

import pytest

from capibara_assets.datasets.schema import Example
from capibara_assets.errors import InputError
from capibara_assets.evaluation.items.dataset_files import examples_of_items, is_benchmark, read_items
from capibara_assets.executions.schema import Execution
from capibara_assets.storage.records import table
from capibara_assets_tests.evaluation.contenders.test_contenders import example
from capibara_assets_tests.evaluation.items.test_items import execution


def test_of_a_table_of_examples_the_test_split_is_taken(tmp_path: Path):
    file = tmp_path / "examples.parquet"
    table(Example, [example(1), example(2, split="train"), example(3)]).write_parquet(file)
    assert [item.item_id for item in read_items(file)] == ["e001", "e003"]
    table(Example, [example(2, split="train")]).write_parquet(file)
    assert [item.item_id for item in read_items(file)] == ["e002"]


def test_with_its_executions_the_code_of_an_example_can_be_run(tmp_path: Path):
    examples, executions = tmp_path / "examples.parquet", tmp_path / "executions.parquet"
    code = "def answer():\n    return 7 ** 2"
    turns = [{"role": "user", "content": "Write it."}, {"role": "assistant", "content": code}]
    test = "assert answer() == 49"
    table(Example, [example(7, execution_ids=["e1"], messages=json.dumps(turns), test=test)]).write_parquet(examples)
    cell = execution(1, f"{code}\n{test}")
    table(Execution, [cell]).write_parquet(executions)
    [bare], [whole] = read_items(examples), read_items(examples, executions)
    assert bare.check.kind == "text" and whole.check.kind == "assertions"
    assert "answer() == 49" in whole.check.tests


def test_chats_are_compared_as_texts(tmp_path: Path):
    file = tmp_path / "chats.jsonl"
    lines = [{"prompt": f"What is {n} + {n}?", "completion": f"It is {2 * n}."} for n in (3, 40)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    items = read_items(file)
    assert {item.kind for item in items} == {"chat"} and {item.check.kind for item in items} == {"text"}
    assert sorted(item.reference for item in items) == ["It is 6.", "It is 80."]


def test_a_benchmark_is_told_by_its_tasks(tmp_path: Path):
    file = tmp_path / "toy.jsonl"
    task = {"task_id": "Toy/0", "prompt": "def f(x):\n", "canonical_solution": "    return x", "entry_point": "f"}
    file.write_text(json.dumps(task | {"test": "def check(f):\n    assert f(3) == 3\n"}) + "\n")
    assert is_benchmark(file)
    assert [item.item_id for item in read_items(file)] == ["toy/Toy/0"]


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "is no file"), ("", "not one example"), ('{"nothing": 1}\n', "jsonl:1"), ("{", "jsonl:1")],
)
def test_what_holds_no_items_is_refused(tmp_path: Path, text: str | None, words: str):
    file = tmp_path / "file.jsonl"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=words):
        read_items(file)


def test_items_become_examples_with_the_recorded_answer_last(tmp_path: Path):
    file = tmp_path / "examples.parquet"
    rows = table(Example, [example(1), example(3)])
    rows.write_parquet(file)
    found = examples_of_items(read_items(file))
    assert found["example_id"].to_list() == ["e001", "e003"] and found["group_id"].to_list() == ["g0", "g1"]
    assert [json.loads(m) for m in found["messages"]] == [json.loads(m) for m in rows["messages"]]
