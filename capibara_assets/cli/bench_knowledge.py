"""`capibara bench classify` and `capibara bench repair`: domains and repair pairs against labels, and how fast."""

import os
import re
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields
from datetime import UTC, datetime
from itertools import groupby
from multiprocessing import get_context
from typing import Any

import click

from capibara_assets.cli.bench_experience import BenchInput, bench_input
from capibara_assets.cli.bench_output import print_result
from capibara_assets.declarations import shipped_recipe

_RUNS = 5
_NAME = re.compile(r"\b(?:def|class|function|const|let|var|for)\s+(\w{2,})|^\s*(\w{2,})\s*=(?!=)", re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.\"'%])\d{1,6}(?![\w.\"'])")
_STATEMENT = re.compile(r"\bselect\b", re.IGNORECASE)

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
    given = bench_input(experience, labels)
    executions = _executions(given)
    result = {"experience": given.name, "executions": executions.height, **_accuracy(given, executions)}
    print_result(result | _speed(executions, workers), as_json)


@click.command("repair")
@_experience
@_labels
@_json
def repair(experience: str | None, labels: str | None, as_json: bool) -> None:
    """Repair pairs against the labels of the benchmark sources, beside "the next success with similar code"."""
    from capibara_assets.executions.measure import next_similar_success, read_labels, repair_scores
    from capibara_assets.executions.repairs import find_repairs

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
    from capibara_assets.executions.ingest import read_experience

    return read_experience(given.folder, now=datetime.now(UTC)).executions


def _accuracy(given: BenchInput, executions: Any) -> dict[str, Any]:
    """Scores against labels; where there are none, only how many sessions got no domain."""
    from capibara_assets.executions.measure import (
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


# --- speed ----------------------------------------------------------------------------------------------------------


def _speed(executions: Any, workers: int) -> dict[str, Any]:
    """Executions per second through classification and patterns, over processes that stand ready.

    Each run takes other copies of all executions, perturbed in names and numbers, so that no cache of equal code helps;
    the last run repeats copies that were seen.
    """
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        list(pool.map(_study, _shares(executions.head(200), workers, copy=0), chunksize=1))  # imports, parsers
        rates = [_rate(pool, executions, workers, copy) for copy in range(1, _RUNS + 1)]
        again = max(_rate(pool, executions, workers, _RUNS) for _ in range(2))
    return {
        "executions_per_s": round(statistics.median(rates)),
        "executions_per_s_range": [round(min(rates)), round(max(rates))],
        "executions_per_s_equal_code": round(again),
        "workers": workers,
        "cores": len(os.sched_getaffinity(0)),
    }


def _rate(pool: ProcessPoolExecutor, executions: Any, workers: int, copy: int) -> float:
    from capibara_assets.domains import Domain
    from capibara_assets.executions.garbage import rare_collections
    from capibara_assets.executions.patterns import merge_patterns, pattern_table
    from capibara_assets.executions.recipe import ExperienceRecipe

    shares = list(_shares(executions, workers, copy))
    begun = time.perf_counter()
    with rare_collections():
        found = list(pool.map(_study, shares, chunksize=1))
        for domain in Domain:
            pattern_table(
                merge_patterns(share[domain] for share in found), shipped_recipe("experience", ExperienceRecipe)
            )
    return float(executions.height / (time.perf_counter() - begun))


def _shares(executions: Any, workers: int, copy: int) -> Iterator[Any]:
    """The executions in as many parts as there are workers, whole sandboxes each, in a copy of their own."""
    import polars as pl

    codes = [perturbed(code, copy) for code in executions["code"]]
    frame = executions.with_columns(pl.Series("code", codes, dtype=pl.String)).sort("sandbox_id", "timestamp")
    share = frame["sandbox_id"].rank("dense") % workers
    for worker in range(workers):
        yield frame.filter(share == worker)


def perturbed(code: str, copy: int) -> str:
    """Code with the same structure, other names of its own and other numbers; copy 0 is the code itself."""
    if not copy:
        return code
    names = sorted({name for pair in _NAME.findall(code) for name in pair if name})[::2]
    if names:
        code = re.sub(rf"(?<![.\w])(?:{'|'.join(names)})\b(?!['\"])", lambda match: f"{match.group()}_{copy}", code)
    code = _STATEMENT.sub(lambda match: f"{match.group()} /* {copy} */", code, count=1)
    return _NUMBER.sub(lambda match: str(int(match.group()) + copy), code)


def _study(executions: Any) -> dict[Any, Any]:
    """One share: labels of each session, then the patterns of each domain."""
    import polars as pl

    from capibara_assets.domains import Domain
    from capibara_assets.executions.classify import classify_session
    from capibara_assets.executions.garbage import rare_collections
    from capibara_assets.executions.patterns import find_patterns, idioms_of
    from capibara_assets.executions.readers import Recorded
    from capibara_assets.executions.selection import of_domain

    names = [field.name for field in fields(Recorded)]
    rows = map(Recorded, *(executions[name].to_list() for name in names))
    domains: list[list[str]] = []
    with rare_collections():
        for _, session in groupby(rows, key=lambda record: record.sandbox_id):
            records = list(session)
            domains += [[str(domain) for domain in label.domains] for label in classify_session(records)]
            for record in records:
                idioms_of(record.language, record.code)  # while its tree is at hand; found again by its code below
    labelled = executions.with_columns(pl.Series("domains", domains, dtype=pl.List(pl.String)))
    return {domain: find_patterns(of_domain(labelled, domain), domain) for domain in Domain}
