"""Held-out tasks of a run's domains as base and consensus answered them, for the report."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import polars as pl

from capibara_assets.assets.inputs import Inputs, source_name
from capibara_assets.datasets.routing import asked
from capibara_assets.domains import Domain
from capibara_assets.evaluation.report import shown
from capibara_assets.storage.artifact import Artifact

MOST = 3
CONTENDERS = ("base", "consensus")
Change = Literal["gained", "lost", "both", "neither"]
CHANGES: tuple[Change, ...] = ("gained", "lost", "both", "neither")
"""Solved by the consensus alone, by the base alone, by both, by neither."""
_GRADED = ("passed", "failed", "error", "timeout")


def answered(inputs: Inputs, domain: Domain, evaluation: Artifact | None) -> list[dict[str, Any]]:
    """The graded tasks that base and consensus answered, with both answers; first samples, shortest prompt first."""
    if evaluation is None or not (evaluation.has("answers") and evaluation.has("grades")):
        return []
    key = ["contender", "item_id", "sample"]
    graded = evaluation.frame("answers").join(evaluation.frame("grades").select(*key, "verdict"), on=key)
    first = graded.filter((pl.col("sample") == 0) & pl.col("verdict").is_in(_GRADED))
    by_task: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in first.filter(pl.col("contender").is_in(CONTENDERS)).iter_rows(named=True):
        by_task.setdefault(row["item_id"], {})[row["contender"]] = row
    prompts = _prompts(inputs, domain, evaluation)
    tasks = [
        _task(domain, prompts[name], by_task[name])
        for name in sorted(by_task)
        if name in prompts and len(by_task[name]) == len(CONTENDERS)
    ]
    return sorted(tasks, key=lambda task: len(task["prompt"]))


def counted(tasks: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Number of tasks by change."""
    return {change: sum(task["change"] == change for task in tasks) for change in CHANGES}


def chosen(by_domain: Mapping[str, Sequence[dict[str, Any]]], most: int = MOST) -> list[dict[str, Any]]:
    """Tasks that tell most: gained ones of different domains, one that was lost if there is any, then the others."""
    # The first of each domain, then the second of each, …
    turns = [
        task
        for turn in range(max(map(len, by_domain.values()), default=0))
        for tasks in _of_each(by_domain)
        for task in tasks[turn : turn + 1]
    ]
    gained, lost, both, neither = ([task for task in turns if task["change"] == change] for change in CHANGES)
    first = [*gained[: most - bool(lost)], *lost[:1], *both, *neither, *lost[1:], *gained[most - bool(lost) :]]
    return first[:most]


def _of_each(by_domain: Mapping[str, Sequence[dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """Each domain's tasks, one list per change, so that each change takes turns among the domains."""
    return [[task for task in tasks if task["change"] == change] for change in CHANGES for tasks in by_domain.values()]


def _prompts(inputs: Inputs, domain: Domain, evaluation: Artifact) -> dict[str, str]:
    """Item -> what was asked, from the dataset that the evaluation read; empty where it is gone."""
    digest = evaluation.manifest.inputs.get("upstream", {}).get(source_name("moe_dataset", domain))
    if not digest or not inputs.store.holds("moe_dataset", domain, digest):
        return {}
    test = inputs.store.open("moe_dataset", domain, digest).frame("examples").filter(pl.col("split") == "test")
    return {name: asked(messages) for name, messages in test.select("example_id", "messages").iter_rows()}


def _task(domain: Domain, prompt: str, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    base, consensus = (rows[name]["verdict"] == "passed" for name in CONTENDERS)
    change: Change = "both" if base and consensus else "lost" if base else "gained" if consensus else "neither"
    return {
        "domain": domain.value,
        "change": change,
        "prompt": shown(prompt),
        "answers": {name: {"verdict": rows[name]["verdict"], "text": shown(rows[name]["text"])} for name in CONTENDERS},
    }
