"""The whole graph on a small experience: every asset, then again unchanged, then with one more execution."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from capibara_assets.assets.inputs import latest_digest
from capibara_assets.checkpoints.artifacts import checkpoints_of, open_artifacts
from capibara_assets.cli.instance import open_instance
from capibara_assets.deployment import Deployment
from capibara_assets.domains import DOMAINS
from capibara_assets.lineage.checkpoints import needed_checkpoints

pytestmark = pytest.mark.slow
PARTITIONED = (
    "e2b_executions",
    "consolidated_playbook",
    "e2b_patterns",
    "moe_dataset",
    "lora_config",
    "tpu_config",
    "trained_adapters",
    "consensus_checkpoint",
    "evaluation",
)
WHOLE = (
    "ace_playbooks",
    "e2b_logs",
    "example_groups",
    "routing_dataset",
    "merged_checkpoint",
    "moe_checkpoint",
    "expert_router",
    "promoted_model",
)


def capibara(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "capibara_assets.cli", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def versions(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """asset[partition] → data version that the latest materialization names."""
    monkeypatch.setenv("DAGSTER_HOME", "")
    with open_instance(Deployment.from_environment(environment)) as instance:
        found = {f"{name}[{d}]": latest_digest(instance, name, d) for name in PARTITIONED for d in DOMAINS}
        return found | {name: latest_digest(instance, name) for name in WHOLE}


@pytest.fixture(scope="module")
def first_run(deployment_environment: dict[str, str]) -> str:
    return capibara(deployment_environment, "run")


def test_everything_is_materialized_and_reported(
    first_run: str, deployment_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    missing = [name for name, version in versions(deployment_environment, monkeypatch).items() if version is None]
    assert not missing
    report = json.loads(capibara(deployment_environment, "report", "--json"))
    assert set(report["domains"]) == set(DOMAINS)
    for name, domain in report["domains"].items():
        assert domain["executions"] > 0 and domain["examples"] > 0, name
        assert domain["consensus_loss"] < domain["base_loss"], name
        assert len(domain["voters"]) == 4 and all(set(v) == {"name", "accepted", "reason"} for v in domain["voters"])
    assert report["peak_memory_gib"] > 0 and report["seconds"] > 0
    assert "report:" in first_run and Path(first_run.rsplit("report: ", 1)[1].split()[0]).is_file()


def test_every_stored_artifact_is_whole(first_run: str, deployment_environment: dict[str, str]):
    deployment = Deployment.from_environment(deployment_environment)
    store = open_artifacts(deployment.store, deployment.work)
    artifacts = [artifact for name in store.names() for artifact in store.list(name)]
    assert len(artifacts) >= len(WHOLE) + len(PARTITIONED) * len(DOMAINS)
    for artifact in artifacts:
        artifact.verify()
    made = {artifact.name: artifact for artifact in artifacts if artifact.checkpoints}
    assert set(made) == {"trained_adapters", "consensus_checkpoint", "merged_checkpoint", "moe_checkpoint"}
    assert checkpoints_of(store).verify() == [] and set(needed_checkpoints(store)) >= {
        identity for artifact in artifacts for identity in artifact.checkpoints.values()
    }
    weights = {path.name for path in Path(deployment.store, "artifacts").rglob("*.safetensors")}
    assert weights == {"router.safetensors"}  # adapters and models lie in the checkpoint store


def test_a_second_run_leaves_all_alone(
    first_run: str, deployment_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    before = versions(deployment_environment, monkeypatch)
    output = capibara(deployment_environment, "run")
    assert "trained_adapters" not in output and "were current" in output
    assert versions(deployment_environment, monkeypatch) == before


@pytest.mark.parametrize("domains", ["sql", pytest.param(",".join(DOMAINS), marks=pytest.mark.long)])
def test_everything_again_by_force_gives_the_same_data_versions(
    domains: str, first_run: str, deployment_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    """Every asset: one domain of those that have domains, and what is made of all; all domains in `make test-long`."""
    before = versions(deployment_environment, monkeypatch)
    output = capibara(deployment_environment, "run", "--force", "--domains", domains)
    assert "trained_adapters" in output
    assert versions(deployment_environment, monkeypatch) == before


UP_TO_CONSENSUS = (
    *(name for name in PARTITIONED if name != "evaluation"),
    "ace_playbooks",
    "e2b_logs",
    "example_groups",
)


@pytest.mark.parametrize(
    "selection",
    [
        pytest.param(",".join(UP_TO_CONSENSUS), id="up_to_consensus"),
        pytest.param("*", marks=pytest.mark.long, id="everything"),
    ],
)
def test_one_new_sql_execution_changes_no_other_domain(
    selection: str, first_run: str, deployment_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    """What a domain's adapter is made of; in `make test-long` also all that is then made of every domain's again."""
    before = versions(deployment_environment, monkeypatch)
    place, where = ("harbour", "coast") if selection != "*" else ("airport", "region")
    logs = Path(deployment_environment["CAPIBARA_EXPERIENCE"]) / "e2b_logs"
    record = {
        "sandbox_id": f"i{uuid.uuid4().hex[:20]}",
        "execution_id": str(uuid.uuid4()),
        "timestamp": "2026-10-20T10:00:00.000Z",
        "template_id": "code-interpreter-v1",
        "language": "sql",
        "task": f"How many {place}s does each {where} have, largest first?",
        "code": f"SELECT {where}, COUNT(*) AS {place}s FROM {place} GROUP BY {where} ORDER BY {place}s DESC, {where};",
        "execution": {
            "results": [{"text": f"{where} | {place}s\nnorth | 3\nsouth | 2"}],
            "logs": json.dumps({"stdout": [], "stderr": []}),
            "error": None,
        },
        "execution_count": 1,
        "duration_ms": 1.5,
        "timeout_s": 10,
    }
    (logs / f"{place}s.jsonl").write_text(json.dumps(record) + "\n")
    capibara(deployment_environment, "run", "--select", selection)
    after = versions(deployment_environment, monkeypatch)
    changed = {name for name in after if after[name] != before[name]}
    assert {"e2b_logs", "e2b_executions[sql]", "e2b_patterns[sql]"} <= changed
    up_to_consensus = set(PARTITIONED) - {"evaluation"}
    touched = {name for name in changed if name.partition("[")[0] in up_to_consensus and not name.endswith("[sql]")}
    assert not touched
