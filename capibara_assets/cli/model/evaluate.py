"""`capibara evaluate`: evaluate a domain of the deployment, or models on a file; writes tables and a report."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.model.evaluation_files import (
    WORK,
    about_file,
    contender,
    file_options,
    finish,
    readable_items,
    settings_of,
)
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    from capibara_assets.evaluation.evaluate import Evaluation
    from capibara_assets.evaluation.report import EvaluationReport


@with_example("capibara evaluate --domain sql")
@click.command("evaluate")
@click.option(
    "--domain",
    type=click.Choice([domain.value for domain in DOMAINS]),
    help="Evaluate this domain's results of `capibara run`.",
)
@click.option(
    "--model", "models", multiple=True, metavar="[NAME=]CONTENDER", help="Model, adapter or endpoint; repeatable."
)
@click.option("--adapter", "adapters", multiple=True, metavar="[NAME=]FOLDER", help="Adapter folder; repeatable.")
@click.option("--dataset", type=click.Path(path_type=Path), help="File of examples, chats, HumanEval or MBPP.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="Folder for the results.")
@file_options
@shows_progress("evaluating")
def evaluate(
    domain: str | None,
    models: tuple[str, ...],
    adapters: tuple[str, ...],
    dataset: Path | None,
    output: Path | None,
    **options: Any,
) -> None:
    """Evaluate a domain of the deployment, or models on a file of items.

    With --domain: evaluates every contender that `capibara run` made, as the graph does, and writes the decision and
    the report to --output (default: `evaluations/DOMAIN` of the deployment). Nothing is materialized. Exit code 3: the
    decision is inconclusive.

    With --model and --dataset: metrics of each model, and the difference of each from the first.
    """
    if domain is not None:
        if models or adapters or dataset is not None:
            raise InputError("--domain evaluates what the deployment has: leave out --model, --adapter and --dataset")
        evaluation, report, folder = _of_domain(Domain(domain), output)
        about: dict[str, Any] = {"domain": domain}
    else:
        if not (models or adapters) or dataset is None or output is None:
            raise InputError("give --domain, or --model (or --adapter) with --dataset and --output")
        evaluation, report, about = _of_file((*models, *adapters), dataset, output, options)
        folder = output
    finish(folder, evaluation, report, about, options["as_json"])


def _of_domain(domain: Domain, output: Path | None) -> "tuple[Evaluation, EvaluationReport, Path]":
    from capibara_assets.assets.evaluation_inputs import read_run
    from capibara_assets.cli.graph.results import open_inputs
    from capibara_assets.evaluation.evaluate import evaluate_domain
    from capibara_assets.evaluation.tables import report_of
    from capibara_assets.resources import BaseModel, Recipes

    deployment = Deployment.from_environment()
    recipes = Recipes(profile=deployment.profile, folder=deployment.recipes)
    with open_inputs(deployment) as inputs:
        run = read_run(inputs, recipes, BaseModel(location=deployment.base_model), domain)
    evaluation = evaluate_domain(run.models, run.items, run.training, run.terms, near=run.near, work=run.work)
    report = report_of(evaluation, domain.value, run.terms, beside=run.beside)
    return evaluation, report, output or deployment.home / "evaluations" / domain.value


def _of_file(
    named: tuple[str, ...], dataset: Path, output: Path, options: dict[str, Any]
) -> "tuple[Evaluation, EvaluationReport, dict[str, Any]]":
    from capibara_assets.evaluation.evaluate import Terms, grade_and_score, judge
    from capibara_assets.evaluation.measuring.named import measure_named
    from capibara_assets.evaluation.tables import report_of

    settings = settings_of(options)
    texts = _by_name(named)
    items, leaks, trained = readable_items(dataset, options["executions"], options["training"], settings)
    with TemporaryDirectory(prefix="capibara-evaluate-") as place:
        contenders = [contender(text, name, settings, Path(place)) for name, text in texts.items()]
        measured = measure_named(contenders, items, settings.recipe, settings.rule.default.metric, output / WORK)
    if crashed := measured.crashed:
        raise InputError("; ".join(f"{name}: {why}" for name, why in sorted(crashed.items())))
    weak = options["allow_weak_isolation"]
    graded = grade_and_score(items, measured, settings.recipe, work=output / WORK, allow_weak_isolation=weak)
    terms = Terms(settings.recipe, settings.rule)
    evaluation = judge(dataset.name, items, measured, graded, terms, arms=None)
    about = about_file(dataset, texts, trained, leaks)
    return evaluation, report_of(evaluation, dataset.name, terms, settings=about), about


def _by_name(named: tuple[str, ...]) -> dict[str, str]:
    """Name → contender, from `[NAME=]CONTENDER`; the default name is the last part of the path.

    Raises:
        InputError: two contenders have the same name.
    """
    texts: dict[str, str] = {}
    for text in named:
        name, equals, rest = text.partition("=")
        if not equals or "/" in name:
            name, rest = Path(text.rstrip("/")).name, text
        if name in texts:
            raise InputError(f"two contenders are called {name}: give one another name, such as tuned={text}")
        texts[name] = rest
    return texts
