"""Examples of every kind, from evidence alone: placed, deduplicated, capped, traceable."""

import json
import math
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.datasets import checks
from capibara_assets.datasets.audit.verdicts import keep_verdicts
from capibara_assets.datasets.caps import CAPPED
from capibara_assets.datasets.examples import (
    ALIKE,
    CONTAMINATED,
    DUPLICATE,
    FAILED,
    NOTHING,
    OTHER_TENANT,
    Dataset,
    _limited,
    _template,
    build_dataset,
)
from capibara_assets.datasets.executing import DIFFERED, NEVER_RUN, NOT_AGAIN, NOT_PASSED, Reexecute
from capibara_assets.datasets.groups import BRIDGE, assign_groups
from capibara_assets.datasets.kinds import repair, solve
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate
from capibara_assets.datasets.placing import FAILED_LATER, MENDED_LATER, REFUTED, TOO_LONG, Placed
from capibara_assets.datasets.recipe import DatasetRecipe, Decontamination
from capibara_assets.datasets.schema import Example, LeftOut
from capibara_assets.datasets.tracing import traced
from capibara_assets.datasets.verification import Judgement, Judgements, judge_answers, verify
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.executions.formats.notebook_tasks import FROM_MARKDOWN
from capibara_assets.executions.patterns.repairs import find_repairs
from capibara_assets.executions.replay.replay import ReplayBatch, ReplayVerdict
from capibara_assets.executions.schema import SOLVED, UNSOLVED, Execution, Pattern
from capibara_assets.executions.tracebacks import error_text
from capibara_assets.storage.records import frame_digest, problems, table
from capibara_assets_tests.datasets.conftest import (
    bullet,
    came_out_again,
    evidence_of,
    fleet,
    pair,
    pattern,
    problem,
    run,
)
from capibara_assets_tests.datasets.test_checks import example


def build(
    evidence: Evidence,
    recipe: DatasetRecipe,
    domain: Domain = Domain.PYTHON,
    reexecute: Reexecute | None = came_out_again,
) -> Dataset:
    groups = assign_groups(evidence.executions, evidence.repairs, None, recipe)
    return build_dataset(domain, evidence, groups, recipe, reexecute=reexecute)


def only(dataset: Dataset, kind: str | None = None) -> dict[str, Any]:
    """The only example (of a kind), with its prompt and answer."""
    found = dataset.examples if kind is None else dataset.examples.filter(pl.col("kind") == kind)
    assert found.height == 1, found
    row = found.row(0, named=True)
    prompt, answer = (turn["content"] for turn in json.loads(row["messages"]))
    return {**row, "prompt": prompt, "answer": answer}


def reasons(dataset: Dataset) -> dict[str, str]:
    return dict(dataset.left_out.iter_rows())


def test_solve_from_the_recorded_task(recipe: DatasetRecipe) -> None:
    code = 'def double(n):\n    """Doubles."""\n    return 2 * n\n\nassert double(2) == 4\nprint(double(3))'
    found = only(build(evidence_of([run("e", code, task="Write `double(n)`.", stdout="6\n")]), recipe, reexecute=None))
    assert found["prompt"] == "Write Python code.\nWrite `double(n)`.\n\nIt has to pass:\nassert double(2) == 4"
    assert found["answer"] == 'def double(n):\n    """Doubles."""\n    return 2 * n'
    assert (found["kind"], found["verified"], found["execution_ids"]) == ("solve", "recorded", ["e"])
    assert (found["licence"], found["source"], found["source_places"]) == ("MIT", "fixture", ["a.jsonl:1"])
    assert found["proof"] == "6"


def test_solve_from_the_docstring(recipe: DatasetRecipe) -> None:
    code = 'def double(n):\n    """Return twice a number."""\n    return 2 * n'
    found = only(build(evidence_of([run("e", code)]), recipe))
    assert found["prompt"] == "Write Python code.\nReturn twice a number.\n\nSignature:\ndef double(n)"
    assert found["answer"] == "def double(n):\n    return 2 * n"


def test_solve_from_a_leading_comment_with_its_context(recipe: DatasetRecipe) -> None:
    cells = [
        run("a", "rows = [1, None]\nother = 5"),
        run("b", "# drop the missing values\n[row for row in rows if row]", minute=1),
    ]
    found = only(build(evidence_of(cells), recipe), "solve")
    assert found["prompt"] == "Write Python code.\ndrop the missing values\n\nSession so far:\nrows = [1, None]"
    assert found["answer"] == "[row for row in rows if row]"
    assert found["execution_ids"] == ["b", "a"]


def test_solve_from_signature_and_assertions(recipe: DatasetRecipe) -> None:
    code = "def double(n):\n    return 2 * n\n\nassert double(2) == 4\nassert double(0) == 0"
    found = only(build(evidence_of([run("e", code)]), recipe))
    assert found["prompt"] == (
        "Write Python code.\n\nSignature:\ndef double(n)\n\n"
        "It has to pass:\nassert double(2) == 4\nassert double(0) == 0"
    )
    assert found["proof"] == "passed:\nassert double(2) == 4\nassert double(0) == 0"
    assert found["answer"] == "def double(n):\n    return 2 * n"


