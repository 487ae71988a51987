"""Plans in the graph: files and charts with each materialization, and costs that learn from what trainings took."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from capibara_assets.assets.inputs import latest_digest, latest_metadata
from capibara_assets.assets.plans import lora_config, past_outcomes, tpu_config
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.domains import Domain
from capibara_assets.metadata.plan_entries import tpu_page, xla_table
from capibara_assets.metadata.tables import ENTRY_BYTES
from capibara_assets.metadata.training_entries import OUTCOME, outcome_entries
from capibara_assets.planning.hardware.targets import find_target
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.plan_cost import tpu_cost
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.tpu.configuration import plan_tpu
from capibara_assets.resources import BaseModel, GoogleCloud, Hardware, Recipes
from capibara_assets.storage.artifact import Artifact
from capibara_assets.training.standalone.materials import Materials, recorded_outcome
from capibara_assets_tests.planning.shapes import statistics
from capibara_assets_tests.published import Published


def materialize(
    published: Published,
    nano: Path,
    asset: dg.AssetsDefinition,
    name: str = "h100-8",
    domain: Domain = Domain.SQL,
    hardware: Hardware | None = None,
) -> tuple[Artifact, Mapping[str, Any]]:
    """The artifact of a plan and the metadata of its materialization."""
    if latest_digest(published.instance, "moe_dataset", domain) is None:
        published.put("moe_dataset", domain, documents={"statistics": statistics(train=3000)})
    key = asset.key.to_user_string()
    chosen = {"target" if key == "lora_config" else "tpu_target": hardware or Hardware(name=name)}
    target = chosen if key == "lora_config" else {**chosen, "google_cloud": GoogleCloud()}
    done = dg.materialize(
        [asset],
        partition_key=domain.value,
        instance=published.instance,
        resources={
            "store": published.store,
            "recipes": Recipes(),
            "base_model": BaseModel(location=str(nano)),
            **target,
        },
    )
    assert done.success
    digest = latest_digest(published.instance, key, domain.value)
    return published.store.open().open(key, domain, digest), latest_metadata(published.instance, key, domain.value)


def test_hardware_is_chosen_by_budget_and_the_choice_is_published_and_shown(published: Published, nano: Path) -> None:
    priced = [{"target": "h100-8", "usd_per_hour": 1e9}, {"target": "h200-1", "usd_per_hour": 1.0}]
    hardware = Hardware(name="h100-8", preferences={"*": {"targets": [*priced, "h100-2"], "max_usd": 1000}})
    artifact, shown = materialize(published, nano, lora_config, hardware=hardware)
    assert artifact.document("plan")["target"] == "h200-1"
    document = artifact.document("hardware")
    assert document["usable"] == ["h200-1"] and set(document["refused"]) == {"h100-8", "h100-2"}
    table = shown["hardware"].replace("\\", "")
    assert "| h100-8 | $" in table and "max_usd is 1000" in table and "| h200-1 | the plan is for it |" in table
    assert Materials(None, nano, "", artifact, artifact, {}).targets == ["h200-1"]  # type: ignore[arg-type]


def picture(markdown: str) -> str:
    return base64.b64decode(markdown.split("base64,")[1].split(")")[0]).decode()


def test_a_lora_plan_shows_its_reasons_memory_and_cost(published: Published, nano: Path) -> None:
    artifact, shown = materialize(published, nano, lora_config)
    plan, cost = artifact.document("plan"), artifact.document("cost")
    assert f"| rank | {plan['rank']} |" in shown["reasons"]
    assert "usable" in picture(shown["memory"]) and "budget" in picture(shown["memory"])
    assert cost["adapter"]["seconds"] is not None and cost["adapter"]["usd"] is None
    assert "no price" in cost["adapter"]["usd_note"] and "not known" in shown["costs"]
    assert all(len(json.dumps(value)) < 2 * ENTRY_BYTES for value in shown.values())


def test_a_tpu_plan_publishes_the_files_that_run_it(published: Published, nano: Path) -> None:
    artifact, shown = materialize(published, nano, tpu_config, "tpu-v5e-64")
    folder = artifact.directory("files")
    names = {file.name for file in folder.iterdir()}
    assert {
        "t5x.gin",
        "maxtext.yml",
        "jax.yaml",
        "capibara_tasks.py",
        "run.sh",
        "queued_resource.sh",
        "gke.yaml",
    } <= names
    assert yaml.safe_load((folder / "jax.yaml").read_text())["mesh"] == artifact.document("plan")["mesh"]
    assert "not compiled" in shown["xla"]
    assert "64 x" not in shown["costs"] or "USD" in shown["costs"]
    assert all(len(json.dumps(value)) < 2 * ENTRY_BYTES for value in shown.values())


def test_xlas_figures_stand_beside_ours(nano: Path) -> None:
    recipe, target = shipped_recipe("planning", PlanningRecipe), find_target("tpu-v5e-64")
    plan = plan_tpu("sql", statistics(), read_shape(nano), target, recipe)
    gib = 1024**3
    xla = {
        "status": "compiled",
        "detail": "compiled for v5e:8x8",
        "memory": {"arguments": gib, "temporaries": 2 * gib, "peak": 3 * gib},
        "collectives": {"all-gather": 61},
        "flops": {"xla": 2.1e12, "same": 2.0e12, "kernel": 0.3e12, "model": 1.9e12},
        "versions": {"libtpu": "0.0.51"},
    }
    compiled = plan.model_copy(update={"xla": xla})
    table = xla_table(compiled)
    assert "| FLOPs of a step and chip, recomputation counted | 2 TFLOP | 2.1 TFLOP |" in table
    assert "| attention in a fused kernel | 0.3 TFLOP | not counted |" in table
    assert "optimal_seconds" not in table
    assert "| memory of a chip |" in table and "3.00 GiB" in table and "| all-gather |  | 61 |" in table
    shown = tpu_page(compiled, target, tpu_cost(compiled, target), {"t5x.gin": ""}).pictures
    assert ">XLA<" in picture(shown["memory"].md_str or "") and "temporaries" in picture(shown["memory"].md_str or "")


def trained(published: Published, plan: Artifact, seconds: float) -> None:
    """What a training records: the outcome as the metadata of its materialization."""
    voters = {name: {"seconds": seconds * scale, "steps": 40} for name, scale in (("a", 0.9), ("b", 1.0), ("c", 1.2))}
    outcome = recorded_outcome(plan, {"voters": voters})
    assert outcome is not None and outcome.measured == pytest.approx(seconds)
    published.instance.report_runless_asset_event(
        dg.AssetMaterialization("trained_adapters", partition="sql", metadata=outcome_entries(outcome))
    )


def test_what_a_training_took_corrects_the_next_plans_cost_and_not_the_plan(published: Published, nano: Path) -> None:
    first, _ = materialize(published, nano, lora_config)
    raw = first.document("cost")["adapter"]["seconds"]
    for _ in range(3):
        trained(published, first, 2 * raw[1])
    assert [one.ratio for one in past_outcomes(published.instance)] == pytest.approx([2, 2, 2])
    second, shown = materialize(published, nano, lora_config)
    cost = shown["cost"]
    assert cost["correction"]["runs"] == 3 and 1.7 < cost["correction"]["factor"] < 2
    assert cost["adapter_raw"]["seconds"] == raw
    assert cost["adapter"]["seconds"][1] == pytest.approx(raw[1] * cost["correction"]["factor"])
    assert "corrected by 3 runs" in shown["costs"]
    # Else each training would change its own input and so ask for the next training.
    assert second.digest == first.digest
    # Another target's plans have nothing to learn from these runs.
    _, other = materialize(published, nano, lora_config, "h200-1")
    assert other["cost"]["correction"]["runs"] == 0


def test_a_machine_without_a_peak_learns_its_speed(published: Published, nano: Path) -> None:
    first, shown = materialize(published, nano, lora_config, "cpu-laptop")
    assert first.document("cost")["adapter"]["seconds"] is None and "not known" in shown["costs"]
    trained(published, first, 50.0)
    _, later = materialize(published, nano, lora_config, "cpu-laptop")
    assert later["cost"]["adapter"]["seconds"][1] == pytest.approx(50.0, rel=1e-6)


def test_a_backfill_adds_up_the_domains_plans(published: Published, nano: Path) -> None:
    _, one = materialize(published, nano, lora_config)
    _, two = materialize(published, nano, lora_config, domain=Domain.PYTHON)
    cost = two["cost"]
    assert cost["backfill_note"].startswith("2 of 6 domains have a plan")
    expected = one["cost"]["domain"]["seconds"][1] + 5 * cost["domain"]["seconds"][1]
    assert cost["backfill"]["seconds"][1] == pytest.approx(expected)


def test_a_plan_from_before_costs_were_kept_has_no_outcome(published: Published) -> None:
    plan = published.put("lora_config", Domain.SQL, documents={"plan": {"estimates": {}}})
    assert recorded_outcome(plan, {"voters": {"a": {"seconds": 1.0, "steps": 1}}}) is None
    assert outcome_entries(None) == {} and OUTCOME == "outcome"
