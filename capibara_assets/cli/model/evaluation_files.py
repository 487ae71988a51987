"""Shared parts of `evaluate` and `compare`: options, reading items and training data, writing results."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import polars as pl

from capibara_assets.cli.checkpoint.store import FOLDER, StoreLocation
from capibara_assets.cli.terminal.documents import AS_JSON
from capibara_assets.cli.terminal.exits import UNDECIDED
from capibara_assets.cli.terminal.tables import TerminalTable, say, show
from capibara_assets.deployment.declarations import read_declared, shipped_recipe
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError
from capibara_assets.storage.foreign import require_plain
from capibara_assets.storage.jsonfiles import write_bytes_atomic, write_json_atomic

if TYPE_CHECKING:
    from capibara_assets.evaluation.contenders.contenders import Contender
    from capibara_assets.evaluation.decision_rule import DecisionRule
    from capibara_assets.evaluation.evaluate import Evaluation
    from capibara_assets.evaluation.items.items import Item
    from capibara_assets.evaluation.items.leaks import Leak
    from capibara_assets.evaluation.recipe import EvaluationRecipe
    from capibara_assets.evaluation.report import EvaluationReport
    from capibara_assets.evaluation.schema import Interval

PAGE, RESULT, WORK = "evaluation.html", "evaluation.json", "work"
INCONCLUSIVE = UNDECIDED
"""Exit code of an inconclusive decision."""
_File = click.Path(exists=True, dir_okay=False, path_type=Path)
Command = TypeVar("Command", bound=Callable[..., Any])


def file_options(command: Command) -> Command:
    """Add the options that `evaluate` and `compare` share."""
    for option in reversed(
        (
            click.option("--executions", type=_File, help="Table of executions that --dataset was made from."),
            click.option(
                "--training",
                type=_File,
                multiple=True,
                help="Training examples of a contender, checked for leaks; default: the deployment's datasets.",
            ),
            click.option(
                "--base", help="Base model of adapters and prompts; default: the baseline's, else the deployment's."
            ),
            click.option("--recipe", type=_File, help="An evaluation.yaml; default: the shipped one."),
            click.option("--rule", type=_File, help="A decision.yaml; default: the shipped one."),
            click.option(
                "--max-items", type=click.IntRange(0), help="Number of items to answer, at most; default: all."
            ),
            click.option("--samples", type=click.IntRange(1), help="Answers per item."),
            click.option("--max-new-tokens", type=click.IntRange(1), help="Tokens of an answer, at most."),
            click.option("--temperature", type=click.FloatRange(0), help="Sampling temperature; 0: greedy."),
            click.option("--seed", type=click.IntRange(min=0), help="Seed of the sampling."),
            click.option("--workers", type=click.IntRange(1), help="Grading processes; default: one per core."),
            click.option(
                "--allow-weak-isolation", is_flag=True, help="Execute answers even if this machine cannot isolate them."
            ),
            AS_JSON,
        )
    ):
        command = option(command)
    return command


@dataclass(frozen=True)
class EvaluationOptions:
    """The validated options of `evaluate` and `compare`: recipe, decision rule, base model."""

    recipe: "EvaluationRecipe"
    rule: "DecisionRule"
    base: Path
    deployment: Deployment


def settings_of(options: Mapping[str, Any]) -> EvaluationOptions:
    """The evaluation recipe and decision rule with the options applied, and the base model.

    Raises:
        InputError: an invalid file or value, or no base model.
    """
    from capibara_assets.deployment.declarations import declared
    from capibara_assets.evaluation.decision_rule import DecisionRule
    from capibara_assets.evaluation.recipe import EvaluationRecipe
    from capibara_assets.training.standalone.run import base_folder

    deployment = Deployment.from_environment()
    own, rule_file = options["recipe"], options["rule"]
    recipe = read_declared(own, EvaluationRecipe) if own else shipped_recipe("evaluation", EvaluationRecipe)
    rule = read_declared(rule_file, DecisionRule) if rule_file else shipped_recipe("decision", DecisionRule)
    values = recipe.model_dump()
    for name in ("samples", "max_new_tokens", "temperature", "seed"):
        if options[name] is not None:
            values["decoding"][name] = options[name]
    values["generation"]["max_items"] = 10**9 if options["max_items"] is None else options["max_items"]
    if values["decoding"]["samples"] < max(values["generation"]["k"]):
        values["generation"]["k"] = [values["decoding"]["samples"]]
    if options["samples"] is not None:
        values["generation"]["k"] = sorted({1, options["samples"]})
    if options["workers"] is not None:
        values["workers"] = options["workers"]
    recipe = declared(EvaluationRecipe, values, "the command's options")
    return EvaluationOptions(recipe, rule, base_folder(options["base"] or deployment.base_model), deployment)


def contender(text: str, name: str, settings: EvaluationOptions, place: Path) -> "Contender":
    """The contender that `text` names; `checkpoint:REF` is restored from the deployment's store into `place`.

    Raises:
        InputError: the text names no contender.
    """
    from capibara_assets.evaluation.contenders.named import contender_of

    return contender_of(text, name=name, base=settings.base, restore=_restorer(settings.deployment, place))


def readable_items(
    dataset: Path, executions: Path | None, training: Sequence[Path], settings: EvaluationOptions
) -> "tuple[list[Item], list[Leak], int]":
    """(items to evaluate on, items dropped as near-duplicates of training data, number of training examples checked).

    Raises:
        InputError: an invalid file, or its items were trained on.
    """
    from capibara_assets.datasets.recipe import DatasetRecipe
    from capibara_assets.evaluation.evaluate import without
    from capibara_assets.evaluation.items.dataset_files import is_benchmark, read_items
    from capibara_assets.evaluation.items.leaks import find_benchmark_leaks, find_leaks, refuse_leaks

    items = read_items(dataset, executions)
    trained, source = training_data(training, settings.deployment)
    leaks = []
    if trained is not None:
        if is_benchmark(dataset):
            name = items[0].item_id.rpartition("/")[0] or dataset.stem
            leaks = find_benchmark_leaks({items[0].domain or name: dataset}, trained)
        else:
            leaks = find_leaks(items, trained, shipped_recipe("dataset", DatasetRecipe).near_duplicates)
        leaks = refuse_leaks(leaks, len(items), source)
    kept = without(items, leaks)
    if not kept:
        raise InputError(f"{dataset}: all {len(items)} items are nearly training items: no item remains to evaluate on")
    return kept, leaks, trained.height if trained is not None else 0


def about_file(dataset: Path, named: Mapping[str, str], trained: int, leaks: "Sequence[Leak]") -> dict[str, Any]:
    """The settings of an evaluation on a file, for its report."""
    checked = f"{trained} training examples" if trained else "no training data is known here: leaks were not checked"
    return {"dataset": str(dataset), **named, "checked against": checked, "nearly training items": len(leaks)}


def training_data(files: Sequence[Path], deployment: Deployment) -> tuple[pl.DataFrame | None, str]:
    """Examples used for training or selection, and their source; None if none are known."""
    from capibara_assets.datasets.schema import Example
    from capibara_assets.storage.records import SchemaError, conform

    tables = []
    for file in files:
        require_plain(file)
        try:
            tables.append(conform(Example, pl.read_parquet(file)))
        except (OSError, pl.exceptions.PolarsError, SchemaError) as error:
            raise InputError(f"--training {file} is no table of examples: {error}") from error
    source = ", ".join(map(str, files))
    if not files and (Path(deployment.store) / "artifacts" / "moe_dataset").is_dir():
        from capibara_assets.cli.graph.results import open_results

        with open_results(deployment) as results:
            tables = [artifact.frame("examples") for artifact in results.every("moe_dataset").values()]
        source = f"the datasets of {deployment.home}"
    if not tables:
        return None, ""
    examples = pl.concat(tables).unique("example_id", maintain_order=True)
    return examples.filter(pl.col("split") != "test"), source


def write_results(
    folder: Path, evaluation: "Evaluation", report: "EvaluationReport", about: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the tables (Parquet), `evaluation.json`, `scores.jsonl` and the HTML page; returns the JSON document.

    `scores.jsonl` holds the decision metric per contender and item; a later `compare` can use it as a contender.
    """
    from capibara_assets.evaluation.tables import documents_of, tables_of
    from capibara_assets.metadata.evaluation_page import page

    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, frame) in tables_of(evaluation).items():
        frame.write_parquet(folder / f"{name}.parquet")
    metric = evaluation.decision.metric if evaluation.decision else None
    lines = [
        json.dumps({key: row[key] for key in ("contender", "item_id", "score")})
        for row in evaluation.scores.iter_rows(named=True)
        if row["metric"] == metric
    ]
    write_bytes_atomic(folder / "scores.jsonl", "".join(f"{line}\n" for line in lines).encode())
    write_bytes_atomic(folder / PAGE, page(report).encode())
    result = {**about, **documents_of(evaluation), "report": str(folder / PAGE)}
    write_json_atomic(folder / RESULT, result)
    return result