@pytest.mark.parametrize("asked", ["docstring", "comment", "task"])
@pytest.mark.parametrize(
    ("test", "holds"),
    [
        ("assert heaviest([[1, 2], [4]]) == 4", "assert heaviest([[1, 2], [4]]) == 4"),
        (
            "import unittest\n\nclass Cases(unittest.TestCase):\n    def test_one(self):\n"
            "        self.assertEqual(heaviest([[1, 2], [4]]), 4)",
            "loadTestsFromTestCase(Cases)",
        ),
        (
            "def far(loads):\n    return heaviest(loads) > 3\n\nassert far([[1, 2], [4]])",
            "def far(loads):\n    return heaviest(loads) > 3\n\nassert far([[1, 2], [4]])",
        ),
        ("def test_one():\n    assert heaviest([[4]]) == 4", "test_one()"),
        ("assert lightest([[1, 2], [4]]) == 3", None),
        ("import asserts  # heaviest", None),
        ("def heaviest(loads):\n    return 4\n\nassert heaviest([[1, 2]]) == 4", None),
        ("print(heaviest([[1, 2], [4]]))", None),
    ],
)
def test_what_later_cells_assert_of_an_answer_judges_it(
    asked: str, test: str, holds: str | None, recipe: DatasetRecipe
) -> None:
    """Agents send the code in one cell and what checks it in the next one."""
    task = "Give the weight of the heaviest of several loads, and nothing for none of them."
    code = "def heaviest(loads):\n    {}return max((sum(load) for load in loads if load), default=0)"
    code = code.format(f'"""{task}"""\n    ' if asked == "docstring" else "")
    code = f"# {task}\n{code}" if asked == "comment" else code
    told = {"task": task} if asked == "task" else {}
    other = run("other", "def lightest(loads):\n    return min(map(sum, loads))", minute=1)
    evidence = evidence_of([run("code", code, **told), other, run("test", test, minute=2)])
    (made,) = [one for one in solve.candidates(evidence, recipe) if one.execution_ids[0] == "code"]
    if holds is None:
        assert not made.test and "test" not in made.execution_ids
    else:
        assert made.test is not None and holds in made.test and "test" in made.execution_ids


def test_solve_from_assertions_in_later_cells_that_need_the_code(recipe: DatasetRecipe) -> None:
    cells = [
        run("app", "class Shop:\n    def price(self, n):\n        return 3 * n"),
        run("client", "shop = Shop()", minute=1),
        run("request", "assert shop.price(2) == 6\nassert shop.price(0) == 0", minute=2),
        run("other", "assert 1 + 1 == 2", minute=3),
    ]
    found = only(build(evidence_of(cells), recipe), "solve")
    assert found["prompt"] == (
        "Write Python code.\n\nIt has to pass:\nshop = Shop()\nassert shop.price(2) == 6\nassert shop.price(0) == 0"
    )
    assert found["execution_ids"] == ["app", "client", "request"]


PRICE = "# second attempt\ndef price(n):\n    total = n\n    for _ in range(2):\n        total += n\n    return total"


def test_a_later_cell_that_defines_the_same_tests_its_own(recipe: DatasetRecipe) -> None:
    again = "def price(n):\n    return n * 3\n\nassert price(2) == 6 and shop"
    cells = [run("one", f"shop = 1\n{PRICE}", task="Give the price of n pots."), run("two", again, minute=1)]
    cells.append(run("three", "assert price(3) == 9", minute=2))
    found = [row for row in build(evidence_of(cells), recipe).examples.to_dicts() if row["kind"] == "solve"]
    assert found and all("def price" not in (row["test"] or "") for row in found)


def test_the_note_on_an_attempt_is_no_part_of_a_solution(recipe: DatasetRecipe) -> None:
    cells = [run("one", PRICE, task="Give the price of n pots, each 3."), run("two", "assert price(2) == 6", minute=1)]
    found = only(build(evidence_of(cells), recipe), "solve")
    assert json.loads(found["messages"])[1]["content"].startswith("def price")


def test_code_without_any_statement_gives_no_solve_example(recipe: DatasetRecipe) -> None:
    dataset = build(evidence_of([run("e", "x = [i for i in range(7)]\ny = sum(x)")]), recipe)
    assert dataset.examples.is_empty()
    assert reasons(dataset) == {"e": NOTHING}


def test_of_the_cells_of_one_task_the_last_definition_answers(recipe: DatasetRecipe) -> None:
    task = "Make a counter."
    cells = [
        run("first", "def count(xs):\n    return len(xs) + 0", task=task),
        run("second", "def count(xs):\n    return len(xs)", task=task, minute=1),
        run("look", "print('done')", task=task, minute=2),
    ]
    found = only(build(evidence_of(cells), recipe), "solve")
    assert found["execution_ids"] == ["second"]


def test_of_the_cells_of_one_task_the_one_that_was_judged_to_solve_it_answers(recipe: DatasetRecipe) -> None:
    task = "Count the `xs`."
    cells = [
        run("right", "n = sum(1 for x in xs if x)", task=task, flags=[SOLVED]),
        run("later", "def count(xs):\n    return len(xs)", task=task, minute=1, flags=[UNSOLVED]),
    ]
    found = only(build(evidence_of(cells), recipe), "solve")
    assert found["execution_ids"] == ["right"]


def test_what_was_judged_not_to_solve_its_task_answers_nothing(recipe: DatasetRecipe) -> None:
    failing = run("a", "def half(n):\n    return n // z", task="Write `half(n)`.", outcome="error",
                  error_name="NameError", error_value="name 'z' is not defined")  # fmt: skip
    fixed = run("b", "def half(n):\n    return n // 2", task="Write `half(n)`.", minute=1, stdout="3\n")
    for flags, kinds in (([], {"solve", "repair"}), ([SOLVED], {"solve", "repair"}), ([UNSOLVED], set())):
        ends = fixed.model_copy(update={"flags": flags})
        evidence = evidence_of([failing, ends], [pair(failing, ends)])
        dataset = build(evidence, recipe, reexecute=None)
        assert set(dataset.examples["kind"]) == kinds, flags
    assert reasons(dataset)["b"] == REFUTED
    assert build(evidence, recipe, Domain.DEBUG, reexecute=None).examples.is_empty()


