"""`capibara evaluate`: a domain of the deployment, or models on a file, with figures, a report and the decision."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.model.evaluation_files import (
    INCONCLUSIVE,
    WORK,
    contender,
    file_options,
    print_figures,
    readable_items,
    settings_of,
    write_results,
)
from capibara_assets.deployment.environment import Deployment
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    from capibara_assets.evaluation.evaluate import Evaluation
    from capibara_assets.evaluation.report import EvaluationReport


@click.command("evaluate")
@click.option("--domain", type=click.Choice([domain.value for domain in DOMAINS]), help="What `run` made of a domain.")
@click.option(
    "--model", "models", multiple=True, metavar="[NAME=]CONTENDER", help="A model, an adapter, an endpoint, …; several."
)
@click.option("--adapter", "adapters", multiple=True, metavar="[NAME=]FOLDER", help="The same: an adapter's folder.")
@click.option("--dataset", type=click.Path(path_type=Path), help="Examples, chats, HumanEval or MBPP.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), help="Folder of results.")
@file_options
def evaluate(
    domain: str | None,
    models: tuple[str, ...],
    adapters: tuple[str, ...],
    dataset: Path | None,
    output: Path | None,
    **options: Any,
) -> None:
    """Evaluate a domain of the deployment as the graph does, or models on a file of items.

    With --domain: every contender that `capibara run` made, the decision, and the report in --output (default:
    `evaluations/DOMAIN` of the deployment); nothing is materialized. Exit code 3 where that is inconclusive.

    With --model and --dataset: figures of each model, and of each but the first its difference from the first.
    """
    if domain is not None:
        if models or adapters or dataset is not None:
            raise InputError("--domain evaluates what the deployment has: leave out --model, --adapter and --dataset")
        found, report, folder = _of_domain(Domain(domain), output)
        about: dict[str, Any] = {"domain": domain}
    else:
        if not (models or adapters) or dataset is None or output is None:
            raise InputError("give --domain, or --model (or --adapter) with --dataset and --output")
        found, report, about = _of_file((*models, *adapters), dataset, output, options)
        folder = output
    result = write_results(folder, found, report, about)
    if options["as_json"]:
        click.echo(json.dumps(result))
    else:
        print_figures(report)
        click.echo(f"report: {result['report']}")
    if found.decision is not None and found.decision.verdict == "inconclusive":
        raise SystemExit(INCONCLUSIVE)


def _of_domain(domain: Domain, output: Path | None) -> "tuple[Evaluation, EvaluationReport, Path]":
    from capibara_assets.assets.evaluation_inputs import read_run
    from capibara_assets.assets.inputs import Inputs
    from capibara_assets.cli.graph.instance import open_instance
    from capibara_assets.evaluation.evaluate import evaluate_domain
    from capibara_assets.evaluation.tables import report_of
    from capibara_assets.resources import BaseModel, Recipes, Store

    deployment = Deployment.from_environment()
    recipes = Recipes(profile=deployment.profile, folder=deployment.recipes)
    with open_instance(deployment) as instance:
        inputs = Inputs(instance, Store(root=deployment.store, work=str(deployment.work)).open())
        run = read_run(inputs, recipes, BaseModel(location=deployment.base_model), domain)
    found = evaluate_domain(run.models, run.items, run.training, run.terms, near=run.near, work=run.work)
    report = report_of(found, domain.value, run.terms, beside=run.beside)
    return found, report, output or deployment.home / "evaluations" / domain.value


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
    found = judge(dataset.name, items, measured, graded, terms, arms=None)
    checked = f"{trained} training examples" if trained else "no training data is known here: leaks were not looked for"
    about = {"dataset": str(dataset), **texts, "checked against": checked, "nearly training items": len(leaks)}
    return found, report_of(found, dataset.name, terms, settings=about), about


def _by_name(named: tuple[str, ...]) -> dict[str, str]:
    """Name → contender, from `[NAME=]CONTENDER`; without a name it is called by the last part of its text.

    Raises:
        InputError: two have one name.
    """
    found: dict[str, str] = {}
    for text in named:
        name, equals, rest = text.partition("=")
        if not equals or "/" in name:
            name, rest = Path(text.rstrip("/")).name, text
        if name in found:
            raise InputError(f"two contenders are called {name}: name them, as in tuned={text}")
        found[name] = rest
    return found
