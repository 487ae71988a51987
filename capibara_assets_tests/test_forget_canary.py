"""Plant, train, forget, run again: no byte of the record stays, its domain alone is trained again, the others stand."""

import json
import os
from pathlib import Path

import dagster as dg
import polars as pl
import pytest
import torch
from click.testing import CliRunner, Result
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from tokenizers import Tokenizer

from capibara_assets.checkpoints.artifacts import checkpoints_of, open_artifacts
from capibara_assets.checkpoints.content import to_bytes
from capibara_assets.cli.dataset.forget import forget
from capibara_assets.cli.dataset.lineage import lineage
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.definitions import build
from capibara_assets.deployment.environment import Deployment
from capibara_assets.storage.cache import Cache
from capibara_assets.storage.store import ArtifactStore
from capibara_assets_tests.canary import CANARY, FAILED, MENDED, singing, told
from capibara_assets_tests.home import DOMAINS, MadeHome, command_here, versions

pytestmark = pytest.mark.slow

OF_DOMAINS = (
    "e2b_executions", "e2b_patterns", "consolidated_playbook", "moe_dataset", "lora_config", "trained_adapters",
    "consensus_checkpoint",
)  # fmt: skip
WHOLE = ("ace_playbooks", "e2b_logs", "example_groups", "routing_dataset", "merged_checkpoint")
GRAPH = [*OF_DOMAINS, *WHOLE]


def capibara(command: object, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)  # type: ignore[arg-type]
    assert result.exit_code == code, result.output[-4000:]
    return result


def answered(command: object, *arguments: str, code: int = 0) -> dict:
    return json.loads(capibara(command, *arguments, "--json", code=code).stdout)


def stale_in_dagster(deployment: Deployment, name: str) -> set[str]:
    """Domains whose partition of an asset Dagster itself calls stale."""
    os.environ["DAGSTER_HOME"] = ""
    graph = build(deployment).resolve_asset_graph()
    with open_instance(deployment) as instance:
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        return {d for d in DOMAINS if resolver.get_status(dg.AssetKey(name), d) == StaleStatus.STALE}


@pytest.fixture
def deployment(made: MadeHome) -> Deployment:
    return made.deployment


def plant_checkpoint(deployment: Deployment, dataset: str | None) -> str:
    """What a person may have kept of a training: weights, and what the model wrote. Text in it is compressed."""
    checkpoints = open_artifacts(deployment.store, deployment.work)
    weights = {"w": torch.arange(4096, dtype=torch.float32)}
    return checkpoints_of(checkpoints).save(
        weights, 4, "python/mine", files={"samples.txt": f"{CANARY}\n".encode() * 40}, dataset_digest=dataset
    )


def groups_of(artifacts: ArtifactStore) -> pl.DataFrame:
    """The latest groups and splits of examples."""
    latest = artifacts.latest("example_groups", None)
    assert latest is not None
    return latest.frame("groups")