def test_what_its_author_mended_later_answers_nothing(recipe: DatasetRecipe) -> None:
    task = "Write `half(n)`."
    code = "def half(n):\n    return n {} 2"
    failing = run("a", "def half(n):\n    return n // z", task=task, outcome="error", error_name="NameError",
                  error_value="name 'z' is not defined")  # fmt: skip
    fixed = run("b", code.format("//"), task=task, minute=1, stdout="3\n")
    tested = run("c", "assert half(3) == 1.5", minute=2, outcome="error", error_name="AssertionError", error_value="")
    mended = run("d", code.format("/"), task=task, minute=3)
    passed = run("e", tested.code, minute=4)
    cells = [failing, fixed, tested, mended, passed]
    below = {"failing_code": f"{fixed.code}\n\n{tested.code}", "fixed_code": f"{mended.code}\n\n{passed.code}"}
    later = pair(tested, mended).model_copy(update=below)
    dataset = build(evidence_of(cells, [pair(failing, fixed), later]), recipe, reexecute=None)
    assert {row["execution_ids"][0] for row in dataset.examples.to_dicts() if row["kind"] != "predict"} == {"d"}
    assert MENDED_LATER in str(dataset.statistics)
    dataset = build(evidence_of(cells[:2], [pair(failing, fixed)]), recipe, reexecute=None)
    assert set(dataset.examples["kind"]) == {"solve", "repair"}, "as long as nobody found it wrong"


def test_what_a_later_check_needs_that_does_not_hold_answers_nothing(recipe: DatasetRecipe) -> None:
    code = "def half(n):\n    return n // 2\nhalf(4)"
    cells = [run("a", code, task="Write `half(n)`, which halves a number.", result_text="2")]
    cells += [run("b", "assert half(3) == 1.5", minute=1, outcome="error", error_name="AssertionError", error_value="")]
    assert only(build(evidence_of(cells[:1]), recipe), "solve")["execution_ids"] == ["a"]
    dataset = build(evidence_of(cells), recipe)
    assert "solve" not in set(dataset.examples["kind"])
    assert FAILED_LATER in str(dataset.statistics)


def test_what_was_judged_not_to_solve_its_task_still_gives_an_output(recipe: DatasetRecipe) -> None:
    code = "words = 'a bb ccc'.split()\nprint(sum(map(len, words)))"
    dataset = build(evidence_of([run("a", code, task="Count words.", stdout="6\n", flags=[UNSOLVED])]), recipe)
    assert set(dataset.examples["kind"]) == {"predict"}


def test_repair_in_debug_and_in_the_domain_of_its_language(recipe: DatasetRecipe) -> None:
    failing = run(
        "bad",
        'def double(n):\n    """Return twice a number."""\n    return 2 * m\n\nassert double(2) == 4',
        outcome="error",
        error_name="NameError",
        error_value="name 'm' is not defined",
        traceback="----> 3     return 2 * m\nNameError: name 'm' is not defined",
        domains=["python", "debug"],
    )
    fixed = run("good", failing.code.replace("* m", "* n"), minute=1, domains=["python", "debug"])
    evidence = traced(evidence_of([failing, fixed], [pair(failing, fixed)]), recipe)
    groups = assign_groups(evidence.executions, evidence.repairs, None, recipe)
    python, debug = (build_dataset(domain, evidence, groups, recipe) for domain in (Domain.PYTHON, Domain.DEBUG))
    found = only(debug, "repair")
    assert found["prompt"] == (
        "Fix this Python code.\nReturn twice a number.\n\nCode:\ndef double(n):\n    return 2 * m\n\n"
        "It has to pass:\nassert double(2) == 4\n\nError:\nreturn 2 * m\nNameError: name 'm' is not defined"
    )
    assert found["answer"] == "def double(n):\n    return 2 * n"
    assert found["execution_ids"] == ["good", "bad"]
    assert found["diff"] == (
        "--- failing\n+++ fixed\n@@ -1,2 +1,2 @@\n def double(n):\n-    return 2 * m\n+    return 2 * n\n"
    )
    assert only(python, "repair")["messages"] == found["messages"]
    assert set(debug.examples["kind"]) == {"repair", "explain"}  # solve examples are never debug
    assert only(debug, "explain")["answer"].endswith(
        "`n` is meant, the parameter of `double`. Then `return 2 * n` gives `2 * 2` = `4`. "
        "With that, `double(2)` returns `4`."
    )
    assert only(python, "solve")["difficulty"] > 0  # it took two attempts


def test_a_long_error_keeps_its_end() -> None:
    found = error_text("DatabaseError", f"Execution failed on sql '{'x' * 900}': no such table: a", None)
    assert found.endswith("no such table: a")
    assert len(found) < 350


def test_predict_quotes_all_that_it_needs(recipe: DatasetRecipe) -> None:
    cells = [
        run("a", 'def double(n):\n    """double(4) is 8"""\n    return 2 * n\n\nassert double(4) == 8'),
        run("b", "assert double(4) == 8\nprint(double(4))\ndouble(5)", minute=1, stdout="8\n", result_text="10"),
    ]
    found = only(build(evidence_of(cells), recipe), "predict")
    assert found["prompt"] == (
        "Predict the output of this Python code.\n\nSession so far:\ndef double(n):\n    return 2 * n\n\n"
        "Code:\nprint(double(4))\ndouble(5)"
    )
    assert found["answer"] == found["proof"] == "8\n10"
    assert found["execution_ids"] == ["b", "a"]
    assert (found["verified"], found["not_replayed"]) == ("reexecuted", None)


@pytest.mark.parametrize(
    "values",
    [
        {"code": "unknown + 1", "result_text": "2"},
        {"code": "import random\nrandom.random()", "result_text": "0.5"},
        {"code": "print(1)", "stdout": "1", "outcome": "error"},
        {"code": "print(1)", "stdout": "1", "stderr": "DeprecationWarning"},
        {"code": "print('y' * 900)", "stdout": "y" * 900},
    ],
)
def test_no_predict(recipe: DatasetRecipe, values: dict[str, Any]) -> None:
    assert build(evidence_of([run("e", **values)]), recipe).examples.is_empty()


