"""Each blocking check finds what it is for and stays silent on what is good, on small artifacts made by hand."""

import importlib
import json
import math
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest
from dagster._core.storage.tags import PARTITION_NAME_TAG

from capibara_assets.checks import ALL_CHECKS, currency, stages
from capibara_assets.checks.schemas import PARTITIONED, SCHEMA_CHECKS, TABLES, record_type
from capibara_assets.datasets.duplicates.clusters import Cluster
from capibara_assets.datasets.duplicates.decontamination import Contaminated
from capibara_assets.datasets.schema import Example, LeftOut, Route
from capibara_assets.definitions import defs
from capibara_assets.deployment.locations import resources_root
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.evaluation.answering.answer import Answer
from capibara_assets.evaluation.grading.grade import Grade
from capibara_assets.evaluation.schema import ExampleLoss
from capibara_assets.executions.schema import Execution
from capibara_assets.partitions import domains
from capibara_assets.resources import BaseModel, Recipes
from capibara_assets.storage.records import Record, polars_schema, table
from capibara_assets_tests.datasets.conftest import run as execution
from capibara_assets_tests.datasets.test_checks import example
from capibara_assets_tests.published import Published

PYTHON, SQL = Domain.PYTHON, Domain.SQL
SHIPPED = BaseModel(location=str(resources_root() / "base_models" / "capibara-nano"))


def verdict(
    published: Published,
    check: dg.AssetChecksDefinition,
    partition: Domain | None = None,
    overrides: dict[str, Any] | None = None,
    base_model: BaseModel | None = None,
) -> dg.AssetCheckEvaluation:
    """Runs one check as Dagster runs it, of the asset that was published; raises what it raises."""
    (key,) = check.check_keys

    @dg.asset(name=key.asset_key.to_user_string(), partitions_def=domains if partition else None)
    def asset() -> None:
        raise AssertionError("only its check is run")

    result = dg.materialize(
        [asset, check],
        selection=dg.AssetSelection.checks(check),
        tags={PARTITION_NAME_TAG: partition.value} if partition else None,
        instance=published.instance,
        resources={
            "store": published.store,
            "recipes": Recipes(overrides=overrides or {}),
            "base_model": base_model or SHIPPED,
        },
        raise_on_error=False,
    )
    found = result.get_asset_check_evaluations()
    if not found:
        (failure,) = result.filter_events(lambda event: event.is_step_failure)
        cause = failure.step_failure_data.error.cause
        raise {"InputError": InputError, "IntegrityError": IntegrityError}[cause.cls_name](cause.message)
    # A blocking check that fails stops the run, one that does not is only noted.
    assert result.success == (found[0].passed or not found[0].blocking)
    return found[0]


def schema_check(asset: str) -> dg.AssetChecksDefinition:
    (found,) = (c for c in SCHEMA_CHECKS if next(iter(c.check_keys)).asset_key.to_user_string() == asset)
    return found


def examples(*rows: Example) -> dict[str, tuple[type[Record], pl.DataFrame]]:
    return {
        "examples": (Example, table(Example, rows)),
        "left_out": (LeftOut, table(LeftOut, [])),
        "clusters": (Cluster, table(Cluster, [])),
        "contaminated": (Contaminated, table(Contaminated, [])),
    }


def three(domain: Domain = PYTHON, **changes: Any) -> list[Example]:
    """One example of each split, nothing shared."""
    tasks = {"train": "Sum a list.", "validation": "Reverse a string.", "test": "Parse a date."}
    return [
        example(f"{domain}-{split}", f"{task} ({domain})", domain=domain.value, split=split, **changes)
        for split, task in tasks.items()
    ]


# --- which checks there are ------------------------------------------------------------------------------------------


def test_every_check_is_blocking_but_those_that_only_warn():
    graph = defs.resolve_asset_graph()
    not_blocking = {key.name for key in graph.asset_check_keys if not graph.get(key).blocking}
    assert not_blocking == {*currency.NAMES.values(), "mixture_uses_its_experts", "no_group_dominates"}
    assert len(graph.asset_check_keys) == len(ALL_CHECKS)


