"""Advice that logged solutions followed becomes *apply* examples: from playbook and log files to exported lines."""

import json
from contextlib import redirect_stdout
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.datasets.examples import Dataset, Evidence, build_dataset
from capibara_assets.datasets.groups import assign_groups
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.domains import Domain
from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets.executions.patterns.extract import extract_patterns
from capibara_assets.executions.patterns.repairs import find_repairs
from capibara_assets.executions.recipe import ExperienceRecipe
from capibara_assets.executions.selection import evidence, in_window, of_domain
from capibara_assets.playbooks.consolidate import consolidate
from capibara_assets.playbooks.graduation import AgentFilter, graduate
from capibara_assets.playbooks.read import read_playbooks
from capibara_assets_tests.home import command

COUNTED = (
    "Python: count with sorted(Counter(values).items(), key=lambda pair: (-pair[1], pair[0])), ties in a fixed order."
)
HARMED = "Python: read text with csv.DictReader(io.StringIO(text)) and count it at once."
PROSE = "Python: name what a function returns, and return it from every branch."
NOUNS = ["lamp", "river", "anchor", "velvet", "marble", "saffron", "pilot", "orchard", "copper", "thunder"]
_PLAIN = [
    "return [value * {n} for value in {noun}s if value > {n}]",
    "return sum({noun}s) + {n}",
    "return max({noun}s) - {n}",
]
_FOLLOWING = (
    "from collections import Counter\n    "
    "return sorted(Counter({noun}s).items(), key=lambda one: (-one[1], one[0]))[:{n}]"
)
_APART = (
    "from collections import Counter\n    counts = Counter({noun}s)\n    return sorted(counts, key=counts.get)[:{n}]"
)


def printed(code: str) -> str:
    """What code prints: it is run again, and has to print what was recorded."""
    with redirect_stdout(StringIO()) as shown:
        exec(code, {})
    return shown.getvalue()


def write_experience(folder: Path) -> Path:
    """Thirty solved tasks: two follow COUNTED, one uses the same names in another way, one is recorded with PROSE."""
    (folder / "e2b_logs").mkdir(parents=True)
    lines = []
    for n in range(30):
        noun = NOUNS[n % 10]
        body = _FOLLOWING if n in (4, 17) else _APART if n == 9 else _PLAIN[n // 10]
        code = (
            f"def task_{n}({noun}s):\n    {body.format(noun=noun, n=n + 2)}\n\nprint(task_{n}([{n}, {n + 5}, {n}]))\n"
        )
        lines.append(
            {
                "schema_version": 3, "sandbox_id": f"isandbox{n:012d}", "execution_id": f"execution-{n:03d}",
                "timestamp": f"2026-10-20T10:{n:02d}:00.000Z", "template_id": "code-interpreter-v1",
                "language": "python", "code": code,
                "task": f"Write `task_{n}`, which does step {n} of the {noun}s of the harbour.",
                "execution": {
                    "results": [], "logs": json.dumps({"stdout": [printed(code)], "stderr": []}), "error": None,
                },
                "execution_count": 1, "duration_ms": 2.0, "timeout_s": 10, "agent_id": "ada",
                "bullet_ids": ["str-00003"] if n == 21 else [],
            }
        )  # fmt: skip
    (folder / "e2b_logs" / "day.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    agent = folder / "playbooks" / "ada"
    agent.mkdir(parents=True)
    (agent / "agent.json").write_text(
        json.dumps({"agent_id": "ada", "interactions": 400, "successes": 390, "domain_expertise": ["python"]})
    )
    rows = [("str-00001", 30, 0, COUNTED), ("str-00002", 4, 4, HARMED), ("str-00003", 60, 0, PROSE)]
    text = "".join(f"[{name}] helpful={good} harmful={bad} :: {said}\n" for name, good, bad, said in rows)
    (agent / "playbook.txt").write_text("## STRATEGIES AND HARD RULES\n" + text)
    return folder


def dataset_of(experience: Path, recipe: DatasetRecipe) -> Dataset:
    """The Python dataset, by the functions that the assets call."""
    how = shipped_recipe("experience", ExperienceRecipe)
    playbooks = read_playbooks(experience)
    agents = graduate(playbooks, AgentFilter(**how.agent_filter()), half_life_days=how.evidence_half_life_days)
    bullets = consolidate(playbooks.bullets, agents, Domain.PYTHON, **how.playbook_size()).bullets
    rows = in_window(of_domain(read_experience(experience, now=datetime.now(UTC)).executions, Domain.PYTHON), how)
    repairs, patterns = find_repairs(rows), extract_patterns(rows, Domain.PYTHON, how)
    found = Evidence(evidence(rows, repairs, how), patterns, repairs, bullets)
    return build_dataset(Domain.PYTHON, found, assign_groups(found.executions, repairs, None, recipe), recipe)


@pytest.fixture(scope="module")
def experience(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_experience(tmp_path_factory.mktemp("advice") / "experience")


def applied(dataset: Dataset) -> dict[str, list[Any]]:
    """Execution -> the bullets of its *apply* example."""
    rows = dataset.examples.filter(pl.col("kind") == "apply")
    return {ids[0]: bullets for ids, bullets in rows.select("execution_ids", "bullet_ids").iter_rows()}


def test_what_a_solution_followed_and_what_was_recorded_make_apply_examples(experience: Path) -> None:
    recipe = shipped_recipe("dataset", DatasetRecipe)
    dataset = dataset_of(experience, recipe)
    found = applied(dataset)
    assert set(found) == {"execution-004", "execution-017", "execution-021"}
    [one], [other], [recorded] = found["execution-004"], found["execution-017"], found["execution-021"]
    assert one == other and one.endswith("str-00001") and recorded.endswith("str-00003")
    example = dataset.examples.filter((pl.col("kind") == "apply") & pl.col("bullet_ids").list.contains(one))[
        "messages"
    ][0]
    asked, answered = json.loads(example)
    assert asked["content"].startswith(f"Advice from the playbook:\n- {COUNTED}\n\nWrite Python code.")
    assert "Counter(" in answered["content"]
    advice = dataset.statistics["advice"]
    assert advice["by"] == {"likeness": 2, "record": 1} and advice["bullets_applied"] == 2
    assert advice["of_solve"] == pytest.approx(3 / dataset.statistics["by_kind"]["solve"], abs=1e-6)

    # Without the thresholds only the record counts, as it did before.
    only_recorded = dataset_of(experience, recipe.model_copy(update={"advice": None}))
    assert set(applied(only_recorded)) == {"execution-021"}


@pytest.mark.extended
def test_they_reach_exported_lines_through_the_graph(experience: Path, tmp_path: Path) -> None:
    environment = {
        "CAPIBARA_HOME": str(tmp_path / "home"), "CAPIBARA_EXPERIENCE": str(experience), "DAGSTER_HOME": "",
    }  # fmt: skip
    wanted = "ace_playbooks,e2b_logs,e2b_executions,consolidated_playbook,e2b_patterns,example_groups,moe_dataset"
    command(environment, "run", "--domains", "python", "--select", wanted)
    command(environment, "dataset", "export", "python", "--format", "messages", "--out", str(tmp_path / "out"))
    lines = [line for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert sum("Advice from the playbook:" in line for line in lines) == 3
