"""Datasets in the graph: the same version whatever was cached, benchmarks as inputs, and a graph without routing."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from capibara_assets.assets.consensus import moe_checkpoint
from capibara_assets.assets.datasets import example_groups, moe_dataset, routing_dataset
from capibara_assets.assets.inputs import INPUTS, latest_digest, latest_metadata
from capibara_assets.assets.routing import expert_router
from capibara_assets.assets.settings import current_settings, setting_digest
from capibara_assets.checks.stages import routes_valid
from capibara_assets.datasets.audit.verdicts import keep_verdicts
from capibara_assets.deployment.locations import resources_root
from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.executions.schema import Execution, Pattern, RepairPair
from capibara_assets.playbooks.schema import Consolidated
from capibara_assets.resources import BaseModel, DataEngine, GoogleCloud, Hardware, Recipes
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.records import table
from capibara_assets_tests.datasets.conftest import HARDLY_DERIVED, fleet, run
from capibara_assets_tests.published import Published

PYTHON = Domain.PYTHON
SMALL = {"fewest_steps": 0, "derived": HARDLY_DERIVED}
SHIPPED = BaseModel(location=str(resources_root() / "base_models" / "capibara-nano"))


def read(instance: dg.DagsterInstance, folder: Path) -> Published:
    """A domain with executions, three of which show an output that follows from the code alone."""
    found = Published.afresh(instance, folder)
    shown = [run(f"e{i}", f"print({i} + 40)", f"box-{i}", stdout=f"{i + 40}\n") for i in range(3)]
    tables = {
        "executions": (Execution, table(Execution, [*fleet(20), *shown])),
        "around": (Execution, table(Execution, [])),
        "commands": (Execution, table(Execution, [])),
        "mended": (RepairPair, table(RepairPair, [])),
        "patterns": (Pattern, table(Pattern, [])),
        "repairs": (RepairPair, table(RepairPair, [])),
    }
    found.put("e2b_patterns", PYTHON, tables=tables)
    found.put("consolidated_playbook", PYTHON, tables={"bullets": (Consolidated, table(Consolidated, []))})
    return found


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Published]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield read(instance, tmp_path)


@pytest.fixture(scope="module")
def made_once(instance: dg.DagsterInstance, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Its dataset is made; what tests make of it they may make again."""
    found = read(instance, tmp_path_factory.mktemp("made"))
    make(found, [example_groups])
    make(found, [moe_dataset])
    return found


def make(published: Published, assets: list[Any], overrides: dict[str, Any] | None = None) -> None:
    partitioned = all(asset.partitions_def is not None for asset in assets if isinstance(asset, dg.AssetsDefinition))
    result = dg.materialize(
        assets,
        instance=published.instance,
        partition_key=PYTHON.value if partitioned else None,
        resources={
            "store": published.store,
            "data_engine": DataEngine(),
            "recipes": Recipes(overrides={"dataset": SMALL | (overrides or {})}),
            "base_model": SHIPPED,
        },
    )
    assert result.success


def dataset(published: Published) -> Artifact:
    return published.inputs().artifact("moe_dataset", PYTHON)


def test_the_version_is_the_same_whatever_was_cached(made_once: Published):
    published, first = made_once, dataset(made_once)
    examples = first.frame("examples")
    assert set(examples.filter(examples["kind"] == "predict")["verified"]) == {"reexecuted"}
    ran = first.document("reexecution")["ran"]
    assert first.document("reexecution")["cached"] == 0 < ran
    make(published, [moe_dataset])
    again = latest_metadata(published.instance, "moe_dataset", PYTHON)["reexecution"]
    assert again["cached"] == ran and again["ran"] == 0
    assert dataset(published).digest == first.digest
    shutil.rmtree(Path(published.store.work) / "moe_dataset")
    make(published, [moe_dataset])
    assert dataset(published).digest == first.digest
    assert first.frame("clusters").height >= examples.height
    assert first.frame("contaminated").is_empty()


def test_files_that_the_recipe_names_are_inputs(published: Published, tmp_path: Path):
    """Another item of a benchmark and another verdict of a person are other settings; the verdict is in the figures."""
    bench, verdicts = tmp_path / "bench.jsonl", tmp_path / "audit.jsonl"
    item = {"task_id": "B/1", "prompt": "def f(n):\n", "canonical_solution": "    return n\n", "entry_point": "f"}
    aimed = {
        "decontamination": {"benchmarks": {"bench": str(bench)}, "ngram": 13},
        "exclusions": [str(verdicts)],
    }
    recorded, digests = [], []
    make(published, [example_groups])
    keep_verdicts(verdicts, [])
    for number in range(2):
        bench.write_text(json.dumps(item | {"task_id": f"B/{number}", "test": "assert f(1) == 1"}) + "\n")
        make(published, [moe_dataset], aimed)
        metadata = latest_metadata(published.instance, "moe_dataset", PYTHON)
        recorded.append({name: metadata[INPUTS]["settings"][name] for name in ("benchmarks", "exclusions")})
        digests.append(dataset(published).digest)
        assert metadata["audit"]["dropped"] == number and "| every | every |" in metadata["quality"]
        if number == 0:
            keep_verdicts(verdicts, dataset(published).frame("examples").head(1).rows(named=True))
            verdicts.write_text(verdicts.read_text().replace('"verdict": null', '"verdict": "drop"'))
    assert len({one["benchmarks"] for one in recorded} | {setting_digest({})}) == 3
    assert len({one["exclusions"] for one in recorded}) == len(set(digests)) == 2
    changed = Recipes(overrides={"dataset": aimed})
    target = Hardware(name="cpu-laptop")
    current = current_settings(changed, SHIPPED, target, target, GoogleCloud())
    assert {name: current[name] for name in recorded[-1]} == recorded[-1]
    bench.unlink()
    with pytest.raises(InputError, match=r"benchmark bench: no file at .*bench\.jsonl"):
        current_settings(changed, SHIPPED, target, target, GoogleCloud())


def test_without_routing_the_graph_goes_on_and_says_so(made_once: Published):
    """No routes, no router and no mixture, each a result that says why; with routing there are routes."""
    published = made_once
    make(published, [routing_dataset, routes_valid], {"include_routing": False})
    routing = published.inputs().artifact("routing_dataset")
    assert routing.frame("routes").is_empty()
    assert "include_routing: false" in routing.document("statistics")["left_out"]
    make(published, [expert_router])
    report = published.inputs().artifact("expert_router").document("report")
    assert report["trained"] is False and "include_routing: false" in report["why"]
    published.put("merged_checkpoint", documents={"report": {}})
    make(published, [moe_checkpoint])
    assert published.inputs().artifact("moe_checkpoint").document("report")["made"] is False
    off = latest_digest(published.instance, "routing_dataset")
    make(published, [routing_dataset, routes_valid])
    assert latest_digest(published.instance, "routing_dataset") != off
    assert published.inputs().artifact("routing_dataset").document("statistics")["left_out"] is None
