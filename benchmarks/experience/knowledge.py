"""The benches `classify` and `repair`: domains and repair pairs against labels, and how fast."""

import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from benchmarks.experience_input import BenchInput, bench_input
from benchmarks.output import print_result

_experience = click.option(
    "--experience", help="Folder of experience; default: ../shared where it is, else what ships."
)
_labels = click.option("--labels", help="Labels file; default: labels.jsonl.gz in the folder, where there is one.")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON line.")


@click.command("classify")
@_experience
@_labels
@click.option("--workers", default=2, show_default=True, help="Processes of the speed figure.")
@_json
def classify(experience: str | None, labels: str | None, workers: int, as_json: bool) -> None:
    """Domains by sandbox session, each family of sources held out; executions per second with patterns."""
    from benchmarks.experience.study import measure_speed

    given = bench_input(experience, labels)
    executions = _executions(given)
    result = {"experience": given.name, "executions": executions.height, **_accuracy(given, executions)}
    print_result(result | measure_speed(executions, workers), as_json)


@click.command("repair")
@_experience
@_labels
@_json
def repair(experience: str | None, labels: str | None, as_json: bool) -> None:
    """Repair pairs against the labels of the benchmark sources, beside "the next success with similar code"."""
    from benchmarks.experience.measure import next_similar_success, read_labels, repair_scores
    from capibara_assets.executions.patterns.repairs import find_repairs

    given = bench_input(experience, labels)
    path = given.needed_labels()
    executions, truth = _executions(given), read_labels(path)
    begun = time.perf_counter()
    pairs = find_repairs(executions)
    seconds = time.perf_counter() - begun
    scores = repair_scores(pairs, truth, executions)
    simple = repair_scores(next_similar_success(executions), truth, executions)
    result = {"experience": given.name, **_rounded(asdict(scores))} | {
        "next_similar_success": _rounded({"precision": simple.precision, "recall": simple.recall}),
        "executions_per_s": round(executions.height / seconds),
    }
    print_result(result, as_json)


def _executions(given: BenchInput) -> Any:
    from capibara_assets.executions.ingest.ingest import read_experience

    return read_experience(given.folder, now=datetime.now(UTC)).executions


def _accuracy(given: BenchInput, executions: Any) -> dict[str, Any]:
    """Scores against labels; where there are none, only how many sessions got no domain."""
    from benchmarks.experience.measure import (
        FAMILIES,
        classifier_scores,
        read_labels,
        read_source_domains,
        session_domains,
    )

    if given.labels is None:
        silent = executions["sandbox_id"].n_unique() - len(session_domains(executions))
        return {"abstained": silent, "not_measured": "accuracy: no labels; name them with --labels FILE"}
    labels = read_labels(given.labels)
    domains = read_source_domains(given.labels.with_name("sources.json"))
    scores = classifier_scores(executions, labels, domains, FAMILIES)
    return _rounded(
        {
            "macro_f1": scores.macro_f1,
            "worst_source_accuracy": scores.worst_source_accuracy,
            "mean_source_accuracy": scores.mean_source_accuracy,
            "abstained": scores.abstained,
            # rules from general knowledge of libraries: with any family left out they are the same rules
            "fitted_to_logs": False,
            "accuracy_by_family": _rounded(scores.accuracy_by_source),
            "accuracy_by_source": _rounded(classifier_scores(executions, labels, domains).accuracy_by_source),
        }
    )


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in values.items()}
