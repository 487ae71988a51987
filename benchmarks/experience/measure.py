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
from capibara_assets.executions.patterns.similarity import similarity, tokens

#: Sources that share problems, authors or databases: leaving one of a family out would leave its like in.
FAMILIES = {
    "mbpp": "mbpp",
    "mbxp-js": "mbpp",
    "humanevalpack": "humanevalpack",
    "sql-eval": "sql",
    "sql-eval-python": "sql",
    "fastapi-docs": "fastapi",
    "anthropic-cookbook-recorded": "api notebooks",
    "rasbt-ml-executed": "ml notebooks",
    "rasbt-ml-recorded": "ml notebooks",
}


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
    """Pairs held against labels, by two readings.

    A label's `repairs` names the failure that a success repairs, but labels were made from the error field alone: where
    a test fails through `console.assert` (stderr only, no error) they call the broken run ok and name no repair.
    `precision` and `recall` complete the labels by their roles: such a run of broken code and the solution of the same
    problem that follows it are a pair, too. `labelled_*` judge failures that the labels call failures, by `repairs`
    alone; `strict_precision` takes every pair without a `repairs` label for false.
    """

    precision: float
    recall: float
    labelled_precision: float
    labelled_recall: float
    strict_precision: float
    pairs: int
    labelled: int
    completed: int  # pairs that only the roles tell of


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


def read_source_domains(path: Path) -> dict[str, str]:
    """Source -> its domain, or words that say that the language decides (a `sources.json`).

    Raises:
        InputError: the file is missing or has another shape.
    """
    try:
        return {name: str(entry["domain"]) for name, entry in json.loads(path.read_bytes()).items()}
    except OSError as error:
        raise InputError(f"cannot read the sources {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} must map each source to an object with its `domain`: {error!r}") from error


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
    predicted = session_domains(executions)
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


def repair_scores(repairs: pl.DataFrame, labels: Sequence[Mapping[str, Any]], executions: pl.DataFrame) -> RepairScores:
    """Scores of repair pairs on the labelled sources: those with a `repairs` field somewhere.

    Args:
        repairs: RepairPair table.
        labels: one row per execution with `execution_id`, `sandbox_id`, `source`, `outcome`, and where known `repairs`,
            `role`, `problem` and `cell`.
        executions: Execution table, for the failures that labels call ok.
    """
    by_id = {label["execution_id"]: label for label in labels}
    judged = {label["source"] for label in labels if label.get("repairs")}
    named = {(label["repairs"], label["execution_id"]) for label in labels if label.get("repairs")}
    truth = named | _silent_repairs([label for label in labels if label["source"] in judged], executions)
    pairs = repairs.select("failing_execution_id", "fixed_execution_id").iter_rows()
    found = {pair for pair in pairs if pair[0] in by_id and by_id[pair[0]]["source"] in judged}
    known = {pair for pair in found if by_id[pair[0]]["outcome"] != "ok"}
    return RepairScores(
        precision=len(found & truth) / max(1, len(found)),
        recall=len(found & truth) / max(1, len(truth)),
        labelled_precision=len(known & named) / max(1, len(known)),
        labelled_recall=len(known & named) / max(1, len(named)),
        strict_precision=len(found & named) / max(1, len(found)),
        pairs=len(found),
        labelled=len(named),
        completed=len(truth - named),
    )


def _silent_repairs(labels: Sequence[Mapping[str, Any]], executions: pl.DataFrame) -> set[tuple[str, str]]:
    """Pairs whose failure is on stderr only: code broken on purpose, and the solution that follows it."""
    failed = set(executions.filter(pl.col("outcome") != "ok")["execution_id"])
    solutions: dict[tuple[Any, Any], list[Mapping[str, Any]]] = defaultdict(list)
    for label in labels:
        if label.get("role") == "solution" and label["execution_id"] not in failed:
            solutions[label["sandbox_id"], label.get("problem")].append(label)
    pairs = set()
    for label in labels:
        broken = str(label.get("role")).startswith(("bug:", "mutant:"))
        if broken and label["outcome"] == "ok" and label["execution_id"] in failed:
            later = [s for s in solutions[label["sandbox_id"], label.get("problem")] if s["cell"] > label["cell"]]
            if later and not any(s.get("repairs") for s in later):
                pairs.add((label["execution_id"], min(later, key=lambda s: s["cell"])["execution_id"]))
    return pairs


def next_similar_success(executions: pl.DataFrame, threshold: float = 0.6) -> pl.DataFrame:
    """The simple way to repair pairs, for comparison: each failure and the next success with similar code."""
    pairs = []
    for session in executions.sort("timestamp", "execution_id").partition_by("sandbox_id", maintain_order=True):
        rows = list(session.select("execution_id", "outcome", "code").iter_rows())
        if all(outcome == "ok" for _, outcome, _ in rows):
            continue
        for i, (failing, outcome, code) in enumerate(rows):
            if outcome == "ok":
                continue
            for fixed, later, other in rows[i + 1 :]:
                if later == "ok" and similarity(tokens(code), tokens(other)) >= threshold:
                    pairs.append((failing, fixed))
                    break
    return pl.DataFrame(pairs, schema=["failing_execution_id", "fixed_execution_id"], orient="row")


def session_domains(executions: pl.DataFrame) -> dict[str, str]:
    """Sandbox -> the most frequent primary domain of its executions; sandboxes without one are left out."""
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
