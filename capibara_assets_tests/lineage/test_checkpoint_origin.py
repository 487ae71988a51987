"""From a checkpoint to the executions it was made from; what is gone is said, and why."""

import pytest

from capibara_assets.checkpoints.store.manifest import About
from capibara_assets.datasets.schema import Example, LeftOut
from capibara_assets.errors import IntegrityError
from capibara_assets.executions.schema import Execution, LogFile, Quarantined
from capibara_assets.lineage.checkpoint_origin import CheckpointOrigin, ExecutionSource, origin
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.removal import remove_artifact
from capibara_assets_tests.datasets.conftest import run
from capibara_assets_tests.lineage.conftest import Made, example


@pytest.fixture
def dataset(made: Made) -> Artifact:
    """Two train, a validation and a test example of three executions, made from a log that names where these stand."""
    rows = [run(f"x{n}", f"x = {n}", "s", source_line=n + 1, minute=n) for n in range(3)]
    logs = made.put(
        "e2b_logs",
        None,
        tables={"executions": (Execution, rows), "quarantine": (Quarantined, []), "files": (LogFile, [])},
    )
    table = made.put("e2b_executions", "python", logs, tables={"executions": (Execution, rows)})
    examples = [
        example("e-1", "g-1", "train", ["x0", "x1"]),
        example("e-2", "g-2", "train", ["x0"]),
        example("v-1", "g-3", "validation", ["x2"]),
        example("t-1", "g-4", "test", ["x2"]),
    ]
    return made.put("moe_dataset", "python", table, tables={"examples": (Example, examples), "left_out": (LeftOut, [])})


def about(**values: object) -> About:
    return About.model_validate({"model": "python/v0", "step": 10, **values})


def reached(found: CheckpointOrigin) -> list[tuple[str, str | None, int, str]]:
    return [(one.asset, one.partition, one.depth, one.state) for one in found.artifacts]


def test_sources_are_followed_to_datasets_and_executions(made: Made, dataset: Artifact) -> None:
    plan = made.put("lora_config", "python", dataset, documents={"plan": {}})
    found = origin(
        made.store,
        about(sources={"moe_dataset[python]": dataset.digest, "lora_config[python]": plan.digest}),
    )
    assert reached(found) == [
        ("lora_config", "python", 0, "present"),
        ("moe_dataset", "python", 0, "present"),
        ("e2b_executions", "python", 1, "present"),
        ("e2b_logs", None, 2, "present"),
    ]
    assert (found.artifacts[1].examples, found.artifacts[1].executions) == (3, 3)
    assert found.executions == 3
    file = run("x0", "", "s").source_file
    assert found.first == (
        ExecutionSource("x0", file, 1),
        ExecutionSource("x1", file, 2),
        ExecutionSource("x2", file, 3),
    )


def test_a_dataset_that_is_named_by_digest_alone_is_found(made: Made, dataset: Artifact) -> None:
    found = origin(made.store, about(dataset_digest=dataset.digest))
    assert reached(found)[0] == ("moe_dataset", "python", 0, "present")
    both = about(dataset_digest=dataset.digest, sources={"moe_dataset[python]": dataset.digest})
    assert origin(made.store, both) == found


def test_what_is_gone_is_said(made: Made, dataset: Artifact) -> None:
    source = about(sources={"moe_dataset[python]": dataset.digest, "trained_adapters[python]": "0" * 64})
    remove_artifact(made.store, "moe_dataset", "python", dataset.digest)
    found = origin(made.store, source)
    assert reached(found) == [
        ("moe_dataset", "python", 0, "forgotten"),
        ("trained_adapters", "python", 0, "missing"),
    ]
    assert (found.executions, found.first) == (None, ())
    assert reached(origin(made.store, about(dataset_digest=dataset.digest))) == [
        ("moe_dataset", "python", 0, "forgotten")
    ]
    assert reached(origin(made.store, about(dataset_digest="f" * 64))) == [("moe_dataset", None, 0, "missing")]


def test_executions_whose_log_is_gone_are_named_without_their_place(made: Made, dataset: Artifact) -> None:
    logs = made.current["e2b_logs", None]
    remove_artifact(made.store, "e2b_logs", None, logs.digest)
    found = origin(made.store, about(sources={"moe_dataset[python]": dataset.digest}))
    assert reached(found)[-1] == ("e2b_logs", None, 2, "forgotten")
    assert found.first[0] == ExecutionSource("x0", None, None)


def test_a_checkpoint_that_names_nothing_and_one_that_names_it_wrongly(made: Made) -> None:
    assert origin(made.store, about()).artifacts == ()
    with pytest.raises(IntegrityError, match=r"'moe_dataset\[', not <asset>"):
        origin(made.store, about(sources={"moe_dataset[": "0" * 64}))