def test_checks_of_partitioned_assets_judge_a_partition():
    graph = defs.resolve_asset_graph()
    for key in graph.asset_check_keys:
        assert (graph.get(key).partitions_def is None) == (graph.get(key.asset_key).partitions_def is None), key
    assert {name for name in TABLES if graph.get(dg.AssetKey(name)).partitions_def is not None} == PARTITIONED


@pytest.mark.parametrize("reference", sorted({r for tables in TABLES.values() for r in tables.values()}))
def test_every_reference_of_a_table_names_a_record(reference: str):
    module, _, name = reference.partition(":")
    assert record_type(reference) is getattr(importlib.import_module(f"capibara_assets.{module}"), name)
    assert issubclass(record_type(reference), Record)


# --- executions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3])
def test_executions_not_empty(published: Published, count: int):
    rows = table(Execution, [execution(f"e{i}", "print(1)") for i in range(count)])
    published.put("e2b_executions", PYTHON, tables={"executions": (Execution, rows)})
    found = verdict(published, stages.executions_not_empty, PYTHON)
    assert found.passed == (count > 0) and found.metadata["executions"].value == count
    words = f"{count} executions" if count else "no execution of python in the logs. What to do: add logs with python"
    assert str(found.description).startswith(words)
    assert found.partition == "python" and found.blocking


def test_a_check_on_what_was_never_made_is_an_error_not_a_verdict(published: Published):
    with pytest.raises(InputError, match=r"e2b_executions\[sql\] is not materialized"):
        verdict(published, stages.executions_not_empty, SQL)


# --- datasets --------------------------------------------------------------------------------------------------------


def test_no_leakage_over_domains_that_share_nothing(published: Published):
    published.put("moe_dataset", PYTHON, tables=examples(*three(PYTHON)))
    published.put("moe_dataset", SQL, tables=examples(*three(SQL)))
    assert verdict(published, stages.no_leakage, SQL).passed


@pytest.mark.parametrize(
    ("what", "changes"),
    [("group", {"group": "one"}), ("sandbox", {"sandbox_ids": ["one"]}), ("execution", {"execution_ids": ["one"]})],
)
def test_a_leak_within_a_domain_fails(published: Published, what: str, changes: dict[str, Any]):
    published.put("moe_dataset", PYTHON, tables=examples(*three(PYTHON, **changes)))
    found = verdict(published, stages.no_leakage, PYTHON)
    assert not found.passed and any(what in leak for leak in found.metadata["problems"].value)


def test_a_leak_into_the_test_split_of_another_domain_fails(published: Published):
    train, test = (
        example(f"{split}", "Sum a list of numbers.", f"sum({split!r})", split=split, sandbox_ids=["shared"], domain=d)
        for split, d in (("train", "python"), ("test", "sql"))
    )
    published.put("moe_dataset", PYTHON, tables=examples(train))
    assert verdict(published, stages.no_leakage, PYTHON).passed
    published.put("moe_dataset", SQL, tables=examples(test))
    for domain in (PYTHON, SQL):
        assert not verdict(published, stages.no_leakage, domain).passed


def test_examples_valid(published: Published):
    published.put("moe_dataset", PYTHON, tables=examples(*three(PYTHON)))
    assert verdict(published, stages.examples_valid, PYTHON).passed


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (three(PYTHON)[:2], "0 test example"),
        ([], "0 train example"),
        (three(SQL), "belongs to domain sql"),
        (three(PYTHON, sandbox_ids=[]), "names no execution or sandbox"),
        (three(PYTHON, messages=json.dumps([{"role": "user", "content": "?"}])), "in turns"),
    ],
    ids=["no test split", "empty", "foreign domain", "no provenance", "no answer"],
)
def test_examples_that_are_not_valid(published: Published, rows: list[Example], problem: str):
    published.put("moe_dataset", PYTHON, tables=examples(*rows))
    found = verdict(published, stages.examples_valid, PYTHON)
    assert not found.passed and any(problem in text for text in found.metadata["problems"].value), found.metadata