def test_structural_duplicates_count_as_weight(recipe: DatasetRecipe) -> None:
    copies = [run(f"e{i}", f"{problem(1)}  # variant {i}", f"s{i}") for i in range(3)]
    dataset = build(evidence_of(copies), recipe)
    assert only(dataset)["weight"] == pytest.approx(1 + 1.0986, abs=1e-3)
    assert sorted(reasons(dataset).values()) == [DUPLICATE, DUPLICATE]


def test_what_is_too_long_is_left_out_not_cut(recipe: DatasetRecipe) -> None:
    code = 'def f(n):\n    """Return twice a number."""\n    return [' + "1, " * 2000 + "]"
    assert reasons(build(evidence_of([run("e", code)]), recipe)) == {"e": TOO_LONG}


def test_failures_without_repair_are_named(recipe: DatasetRecipe) -> None:
    assert reasons(build(evidence_of([run("e", "1 / 0", outcome="error")]), recipe)) == {"e": FAILED}


def test_caps_hold_and_name_what_they_drop(recipe: DatasetRecipe) -> None:
    small = recipe.model_copy(update={"cap_floor": 0})
    shown = [run(f"x{i:03d}", f"print({i} * 7 + {i * i})", f"x{i}", stdout=f"{i * 7 + i * i}\n") for i in range(30)]
    dataset = build(evidence_of([*fleet(20), *shown]), small)
    kinds = dict(dataset.examples["kind"].value_counts().iter_rows())
    assert kinds["solve"] == 20
    assert 0 < kinds["predict"] <= 0.4 * dataset.examples.height
    assert set(reasons(dataset).values()) == {CAPPED}
    assert checks.balance_problems(Domain.PYTHON, dataset.examples, small) == []
    assert build(evidence_of([*fleet(20), *shown]), recipe).examples.height == 50  # the floor lets them stay


def test_a_few_examples_differ_in_names_and_values_alone(recipe: DatasetRecipe) -> None:
    shown = [
        run(f"x{i}", f"a{i} = {i}\nprint(a{i} * 7 + {i * i})", f"x{i}", stdout=f"{i * 7 + i * i}\n") for i in range(9)
    ]
    other = [run("y", "print([3, 1][0] * 7)", "y", stdout="21\n")]
    few = recipe.model_copy(update={"examples_per_template": 2})
    dataset = build(evidence_of([*fleet(30), *shown, *other]), few)
    splits = dataset.examples.filter((pl.col("kind") == "predict") & (pl.col("execution_ids").list.first() != "y"))
    assert splits["split"].value_counts()["count"].max() == 2
    assert "y" in set(dataset.examples["execution_ids"].explode())
    assert set(reasons(dataset).values()) == {ALIKE}


def test_code_that_lacks_imports_of_one_package_has_one_lesson_whatever_the_code() -> None:
    def lacking(name: str, code: str, derived: str | None = "bug:missing_import") -> Placed:
        module = {"dumps": "json", "loads": "json.decoder", "floor": "math"}[name]
        diff = f"--- before\n+++ after\n@@ -1 +1,2 @@\n+from {module} import {name}\n {code}"
        one = ExampleCandidate("repair", "python", "", code, ("e",), "", 0.0, 1.0, diff=diff, derived=derived)
        return Placed(one, code, "g", "train")

    codes = [f"print({name}({i} {sign} 3))" for name in ("dumps", "loads", "floor") for i, sign in enumerate("+-*/%")]
    placed = [lacking(code[6:11], code) for code in codes]
    kept = Counter("floor" in one.candidate.answer for one in _limited(placed, _template, 2))
    assert kept == {True: 2, False: 2}
    recorded = [lacking("dumps", code, derived=None) for code in codes]
    assert len(_limited(recorded, _template, 2)) == len(codes)


def test_every_execution_is_in_an_example_or_left_out_with_a_reason(recipe: DatasetRecipe) -> None:
    executions = [*fleet(15), run("none", "y = 3"), run("bad", "1 / 0", outcome="error")]
    dataset = build(evidence_of(executions), recipe)
    used = set(dataset.examples["execution_ids"].explode())
    assert used | set(dataset.left_out["unit_id"]) == {execution.execution_id for execution in executions}
    assert not used & set(dataset.left_out["unit_id"])
    assert problems(Example, dataset.examples) == problems(LeftOut, dataset.left_out) == []


def test_an_execution_left_out_of_the_groups_gives_no_example(recipe: DatasetRecipe) -> None:
    evidence = evidence_of([run("e", problem(1))])
    groups = assign_groups(evidence.executions, evidence.repairs, None, recipe)
    barred = groups.with_columns(reason_left_out=pl.lit(BRIDGE))
    assert reasons(build_dataset(Domain.PYTHON, evidence, barred, recipe)) == {"e": BRIDGE}


def test_the_order_of_rows_does_not_matter(recipe: DatasetRecipe) -> None:
    executions = fleet(20)
    expected = build(evidence_of(executions), recipe).examples
    evidence = evidence_of(executions)
    groups = assign_groups(evidence.executions, evidence.repairs, None, recipe)
    mixed = Evidence(evidence.executions.reverse(), evidence.patterns, evidence.repairs, evidence.bullets)
    shuffled = groups.sample(fraction=1, shuffle=True, seed=3)
    found = build_dataset(Domain.PYTHON, mixed, shuffled, recipe, reexecute=came_out_again)
    assert found.examples.equals(expected)


def test_other_domains_growing_leave_the_digest_as_it_is(recipe: DatasetRecipe) -> None:
    python, sql = evidence_of(fleet(20)), evidence_of(fleet(20, "sql", "q"))
    grown = evidence_of(fleet(21, "sql", "q"))

    def digest(other: Evidence, previous: pl.DataFrame | None) -> tuple[str, pl.DataFrame]:
        union = pl.concat([python.executions, other.executions])
        groups = assign_groups(union, python.repairs, previous, recipe)
        return frame_digest(Example, build_dataset(Domain.PYTHON, python, groups, recipe).examples), groups

    before, groups = digest(sql, None)
    after, _ = digest(grown, groups)
    assert before == after


