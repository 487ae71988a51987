"""`capibara compare`: evaluate a baseline, an optimised prompt and a fine-tuned model on one file, and decide."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.model.evaluation_files import (
    WORK,
    EvaluationOptions,
    about_file,
    contender,
    file_options,
    finish,
    readable_items,
    settings_of,
)
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    from capibara_assets.evaluation.decision.test_uses import TestUse
    from capibara_assets.evaluation.decision_rule import DecisionRule
    from capibara_assets.evaluation.evaluate import Graded
    from capibara_assets.evaluation.items.items import Item
    from capibara_assets.evaluation.measuring.measured import Measurements

BASELINE, OPTIMIZED, FINETUNED = "baseline", "optimized", "finetuned"
ALIKE = ("pass@1", "exact_match", "repair_rate", "chrf")
"""Metrics tried in this order when a contender lacks the decision rule's metric."""
FORMS = "A model or adapter folder, checkpoint:REF, an endpoint, a DSPy program, or scores of an earlier run."


@with_example("capibara compare --baseline base --finetuned adapter --dataset items.jsonl --output comparison")
@click.command("compare")
@click.option("--baseline", required=True, help=FORMS)
@click.option("--optimized", help="The baseline with an optimised prompt.")
@click.option("--finetuned", required=True, help="The model to decide about. Same forms.")
@click.option(
    "--dataset", required=True, type=click.Path(path_type=Path), help="File of examples, chats, HumanEval or MBPP."
)
@click.option(
    "--output", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder for the results."
)
@click.option("--metric", help="Metric that decides; default: the rule's if all contenders have it.")
@file_options
@shows_progress("comparing")
def compare(
    baseline: str,
    optimized: str | None,
    finetuned: str,
    dataset: Path,
    output: Path,
    metric: str | None,
    **options: Any,
) -> None:
    """Compare a fine-tuned model with a baseline and an optimised prompt on the same file, and decide.

    Each of the three is a folder (model or LoRA adapter), checkpoint:REF, https://HOST/v1#MODEL, openai:MODEL[@URL],
    ollama:MODEL[@URL], a DSPy program (.json), or answers or scores of an earlier run (.json, .jsonl, .parquet, with
    #CONTENDER). Exit code 0: decided (promote or reject), 3: inconclusive, 2: bad input. After an
    interruption, run the same command again to resume.
    """
    from capibara_assets.evaluation.contenders.contenders import ModelContender, StoredContender
    from capibara_assets.evaluation.decision.decide import Arms
    from capibara_assets.evaluation.evaluate import Terms, grade_and_score, judge
    from capibara_assets.evaluation.measuring.named import measure_named
    from capibara_assets.evaluation.tables import report_of

    settings = settings_of(options)
    named = {BASELINE: baseline, **({OPTIMIZED: optimized} if optimized else {}), FINETUNED: finetuned}
    items, leaks, trained = readable_items(dataset, options["executions"], options["training"], settings)
    with TemporaryDirectory(prefix="capibara-compare-") as place:
        first = contender(baseline, BASELINE, settings, Path(place))
        if options["base"] is None and isinstance(first, ModelContender) and isinstance(first.model, Path):
            settings = replace(settings, base=first.model)  # adapters and prompts belong to the baseline's model
        others = {name: text for name, text in named.items() if name != BASELINE}
        contenders = [first, *(contender(text, name, settings, Path(place)) for name, text in others.items())]
        candidate = contenders[-1].identity
        bare = [one.name for one in contenders if isinstance(one, StoredContender) and one.scores]
        if bare and metric is None:
            raise InputError(f"{', '.join(bare)} holds scores alone: name the metric of these scores with --metric")
        measured = measure_named(
            contenders, items, settings.recipe, metric or settings.rule.default.metric, output / WORK
        )
    weak = options["allow_weak_isolation"]
    graded = grade_and_score(items, measured, settings.recipe, work=output / WORK, allow_weak_isolation=weak)
    rule = rule_of(metric, settings.rule, graded, measured)
    terms = Terms(settings.recipe, rule, _test_use(settings, dataset, items, candidate, rule))
    evaluation = judge(dataset.name, items, measured, graded, terms, Arms(BASELINE, OPTIMIZED, FINETUNED, "", ""))
    about = about_file(dataset, named, trained, leaks)
    report = report_of(evaluation, dataset.name, terms, settings=about)
    finish(output, evaluation, report, about, options["as_json"])


def rule_of(metric: str | None, rule: "DecisionRule", graded: "Graded", measured: "Measurements") -> "DecisionRule":
    """The decision rule with its metric chosen: the one given, else the rule's own if every contender has it, else the
    first of `ALIKE` that all have. A metric other than the rule's own is judged by the rule's defaults.

    Raises:
        InputError: a contender lacks the given metric, or no metric is common to all.
    """
    from capibara_assets.evaluation.decision_rule import LOWER, ScoreRule

    running = set(measured.contenders) - set(measured.crashed)
    having: dict[str, set[str]] = {}
    for row in graded.scores.select("metric", "contender").unique().iter_rows():
        having.setdefault(row[0], set()).add(row[1])
    common = [name for name, who in having.items() if running <= who]
    wanted = [metric] if metric else [rule.default.metric, *ALIKE]
    chosen = next((name for name in wanted if name in common), None)
    if chosen is None and running:
        lacking = {name: sorted(running - who) for name, who in sorted(having.items()) if running - who}
        said = [f"{name} is not known of {', '.join(who)}" for name, who in lacking.items()]
        raise InputError(
            f"no metric to decide by{f': {metric}' if metric else ''}: "
            + "; ".join([f"all contenders have {', '.join(common) or 'none'}", *said])
        )
    if chosen is None or chosen == rule.default.metric:
        return rule.model_copy(update={"domains": {}, **({"graded": None} if metric else {})})
    if chosen in LOWER:
        raise InputError(
            f"--metric {chosen}: its pass mark is not defined: give a --rule with its range and thresholds"
        )
    return rule.deciding_by(ScoreRule(metric=chosen))


def _test_use(
    settings: EvaluationOptions, dataset: Path, items: "list[Item]", candidate: str, rule: "DecisionRule"
) -> "TestUse | None":
    """Record that a candidate is judged on this file, which tightens later decisions on it; None without a store."""
    from capibara_assets.assets.settings import setting_digest
    from capibara_assets.evaluation.decision.test_uses import LEDGER, Trial, record_test_use
    from capibara_assets.storage.digests import sha256_file

    store = Path(settings.deployment.store)
    if not store.is_dir():
        return None
    trial = Trial(
        items=[item.item_id for item in items],
        candidate=candidate,
        contest=candidate,  # its origin is unknown: it is counted, and never refused
        settings={"rule": setting_digest(rule), "recipe": setting_digest(settings.recipe)},
    )
    return record_test_use(store / LEDGER, f"compare-{sha256_file(dataset)[:16]}", trial, alpha=1 - rule.confidence)
