"""The bench `examples`: datasets of any experience judged from outside, by detectors that share no code with them."""

import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.experience_input import BenchInput, bench_input
from benchmarks.output import print_result
from capibara_assets.domains import DOMAINS

FAULTS = {  # fault -> kinds that can have it
    "leaked_expectation": ("solve", "repair", "apply", "predict"),
    "insufficient_prompt": ("solve", "repair", "apply", "explain"),
    "no_op_repair": ("repair", "explain"),
    "boilerplate": ("solve", "explain"),
    "refuted": ("solve", "repair", "apply"),
    "off_task": ("solve", "repair", "apply"),
    "unexplained": ("solve", "repair", "apply"),
    "senseless": ("solve", "repair", "apply", "predict", "explain"),
    "by_name": ("solve", "apply"),
    "import_only": ("repair",),
    "fitted": ("solve", "repair", "apply"),
}
_JUDGED = ("solve", "repair", "apply")


@dataclass(frozen=True)
class Finding:
    """A fault of an example, or an answer that does not solve (`unsolved`) or is not judged by its test (`vacuous`)."""

    domain: str
    kind: str
    example_id: str
    fault: str
    reason: str


@dataclass
class Judged:
    """What became of the answers of one domain and kind that are code."""

    passed: int = 0
    failed: int = 0
    vacuous: int = 0
    not_judged: Counter[str] = field(default_factory=Counter)


@click.command("examples")
@click.option("--experience", help="Folder of experience; default: the shared collection, else what ships.")
@click.option("--domains", help="Only these domains, with commas between; default: all.")
@click.option("--sample", type=int, help="Examples of each domain and kind, drawn by their digest; default: all.")
@click.option("--reexecution/--no-reexecution", default=True, show_default=True, help="Make *predict* examples, too.")
@click.option("--solving/--no-solving", default=True, show_default=True, help="Run answers with their tests.")
@click.option("--show", type=int, default=0, help="Also print so many examples of each fault, to read.")
@click.option(
    "--audit", type=click.Path(dir_okay=False, path_type=Path), help="Write each finding there as a JSON line."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON line a domain, then the worst of all domains.")
def examples(
    experience: str | None,
    domains: str | None,
    sample: int | None,
    reexecution: bool,
    solving: bool,
    show: int,
    audit: Path | None,
    as_json: bool,
) -> None:
    """Faults of examples by domain and kind, and the share of answers that pass their hidden tests."""
    wanted = _wanted(domains)
    source = bench_input(experience, None)
    with TemporaryDirectory(prefix="capibara-bench-examples-") as scratch:
        tables = _made(source, Path(scratch), reexecution)
    rows = {domain: _sampled(tables[domain], sample) for domain in wanted}
    findings = [finding for domain in wanted for finding in find_faults(domain, rows[domain])]
    findings += find_refuted(rows, tables["executions"], source.folder)
    judged: dict[tuple[str, str], Judged] = {}
    if solving:
        judged, unsolved = solve_all(rows, tables["executions"])
        findings += unsolved
    if audit is not None:
        audit.write_text("".join(json.dumps(vars(finding)) + "\n" for finding in findings), "utf-8")
    report = {domain: by_kind(domain, rows[domain], findings, judged) for domain in wanted}
    for domain, kinds in report.items():
        click.echo(json.dumps({"domain": domain, "kinds": kinds}) if as_json else _table(domain, kinds))
    _show(findings, rows, show)
    print_result(worst(report) | {"experience": source.name}, as_json)


def _wanted(domains: str | None) -> list[str]:
    known = [str(domain) for domain in DOMAINS]
    if domains is None:
        return known
    wanted = domains.split(",")
    if unknown := sorted(set(wanted) - set(known)):
        raise click.UsageError(f"no domain {', '.join(unknown)}: there are {', '.join(known)}")
    return wanted


def _made(source: BenchInput, scratch: Path, reexecution: bool) -> dict[str, list[dict[str, Any]]]:
    """The rows of every domain's dataset, made in a fresh store, and of all executions."""
    from benchmarks.datasets.stages import ASSETS, Place, materialize_all

    place = Place(source.folder, scratch / "store", reexecute=reexecution)
    materialize_all(place, stages=ASSETS[: ASSETS.index("moe_dataset") + 1])
    store = place.open()
    tables = {
        str(d): artifact.frame("examples").to_dicts()
        for d in DOMAINS
        if (artifact := store.latest("moe_dataset", d)) is not None
    }
    logs = store.latest("e2b_logs", None)
    assert logs is not None
    columns = [
        "execution_id",
        "sandbox_id",
        "context_id",
        "timestamp",
        "source_file",
        "source_line",
        "language",
        "code",
        "outcome",
    ]
    return {**tables, "executions": logs.frame("executions").select(columns).to_dicts()}


def _sampled(rows: list[dict[str, Any]], sample: int | None) -> list[dict[str, Any]]:
    """So many rows of each kind, those of the least digests, whatever the ids say."""
    if sample is None:
        return rows
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: hashlib.sha256(row["example_id"].encode()).digest()):
        by_kind[row["kind"]].append(row)
    return [row for those in by_kind.values() for row in those[:sample]]


