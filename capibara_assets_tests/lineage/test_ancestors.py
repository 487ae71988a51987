"""Lineage over real manifests: a small graph walked both ways, pruned and damaged inputs."""

import shutil
from pathlib import Path

import pytest

from capibara_assets.errors import IntegrityError
from capibara_assets.lineage.ancestors import LineageStep, ancestors, descendants, upstream_key
from capibara_assets.storage.store import Artifact, ArtifactStore


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path)


def make(store: ArtifactStore, asset: str, partition: str | None, *inputs: Artifact, n: int = 0) -> Artifact:
    upstream = {upstream_key(a.name, a.partition): a.digest for a in inputs}
    return store.publish(asset, partition, documents={"n": [asset, partition, n]}, inputs={"upstream": upstream})


@pytest.fixture
def graph(store: ArtifactStore) -> dict[str, Artifact]:
    """logs -> executions[sql], executions[ml]; both -> groups; groups + executions[d] -> dataset[d] -> adapter[sql]."""
    logs = make(store, "e2b_logs", None)
    sql, ml = make(store, "e2b_executions", "sql", logs), make(store, "e2b_executions", "ml", logs)
    groups = make(store, "example_groups", None, sql, ml)
    dataset = make(store, "moe_dataset", "sql", groups, sql)
    other = make(store, "moe_dataset", "ml", groups, ml)
    adapter = make(store, "trained_adapters", "sql", dataset)
    make(store, "e2b_logs", None, n=1)  # a newer version that nothing was made from
    return {
        "logs": logs,
        "sql": sql,
        "ml": ml,
        "groups": groups,
        "dataset": dataset,
        "other": other,
        "adapter": adapter,
    }


def named(steps: list[LineageStep]) -> list[tuple[str, str | None, int]]:
    return [(step.asset, step.partition, step.depth) for step in steps]


def test_up_to_the_logs(store: ArtifactStore, graph: dict[str, Artifact]) -> None:
    steps = ancestors(store, graph["adapter"])
    assert named(steps) == [
        ("moe_dataset", "sql", 1),
        ("e2b_executions", "sql", 2),
        ("example_groups", None, 2),
        ("e2b_executions", "ml", 3),
        ("e2b_logs", None, 3),
    ]
    assert steps[-1].artifact == graph["logs"]
    assert steps[3].via == "example_groups|_"
    assert ancestors(store, graph["logs"]) == []


def test_down_to_the_adapters(store: ArtifactStore, graph: dict[str, Artifact]) -> None:
    assert named(descendants(store, graph["ml"])) == [
        ("example_groups", None, 1),
        ("moe_dataset", "ml", 1),
        ("moe_dataset", "sql", 2),
        ("trained_adapters", "sql", 3),
    ]
    newer = store.latest("e2b_logs", None)
    assert newer is not None and descendants(store, newer) == []


def test_both_ways_agree(store: ArtifactStore, graph: dict[str, Artifact]) -> None:
    def pairs(walk: object, one: Artifact) -> set[str]:
        return {step.digest for step in walk(store, one)}  # type: ignore[operator]

    for low in graph.values():
        for high in graph.values():
            assert (low.digest in pairs(ancestors, high)) == (high.digest in pairs(descendants, low))


def test_a_pruned_input_is_named_though_it_is_gone(store: ArtifactStore, graph: dict[str, Artifact]) -> None:
    shutil.rmtree(graph["sql"].path.path)
    steps = {(step.asset, step.partition): step for step in ancestors(store, graph["adapter"])}
    assert steps["e2b_executions", "sql"].artifact is None
    assert steps["e2b_logs", None].artifact == graph["logs"]  # still reached through the other partition


def test_an_input_in_another_form_is_refused(store: ArtifactStore) -> None:
    odd = store.publish("moe_dataset", "sql", documents={"n": 1}, inputs={"upstream": {"e2b_logs": "0" * 64}})
    with pytest.raises(IntegrityError, match=r"manifest of moe_dataset\|sql: upstream 'e2b_logs'"):
        ancestors(store, odd)


def test_an_input_that_was_not_there_is_no_ancestor(store: ArtifactStore, graph: dict[str, Artifact]) -> None:
    upstream = {
        upstream_key("trained_adapters", "sql"): graph["adapter"].digest,
        upstream_key("trained_adapters", "ml"): "",
    }
    merged = store.publish("merged_checkpoint", None, documents={"n": 1}, inputs={"upstream": upstream})
    assert [step.asset for step in ancestors(store, merged) if step.depth == 1] == ["trained_adapters"]
    assert [step.digest for step in descendants(store, graph["adapter"])] == [merged.digest]
