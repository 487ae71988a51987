"""The whole stage on real experience: every domain has enough, nothing leaks, all of it is traceable."""

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from capibara_assets.datasets import checks
from capibara_assets.datasets.examples import Dataset, build_dataset
from capibara_assets.datasets.groups import assign_groups
from capibara_assets.datasets.kinds.evidence import Evidence
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.routing import balance, build_routing
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.deployment.locations import resources_root
from capibara_assets.domains import DOMAINS, Domain
from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets.executions.patterns.extract import extract_patterns
from capibara_assets.executions.patterns.repairs import find_repairs
from capibara_assets.executions.recipe import ExperienceRecipe
from capibara_assets.executions.selection import evidence, in_window, of_domain
from capibara_assets_tests.conftest import sandboxes_of
from capibara_assets_tests.executions.conftest import envelope, executed, line


def datasets_of(folder: Path, recipe: DatasetRecipe) -> tuple[dict[Domain, Dataset], pl.DataFrame]:
    experience = shipped_recipe("experience", ExperienceRecipe)
    executions = read_experience(folder, now=datetime(2026, 12, 1, tzinfo=UTC)).executions
    found: dict[Domain, Evidence] = {}
    for domain in DOMAINS:
        mine = in_window(of_domain(executions, domain), experience)
        repairs = find_repairs(mine)
        patterns = extract_patterns(mine, domain, experience)
        found[domain] = Evidence(evidence(mine, repairs, experience), patterns, repairs, pl.DataFrame())
    union = pl.concat([e.executions for e in found.values()]).unique("execution_id")
    repairs = pl.concat([e.repairs for e in found.values()]).unique("pair_id")
    groups = assign_groups(union, repairs, None, recipe)
    return {domain: build_dataset(domain, e, groups, recipe) for domain, e in found.items()}, groups


@pytest.mark.extended
def test_shared_experience(shared_data: Path, recipe: DatasetRecipe) -> None:
    datasets, groups = datasets_of(shared_data / "experience", recipe)
    examples = {domain: dataset.examples for domain, dataset in datasets.items()}
    assert checks.leakage(examples, recipe.near_duplicates) == []
    assert groups["group_id"].value_counts()["count"].max() < 0.05 * groups.height
    # Nothing is executed again here, so nothing is predicted or explained. Most of ml and much of api are recorded
    # notebooks, which state no task: what they give otherwise is in `make run` alone.
    fewest = dict.fromkeys(DOMAINS, 150) | {Domain.API: 75, Domain.ML: 0}
    for domain, frame in examples.items():
        assert "predict" not in set(frame["kind"])
        assert checks.secret_problems(frame) == []
        assert any("wanted" in line for line in datasets[domain].statistics["missing"])
        assert (frame["split"] == "train").sum() >= fewest[domain], domain
        assert checks.example_problems(domain, frame) == []
        if fewest[domain]:
            assert checks.size_problems(frame, 10) == []
            assert checks.balance_problems(domain, frame, recipe) == []
    enough = {domain: frame for domain, frame in examples.items() if fewest[domain]}
    assert balance(build_routing(enough, recipe))["evenness"] > 0.88


@pytest.mark.parametrize("sandboxes", [8, pytest.param(30, marks=pytest.mark.extended)])
def test_shipped_experience(tmp_path: Path, recipe: DatasetRecipe, sandboxes: int) -> None:
    (tmp_path / "sessions.jsonl").write_text("".join(sandboxes_of(resources_root() / "experience", sandboxes)))
    datasets, _ = datasets_of(tmp_path, recipe)
    examples = {domain: dataset.examples for domain, dataset in datasets.items()}
    assert checks.leakage(examples, recipe.near_duplicates) == []
    for domain, frame in examples.items():
        assert checks.example_problems(domain, frame) == []
        assert checks.size_problems(frame) == [], domain


# far beyond the depth at which code no longer parses, and just below it
NESTED = {
    "python": [
        *("y = " + "1 + " * 95 + "1", "y = " + "1 + " * 900 + "1"),
        "if x == 0:\n    pass\n" + "".join(f"elif x == {n}:\n    pass\n" for n in range(900)),
    ],
    "javascript": [
        *("let y = " + "1 + " * 90 + "1", "let y = " + "1 + " * 2000 + "1", "let y = " + "[" * 2000 + "]" * 2000),
    ],
    "sql": ["select " + "1 + " * 190 + "1", "select " + "1 + " * 1500 + "1"],
    "bash": ["echo " + "$(" * 500 + ")" * 500],
}
MORE_NESTED = {
    "python": [
        *("y = " + "-" * 900 + "1", "y = a" + ".b" * 900, "y = a" + "()" * 900, "y = a" + ".b()" * 450),
        *("y = " + "1 if x else " * 900 + "2", "y = " + " + ".join(["'a'"] * 900), "y = " + "lambda: " * 900 + "1"),
        "if x == 0:\n    pass\n" + "elif x == 1:\n    pass\n" * 90,
    ],
    "javascript": [
        *("let y = a" + ".b" * 2000, "let y = a" + "()" * 2000, "a" + "`b`" * 2000, "let y = a" + ".b()" * 45),
        *("let y = " + "x => " * 2000 + "1", "{" * 2000 + "}" * 2000, "if (x) {} " + "else if (x) {} " * 1500),
    ],
    "sql": ["select 1 " + "=" * 4000, "select " + "- " * 900 + "1"],
    "bash": ["echo " + "`" * 500],
}


SOUND = {
    "python": "def add(a, c):\n    return a + {}\n\nassert add(1, 2) == 3",
    "javascript": "function add(a, c) {{ return a + {} }}\nif (add(1, 2) !== 3) throw new Error('x')",
    "sql": "select {} from people where age > 3",
    "bash": "pytest tests/{}",
}


@pytest.mark.parametrize("nested", [NESTED, pytest.param(MORE_NESTED, marks=pytest.mark.extended)], ids=["few", "more"])
def test_code_that_is_nested_as_none_is_costs_no_dataset(
    tmp_path: Path, recipe: DatasetRecipe, nested: dict[str, list[str]]
) -> None:
    failing = executed(error=("NameError", "name 'b' is not defined", "NameError: name 'b' is not defined"))
    rows = [
        envelope(f"{SOUND[language].format(name)}\n{code}", language=language, task="Write `add`.", execution=outcome,
                 sandbox_id=f"{language}-{number}", execution_id=f"{language}-{number}-{step}",
                 timestamp=f"2026-11-25T00:15:1{step}.964Z")
        for language, codes in nested.items()
        for number, code in enumerate(["", *codes])
        for step, (name, outcome) in enumerate((("b", failing), ("c", executed("3"))))
    ]  # fmt: skip
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(map(line, rows)))
    datasets, groups = datasets_of(tmp_path, recipe)
    assert set(datasets) == set(DOMAINS)
    assert groups.height >= 2  # of the sound sessions
