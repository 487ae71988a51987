"""Own examples in the graph: an import reaches the dataset of its domain, and of no other."""

import json
import re
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from capibara_assets.assets.datasets import example_groups, moe_dataset
from capibara_assets.assets.imports import IMPORTED, import_times, others_of, publish_imported, read_imported
from capibara_assets.assets.inputs import DIGEST, Inputs, latest_digest, latest_metadata
from capibara_assets.automation.graph import Graph, is_current
from capibara_assets.cli.graph.run import select_assets
from capibara_assets.datasets.imported.join import Imported, Stated, incoming, new_files, place_incoming, too_close
from capibara_assets.datasets.imported.read import read_examples
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import Split
from capibara_assets.definitions import defs
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.domains import Domain
from capibara_assets.executions.schema import Execution, Pattern, RepairPair
from capibara_assets.playbooks.schema import Consolidated
from capibara_assets.resources import DataEngine, Recipes
from capibara_assets.storage.records import table
from capibara_assets_tests.datasets.conftest import HARDLY_DERIVED, fleet
from capibara_assets_tests.datasets.imported.test_join import pair_of
from capibara_assets_tests.published import Published

PYTHON, ML = Domain.PYTHON, Domain.ML
RECIPES = Recipes(overrides={"dataset": {"derived": HARDLY_DERIVED}})
NOW, LATER = "2026-11-20T12:00:00+00:00", "2026-11-21T12:00:00+00:00"


@pytest.fixture
def world(instance: dg.DagsterInstance, tmp_path: Path) -> "World":
    return World(Published.afresh(instance, tmp_path), tmp_path)


def called(one: Execution) -> Execution:
    """The execution with a call of what it defines for each of its branches, which stand once, and its output."""
    code = "\n".join(dict.fromkeys(one.code.split("\n")))
    name, asked = code.partition("(")[0].removeprefix("def "), ["x", *re.findall(r"if '(\w+)' in", code)]
    scope: dict[str, Any] = {}
    exec(code, scope)
    shown = [scope[name](each) for each in asked]
    return one.model_copy(update={"code": f"{code}\n\nprint([{name}(x) for x in {asked}])", "stdout": f"{shown}\n"})


class World:
    """Two domains with executions of their own, up to their datasets."""

    def __init__(self, published: Published, folder: Path) -> None:
        self.published, self.folder = published, folder
        for domain in (PYTHON, ML):
            executions = table(Execution, [called(one) for one in fleet(24, domain, prefix=domain)])
            tables = {"executions": (Execution, executions), "patterns": (Pattern, table(Pattern, []))}
            tables |= {name: (Execution, table(Execution, [])) for name in ("around", "commands")}
            tables |= {name: (RepairPair, table(RepairPair, [])) for name in ("repairs", "mended")}
            published.put("e2b_patterns", domain, tables=tables)
            published.put("consolidated_playbook", domain, tables={"bullets": (Consolidated, table(Consolidated, []))})

    @property
    def inputs(self) -> Inputs:
        return self.published.inputs()

    def make(self, *made: Domain) -> dict[Domain, str | None]:
        """Groups, and datasets of these domains; the digests of both domains' datasets."""
        options = {
            "instance": self.published.instance,
            "resources": {"store": self.published.store, "recipes": RECIPES, "data_engine": DataEngine()},
        }
        assert dg.materialize([example_groups], **options).success
        for domain in made:
            assert dg.materialize([moe_dataset], partition_key=domain.value, **options).success
        return {d: latest_digest(self.published.instance, "moe_dataset", d.value) for d in (PYTHON, ML)}

    def solution(self, split: Split) -> dict[str, Any]:
        """The first *solve* example of a split of the dataset of python."""
        of_split = self.examples(PYTHON).filter(pl.col("split") == split, pl.col("kind") == "solve")
        return of_split.sort("example_id").row(0, named=True)

    def add(self, pairs: list[tuple[str, str]], split: Split | None = None, now: str = NOW) -> Imported:
        path = self.folder / f"{split}.jsonl"
        path.write_text("\n".join(json.dumps({"prompt": q, "completion": a}) for q, a in pairs))
        before, recipe = read_imported(self.inputs, PYTHON), shipped_recipe("dataset", DatasetRecipe)
        fresh = new_files(before, [(read_examples(path), split)])
        new = [item for file, _ in fresh for item in incoming(PYTHON, file, split, Stated("MIT", "ours"))]
        imported = place_incoming(PYTHON, before, others_of(self.inputs, PYTHON), new, recipe)
        publish_imported(self.inputs, PYTHON, imported, now)
        return imported

    def examples(self, domain: Domain) -> pl.DataFrame:
        return self.inputs.artifact("moe_dataset", domain).frame("examples")


