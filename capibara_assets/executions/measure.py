"""Domains and repair pairs held against labels: what `classify` and `repairs` are worth on records they never saw."""

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.domains import Domain
from capibara_assets.errors import InputError


@dataclass(frozen=True)
class ClassifierScores:
    """By sandbox session. A session without a domain (abstained) counts as wrong."""

    macro_f1: float
    accuracy_by_source: dict[str, float]
    abstained: int

    @property
    def worst_source_accuracy(self) -> float:
        return min(self.accuracy_by_source.values())

    @property
    def mean_source_accuracy(self) -> float:
        return sum(self.accuracy_by_source.values()) / len(self.accuracy_by_source)


@dataclass(frozen=True)
class RepairScores:
    """`precision` is over pairs whose failing execution the labels know as a failure, `strict_precision` over all."""

    precision: float
    recall: float
    strict_precision: float
    pairs: int
    labelled: int
    unlabelled_failures: int  # console.assert failures: labelled ok, since the label took the error field alone


def read_labels(path: Path) -> list[dict[str, Any]]:
    """The lines of a (gzipped) labels file.

    Raises:
        InputError: the file is missing or a line is no JSON.
    """
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except OSError as error:
        raise InputError(f"cannot read the labels {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"the labels {path} are no JSON lines: {error}") from error


def classifier_scores(
    executions: pl.DataFrame,
    labels: Sequence[Mapping[str, Any]],
    source_domains: Mapping[str, str],
    families: Mapping[str, str] | None = None,
) -> ClassifierScores:
    """Scores of the sessions' domains.

    Args:
        executions: Execution table; a session's domain is the most frequent primary one of its executions.
        labels: one row per execution with `sandbox_id`, `source` and `language`.
        source_domains: source -> domain; a value that is no domain means that the language decides.
        families: source -> family whose accuracy is reported together; absent sources stand for themselves.
    """
    predicted = _session_domains(executions)
    truth: dict[str, tuple[str, str]] = {}
    for label in labels:
        domain = source_domains[label["source"]]
        truth[label["sandbox_id"]] = (label["source"], domain if domain in set(Domain) else label["language"])
    right: dict[str, list[bool]] = defaultdict(list)
    confusion: Counter[tuple[str, str | None]] = Counter()
    for sandbox, (source, domain) in truth.items():
        guess = predicted.get(sandbox)
        right[(families or {}).get(source, source)].append(guess == domain)
        confusion[domain, guess] += 1
    return ClassifierScores(
        macro_f1=_macro_f1(confusion),
        accuracy_by_source={source: sum(hits) / len(hits) for source, hits in sorted(right.items())},
        abstained=sum(n for (_, guess), n in confusion.items() if guess is None),
    )


def repair_scores(
    repairs: pl.DataFrame, labels: Sequence[Mapping[str, Any]], sources: Sequence[str] | None = None
) -> RepairScores:
    """Scores of repair pairs on the labelled sources (those with a `repairs` field, unless `sources` names them)."""
    by_id = {label["execution_id"]: label for label in labels}
    judged = set(sources or {label["source"] for label in labels if label.get("repairs")})
    truth = {(label["repairs"], label["execution_id"]) for label in labels if label.get("repairs")}
    found = {
        pair
        for pair in repairs.select("failing_execution_id", "fixed_execution_id").iter_rows()
        if pair[0] in by_id and by_id[pair[0]]["source"] in judged
    }
    unlabelled = {pair for pair in found if by_id[pair[0]]["outcome"] == "ok"}
    hits = len(found & truth)
    return RepairScores(
        precision=hits / max(1, len(found - unlabelled)),
        recall=hits / max(1, len(truth)),
        strict_precision=hits / max(1, len(found)),
        pairs=len(found),
        labelled=len(truth),
        unlabelled_failures=len(unlabelled),
    )


def _session_domains(executions: pl.DataFrame) -> dict[str, str]:
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for sandbox, domains in executions.select("sandbox_id", "domains").iter_rows():
        votes[sandbox].update(domain for domain in domains[:1] if domain != Domain.DEBUG)
    return {
        sandbox: min(counts.items(), key=lambda item: (-item[1], item[0]))[0]
        for sandbox, counts in votes.items()
        if counts
    }


def _macro_f1(confusion: Counter[tuple[str, str | None]]) -> float:
    scores = []
    for domain in sorted({truth for truth, _ in confusion}):
        hit = confusion[domain, domain]
        said = sum(n for (_, guess), n in confusion.items() if guess == domain)
        true = sum(n for (truth, _), n in confusion.items() if truth == domain)
        scores.append(2 * hit / (said + true) if said + true else 0.0)
    return sum(scores) / len(scores)