def test_fewer_examples_than_the_recipe_wants_are_not_valid(published: Published):
    published.put("moe_dataset", PYTHON, tables=examples(*three(PYTHON)))
    found = verdict(published, stages.examples_valid, PYTHON, {"dataset": {"minimum_examples": 2}})
    assert not found.passed and len(found.metadata["problems"].value) == 3


def test_a_near_duplicate_in_the_test_split_of_another_domain_fails(published: Published):
    code = "def total(xs):\n    result = 0\n    for x in xs:\n        result += x * 3\n    return result\n" * 3
    train = example("train", "Add up.", code)
    test = example("test", "Add up.", code + "total([1])", split="test", domain="sql", kind="explain")
    published.put("moe_dataset", PYTHON, tables=examples(train))
    published.put("moe_dataset", SQL, tables=examples(test))
    found = verdict(published, stages.no_leakage, SQL)
    assert not found.passed and found.metadata["problems"].value[0].startswith("1 pair(s) of near-duplicates")


@pytest.mark.parametrize("answer", ["print(<OPENAI_API_KEY:1>)", "key = 'AKIA2E7JQ4TWX5YZ3KLM'"])
def test_no_secrets(published: Published, answer: str):
    published.put("moe_dataset", PYTHON, tables=examples(example("e", "Show the key.", answer)))
    found = verdict(published, stages.no_secrets, PYTHON)
    assert found.passed == ("AKIA" not in answer)
    assert "AKIA" not in str(found)


def test_labels_supervised(published: Published):
    published.put("moe_dataset", PYTHON, tables=examples(*three(PYTHON)))
    assert verdict(published, stages.labels_supervised, PYTHON).passed


def test_a_template_that_supervises_nothing_fails(published: Published, tmp_path: Path):
    """The base model's own files, with a chat template that marks no token of the assistant."""
    shutil.copytree(SHIPPED.location, tmp_path / "base")
    (tmp_path / "base" / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.content }}"
        "{% if m.role == 'critic' %}{% generation %}?{% endgeneration %}{% endif %}{% endfor %}"
    )
    published.put("moe_dataset", PYTHON, tables=examples(*three(PYTHON)))
    silent = BaseModel(location=str(tmp_path / "base"))
    found = verdict(published, stages.labels_supervised, PYTHON, base_model=silent)
    assert not found.passed and found.metadata["count"].value == 3


def routed(*rows: tuple[str, list[str], str, str]) -> dict[str, tuple[type[Record], pl.DataFrame]]:
    made = [
        Route(
            route_id=name,
            prompt=name,
            domains=where,
            weights=[1.0] * len(where),
            split=split,
            group_id=group,
            hard_negative=False,
            negative_of=[],
        )
        for name, where, split, group in rows
    ]
    return {"routes": (Route, table(Route, made))}


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (("b", ["sql"], "train", "g2"), None),
        (("b", ["sql"], "test", "g2"), "sql: no prompt in the train split"),
        (("b", [], "test", "g2"), "without a domain"),
        (("b", ["sql"], "test", "g1"), "more than one split"),
    ],
)
def test_routes_valid(published: Published, second: tuple[str, list[str], str, str], problem: str | None):
    published.put("routing_dataset", tables=routed(("a", ["python"], "train", "g1"), second))
    found = verdict(published, stages.routes_valid)
    assert found.passed == (problem is None)
    assert problem is None or problem in found.metadata["problems"].value[0]


