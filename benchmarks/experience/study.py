"""How fast executions go through classification and patterns: the functions of the assets, on copies never seen before.

Processes stand ready and take whole sandboxes: sessions are labelled, then their idioms found while the trees are at
hand, so that equal code is parsed once. Then each domain's patterns are put together into its table, a domain a task.
The assets (`e2b_logs`, and `e2b_patterns` by domain) run apart, so that each parses for itself: they are measured, too.
"""

import os
import pickle
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from benchmarks.experience.corpus import perturbed_code
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.domains import Domain
from capibara_assets.executions.formats.envelope_reader import Recorded
from capibara_assets.executions.labels.classify import classify_session
from capibara_assets.executions.parsing import rare_collections
from capibara_assets.executions.patterns.extract import (
    CanonicalForm,
    Key,
    extract_patterns,
    find_patterns,
    idioms_of,
    pattern_table,
)
from capibara_assets.executions.recipe import ExperienceRecipe
from capibara_assets.executions.selection import of_domain
from capibara_assets.processes.pools import process_pool

_RUNS, _RUNS_APART = 5, 3
_SHARES = 4  # per worker: who is done early takes another


def measure_speed(executions: pl.DataFrame, workers: int) -> dict[str, Any]:
    """Executions per second: medians of runs, each over another copy of all executions.

    Copies are perturbed in names and numbers, so that no cache of equal code helps; `executions_per_s_equal_code` is of
    copies that were seen.
    """
    with TemporaryDirectory() as folder, process_pool(workers) as pool:
        copies = Copies(executions, Path(folder), workers * _SHARES)
        list(pool.map(study, copies.shares(0)))  # imports, parsers
        together = [_timed(study_all, pool, copies.shares(copy)) for copy in range(1, _RUNS + 1)]
        again = min(_timed(study_all, pool, copies.shares(_RUNS)) for _ in range(2))
        unseen = range(_RUNS + 1, _RUNS + 1 + _RUNS_APART)
        labelling = [_timed(label_all, pool, copies.shares(copy)) for copy in unseen]
        unseen = range(unseen.stop, unseen.stop + _RUNS_APART)
        extracting = [_timed(extract_all, pool, copies.domains(copy)) for copy in unseen]
    height = executions.height
    return {
        "executions_per_s": round(height / statistics.median(together)),
        "executions_per_s_range": [round(height / max(together)), round(height / min(together))],
        "executions_per_s_equal_code": round(height / again),
        "classification_alone_per_s": round(height / statistics.median(labelling)),
        "patterns_alone_per_s": round(height / statistics.median(extracting)),
        "workers": workers,
        "cores": len(os.sched_getaffinity(0)),
    }


def _timed(work: Any, pool: ProcessPoolExecutor, given: Any) -> float:
    begun = time.perf_counter()
    work(pool, given)
    return time.perf_counter() - begun


class Copies:
    """Copies of executions as files: the workers read them as the assets read their tables."""

    def __init__(self, executions: pl.DataFrame, folder: Path, shares: int) -> None:
        self._executions = executions.sort("sandbox_id", "timestamp", "execution_id")
        self._folder = folder
        self._shares = shares

    def shares(self, copy: int) -> list[Path]:
        """A copy in parts of whole sandboxes."""
        frame = self._copy(copy)
        share = frame["sandbox_id"].rank("dense") % self._shares
        return [self._file(f"{copy}-{i}", frame.filter(share == i)) for i in range(self._shares)]

    def domains(self, copy: int) -> list[tuple[Path, Domain]]:
        """A copy by the domains its executions carry, the largest first."""
        parts = [(domain, of_domain(self._copy(copy), domain)) for domain in Domain]
        parts.sort(key=lambda part: -part[1].height)
        return [(self._file(f"{copy}-{domain}", part), domain) for domain, part in parts]

    def _copy(self, copy: int) -> pl.DataFrame:
        codes = [perturbed_code(code, copy) for code in self._executions["code"]]
        return self._executions.with_columns(pl.Series("code", codes, dtype=pl.String))

    def _file(self, name: str, frame: pl.DataFrame) -> Path:
        path = self._folder / f"{name}.arrow"
        frame.write_ipc(path)
        return path


# --- what is timed --------------------------------------------------------------------------------------------------


def study_all(pool: ProcessPoolExecutor, shares: Sequence[Path]) -> dict[Domain, pl.DataFrame]:
    """Labels and patterns of all shares; each domain's table of patterns."""
    found = list(pool.map(study, shares))
    parts = [[share[domain] for share in found] for domain in Domain]
    return dict(zip(Domain, pool.map(merged, parts), strict=True))


def study(share: Path) -> dict[Domain, bytes]:
    """The idioms of one share by the domains that its sessions are labelled with, pickled for another process."""
    executions = pl.read_ipc(share)
    with rare_collections():
        domains = [domains for session in _sessions(executions) for domains in _studied(session)]
        labelled = executions.with_columns(pl.Series("domains", domains, dtype=pl.List(pl.String)))
        found = {domain: find_patterns(of_domain(labelled, domain), domain) for domain in Domain}
        return {domain: pickle.dumps(patterns, protocol=5) for domain, patterns in found.items()}


def merged(parts: Sequence[bytes]) -> pl.DataFrame:
    """One domain's table of patterns, out of what all shares hold."""
    with rare_collections():
        found = merge_patterns(pickle.loads(part) for part in parts)
        return pattern_table(found, shipped_recipe("experience", ExperienceRecipe))


def merge_patterns(parts: Iterable[dict[Key, CanonicalForm]]) -> dict[Key, CanonicalForm]:
    """Merges the forms found in several shares of the executions; the order of the shares does not matter."""
    merged: dict[Key, CanonicalForm] = {}
    for part in parts:
        for key, form in part.items():
            if (known := merged.get(key)) is None:
                merged[key] = form
            else:
                known.occurrences += form.occurrences
                known.prefer(form.idiom, form.shown)
    return merged


def label_all(pool: ProcessPoolExecutor, shares: Sequence[Path]) -> None:
    list(pool.map(label, shares))


def label(share: Path) -> list[list[str]]:
    """What `e2b_logs` does: the domains of each execution."""
    with rare_collections():
        sessions = _sessions(pl.read_ipc(share))
        return [_domains(label) for session in sessions for label in classify_session(session)]


def extract_all(pool: ProcessPoolExecutor, domains: Sequence[tuple[Path, Domain]]) -> None:
    list(pool.map(extract, *zip(*domains, strict=True)))


def extract(path: Path, domain: Domain) -> pl.DataFrame:
    """What `e2b_patterns` does: one domain's table of patterns."""
    recipe = shipped_recipe("experience", ExperienceRecipe)
    return extract_patterns(pl.read_ipc(path), domain, recipe)


def _sessions(executions: pl.DataFrame) -> Iterator[list[Recorded]]:
    rows = map(Recorded, *(executions[field.name].to_list() for field in fields(Recorded)))
    for _, session in groupby(rows, key=lambda record: record.sandbox_id):
        yield list(session)


def _studied(session: Sequence[Recorded]) -> list[list[str]]:
    labels = classify_session(session)
    for record in session:
        idioms_of(record.language, record.code)  # while its tree is at hand; found again by its code
    return [_domains(label) for label in labels]


def _domains(label: Any) -> list[str]:
    return [str(domain) for domain in label.domains]