def finish(
    folder: Path, evaluation: "Evaluation", report: "EvaluationReport", about: Mapping[str, Any], as_json: bool
) -> None:
    """Write the results and print them, as a document or a table; exits with `INCONCLUSIVE` if the decision is so."""
    result = write_results(folder, evaluation, report, about)
    if as_json:
        click.echo(json.dumps(result))
    else:
        print_figures(report)
        click.echo(f"report: {result['report']}")
    if evaluation.decision is not None and evaluation.decision.verdict == "inconclusive":
        raise SystemExit(INCONCLUSIVE)


def print_figures(report: "EvaluationReport") -> None:
    """Print a row of metrics with intervals per contender, then the notes and the decision."""
    names = report.metrics()
    rows = [(name, *(_shown(row.get(metric), metric) for metric in names)) for name, row in report.figures.items()]
    show(TerminalTable(("contender", *names), rows, range(1, len(names) + 1)))
    for note in report.notes:
        say(f"  {note}")
    if report.paragraph:
        click.echo(f"\n{report.verdict}: {report.paragraph}")


def _shown(one: "Interval | None", metric: str) -> str:
    from capibara_assets.evaluation.report import metric_of
    from capibara_assets.metadata.evaluation_charts import figure

    if one is None:
        return "–"
    percent = metric_of(metric).percent
    ends = ", ".join(figure(end, percent) for end in (one.low, one.high))
    return f"{figure(one.estimate, percent)} [{ends}] n={one.n}"


def _restorer(deployment: Deployment, place: Path) -> Callable[[str], Path]:
    def restore(reference: str) -> Path:
        store = StoreLocation(f"{deployment.store.rstrip('/')}/{FOLDER}", deployment.work, named=False).open()
        checkpoint = store.open(reference)
        target = place / checkpoint.id
        if not target.exists():
            store.load(checkpoint.id, "huggingface", target)
        return target

    return restore