# --- adapters --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "quorum", "passed"),
    [
        ([1.0, 1.0, 1.0, 1.0], 3, True),
        ([1.0, 1.0, 1.0, 9.0], 3, True),  # n = 4 bears one bad voter
        ([1.0, 1.0, 9.0, 9.0], 3, False),
        ([1.0, 1.0, 1.0], 3, True),  # one of four never finished
        ([1.0, 1.0, 9.0], 3, False),  # … and it still counts among those that may be bad
        ([2.0, 1.0, 1.0, 2.0], 3, False),  # as good as the base is not better
        ([1.0], 1, True),
        ([2.5], 1, False),
        ([1.0] * 5 + [9.0] * 2, 5, True),  # n = 7: two
        ([1.0] * 4 + [9.0] * 3, 5, False),
    ],
)
def test_adapters_better_than_base(published: Published, losses: list[float], quorum: int, passed: bool):
    voters = {
        f"voter-{i}": {"validation_loss": loss, "base_validation_loss": 2.0, "status": "finished"}
        for i, loss in enumerate(losses)
    }
    published.put("trained_adapters", PYTHON, documents={"summary": {"voters": voters, "quorum": quorum}})
    found = verdict(published, stages.adapters_better_than_base, PYTHON)
    assert found.passed == passed
    better = [f"voter-{i}" for i, loss in enumerate(losses) if loss < 2.0]
    assert found.metadata["better"].value == better
    words = f"{len(better)} of {len(losses)} voters are better than the base, {quorum} are needed"
    assert str(found.description).startswith(words) and ("What to do" in str(found.description)) == (not passed)


def agreed(published: Published, losses: dict[str, float], rejected: tuple[str, ...] = ()) -> dg.AssetCheckEvaluation:
    voters = [
        {"name": name, "accepted": name not in rejected, "reason": "…"} for name in losses if name.startswith("voter")
    ]
    published.put("consensus_checkpoint", SQL, documents={"losses": losses, "certificate": {"voters": voters}})
    return verdict(published, stages.consensus_not_worse, SQL)


@pytest.mark.parametrize(
    ("consensus", "passed"),
    [(0.5, True), (1.0, True), (1.02, True), (1.0201, False), (1.9, False), (2.0, False), (2.5, False)],
)
def test_consensus_not_worse(published: Published, consensus: float, passed: bool):
    """Base 2.0, best accepted voter 1.0, and the shipped tolerance of 2 %."""
    found = agreed(published, {"base": 2.0, "voter-0": 1.0, "voter-1": 1.5, "consensus": consensus})
    assert found.passed == passed and found.metadata["best_voter"].value == 1.0


def test_a_consensus_no_better_than_the_base_fails_though_near_its_voters(published: Published):
    assert not agreed(published, {"base": 1.0, "voter-0": 0.999, "consensus": 1.0}).passed


def test_a_failing_consensus_says_by_how_much_and_what_to_do(published: Published):
    found = agreed(published, {"base": 2.0, "voter-0": 1.0, "consensus": 2.25})
    assert str(found.description).startswith(
        "loss 2.2500 is 0.2500 above the base's 2.0000; loss 2.2500 is 1.2300 above"
    )
    assert "What to do: train longer" in str(found.description)
    assert stages.consensus_problems(math.nan, 1.0, 2.0, 0.02) == ["the consensus adapter's loss is nan"]


def test_a_rejected_voter_is_no_bar(published: Published):
    losses = {"base": 2.0, "voter-0": 1.0, "voter-1": 0.1, "consensus": 1.01}
    assert agreed(published, losses, rejected=("voter-1",)).passed
    assert not agreed(published, losses).passed


# --- evaluation ------------------------------------------------------------------------------------------------------


ANSWER = Answer(contender="base", item_id="e0", sample=0, text="4", tokens=1, finish="stop")
GRADE = Grade(contender="base", item_id="e0", sample=0, verdict="failed", detail="", isolation="namespaces")


def scored(
    published: Published,
    outcome: str = "adopt",
    crashed: dict[str, str] | None = None,
    answers: tuple[Answer, ...] = (ANSWER,),
    grades: tuple[Grade, ...] = (GRADE,),
    **contenders: list[float],
) -> dg.AssetCheckEvaluation:
    rows = [
        ExampleLoss(contender=name, example_id=f"e{i}", group_id=f"g{i}", nll=nll, tokens=5)
        for name, losses in contenders.items()
        for i, nll in enumerate(losses)
    ]
    published.put(
        "evaluation",
        SQL,
        tables={
            "losses": (ExampleLoss, table(ExampleLoss, rows)),
            "answers": (Answer, table(Answer, list(answers))),
            "grades": (Grade, table(Grade, list(grades))),
        },
        documents={"metrics": {"crashed": crashed or {}}, "decision": {"outcome": outcome, "reason": "an arm crashed"}},
    )
    return verdict(published, stages.evaluation_valid, SQL)