def test_an_empty_domain_has_statistics_too(recipe: DatasetRecipe) -> None:
    dataset = build(evidence_of([]), recipe)
    assert dataset.statistics["examples"] == 0
    assert checks.size_problems(dataset.examples) != []


def test_statistics(recipe: DatasetRecipe) -> None:
    found = build(evidence_of(fleet(20)), recipe).statistics
    assert found["examples"] == 20 == sum(found["by_split"].values()) == sum(found["difficulty"]["histogram"])
    assert found["by_kind"] == {"solve": 20}
    assert 0 < found["chars"]["p50"] <= found["chars"]["p95"] <= found["chars"]["max"]
    json.dumps(found)


def test_the_shipped_recipe_covers_every_kind_and_domain(recipe: DatasetRecipe) -> None:
    assert set(recipe.caps) == {"repair", "explain", "predict", "apply"}
    assert {domain for near in recipe.routing.near for domain in near} == set(DOMAINS)


# --- what was executed again ------------------------------------------------------------------------------------------


def shown(name: str, value: str, minute: int = 0) -> Any:
    return run(name, f"print({value!r} * 2)", f"box-{name}", stdout=f"{value * 2}\n", minute=minute)


def test_without_execution_there_is_no_predict_example_and_that_is_said(recipe: DatasetRecipe) -> None:
    dataset = build(evidence_of([shown("e", "ab")]), recipe, reexecute=None)
    assert dataset.examples.is_empty()
    assert reasons(dataset) == {"e": NOT_AGAIN}
    assert any("predict" in line and "nothing was executed again" in line for line in dataset.statistics["missing"])


def test_a_kind_that_the_recipe_does_not_verify_is_not_executed(recipe: DatasetRecipe) -> None:
    solve_only = recipe.model_copy(
        update={"verification": recipe.verification.model_copy(update={"replayed": ("solve",)})}
    )
    executions = [shown("e", "ab"), run("s", problem(1), "box-s"), run("t", problem(2), "box-t")]
    asked: list[str] = []

    def other_output(evidence: Evidence, execution_ids: Any) -> ReplayBatch:
        asked.extend(execution_ids)
        return ReplayBatch(
            [ReplayVerdict("s", "unverified", "another output", None), ReplayVerdict("t", "reexecuted", None, "d")], {}
        )

    dataset = build(evidence_of(executions), solve_only, reexecute=other_output)
    assert sorted(asked) == ["s", "t"]
    found = {row["execution_ids"][0]: (row["verified"], row["not_replayed"]) for row in dataset.examples.to_dicts()}
    assert found == {"t": ("reexecuted", None)}
    assert dataset.statistics["verified"]["solve"] == {"reexecuted": 1.0}
    assert reasons(dataset) == {"e": NOT_AGAIN, "s": f"{DIFFERED}: another output"}


def test_an_output_that_does_not_come_out_again_is_no_example(recipe: DatasetRecipe) -> None:
    """In the sandbox of this machine: one output is what was recorded, one is not, one hangs on chance."""
    executions = [
        shown("same", "ab"),
        run("other", "print(sum([4, 5]))", "box-other", stdout="10\n"),
        run("chance", "print(len(repr(object()).split('x')[1]) and id(object) % 7919)", "box-chance", stdout="5\n"),
    ]
    dataset = build(
        evidence_of(executions),
        recipe,
        reexecute=lambda evidence, ids: verify(evidence, ids, recipe.verification),
    )
    assert only(dataset)["execution_ids"] == ["same"]
    assert reasons(dataset)["other"].startswith(NOT_AGAIN)
    assert dataset.reexecution["executions"] == 2  # chance is told apart by its text
    assert dataset.statistics["verified"]["every"] == {"reexecuted": 1.0}


def test_a_hidden_test_keeps_drops_or_leaves_an_example(recipe: DatasetRecipe) -> None:
    """In the sandbox of this machine: one judges, one judges nothing, one does not pass; one answer never ran."""
    code = 'def {0}(n):\n    """Give twice what it is given."""\n    return 2 * n\n\n'
    executions = [
        run("judged", code.format("double") + "assert double(2) == 4", "s1"),
        run("empty", code.format("twofold") + "assert twofold", "s2"),
        run("failing", code.format("dual") + "flag = []\nassert not flag\nassert dual(2) == 5", "s3", stdout="x\n"),
        run("bare", code.format("twin").rstrip(), "s4"),
        run("shown", code.format("pair") + "print(pair(2))", "s5", stdout="4\n"),
    ]
    judge = partial(judge_answers, recipe=recipe.verification)
    evidence = evidence_of(executions)
    groups = assign_groups(evidence.executions, evidence.repairs, None, recipe)
    few = recipe.model_copy(update={"near_duplicates": recipe.near_duplicates.model_copy(update={"jaccard": 1.0})})
    dataset = build_dataset(Domain.PYTHON, evidence, groups, few, reexecute=came_out_again, judge=judge)
    solved = dataset.examples.filter(pl.col("kind") == "solve").to_dicts()
    found = {row["execution_ids"][0]: (row["test"], row["verified"]) for row in solved}
    assert found == {
        "judged": ("assert double(2) == 4", "reexecuted"),
        "empty": (None, "reexecuted"),
        "shown": ("print(pair(2))", "reexecuted"),
    }
    assert reasons(dataset) == {"bare": NEVER_RUN}  # what the failing one shows is predicted