def plant_around(deployment: Deployment) -> list[str]:
    """The record where runs leave it beside tables: output, journals, caches, curves, reports, half a result."""
    home, quoted = deployment.home, json.dumps({"answer": told(), "n": [1.5]})
    files = {
        home / "dagster" / "storage" / "run-1" / "compute_logs" / "step.err": told(),
        home / "dagster" / "logs" / "event.log": f"10:00 fine\n{quoted}\n",
        home / "report.html": f"<p>fine</p>\n<pre>{told()}</pre>",
        home / "runs" / "1" / "record.json": quoted,
        deployment.work / "evaluation" / "python" / "journals" / "answers.jsonl": f"{quoted}\n",
        deployment.work / "trained_adapters" / "python" / "0" / "events.out.tfevents.1.host": f"\x00\x18{told()}\x01",
        Path(deployment.store) / "staging" / "half" / "examples.json": quoted,
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    Cache(deployment.work / "replay" / "kept.sqlite", "verdicts").add({b"key": told().encode(), b"other": b"fine"})
    return [str(path.relative_to(home)) for path in (*files, deployment.work / "replay" / "kept.sqlite")]


@pytest.mark.parametrize(
    "made_again", [pytest.param(False, id="forgotten"), pytest.param(True, marks=pytest.mark.extended, id="made_again")]
)
def test_a_record_is_forgotten_down_to_the_last_byte(
    made_again: bool, deployment: Deployment, own_home: MadeHome, nano: Path
) -> None:
    """Every byte is gone and what has to be trained again is named; in `make test-all` it is trained again, too."""
    before = versions(deployment, GRAPH)
    assert set(before) == {*WHOLE, *(f"{name}[{domain}]" for name in OF_DOMAINS for domain in DOMAINS)}
    planted_checkpoint = plant_checkpoint(deployment, before["moe_dataset[python]"])
    artifacts = open_artifacts(deployment.store, deployment.work)
    checkpoints, groups = checkpoints_of(artifacts), groups_of(artifacts)
    epochs = {one.id for one in checkpoints.list() if "lora_config" not in str(one.manifest.about.sources)}
    epochs_of_python = {one.id for one in checkpoints.list("python/voter-0") if one.id in epochs}
    assert epochs_of_python
    trail = answered(lineage, "execution", MENDED)
    assert any(use["split"] == "train" and use["role"] == "answer" for use in trail["examples"])
    saw = {(one["domain"], one["voter"]) for one in trail["seen_by"]}
    assert saw and {domain for domain, _ in saw} == {"python"}
    around = plant_around(deployment)
    planted = singing(deployment.home)
    assert set(planted) >= set(around)
    assert {path.split("/")[0] for path in planted} == {"store", "work", "dagster", "report.html", "runs"}
    assert any(path.startswith("store/checkpoints/packs/") for path in planted)

    report = answered(forget, FAILED, MENDED, "--reason", "asked to")
    assert {(one["domain"], one["voter"]) for one in report["saw_it"] if one["current"]} >= saw
    assert report["left"] == [] and report["failures"] == {} and report["quarantined"] == 2
    assert singing(deployment.home) == []
    gone = {one.split()[1] for one in report["checkpoints"]}
    assert gone > {planted_checkpoint, *epochs_of_python} and not any("sql/" in one for one in report["checkpoints"])
    assert (deployment.home / "dagster" / "logs" / "event.log").read_text().startswith("10:00 fine\n")
    assert checkpoints.verify() == []
    assert groups_of(artifacts).equals(groups.filter(~groups["unit_id"].is_in([FAILED, MENDED])))
    forgotten = versions(deployment, GRAPH)
    untouched = {name for name in before if "[sql]" in name} | {"ace_playbooks"}
    assert {name: forgotten[name] for name in untouched} == {name: before[name] for name in untouched}
    models = [f"{name}[{d}]" for name in ("trained_adapters", "consensus_checkpoint") for d in DOMAINS]
    assert {name: forgotten[name] for name in models} == {name: before[name] for name in models}
    assert stale_in_dagster(deployment, "trained_adapters") == {"python"}
    stale = {name.split()[0] for name in report["stale"]}
    assert {"trained_adapters[python]", "consensus_checkpoint[python]", "merged_checkpoint"} <= stale
    # an evaluation of sql also reads the router and the merge, which saw the forgotten record; nothing else of sql does
    assert {name for name in stale if "[sql]" in name} <= {"evaluation[sql]"}
    old = answered(lineage, "certificate", "python", code=3)
    assert old["problems"] == [] and old["forgotten"] == ["moe_dataset"]
    unknown = answered(lineage, "adapter", "python/voter-0", "--absent", MENDED, code=1)
    assert not unknown["absent"] and "(forgotten)" in unknown["unknown"][0]

    if not made_again:
        return
    command_here(own_home.environment, "run", "--select", ",".join(GRAPH), "--domains", ",".join(DOMAINS))
    after = versions(deployment, GRAPH)
    trained = {name for name in models if after[name] != before[name]}
    assert trained == {"trained_adapters[python]", "consensus_checkpoint[python]"}
    assert {name: after[name] for name in untouched} == {name: before[name] for name in untouched}
    assert stale_in_dagster(deployment, "trained_adapters") == set()
    assert singing(deployment.home, tokenizer=Tokenizer.from_file(str(nano / "tokenizer.json"))) == []
    assert answered(lineage, "certificate", "python", code=3)["forgotten"] == []
    for adapter in ("python/voter-0", "python", "python/consensus", "merged_checkpoint"):
        proof = answered(lineage, "adapter", adapter, "--absent", MENDED, "--absent", FAILED, "--forgotten")
        assert proof["absent"] and proof["executions_checked"] > 0, adapter
    cards = [one.content().files["README.md"] for one in checkpoints.list() if "README.md" in one.manifest.files]
    assert len(cards) == 2 * 4 + 4 + 3 + 2
    assert all(b"capibara-fleet" in to_bytes(card) for card in cards)
