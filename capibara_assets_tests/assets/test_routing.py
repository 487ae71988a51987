"""The router in the graph: trained over the experts there are, and measured where every expert was scored."""

import json
from pathlib import Path

import dagster as dg
import pytest

from capibara_assets.assets.inputs import INPUTS, latest_metadata
from capibara_assets.assets.promotion import promoted_model
from capibara_assets.assets.routing import expert_router
from capibara_assets.datasets.schema import Example, Route
from capibara_assets.deployment.locations import resources_root
from capibara_assets.domains import Domain
from capibara_assets.evaluation.routing.router import Router
from capibara_assets.evaluation.schema import ExampleLoss
from capibara_assets.resources import BaseModel, Recipes
from capibara_assets.storage.records import table
from capibara_assets_tests.evaluation.contenders.test_contenders import example
from capibara_assets_tests.evaluation.routing.test_router import ASKED, calibrating
from capibara_assets_tests.published import Published

PYTHON, SQL = Domain.PYTHON, Domain.SQL


@pytest.fixture
def published(instance: dg.DagsterInstance, tmp_path: Path) -> Published:
    made = Published.afresh(instance, tmp_path)
    made.put(
        "routing_dataset", tables={"routes": (Route, calibrating(*ASKED))}, documents={"statistics": {"left_out": None}}
    )
    for domain in (PYTHON, SQL):
        made.put("consensus_checkpoint", domain, documents={"certificate": {"of": domain}})
    return made


def make(published: Published, asset: dg.AssetsDefinition, **recipe: object) -> None:
    base = BaseModel(location=str(resources_root() / "base_models" / "capibara-nano"))
    resources = {"store": published.store, "recipes": Recipes(overrides={"router": recipe}), "base_model": base}
    wanted = {name: one for name, one in resources.items() if name in asset.required_resource_keys}
    assert dg.materialize([asset], instance=published.instance, resources=wanted).success


def test_it_knows_the_experts_there_are_and_is_reported(published: Published):
    make(published, expert_router)
    artifact = published.inputs().artifact("expert_router")
    found = artifact.document("report")
    assert found["experts"] == ["python", "sql"] and found["test_accuracy"] == 1.0 and found["calibrated"]
    assert Router.read(artifact.directory("router")).route([ASKED["sql"].format("tables")]) == ["sql"]
    shown = latest_metadata(published.instance, "expert_router")
    assert 0 < shown["median_ms"] <= shown["p99_ms"] and "drifted" in shown
    make(published, expert_router)
    assert published.inputs().artifact("expert_router").digest == artifact.digest  # speeds are no part of it


@pytest.mark.slow
def test_a_router_of_hidden_states_depends_on_the_base(published: Published):
    make(published, expert_router, kind="embedding", embedding_tokens=16)
    report = published.inputs().artifact("expert_router").document("report")
    assert report["kind"] == "embedding" and report["test_accuracy"] > 0.9
    assert "base_model" in latest_metadata(published.instance, "expert_router")[INPUTS]["settings"]


def test_what_routing_costs_is_measured_with_the_evaluations_losses(published: Published):
    make(published, expert_router)
    published.put("merged_checkpoint", documents={"report": {}})
    prompt = ASKED["sql"].format("tables")
    messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": "select 1"}]
    rows = [example(1, split="test", domain="sql", messages=json.dumps(messages))]
    dataset = published.put("moe_dataset", SQL, tables={"examples": (Example, table(Example, rows))})
    nll = {"base": 30.0, "consensus": 10.0, "expert:python": 8.0, "merged": 20.0}
    losses = [
        ExampleLoss(contender=name, example_id=rows[0].example_id, group_id="g", nll=loss, tokens=10)
        for name, loss in nll.items()
    ]
    published.put(
        "evaluation",
        SQL,
        tables={"losses": (ExampleLoss, table(ExampleLoss, losses))},
        documents={"decision": {"verdict": "reject", "reason": "worse"}},
        upstream={f"consensus_checkpoint|{SQL}": "c" * 64, f"moe_dataset|{SQL}": dataset.digest},
    )
    make(published, promoted_model)
    found = published.inputs().artifact("promoted_model").document("routing")
    assert (found["routed"], found["oracle"], found["merged"], found["base"]) == (1.0, 0.8, 2.0, 3.0)
    assert found["regret"] == pytest.approx(0.2) and found["best_picked"] == 0.0