def test_an_answer_that_fails_its_test_is_left_out(recipe: DatasetRecipe) -> None:
    def fails(evidence: Evidence, candidates: Any) -> Judgements:
        return Judgements([Judgement("unverified", "failed", fails=True) for _ in candidates], {})

    name = problem(1).partition("(")[0].removeprefix("def ")
    evidence = evidence_of([run("e", f"{problem(1)}\n\nassert {name}('a') == 2")])
    groups = assign_groups(evidence.executions, evidence.repairs, None, recipe)
    dataset = build_dataset(Domain.PYTHON, evidence, groups, recipe, judge=fails)
    assert (dataset.examples.height, reasons(dataset)) == (0, {"e": f"{NOT_PASSED}: failed"})


def test_an_answer_never_holds_its_own_test(recipe: DatasetRecipe) -> None:
    """Where only the test changed, the whole cell would be the repair."""
    code = "def double(n):\n    return 2 * n\n\nassert double(2) == {}"
    failing = run("bad", code.format(5), outcome="error", error_name="AssertionError")
    fixed = run("good", code.format(4), minute=1)
    evidence = evidence_of([failing, fixed], [pair(failing, fixed)])
    assert "repair" not in set(build(evidence, recipe, Domain.DEBUG).examples["kind"])
    only_asserts = run("e", "# the sum of three numbers\nassert sum([1, 2, 3]) == 6")
    assert build(evidence_of([only_asserts]), recipe).examples.is_empty()


def test_beyond_the_recipes_number_nothing_runs_again(recipe: DatasetRecipe) -> None:
    few = recipe.model_copy(update={"verification": recipe.verification.model_copy(update={"per_kind": 3})})
    dataset = build(evidence_of([shown(f"e{i}", f"w{i}") for i in range(8)]), few)
    assert dataset.examples.height == 3 == dataset.reexecution["executions"]
    assert sorted(reasons(dataset).values()) == [NOT_AGAIN] * 5
    assert "predict: 5 more were not executed again: the recipe executes 3" in dataset.statistics["missing"]
    lowest = build(evidence_of([shown(f"e{i}", f"w{i}") for i in range(8)][::-1]), few)
    assert lowest.examples.equals(dataset.examples)


# --- notebooks, playbooks ---------------------------------------------------------------------------------------------


def test_solve_from_a_notebooks_heading_after_docstring_and_comment(recipe: DatasetRecipe) -> None:
    heading = {"task": "Drop the missing values", "flags": [FROM_MARKDOWN]}
    cells = [
        run("plain", "rows = [row for row in [1, None, 2] if row is not None]", "s1", **heading),
        run("comment", "# keep rows that hold a value\nkept = list(filter(None, [1, 0, 2]))", "s2", **heading),
        run("short", "print(len('abc') + 9)", "s3", task="Load data", flags=[FROM_MARKDOWN]),
    ]
    dataset = build(evidence_of(cells), recipe, reexecute=None)
    prompts = {
        row["execution_ids"][0]: json.loads(row["messages"])[0]["content"] for row in dataset.examples.to_dicts()
    }
    assert prompts == {
        "plain": "Write Python code.\nDrop the missing values",
        "comment": "Write Python code.\nkeep rows that hold a value",
    }


TASK = run("done", problem(1), "box-1", agent_id="ada")
ADVICE = bullet("shr-1", "Check the words one by one.")


@pytest.mark.parametrize(
    ("lesson", "helped"),
    [
        (bullet("a", "Check.", evidence=["execution:done"]), True),
        (bullet("a", "Check.", evidence=["validation:box-1"]), True),
        (bullet("a", "Check.", evidence=["documentation:manual", "execution:other"]), False),
        (bullet("a", "Check.", evidence=["execution_failed:done"]), False),
        (bullet("a", "Check.", evidence=["execution:done"], helpful=1, harmful=1), False),
    ],
)
def test_apply_where_a_bullets_evidence_names_the_execution_or_its_sandbox(
    recipe: DatasetRecipe, lesson: Any, helped: bool
) -> None:
    dataset = build(evidence_of([TASK], bullets=[lesson]), recipe)
    kinds = sorted(dataset.examples["kind"])
    assert kinds == (["apply", "solve"] if helped else ["solve"])
    if helped:
        found, solve = only(dataset, "apply"), only(dataset, "solve")
        assert found["prompt"] == f"Advice from the playbook:\n- Check.\n\n{solve['prompt']}"
        assert (found["answer"], found["bullet_ids"]) == (solve["answer"], ["ada/a"])
    else:
        assert any(line.startswith("no apply example") for line in dataset.statistics["missing"])


@pytest.mark.parametrize("named", ["ada/shr-1", "shr-1"])
def test_apply_where_the_recorder_says_which_bullets_were_in_use(recipe: DatasetRecipe, named: str) -> None:
    twin = bullet("x", "Another one.", bullet_id="bob/shr-1", origins=["bob/shr-1"], agents=["bob"], rank=2)
    evidence = evidence_of([TASK, run("free", problem(2), "box-2")], bullets=[ADVICE, twin])
    column = pl.Series("bullet_ids", [[named] if i == "done" else [] for i in evidence.executions["execution_id"]])
    recorded = Evidence(evidence.executions.with_columns(column), evidence.patterns, evidence.repairs, evidence.bullets)
    found = only(build(recorded, recipe), "apply")
    assert (found["execution_ids"], found["bullet_ids"]) == (["done"], ["ada/shr-1"])


# --- clusters, balance, tenants ---------------------------------------------------------------------------------------


