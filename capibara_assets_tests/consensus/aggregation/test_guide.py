"""docs/consensus.md says what the code does: its examples run, its tables are the code's."""

import re
from pathlib import Path

import pytest
import yaml

from capibara_assets.consensus.aggregation.aggregate import RULES, aggregate
from capibara_assets.consensus.aggregation.preaggregation import PREAGGREGATIONS
from capibara_assets.consensus.election.voting import vote
from capibara_assets.consensus.recipe import RECIPE_RULES, ConsensusRecipe

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs/consensus.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def rows(heading: str) -> list[list[str]]:
    """Cells of the table whose first line begins with the heading."""
    lines = GUIDE[GUIDE.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_example_runs(number: int):
    exec(compile(EXAMPLES[number], f"docs/consensus.md, example {number}", "exec"), {})


def test_there_are_examples():
    assert len(EXAMPLES) == 4


def test_the_table_of_liars_is_that_of_the_vote():
    table = rows("| n | f | quorum 2f + 1 |")
    assert [int(row[0]) for row in table] == [4, 7, 10, 13]
    for row in table:
        names = [f"v{i}" for i in range(int(row[0]))]
        half, most = (vote([], 0.5, share, 1, voters=names) for share in (0.5, 0.75))
        electors = len(half.tallies[0].missing)
        required = [outcome.tallies[0].required for outcome in (half, most)]
        found = [half.n, half.f, half.quorum, electors, *required, electors - half.f]
        assert [int(cell) for cell in row] == found


def test_the_table_of_preconditions_is_that_of_the_rules():
    for row in rows("| n (f) | n > 2f |"):
        n, f = map(int, re.findall(r"\d+", row[0]))
        for cell, rule in zip(row[1:], ("median", "krum", "bulyan"), strict=True):
            voters = [[float(i)] for i in range(n)]
            if cell == "yes":
                aggregate(voters, rule, f=f)
            else:
                with pytest.raises(ValueError, match="needs n >="):
                    aggregate(voters, rule, f=f)


def test_every_rule_is_in_the_table_and_no_other():
    named = {name for row in rows("| rule | needs |") for name in re.findall(r"`(\w+)`", row[0])}
    options = {"cut", "m", "weighted", "reference", "tau", "iterations"}
    assert named - options == set(RULES)
    assert all(f"`{name}`" in GUIDE for name in PREAGGREGATIONS)
    (rule,) = (row for row in rows("| key | ships as |") if row[0] == "`rule`")
    assert set(RULES) - set(re.findall(r"`(\w+)`", rule[2])) == set(RECIPE_RULES)


def test_the_recipe_is_told_key_by_key_as_it_ships():
    shipped = yaml.safe_load((ROOT / "resources/recipes/consensus.yaml").read_text("utf-8"))
    told: dict[str, str] = {}
    for row in rows("| key | ships as |"):
        keys = re.findall(r"`(\w+)`", row[0])
        told |= dict(zip(keys, row[1].split(", "), strict=True))
    assert set(told) | {"merge", "moe", "candidates"} == set(ConsensusRecipe.model_fields)
    for key, value in told.items():
        stated = "1/3" if key == "fault_tolerance" else "null" if shipped[key] is None else str(shipped[key])
        assert value == stated, key
    candidates = {
        f"{section}.{key}": ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
        for section, keys in shipped["candidates"].items()
        for key, value in keys.items()
    }
    assert {row[0].strip("`"): row[1] for row in rows("| key of `candidates` | ships as |")} == candidates
