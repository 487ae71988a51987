"""Evaluations on training items are refused: planted leaks of every sort, and real data that does not leak."""

import json
from pathlib import Path

import polars as pl
import pytest

from capibara_assets.datasets.recipe import NearDuplicates
from capibara_assets.datasets.schema import Example
from capibara_assets.errors import InputError
from capibara_assets.evaluation.items.items import Item, items_of
from capibara_assets.evaluation.items.leaks import find_benchmark_leaks, find_leaks, refuse_leaks
from capibara_assets.executions.schema import Execution
from capibara_assets.storage.records import table

NEAR = NearDuplicates.model_validate({})
CODE = """def running_totals(amounts):
    totals = []
    current = 0
    for amount in amounts:
        current = current + amount
        if 0 < current < 1000:
            totals.append(current)
    return totals

print(running_totals([3, -1, 4, -9, 2]))"""
RENAMED = """# sums as they grow
def sums_so_far(values):
    out = []
    sofar = 0
    for value in values:
        sofar = sofar + value
        if 0 < sofar < 1000:
            out.append(sofar)
    return out

print(sums_so_far([3, -1, 4, -9, 2]))"""
QUESTION = "Write Python code.\nPrint the running totals of a list of amounts, leaving out those that are not positive."


def example(
    name: str,
    question: str,
    answer: str,
    *,
    split: str = "train",
    kind: str = "solve",
    group: str | None = None,
    executions: tuple[str, ...] = (),
    language: str = "python",
) -> Example:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return Example(
        example_id=name, domain="python", kind=kind, language=language, messages=json.dumps(messages),
        group_id=group or f"group of {name}", split=split, difficulty=0.5, quality=1.0, cluster_id=name, weight=1.0,
        balance=1.0, verified="recorded", not_replayed=None, provenance="experience",
        execution_ids=list(executions or (f"execution of {name}",)), bullet_ids=[], sandbox_ids=[], licence=None,
        source=None, tenants=[], source_places=[],
    )  # fmt: skip


def held_out(*examples: Example) -> list[Item]:
    return items_of(table(Example, examples), table(Execution, []))


def leaks(item: Example, *training: Example) -> list[tuple[str, str, str]]:
    found = find_leaks(held_out(item), table(Example, training), NEAR)
    return [(leak.item_id, leak.example_id, leak.how) for leak in found]


ITEM = example("item", QUESTION, CODE, split="test", executions=("e1", "e2"))
OTHER = example("other", "Write a query.\nCount the orders of every customer in the year.", "SELECT 1", language="sql")
PARAPHRASE = "Given deposits and withdrawals, show what has come together after each one as long as it is above zero."


@pytest.mark.parametrize(
    ("planted", "how"),
    [
        (example("item", QUESTION, CODE), "example"),
        (example("t", "Explain.", "It adds.", kind="explain", executions=("e9", "e2")), "execution"),
        (example("t", "Explain.", "It adds.", kind="explain", group="group of item"), "group"),
        (example("t", QUESTION, CODE), "text"),
        (example("t", QUESTION.replace("those", "the ones"), CODE.replace("-9, 2", "-9, 3")), "near"),
        (example("t", PARAPHRASE, CODE.replace("-9, 2", "-9, 3")), "near"),
        (example("t", QUESTION, "pass"), "question"),
        (example("t", PARAPHRASE, CODE), "answer"),
        (example("t", PARAPHRASE, f"Here it is:\n```python\n{RENAMED}\n```\nIt prints them."), "structure"),
        (example("t", PARAPHRASE, RENAMED, split="validation"), "structure"),
    ],
    ids=[
        "example",
        "execution",
        "group",
        "text",
        "nearly all",
        "a number changed",
        "question",
        "answer",
        "renamed",
        "validation",
    ],
)
def test_a_planted_leak_is_found(planted: Example, how: str):
    assert leaks(ITEM, OTHER, planted) == [("item", planted.example_id, how)]


@pytest.mark.parametrize(
    "harmless",
    [
        OTHER,
        example("t", "Write Python code.\nPrint the smallest of a list.", "print(min([3, 1, 2]))"),
        example("t", "What does it print?", "7", kind="predict"),
        example("t", QUESTION, "const totals = 1", language="javascript"),
    ],
)
def test_other_examples_are_no_leak(harmless: Example):
    assert leaks(ITEM, harmless) == []


def test_short_answers_and_prose_are_often_the_same():
    item = example("item", "What does `print(3 + 4)` print?", "7", split="test", kind="predict")
    assert leaks(item, example("t", "What does `print(len('capibar'))` show?", "7", kind="predict")) == []


