"""Examples of every kind, from evidence alone: placed, deduplicated, capped, traceable."""

import json
from typing import Any

import polars as pl
import pytest

from capibara_assets.datasets import checks
from capibara_assets.datasets.evidence import Evidence
from capibara_assets.datasets.examples import CAPPED, DUPLICATE, FAILED, NOTHING, TOO_LONG, Dataset, build_dataset
from capibara_assets.datasets.groups import BRIDGE, assign_groups
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.repair import error_text
from capibara_assets.datasets.schema import Example, LeftOut
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.storage.records import frame_digest, problems
from capibara_assets_tests.datasets.conftest import evidence_of, fleet, pair, pattern, problem, run


def build(evidence: Evidence, recipe: DatasetRecipe, domain: Domain = Domain.PYTHON) -> Dataset:
    groups = assign_groups(evidence.executions, evidence.repairs, None, recipe)
    return build_dataset(domain, evidence, groups, recipe)


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
    found = only(build(evidence_of([run("e", code, task="Write `double(n)`.")]), recipe))
    assert found["prompt"] == "Write Python code.\nWrite `double(n)`."
    assert found["answer"] == 'def double(n):\n    """Doubles."""\n    return 2 * n'
    assert (found["kind"], found["verified"], found["execution_ids"]) == ("solve", "recorded", ["e"])
    assert (found["licence"], found["source"], found["source_places"]) == ("MIT", "fixture", ["a.jsonl:1"])


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
    assert found["answer"] == "def double(n):\n    return 2 * n"


def test_solve_from_assertions_in_later_cells_that_need_the_code(recipe: DatasetRecipe) -> None:
    cells = [
        run("app", "class Shop:\n    def price(self, n):\n        return 3 * n"),
        run("client", "shop = Shop()", minute=1),
        run("request", "assert shop.price(2) == 6\nshop.price(2)", minute=2),
        run("other", "assert 1 + 1 == 2", minute=3),
    ]
    found = only(build(evidence_of(cells), recipe), "solve")
    assert found["prompt"] == "Write Python code.\n\nIt has to pass:\nassert shop.price(2) == 6\nshop.price(2)"
    assert found["execution_ids"] == ["app", "request"]


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
    evidence = evidence_of([failing, fixed], [pair(failing, fixed)])
    groups = assign_groups(evidence.executions, evidence.repairs, None, recipe)
    python, debug = (build_dataset(domain, evidence, groups, recipe) for domain in (Domain.PYTHON, Domain.DEBUG))
    found = only(debug, "repair")
    assert found["prompt"] == (
        "Fix this Python code.\nReturn twice a number.\n\nCode:\ndef double(n):\n    return 2 * m\n\n"
        "Error:\nreturn 2 * m\nNameError: name 'm' is not defined"
    )
    assert found["answer"] == "def double(n):\n    return 2 * n"
    assert found["execution_ids"] == ["good", "bad"]
    assert only(python, "repair")["messages"] == found["messages"]
    assert set(debug.examples["kind"]) == {"repair", "explain"}  # solve examples are never debug
    assert only(debug, "explain")["answer"] == "It raises NameError.\nWrong: `return 2 * m`\nRight: `return 2 * n`"
    assert only(python, "solve")["difficulty"] > 0  # it took two attempts


def test_a_long_error_keeps_its_end() -> None:
    found = error_text("DatabaseError", f"Execution failed on sql '{'x' * 900}': no such table: a", None)
    assert found.endswith("no such table: a")
    assert len(found) < 350


def test_explain_without_the_docstring_that_its_explanation_quotes(recipe: DatasetRecipe) -> None:
    execution = run("e", "data = 1")
    code = 'def double(n):\n    """Return twice a number."""\n    return 2 * n'
    patterns = [
        pattern("double", code, "Function `double(n)`. Return twice a number.", [execution]),
        pattern("bare", "def f():\n    pass", "Function `f()`.", [execution]),
    ]
    found = only(build(evidence_of([execution], patterns=patterns), recipe))
    assert found["kind"] == "explain"
    assert found["prompt"] == "Explain this Python code.\n\nCode:\ndef double(n):\n    return 2 * n"


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
    assert found["answer"] == "8\n10"
    assert found["execution_ids"] == ["b", "a"]


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
    shown = [run(f"x{i:03d}", f"print({i} * 7 + {i * i})", f"x{i}", stdout=f"{i * 7 + i * i}\n") for i in range(60)]
    dataset = build(evidence_of([*fleet(40), *shown]), small)
    kinds = dict(dataset.examples["kind"].value_counts().iter_rows())
    assert kinds["solve"] == 40
    assert 0 < kinds["predict"] <= 0.25 * dataset.examples.height
    assert set(reasons(dataset).values()) == {CAPPED}
    assert checks.balance_problems(Domain.PYTHON, dataset.examples, small) == []
    assert build(evidence_of([*fleet(40), *shown]), recipe).examples.height == 100  # the floor lets them stay


def test_every_execution_is_in_an_example_or_left_out_with_a_reason(recipe: DatasetRecipe) -> None:
    executions = [*fleet(30), run("none", "y = 3"), run("bad", "1 / 0", outcome="error")]
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
    executions = fleet(40)
    expected = build(evidence_of(executions), recipe).examples
    evidence = evidence_of(executions)
    groups = assign_groups(evidence.executions, evidence.repairs, None, recipe)
    mixed = Evidence(evidence.executions.reverse(), evidence.patterns, evidence.repairs, evidence.bullets)
    assert build_dataset(Domain.PYTHON, mixed, groups.sample(fraction=1, shuffle=True, seed=3), recipe).examples.equals(
        expected
    )


def test_other_domains_growing_leave_the_digest_as_it_is(recipe: DatasetRecipe) -> None:
    python, sql = evidence_of(fleet(40)), evidence_of(fleet(40, "sql", "q"))
    grown = evidence_of(fleet(41, "sql", "q"))

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
    found = build(evidence_of(fleet(50)), recipe).statistics
    assert found["examples"] == 50 == sum(found["by_split"].values()) == sum(found["difficulty"]["histogram"])
    assert found["by_kind"] == {"solve": 50}
    assert 0 < found["chars"]["p50"] <= found["chars"]["p95"] <= found["chars"]["max"]
    json.dumps(found)


def test_the_shipped_recipe_covers_every_kind_and_domain(recipe: DatasetRecipe) -> None:
    assert set(recipe.caps) == {"repair", "explain", "predict"}
    assert {domain for near in recipe.routing.near for domain in near} == set(DOMAINS)