def test_clusters_are_kept_with_what_links_their_members(recipe: DatasetRecipe) -> None:
    near = problem(1).replace("return 1 +", "return 100 +")
    copies = [
        run("best", problem(1), "s1", quality=0.9),
        run("near", near, "s2"),
        run("same", problem(1), "s3"),
        run("renamed", problem(1).replace("birch_", "maple_") + "  # again", "s5"),
        run("apart", problem(5), "s4"),
    ]
    dataset = build(evidence_of(copies), recipe, reexecute=None)
    clusters = {row["execution_ids"][0]: row for row in dataset.clusters.to_dicts()}
    kept = {row["execution_ids"][0]: row for row in dataset.examples.to_dicts()}
    assert sorted(kept) == ["apart", "best"]
    assert {name: row["sort"] for name, row in clusters.items()} == {
        "best": "representative",
        "near": "near",
        "same": "exact",
        "renamed": "structural",
        "apart": "representative",
    }
    assert {clusters[name]["cluster_id"] for name in ("best", "near", "same", "renamed")} == {
        kept["best"]["cluster_id"]
    }
    assert clusters["near"]["similarity"] >= recipe.near_duplicates.jaccard
    assert kept["best"]["weight"] == pytest.approx(1 + math.log(4), abs=1e-5)
    assert dataset.statistics["duplicates"] == {
        "by_sort": {"exact": 1, "near": 1, "structural": 1},
        "clusters": 1,
        "largest": 4,
    }


def test_a_near_duplicate_of_a_training_example_is_in_no_other_split(recipe: DatasetRecipe) -> None:
    executions = [run("train", problem(1), "s1"), run("test", problem(1).replace("return 1 +", "return 100 +"), "s2")]
    evidence = evidence_of(executions)
    groups = assign_groups(evidence.executions, evidence.repairs, None, recipe).with_columns(
        split=pl.when(pl.col("unit_id") == "test").then(pl.lit("test")).otherwise(pl.lit("train")),
        group_id=pl.col("unit_id"),
    )
    dataset = build_dataset(Domain.PYTHON, evidence, groups, recipe)
    assert dataset.examples["split"].to_list() == ["train"]
    assert reasons(dataset) == {"test": DUPLICATE}


def test_difficulty_is_balanced_by_weights_not_by_repetition(recipe: DatasetRecipe) -> None:
    aimed = recipe.model_copy(update={"balance": recipe.balance.model_copy(update={"target": (0.5, 0.5, 0.0)})})
    hard = [
        run(
            f"h{i}",
            problem(i + 50).replace(
                "    return",
                "\n".join(f"    for w in range({j}): print(w if w else {i} or w and {j})" for j in range(9))
                + "\n    return",
            ),
            f"h-{i}",
            task=f"Write problem {i + 50} with loops.",
        )
        for i in range(10)
    ]
    evidence = evidence_of([*fleet(30), *hard])
    plain, balanced = (build(evidence, each) for each in (recipe, aimed))
    assert set(plain.examples["balance"]) == {1.0}
    assert balanced.examples.drop("balance").equals(plain.examples.drop("balance"))
    found = balanced.statistics["difficulty"]
    assert 0.05 < found["shares"]["medium"] < 0.4  # before
    assert found["balanced"] == {"easy": 0.5, "medium": 0.5, "hard": 0.0}


def test_another_tenants_rows_are_nowhere(recipe: DatasetRecipe) -> None:
    """Neither as example, nor as weight, nor in an explanation; what is nobody's may be used."""
    own = run("own", problem(1), "s1", tenant="acme", quality=0.9)
    twin = run("twin", problem(1) + "  # theirs", "s2", tenant="other")
    theirs = run("theirs", problem(2), "s3", tenant="other")
    nobody = run("nobody", problem(3), "s4")
    evidence = evidence_of([own, twin, theirs, nobody])
    narrow = recipe.model_copy(update={"tenants": ("acme",)})
    dataset = build(evidence, narrow)
    assert reasons(dataset) == {"twin": OTHER_TENANT, "theirs": OTHER_TENANT}
    assert sorted(dataset.examples.filter(pl.col("kind") == "solve")["execution_ids"].explode()) == ["nobody", "own"]
    assert set(dataset.examples.filter(pl.col("kind") == "solve")["weight"]) == {1.0}
    assert set(traced(evidence, narrow).traces) == {"own", "nobody"}
    assert {name for names in dataset.examples["tenants"] for name in names} == {"acme"}
    assert "theirs" not in json.dumps(dataset.examples.to_dicts()) + json.dumps(dataset.clusters.to_dicts())
    assert dataset.statistics["by_tenant"] == {"acme": 1, "none": 1}
    everyone = build(evidence, recipe)
    assert set(everyone.examples["tenants"].explode().drop_nulls()) == {"acme", "other"}


def test_what_is_missing_is_said_in_words(recipe: DatasetRecipe) -> None:
    found = build(evidence_of([*fleet(5), run("bad", "1 / 0", outcome="error")]), recipe).statistics["missing"]
    assert found[0] == "5 of 10000 examples wanted of python: 6 executions give no more"
    assert f"1 executions gave none: {FAILED}" in found
    assert any(line.startswith("no repair example: no failed execution") for line in found)
    enough = recipe.model_copy(update={"target_examples": 5})
    assert not any("wanted" in line for line in build(evidence_of(fleet(5)), enough).statistics["missing"])


def test_the_whole_dataset_is_the_same_in_any_order(recipe: DatasetRecipe) -> None:
    executions = [*fleet(20), *(run(f"c{i}", problem(i) + f"  # {i}", f"c-{i}") for i in range(8)), shown("e", "ab")]
    aimed = recipe.model_copy(update={"balance": recipe.balance.model_copy(update={"target": (0.2, 0.5, 0.3)})})
    patterns = [
        pattern(f"p{i}", problem(i), f"Function number {i} that does a thing.", [executions[i]]) for i in range(9)
    ]
    bullets = [bullet("a", "Check.", evidence=["execution:p0003"])]
    straight = evidence_of(executions, patterns=patterns, bullets=bullets)
    mixed = Evidence(
        straight.executions.sample(fraction=1, shuffle=True, seed=5),
        straight.patterns.reverse(),
        straight.repairs,
        straight.bullets,
    )
    one, two = build(straight, aimed), build(mixed, aimed)
    assert "apply" in one.statistics["by_kind"]
    for name in ("examples", "left_out", "clusters"):
        assert getattr(one, name).equals(getattr(two, name)), name
    assert one.statistics == two.statistics


