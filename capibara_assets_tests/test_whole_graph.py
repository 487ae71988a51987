"""The whole graph of two domains: every asset, then again unchanged, by force, and with one more execution."""

import json
import uuid
from pathlib import Path

import pytest

from capibara_assets.checkpoints.artifacts import checkpoints_of, open_artifacts
from capibara_assets.lineage.checkpoints import needed_checkpoints
from capibara_assets_tests.home import DOMAINS, MadeHome, command_here, versions

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
UP_TO_DATASETS = ("ace_playbooks", "e2b_logs", "e2b_executions", "e2b_patterns", "example_groups", "moe_dataset")
UP_TO_CONSENSUS = (
    *(name for name in PARTITIONED if name != "evaluation"),
    "ace_playbooks",
    "e2b_logs",
    "example_groups",
)


GRAPH = (*PARTITIONED, *WHOLE)


def run(made: MadeHome, *arguments: str) -> str:
    return command_here(made.environment, "run", "--domains", ",".join(DOMAINS), *arguments)


def test_everything_is_materialized_and_reported(own_home: MadeHome):
    assert set(versions(own_home.deployment, GRAPH)) == {
        *WHOLE,
        *(f"{name}[{domain}]" for name in PARTITIONED for domain in DOMAINS),
    }
    report = json.loads(command_here(own_home.environment, "report", "--json"))
    assert set(report["domains"]) >= set(DOMAINS)
    for name in DOMAINS:
        domain = report["domains"][name]
        assert domain["executions"] > 0 and domain["examples"] > 0, name
        assert domain["consensus_loss"] < domain["base_loss"], name
        assert len(domain["voters"]) == 4 and all(set(v) == {"name", "accepted", "reason"} for v in domain["voters"])
    assert report["peak_memory_gib"] > 0 and report["seconds"] > 0
    page = Path(own_home.log.rsplit("report: ", 1)[1].split()[0])
    assert page.name == "report.html" and (own_home.folder / "home" / page.name).is_file()


def test_every_stored_artifact_is_whole(own_home: MadeHome):
    deployment = own_home.deployment
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


def test_a_second_run_leaves_all_alone(own_home: MadeHome):
    before = versions(own_home.deployment, GRAPH)
    output = run(own_home)
    assert "trained_adapters" not in output and "were current" in output
    assert versions(own_home.deployment, GRAPH) == before


@pytest.mark.parametrize(
    ("domains", "selection"),
    [
        pytest.param(("sql",), "e2b_patterns,example_groups", id="groups"),
        pytest.param(("sql",), "e2b_patterns,example_groups,moe_dataset", marks=pytest.mark.extended, id="datasets"),
        pytest.param(("sql",), "trained_adapters,consensus_checkpoint", marks=pytest.mark.extended, id="adapters"),
        pytest.param(("sql",), "*", marks=pytest.mark.extended, id="one_domain"),
        pytest.param(DOMAINS, "*", marks=pytest.mark.extended, id="everything"),
    ],
)
def test_what_is_made_again_by_force_has_the_same_data_versions(
    domains: tuple[str, ...], selection: str, own_home: MadeHome
):
    """Groups, and in `make test-all` every asset. The home was made in another process.

    A dataset is made again with the same version below: python's, after sql has one more execution.
    """
    before = versions(own_home.deployment, GRAPH)
    chosen = ("--domains", ",".join(domains), "--select", selection)
    output = command_here(own_home.environment, "run", "--force", *chosen)
    assert all(name in output for name in selection.replace("*", "trained_adapters").split(","))
    assert versions(own_home.deployment, GRAPH) == before


@pytest.mark.parametrize(
    ("selection", "parallel"),
    [
        pytest.param(",".join(UP_TO_DATASETS), 1, id="up_to_datasets"),
        pytest.param(",".join(UP_TO_CONSENSUS), 2, marks=pytest.mark.extended, id="up_to_consensus"),
        pytest.param("*", 2, marks=pytest.mark.extended, id="everything"),
    ],
)
def test_one_new_sql_execution_changes_no_other_domain(selection: str, parallel: int, own_home: MadeHome):
    """What examples are made of; in `make test-all` also adapters, then all that is made of every domain's again."""
    before = versions(own_home.deployment, GRAPH)
    place, where = "harbour", "coast"
    logs = own_home.folder / "experience" / "e2b_logs"
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
    printed = run(own_home, "--select", selection, "--parallel", str(parallel))  # 2: a process for each domain
    assert f"{parallel} domain{'s' * (parallel > 1)} at a time" in printed
    after = versions(own_home.deployment, GRAPH)
    changed = {name for name in after if after[name] != before[name]}
    assert {"e2b_logs", "e2b_executions[sql]", "e2b_patterns[sql]"} <= changed
    up_to_consensus = set(PARTITIONED) - {"evaluation"}
    touched = {name for name in changed if name.partition("[")[0] in up_to_consensus and not name.endswith("[sql]")}
    assert not touched