def problems(found: dg.AssetCheckEvaluation) -> list[str]:
    assert not found.passed
    return list(found.metadata["problems"].value)


@pytest.mark.parametrize("outcome", ["overfitting", "below_bar", "few_groups", "second_look"])
def test_a_model_that_loses_is_a_valid_evaluation(published: Published, outcome: str):
    found = scored(published, outcome, base=[1.0, 2.0], consensus=[9.0, 9.0], merged=[3.0, 3.0])
    assert found.passed and "problems" not in found.metadata


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_no_evaluation(published: Published, loss: float):
    found = scored(published, base=[1.0, 2.0], consensus=[1.0, loss])
    assert problems(found) == ["losses that are not finite: consensus"]


def test_other_items_than_the_base_are_no_evaluation(published: Published):
    (problem,) = problems(scored(published, base=[1.0, 2.0], consensus=[1.0]))
    assert "same examples: base 2, consensus 1" in problem


def test_a_crashed_arm_is_no_evaluation(published: Published):
    same = {"base": [1.0], "consensus": [1.0]}
    assert problems(scored(published, crashed={"merged": "out of memory"}, **same)) == ["merged crashed: out of memory"]
    assert problems(scored(published, "crashed_arm", **same)) == ["an arm crashed"]


def test_an_answer_without_a_grade_is_no_evaluation(published: Published):
    assert "1 answers have no grade" in problems(scored(published, grades=(), base=[1.0]))[0]


def test_nothing_scored_is_no_evaluation(published: Published):
    assert problems(scored(published, answers=(), grades=())) == ["nothing was scored"]
    assert scored(published).passed  # answers alone are a score


# --- schemas ---------------------------------------------------------------------------------------------------------


class Loose(Record):
    """`LeftOut` without its reason, and with a key of its own: what an older or foreign writer might leave."""

    schema_name = "Loose"
    schema_version = 1
    key = ("unit_id", "note")

    unit_id: str = Example.model_fields["example_id"]
    note: str = Example.model_fields["language"]


class Keyless(Record):
    """`LeftOut`, unique by both columns instead of the first."""

    schema_name = "Keyless"
    schema_version = 1
    key = ("unit_id", "reason")

    unit_id: str = Example.model_fields["example_id"]
    reason: str = Example.model_fields["language"]


@pytest.mark.parametrize("asset", sorted(TABLES))
def test_empty_tables_of_the_right_shape_pass(published: Published, asset: str):
    frames = {
        name: (model := record_type(reference), pl.DataFrame(schema=polars_schema(model)))
        for name, reference in TABLES[asset].items()
    }
    partition = SQL if asset in PARTITIONED else None
    published.put(asset, partition, tables=frames)
    found = verdict(published, schema_check(asset), partition)
    assert found.passed and found.blocking and found.metadata["tables"].value == sorted(frames)


@pytest.mark.parametrize(
    ("left_out", "problem"),
    [
        (table(Loose, [Loose(unit_id="a", note="n")]), "left_out: LeftOut: column reason is missing"),
        (table(Keyless, [Keyless(unit_id="a", reason=r) for r in "xy"]), "key ('unit_id',) is not unique in 2 rows"),
    ],
    ids=["column missing", "key twice"],
)
def test_a_damaged_table_is_named_with_its_problem(published: Published, left_out: pl.DataFrame, problem: str):
    writer = Loose if "note" in left_out.columns else Keyless
    frames = examples(*three(PYTHON)) | {"left_out": (writer, left_out)}
    published.put("moe_dataset", PYTHON, tables=frames)
    found = verdict(published, schema_check("moe_dataset"), PYTHON)
    assert not found.passed and any(problem in text for text in found.metadata["problems"].value), found.metadata


def test_a_file_whose_bytes_changed_is_an_error(published: Published):
    artifact = published.put("moe_dataset", PYTHON, tables=examples(*three(PYTHON)))
    path = Path(artifact.path.path) / "examples.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(IntegrityError, match=r"examples\.parquet is not the file that was published"):
        verdict(published, schema_check("moe_dataset"), PYTHON)