def is_made(world: World, domain: Domain) -> bool:
    """Whether a domain's dataset is current."""
    settings = {"recipe:dataset": RECIPES.digest("dataset")}
    return is_current(Graph.of(defs), world.published.instance, "moe_dataset", domain, settings)


def test_an_import_joins_the_dataset_of_its_domain_and_leaves_the_others_alone(world: World):
    before = world.make(PYTHON, ML)
    assert is_made(world, PYTHON) and is_made(world, ML)
    test = world.solution("test")
    leak = ("Something of my own, is it not?", json.loads(test["messages"])[1]["content"])
    world.add([pair_of(n) for n in range(20)], "validation")
    world.add([*(pair_of(n) for n in range(20, 40)), leak], "train")
    assert not is_made(world, PYTHON) and is_made(world, ML), "what `capibara run` makes again"
    after = world.make(PYTHON, ML)
    assert after[ML] == before[ML] and after[PYTHON] != before[PYTHON]
    joined = world.examples(PYTHON).filter(pl.col("provenance") == "imported")
    assert dict(joined["split"].value_counts().iter_rows()) == {"validation": 20, "train": 20}
    assert set(joined["licence"]) == {"MIT"} and "train.jsonl:1" in joined["source_places"].explode()
    statistics = world.inputs.artifact("moe_dataset", PYTHON).document("statistics")
    assert statistics["imported"] == {"examples": 40, "left_out": {}} and statistics["by_kind"]["chat"] == 40
    lines = read_imported(world.inputs, PYTHON).lines.filter(pl.col("reason_left_out").is_not_null())
    assert lines["reason_left_out"].to_list() == [too_close("test")]


def test_a_leak_that_appears_after_the_import_is_left_out_of_the_dataset(world: World):
    """Imported before the experience had it: the dataset leaves it out, and says so."""
    code = json.loads(_dataset_of(world, "test")["messages"])[1]["content"]
    world.published.instance.wipe()
    again = World(world.published, world.folder)
    again.add([("Something of my own, is it not?", code)], "train")
    again.make(PYTHON)
    artifact = again.inputs.artifact("moe_dataset", PYTHON)
    assert "imported" not in set(artifact.frame("examples")["provenance"])
    reasons = artifact.frame("left_out")["reason"].to_list()
    assert too_close("test") in reasons


def _dataset_of(world: World, split: str) -> dict:
    world.make(PYTHON)
    return world.solution(split)


def test_the_same_import_again_changes_nothing(world: World):
    imported = world.add([pair_of(1)])
    first = latest_metadata(world.published.instance, IMPORTED, PYTHON.value)
    assert publish_imported(world.inputs, PYTHON, imported, LATER) == (first[DIGEST], False)
    world.add([pair_of(1)], now=LATER)
    assert latest_metadata(world.published.instance, IMPORTED, PYTHON.value) == first
    (event,) = world.published.instance.fetch_materializations(dg.AssetKey(IMPORTED), limit=5).records
    assert event.asset_materialization.tags["dagster/data_version"] == first[DIGEST]


def test_each_file_keeps_the_time_of_its_import(world: World):
    world.add([pair_of(1)], "train")
    world.add([pair_of(2)], "test", now=LATER)
    assert sorted(import_times(world.published.instance, PYTHON).values()) == [NOW, LATER]


def test_capibara_run_never_tries_to_make_an_import():
    assert IMPORTED not in Graph.of(defs).parents and IMPORTED not in select_assets(defs, "*")
    made_from = [
        "ace_playbooks",
        "consolidated_playbook",
        "e2b_executions",
        "e2b_logs",
        "e2b_patterns",
        "example_groups",
        "moe_dataset",
    ]
    assert select_assets(defs, "+moe_dataset") == select_assets(defs, "*moe_dataset") == made_from


def test_a_plus_is_everything_before_or_after_an_asset():
    """As `docs/running.md` and Dagster's UI say; what is selected so can be made in a new home."""
    before, after = select_assets(defs, "+moe_dataset"), select_assets(defs, "moe_dataset+")
    assert "promoted_model" in after and select_assets(defs, "+moe_dataset+") == sorted({*before, *after})
    assert select_assets(defs, "moe_dataset") == ["moe_dataset"]
    needed = Graph.of(defs).needed
    assert all(parent in before for name in before for parent in needed[name])