def test_an_example_that_holds_a_benchmarks_item_is_removed_and_listed(recipe: DatasetRecipe, tmp_path: Path) -> None:
    """The item under other names, and an import that quotes its prompt; the rest stays."""
    item = {
        "task_id": "Bench/7",
        "prompt": problem(1).split("\n")[0]
        + '\n    """Compute the amber measure of birch number one under fjord."""\n',
        "canonical_solution": "\n".join(problem(1).split("\n")[2:]) + "\n",
        "test": "def check(candidate):\n    assert candidate('amber') == 6\n",
        "entry_point": problem(1).partition("(")[0].removeprefix("def "),
    }
    (tmp_path / "bench.jsonl").write_text(json.dumps(item) + "\n")
    aimed = recipe.model_copy(
        update={"decontamination": Decontamination(benchmarks={"bench": str(tmp_path / "bench.jsonl")})}
    )
    evidence = evidence_of([run("held", problem(1).replace("birch_", "maple_"), "s1"), run("free", problem(4), "s2")])
    groups = assign_groups(evidence.executions, evidence.repairs, None, recipe)
    quoted = imported_example("quoted", item["prompt"] + item["canonical_solution"])
    imported = table(Example, [quoted, imported_example("other", "Tell me about the sea.")])
    dataset = build_dataset(Domain.PYTHON, evidence, groups, aimed, imported=imported)
    own = build_dataset(Domain.PYTHON, evidence, groups, recipe).examples.filter(
        pl.col("execution_ids").list.contains("held")
    )
    assert set(dataset.contaminated["example_id"]) == {"quoted", *own["example_id"]}
    assert set(dataset.contaminated["how"]) >= {"structural"}
    assert reasons(dataset) == {"held": CONTAMINATED, "quoted": CONTAMINATED}
    assert dataset.statistics["contaminated"]["examples"] == 2
    assert {i for ids in dataset.examples["execution_ids"] for i in ids} == {"free"}
    assert "other" in dataset.examples["example_id"]


def imported_example(name: str, prompt: str) -> Example:
    return example(name, prompt, "An answer.", kind="chat", provenance="imported", execution_ids=[], sandbox_ids=[],
                   source_places=["f.jsonl:1"])  # fmt: skip


def test_what_a_person_drops_is_left_out_under_any_id(recipe: DatasetRecipe, tmp_path: Path) -> None:
    """Own and imported examples, with the reason; the verdict on the text holds when the id has changed."""
    evidence = evidence_of([run("bad", problem(1), "s1"), run("free", problem(4), "s2")])
    groups = assign_groups(evidence.executions, evidence.repairs, None, recipe)
    imported = table(Example, [imported_example("mine", "Tell me about the sea."), imported_example("other", "Why?")])
    whole = build_dataset(Domain.PYTHON, evidence, groups, recipe, imported=imported)
    of_bad = whole.examples.filter(pl.col("execution_ids").list.contains("bad"))
    assert of_bad.height
    path = tmp_path / "audit.jsonl"
    mine = whole.examples.filter(pl.col("example_id") == "mine")
    keep_verdicts(path, [*of_bad.iter_rows(named=True), *mine.iter_rows(named=True)])
    lines = [json.loads(line) | {"verdict": "drop", "reason": "dull"} for line in path.read_text().splitlines()]
    lines[0] |= {"example_id": "as it was called before"}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    audited = recipe.model_copy(update={"exclusions": (str(path),)})
    dataset = build_dataset(Domain.PYTHON, evidence, groups, audited, imported=imported)
    dull = "dropped by audit: dull"
    assert reasons(dataset) == {"bad": dull, "mine": dull} | dict.fromkeys(of_bad["example_id"], dull)
    assert dataset.statistics["audit"] == {"dropped": len(lines), "by_reason": {dull: len(lines)}, "without_example": 0}
    assert {i for ids in dataset.examples["execution_ids"] for i in ids} == {"free"}
    assert whole.statistics["quality_report"][-1]["examples"] == whole.examples.height


def test_a_repair_that_a_later_test_asked_for_names_all_its_executions(recipe: DatasetRecipe) -> None:
    wrong = 'def kept(row):\n    """Keep what is above two."""\n    return [x for x in row if x > lim]'
    right = wrong.replace("lim]", "2]")
    test = "row = [3, 1]\nassert kept(row) == [3]\nassert kept([]) == []"
    traceback = (
        "Cell In[2], line 2\n      1 row = [3, 1]\n----> 2 assert kept(row) == [3]\n\n"
        "Cell In[1], line 3, in kept(row)\n      1 def kept(row):\n----> 3     return [x for x in row if x > lim]\n"
    )
    failed = {"outcome": "error", "error_name": "NameError", "error_value": "name 'lim' is not defined"}
    cells = [
        run("wrong", wrong),
        run("test", test, minute=1, traceback=traceback, **failed),
        run("right", right, minute=2),
        run("again", test, minute=3),
    ]
    pairs = find_repairs(table(Execution, cells))
    evidence = Evidence(table(Execution, cells), table(Pattern, []), pairs, pl.DataFrame())
    (made,) = repair.candidates(evidence, recipe)
    assert made.prompt == (
        "Fix this Python code.\nKeep what is above two.\n\n"
        "Code:\ndef kept(row):\n    return [x for x in row if x > lim]\n\n"
        "It has to pass:\nrow = [3, 1]\nassert kept(row) == [3]\n\n"
        "Error:\nreturn [x for x in row if x > lim]\nNameError: name 'lim' is not defined"
    )
    assert made.answer == "def kept(row):\n    return [x for x in row if x > 2]" and made.test == test
    assert set(made.execution_ids) == {"wrong", "test", "right", "again"}
    assert made.execution_ids[:2] == ("right", "test")
