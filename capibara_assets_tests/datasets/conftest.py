"""Hand-made evidence: executions, repair pairs and patterns that conform to their schemas."""

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from capibara_assets.datasets.kinds.evidence import Evidence
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.executions.replay.replay import ReplayBatch, ReplayVerdict
from capibara_assets.executions.schema import Execution, Pattern, RepairPair
from capibara_assets.playbooks.schema import Consolidated
from capibara_assets.storage.records import table

START = datetime(2026, 10, 1, 12, tzinfo=UTC)

Run = Callable[..., Execution]


def run(execution_id: str, code: str, sandbox: str = "s1", **values: Any) -> Execution:
    """An execution that ended well, unless `values` say otherwise; times follow `minute`."""
    minute = values.pop("minute", 0)
    defaults: dict[str, Any] = {
        "execution_id": execution_id,
        "sandbox_id": sandbox,
        "context_id": None,
        "agent_id": None,
        "tenant": None,
        "timestamp": START + timedelta(minutes=minute),
        "template_id": None,
        "language": "python",
        "code": code,
        "task": None,
        "outcome": "ok",
        "stdout": "",
        "stderr": "",
        "result_text": None,
        "error_name": None,
        "error_value": None,
        "traceback": None,
        "execution_count": None,
        "duration_ms": None,
        "timeout_s": None,
        "domains": ["python"],
        "confidence": 1.0,
        "evidence": "language",
        "quality": 0.8,
        "flags": [],
        "secrets": 0,
        "licence": "MIT",
        "source": "fixture",
        "bullet_ids": [],
        "record_digest": hashlib.sha256(code.encode()).hexdigest(),
        "source_file": "a.jsonl",
        "source_line": 1,
        "source_offset": 0,
    }
    return Execution(**{**defaults, **values})


def pair(failing: Execution, fixed: Execution) -> RepairPair:
    return RepairPair(
        pair_id=f"{failing.execution_id}-{fixed.execution_id}",
        domains=[fixed.domains[0], "debug"],
        language=fixed.language,
        sandbox_id=fixed.sandbox_id,
        failing_execution_id=failing.execution_id,
        fixed_execution_id=fixed.execution_id,
        failing_code=failing.code,
        fixed_code=fixed.code,
        task=fixed.task,
        error_name=failing.error_name,
        error_value=failing.error_value,
        traceback=failing.traceback,
        diff="",
        distance=1,
        similarity=0.9,
    )


def pattern(name: str, code: str, explanation: str, executions: list[Execution]) -> Pattern:
    return Pattern(
        pattern_id=hashlib.sha256(name.encode()).hexdigest(),
        kind="function",
        name=name,
        language=executions[0].language,
        code=code,
        canonical=hashlib.sha256(code.encode()).hexdigest(),
        frequency=len(executions),
        successes=len(executions),
        success_rate=1.0,
        execution_ids=sorted(e.execution_id for e in executions),
        sandbox_ids=sorted({e.sandbox_id for e in executions}),
        context="",
        explanation=explanation,
        languages=[executions[0].language],
        language_success_rates=[1.0],
    )


def frame(executions: list[Execution]) -> pl.DataFrame:
    return table(Execution, executions)


def bullet(name: str, content: str, **values: Any) -> Consolidated:
    """A bullet of a consolidated playbook that helped more often than it harmed."""
    defaults: dict[str, Any] = {
        "bullet_id": f"ada/{name}",
        "content": content,
        "section": "",
        "domains": ["python"],
        "helpful": 9,
        "harmful": 1,
        "score": 0.6,
        "origins": [f"ada/{name}"],
        "evidence": [],
        "agents": ["ada"],
        "rank": 1,
        "compressed": False,
    }
    return Consolidated(**{**defaults, **values})


def evidence_of(
    executions: list[Execution],
    pairs: list[RepairPair] | None = None,
    patterns: list[Pattern] | None = None,
    bullets: list[Consolidated] | None = None,
) -> Evidence:
    return Evidence(
        frame(executions),
        table(Pattern, patterns or []),
        table(RepairPair, pairs or []),
        table(Consolidated, bullets or []),
    )


def came_out_again(evidence: Evidence, execution_ids: Sequence[str]) -> ReplayBatch:
    """Stands for the local sandbox where a test is about what comes after: every output came out again."""
    return ReplayBatch(
        [ReplayVerdict(each, "reexecuted", None, "digest") for each in execution_ids], {"ran": len(execution_ids)}
    )


def no_repairs() -> pl.DataFrame:
    return table(RepairPair, [])


WORDS = (
    "amber",
    "birch",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "grove",
    "haven",
    "inlet",
    "jetty",
    "knoll",
    "ledge",
    "mesa",
)


def problem(number: int) -> str:
    """A documented function of substance, unlike that of any other number."""
    a, b, c = (WORDS[(number * step + step) % len(WORDS)] for step in (1, 7, 11))
    digits = [int(d) for d in hashlib.sha256(str(number).encode()).hexdigest() if d.isdigit()][:6]
    lines = [f"    if '{WORDS[d]}{number}' in {a}: return {d} * len({a}) + {number}" for i, d in enumerate(digits)]
    told = ", ".join(f"{d} for '{WORDS[d]}{number}'" for d in digits)
    return "\n".join(
        [
            f"def solve_{a}_{number}({a}):",
            f'    """Compute the {a} measure of {b} number {number} under {c}: {told}."""',
            *lines,
            f"    return {number} + len({a})",
        ]
    )


HARDLY_DERIVED = {"executions": 3, "bugs": {"constant": 1}}
"""A recipe's `derived` for tests of what comes before and after it."""


def fleet(count: int, domain: str = "python", prefix: str = "p") -> list[Execution]:
    """`count` unrelated problems, each in a sandbox of its own."""
    offset = {"python": 0, "ml": 1000, "api": 2000, "sql": 3000}[domain]
    return [
        run(f"{prefix}{i:04d}", problem(i + offset), sandbox=f"{prefix}-box-{i:04d}", domains=[domain])
        for i in range(count)
    ]


@pytest.fixture(scope="session")
def recipe() -> DatasetRecipe:
    """The shipped recipe, but for code of a few operations, and much of one template: hand-made code has no more."""
    return shipped_recipe("dataset", DatasetRecipe).model_copy(update={"fewest_steps": 0, "examples_per_template": 99})