def test_an_item_is_named_once_with_what_proves_most():
    training = [example(f"t{n}", QUESTION, CODE) for n in range(3)] + [example("t9", "x", "y", executions=("e1",))]
    assert leaks(ITEM, *training) == [("item", "t9", "execution")]
    assert leaks(ITEM, *training[:3]) == [("item", "t0", "text")]


def test_many_copies_hide_no_leak():
    """Beyond a crowd, near-duplicates are no longer paired all with all: an item still meets one of its copies."""
    training = [example(f"t{n:03}", QUESTION, CODE) for n in range(150)]
    assert [how for *_, how in leaks(ITEM, *training)] == ["text"]


def test_the_refusal_names_items_and_what_to_do():
    items = held_out(ITEM)
    found = find_leaks(items, table(Example, [example("t", PARAPHRASE, RENAMED)]), NEAR)
    with pytest.raises(InputError) as caught:
        refuse_leaks(found, len(items), "moe_dataset[python]")
    for part in (
        "1 of 1 test items",
        "moe_dataset[python]",
        "item has, but for names, the same code",
        "t.",
        "take the",
    ):
        assert part in str(caught.value)
    assert refuse_leaks([], 1, "anything") == []


def test_what_is_nearly_a_training_item_is_left_out_unless_there_are_many():
    items = [ITEM] + [example(f"i{n:02}", f"Print the number {n}.", f"print({n})", split="test") for n in range(10)]
    training = table(Example, [example("t", PARAPHRASE, CODE.replace("-9, 2", "-9, 3"))])
    found = find_leaks(held_out(*items), training, NEAR)
    assert refuse_leaks(found, len(items), "training") == found and [leak.item_id for leak in found] == ["item"]
    with pytest.raises(InputError, match="item has nearly the same text"):
        refuse_leaks(found, 9, "training")


def test_a_refusal_of_many_items_stays_readable():
    items = [example(f"item-{n:02}", f"{n} {QUESTION}", CODE, split="test") for n in range(30)]
    training = [example(one.example_id, "x", "y") for one in items]
    found = find_leaks(held_out(*items), table(Example, training), NEAR)
    with pytest.raises(InputError, match=r"30 of 30 .*item-00.*item-19.*and 10 more") as caught:
        refuse_leaks(found, len(items), "training")
    assert "item-20" not in str(caught.value)


def benchmark(folder: Path) -> Path:
    items = [
        {
            "task_id": f"HumanEval/{n}",
            "prompt": f'def {name}(amounts):\n    """{text}"""\n',
            "canonical_solution": body,
            "entry_point": name,
            "test": f"def check(candidate):\n    assert candidate([{n}]) == [{n}]\n",
        }
        for n, (name, text, body) in enumerate(
            [
                ("running_totals", "Print the running totals.", CODE.split("\n", 1)[1].rsplit("\n\n", 1)[0] + "\n"),
                ("smallest", "The smallest of the amounts.", "    return min(amounts)\n"),
            ]
        )
    ]
    file = folder / "HumanEval.jsonl"
    file.write_text("\n".join(json.dumps(item) for item in items))
    return file


def test_a_benchmarks_solution_in_the_training_data_is_found(tmp_path: Path):
    files = {"HumanEval": benchmark(tmp_path)}
    planted = table(Example, [OTHER, example("t", PARAPHRASE, RENAMED)])
    found = find_benchmark_leaks(files, planted)
    assert [(leak.item_id, leak.example_id, leak.how) for leak in found] == [
        ("HumanEval/HumanEval/0", "t", "structural")
    ]
    with pytest.raises(InputError, match="HumanEval/HumanEval/0"):
        refuse_leaks(found, 2, "moe_dataset")
    assert find_benchmark_leaks(files, table(Example, [OTHER])) == []


def test_a_benchmarks_text_in_the_training_data_is_found(tmp_path: Path):
    file = tmp_path / "mbpp.jsonl"
    statement = (
        "Merge overlapping parking reservations into the fewest disjoint intervals sorted by their arrival minute, "
        "keeping the licence plate of the earliest driver of each merged interval."
    )
    file.write_text(json.dumps({"task_id": 7, "text": statement, "code": "def f(x):\n    return x", "test_list": []}))
    planted = example("t", f"Here is a task for you. {statement.upper()} Thanks!", "print(1)")
    found = find_benchmark_leaks({"mbpp": file}, table(Example, [planted]))
    assert [(leak.item_id, leak.how) for leak in found] == [("mbpp/7", "ngram")]


def test_a_benchmark_file_that_is_missing_is_an_error(tmp_path: Path):
    with pytest.raises(InputError, match="no file at"):
        find_benchmark_leaks({"HumanEval": tmp_path / "gone.jsonl"}, table(Example, [OTHER]))


def test_what_training_does_not_hold_is_empty():
    assert find_leaks(held_out(ITEM), pl.DataFrame(schema=table(Example, []).schema), NEAR) == []
