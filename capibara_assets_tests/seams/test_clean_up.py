"""The nightly clean-up on a finished deployment: what it removes, what it leaves, and what it says that it freed."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from capibara_assets.automation.clean_up import nightly_clean_up
from capibara_assets.checkpoints.artifacts import checkpoints_of
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.definitions import build, deployment_resources
from capibara_assets_tests.home import MadeHome, command_here
from capibara_assets_tests.published import adapter_folder

pytestmark = pytest.mark.slow


@pytest.fixture
def instance(made: MadeHome) -> Iterator[dg.DagsterInstance]:
    with open_instance(made.deployment) as opened:
        yield opened


def cleaned(made: MadeHome, instance: dg.DagsterInstance, **config: object) -> dict[str, dict]:
    """What a run of the job by the schedule says."""
    job = build(made.deployment).resolve_job_def("clean_up")
    ops = {"ops": {"remove_unneeded": {"config": config}}}
    result = job.execute_in_process(instance=instance, run_config=ops if config else None)
    (output,) = [event for event in result.all_node_events if event.is_successful_output]
    return {key: value.value for key, value in output.step_output_data.metadata.items()}


def bytes_under(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_it_removes_what_nothing_needs_and_says_what_that_freed(
    made: MadeHome, instance: dg.DagsterInstance, tmp_path: Path
):
    for number in range(5):
        folder = adapter_folder(tmp_path / f"adapter-{number}", seed=number)
        command_here(made.environment, "checkpoint", "save", str(folder), "--model", "mine", "--step", str(number))
    for text in ("one", "two"):
        lines = [{"prompt": f"Say {text} {i}.", "completion": f"{text} {i}"} for i in range(6)]
        file = tmp_path / f"{text}.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        command_here(made.environment, "dataset", "import", "--domain", "python", str(file))
    store = deployment_resources(made.deployment)["store"].open()
    before, imports = checkpoints_of(store).list(), store.list("imported_examples")
    stored = bytes_under(Path(store.root.path) / "checkpoints")
    journals = {d: made.deployment.work / "evaluation" / d / "journals" / "answers.jsonl" for d in ("python", "sql")}
    sizes = {domain: file.stat().st_size for domain, file in journals.items()}
    os.utime(journals["sql"], (1, 1))  # a copy of the home may have given it the time of the copy
    later = time.time() + 1
    os.utime(journals["python"], (later, later))  # as an evaluation that was interrupted leaves it

    said = cleaned(made, instance, journal_days=0.0, result_days=0.0)

    assert said["checkpoints"]["removed"] == ["mine@v1", "mine@v2"]
    assert len(checkpoints_of(store).list()) == len(before) - 2, "what the results need stays, whatever its age"
    freed = stored - bytes_under(Path(store.root.path) / "checkpoints")
    assert 0 <= said["checkpoints"]["bytes"] - freed < 4096, "all but what the collection itself writes down"
    assert said["checkpoints"]["bytes"] > 0
    assert journals["python"].exists() and not journals["sql"].exists()
    assert said["journals"] == {"removed": ["sql/answers.jsonl"], "bytes": sizes["sql"]}
    assert len(imports) == 2 and len(said["imports"]["removed"]) == 1
    (left,) = store.list("imported_examples")
    assert left.digest == store.latest_digest("imported_examples", "python")
    assert said["bytes_freed"] == sum(said[what]["bytes"] for what in ("checkpoints", "journals", "imports", "results"))
    again = cleaned(made, instance, journal_days=0.0, result_days=0.0)
    assert again["bytes_freed"] == 0, "a second run finds nothing"


def test_the_schedule_asks_for_the_job_and_spares_fresh_journals(made: MadeHome, instance: dg.DagsterInstance):
    with dg.build_schedule_context(instance=instance) as context:
        tick = nightly_clean_up.evaluate_tick(context)
    assert nightly_clean_up.job_name == "clean_up" and len(tick.run_requests or ()) == 1
    assert cleaned(made, instance)["journals"]["removed"] == []


def promoted(made: MadeHome) -> dict[str, set[str]]:
    """Model -> the domains whose promoted model one of its checkpoints is; what the gate let through depends on the
    processor, so few steps does the home train."""
    rows = json.loads(command_here(made.environment, "checkpoint", "ls", "--json"))
    found: dict[str, set[str]] = {}
    for row in rows:
        found.setdefault(row["model"], set()).update(row["promoted"])
    return found


def test_the_list_of_checkpoints_shows_what_is_promoted(made: MadeHome):
    before = promoted(made)
    assert "python/consensus" in before and not before.pop("python/consensus")
    command_here(made.environment, "promote", "--domain", "python", "--reason", "it is the best we have")
    after = promoted(made)
    assert after.pop("python/consensus") == {"python/consensus"}
    assert after == before
    assert "promoted" in command_here(made.environment, "checkpoint", "ls").splitlines()[0]