def find_faults(domain: str, rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """The faults in the examples of one domain that their texts show."""
    from benchmarks.datasets.faults.boilerplate import boilerplate
    from benchmarks.datasets.faults.cases import case_of
    from benchmarks.datasets.faults.fitted import fitted
    from benchmarks.datasets.faults.leaks import leaked_expectation
    from benchmarks.datasets.faults.no_ops import import_only, no_op_repair
    from benchmarks.datasets.faults.off_task import off_task
    from benchmarks.datasets.faults.queries.abbreviations import unexplained
    from benchmarks.datasets.faults.queries.senseless import by_name, senseless
    from benchmarks.datasets.faults.sufficiency import insufficient_prompt

    cases = [case_of(row) for row in rows]
    alone = {
        "leaked_expectation": leaked_expectation,
        "insufficient_prompt": insufficient_prompt,
        "no_op_repair": no_op_repair,
        "off_task": off_task,
        "unexplained": unexplained,
        "senseless": senseless,
        "by_name": by_name,
        "import_only": import_only,
        "fitted": fitted,
    }
    found = [
        Finding(domain, case.kind, case.example_id, fault, reason)
        for fault, detect in alone.items()
        for case in cases
        if (reason := detect(case)) is not None
    ]
    empty = boilerplate(cases)
    return found + [
        Finding(domain, case.kind, case.example_id, "boilerplate", empty[case.example_id])
        for case in cases
        if case.example_id in empty
    ]


def find_refuted(
    rows: Mapping[str, Sequence[Mapping[str, Any]]], executions: Sequence[Mapping[str, Any]], experience: Path
) -> list[Finding]:
    """Answers whose recorded code the logs' own verdicts speak against."""
    from benchmarks.datasets.faults.cases import case_of
    from benchmarks.datasets.faults.verdicts import judged_texts, refuted

    codes = {row["execution_id"]: row["code"] for row in executions}
    judged = judged_texts(experience)
    return [
        Finding(domain, case.kind, case.example_id, "refuted", reason)
        for domain, those in rows.items()
        for case in (case_of(row) for row in those if row["kind"] in _JUDGED)
        if case.execution_ids and (reason := refuted(codes.get(case.execution_ids[0], ""), judged)) is not None
    ]


def solve_all(
    rows: Mapping[str, Sequence[Mapping[str, Any]]], executions: Sequence[Mapping[str, Any]]
) -> tuple[dict[tuple[str, str], Judged], list[Finding]]:
    """Runs the answers of all domains that are code, in their recorded sessions."""
    from benchmarks.datasets.faults.cases import case_of
    from benchmarks.datasets.faults.recorded_tests import Cell, Trial, trial
    from benchmarks.datasets.faults.solving import judge

    sessions: dict[tuple[str, str | None], list[Cell]] = defaultdict(list)
    place: dict[str, tuple[str, str | None]] = {}
    for row in sorted(executions, key=lambda r: (r["timestamp"], r["source_file"], r["source_line"])):
        key = row["sandbox_id"], row["context_id"]
        place[row["execution_id"]] = key
        sessions[key].append(Cell(row["execution_id"], row["language"], row["code"], row["outcome"] == "ok"))
    judged: dict[tuple[str, str], Judged] = defaultdict(Judged)
    waiting: list[tuple[str, str, str, Trial]] = []
    for domain, those in rows.items():
        for case in (case_of(row) for row in those if row["kind"] in _JUDGED):
            own = case.execution_ids[0] if case.execution_ids else ""
            made = trial(case.code, case.language, case.test, sessions.get(place.get(own, ("", None)), []), own)
            if isinstance(made, str):
                judged[domain, case.kind].not_judged[made] += 1
            else:
                waiting.append((domain, case.kind, case.example_id, made))
    verdicts = judge([made for *_, made in waiting])
    findings = []
    for (domain, kind, example_id, _), passed, vacuous, why in zip(
        waiting, verdicts.passed, verdicts.vacuous, verdicts.why, strict=True
    ):
        told = judged[domain, kind]
        told.passed += passed is True
        told.failed += passed is False
        told.vacuous += vacuous
        if passed is None:
            told.not_judged[why] += 1
        if passed is False or vacuous:
            fault = "vacuous" if vacuous else "unsolved"
            findings.append(Finding(domain, kind, example_id, fault, why or "the test passes without the answer"))
    return dict(judged), findings


def by_kind(
    domain: str,
    rows: Sequence[Mapping[str, Any]],
    findings: Sequence[Finding],
    judged: Mapping[tuple[str, str], Judged],
) -> dict[str, dict[str, Any]]:
    """The figures of each kind of a domain; a fault that a kind cannot have is null."""
    sizes = Counter(row["kind"] for row in rows)
    counts = Counter((f.kind, f.fault) for f in findings if f.domain == domain)
    figures: dict[str, dict[str, Any]] = {}
    for kind, size in sorted(sizes.items()):
        told = judged.get((domain, kind), Judged())
        figures[kind] = {
            "examples": size,
            **{fault: _share(counts[kind, fault], size) if kind in kinds else None for fault, kinds in FAULTS.items()},
            "solves": _share(told.passed, told.passed + told.failed),
            "judged": told.passed + told.failed,
            "passed": told.passed,
            "vacuous": told.vacuous,
            "not_judged": dict(told.not_judged.most_common()),
        }
    return figures


def worst(report: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """The worst domain's share of each fault, over its examples of the kinds that can have it, and of what solves."""
    shares: dict[str, list[float]] = {fault: [] for fault in FAULTS}
    solves: list[float] = []
    for kinds in report.values():
        for fault, having in FAULTS.items():
            those = [figures for kind, figures in kinds.items() if kind in having]
            size = sum(figures["examples"] for figures in those)
            if size:
                shares[fault].append(sum(figures[fault] * figures["examples"] for figures in those) / size)
        told = sum(figures["judged"] for figures in kinds.values())
        if told:
            solves.append(sum(figures["passed"] for figures in kinds.values()) / told)
    every = [figures for kinds in report.values() for figures in kinds.values()]
    return {
        **{fault: round(max(those), 4) if those else None for fault, those in shares.items()},
        "solves": round(min(solves), 4) if solves else None,
        **{name: sum(figures[name] for figures in every) for name in ("examples", "judged", "vacuous")},
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def _table(domain: str, kinds: Mapping[str, Mapping[str, Any]]) -> str:
    names = ["examples", *FAULTS, "solves", "judged", "vacuous"]
    lines = [f"{domain:12}" + "".join(f"{name:>21}" for name in names)]
    for kind, figures in kinds.items():
        cells = [
            "-" if figures[n] is None else f"{figures[n]:.2%}" if isinstance(figures[n], float) else str(figures[n])
            for n in names
        ]
        lines.append(f"  {kind:10}" + "".join(f"{cell:>21}" for cell in cells))
    return "\n".join(lines)


def _show(findings: Sequence[Finding], rows: Mapping[str, Sequence[Mapping[str, Any]]], most: int) -> None:
    """So many examples of each fault as text, on standard error: the last line of the output stays the result."""
    texts = {(domain, row["example_id"]): row["messages"] for domain, those in rows.items() for row in those}
    for fault in (*FAULTS, "unsolved", "vacuous"):
        those = [finding for finding in findings if finding.fault == fault]
        for finding in random.Random(0).sample(those, min(most, len(those))):
            click.echo(
                f"\n=== {fault}: {finding.domain} {finding.kind} {finding.example_id}: {finding.reason}", err=True
            )
            for turn in json.loads(texts[finding.domain, finding.example_id]):
                click.echo(f"[{turn['role']}]\n{turn['content']}", err=True)
