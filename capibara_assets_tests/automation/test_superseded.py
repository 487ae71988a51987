"""Results that a newer one has replaced go at night; what anything in use or ever served was made from stays."""

import threading
import time
from collections.abc import Callable
from fcntl import LOCK_EX
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import torch

from capibara_assets.automation.clean_up import clean_up
from capibara_assets.checkpoints.artifacts import checkpoints_of
from capibara_assets.domains import Domain
from capibara_assets.evaluation.serving.promotion import promote_manually
from capibara_assets.evaluation.serving.promotion_log import Move, PromotionLog
from capibara_assets.lineage import unneeded
from capibara_assets.lineage.store_head import head_of, rolled_back
from capibara_assets.resources import Recipes
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.checkpointed import Checkpointed
from capibara_assets_tests.published import Published, adapter_folder

SQL = Domain.SQL


def cleaned(published: Published, result_days: float | None = 0.0) -> list[str]:
    """What the job removes of results and imports, as `asset[partition] digest`."""
    resources = {"store": published.store, "recipes": Recipes(profile="demo")}
    job = dg.Definitions(jobs=[clean_up], resources=resources).resolve_job_def("clean_up")
    config = {"ops": {"remove_unneeded": {"config": {"result_days": result_days}}}}
    result = job.execute_in_process(instance=published.instance, run_config=config)
    (output,) = [event for event in result.all_node_events if event.is_successful_output]
    metadata = output.step_output_data.metadata
    return [name for what in ("results", "imports") if what in metadata for name in metadata[what].value["removed"]]


def named(*artifacts: Artifact) -> list[str]:
    return sorted(f"{one.name}{f'[{one.partition}]' if one.partition else ''} {one.digest[:12]}" for one in artifacts)


def test_the_newest_and_what_it_was_made_from_stay(published: Published) -> None:
    logs = [published.put("e2b_logs", documents={"edition": i}) for i in range(4)]
    made = [
        published.put("e2b_executions", SQL, documents={"of": i}, upstream={"e2b_logs|_": logs[i].digest})
        for i in (0, 1)
    ]
    head = head_of(published.store.open())
    assert cleaned(published, result_days=1.0) == cleaned(published, result_days=None) == []
    assert sorted(cleaned(published)) == named(logs[0], logs[2], made[0])
    store = published.store.open()
    assert {one.digest for one in store.list("e2b_logs")} == {logs[1].digest, logs[3].digest}
    assert rolled_back(store, head) == [], "a store without its old results is no older store"
    assert cleaned(published) == []


def test_what_served_once_stays_with_all_behind_it(published: Published) -> None:
    data = [published.put("moe_dataset", SQL, documents={"edition": i}) for i in range(3)]
    adapters = [
        published.put("consensus_checkpoint", SQL, documents={"of": i}, upstream={"moe_dataset|sql": data[i].digest})
        for i in range(3)
    ]
    log = PromotionLog(published.store.open())
    for adapter in adapters[1:]:

        def serve(before: dict | None, _: list[Move], digest: str = adapter.digest) -> tuple[dict, str]:
            return promote_manually(before, "sql", digest, "why"), "why"

        log.move("promote", serve, by="me")
    assert sorted(cleaned(published)) == named(data[0], adapters[0])


def test_a_run_that_has_not_ended_keeps_what_it_may_have_looked_up(published: Published) -> None:
    first = published.put("e2b_logs", documents={"edition": 1})
    run = published.instance.create_run_for_job(clean_up, status=dg.DagsterRunStatus.STARTED)
    time.sleep(0.01)
    published.put("e2b_logs", documents={"edition": 2})
    assert cleaned(published) == []
    published.instance.delete_run(run.run_id)
    assert cleaned(published) == named(first)


def test_what_imports_were_used_for_stays_with_them(published: Published) -> None:
    imports = [published.put("imported_examples", SQL, documents={"edition": i}) for i in range(2)]
    source = {"imported_examples|sql": imports[0].digest}
    used = published.put("moe_dataset", SQL, documents={"of": 0}, upstream=source)
    published.put("moe_dataset", SQL, documents={"of": 1}, upstream={"imported_examples|sql": imports[1].digest})
    assert cleaned(published, result_days=1.0) == []
    assert sorted(cleaned(published)) == named(imports[0], used)


def test_inputs_are_those_of_the_last_time_that_a_result_was_made(published: Published) -> None:
    """The same content again keeps its first manifest."""
    logs = []
    for edition in range(3):
        logs.append(published.put("e2b_logs", documents={"edition": edition}))
        if edition < 2:
            upstream = {"e2b_logs|_": logs[-1].digest}
            made = published.put("e2b_executions", SQL, documents={"same": 1}, upstream=upstream)
    assert made.manifest.inputs["upstream"] == {"e2b_logs|_": logs[0].digest}
    assert cleaned(published) == [], "the manifest names the first, the materialization the second"


def test_what_serves_since_before_there_was_a_history_stays(published: Published) -> None:
    old, _ = (published.put("consensus_checkpoint", SQL, documents={"edition": i}) for i in range(2))
    promotion = promote_manually(None, "sql", old.digest, "why")
    published.put("promoted_model", documents={"promotion": promotion})
    assert cleaned(published) == []


def test_what_a_checkpoint_was_trained_on_stays_as_long_as_it(published: Published) -> None:
    """`forget` finds the checkpoint by it."""
    dataset = published.put("moe_dataset", SQL, documents={"edition": 0})
    published.put("moe_dataset", SQL, documents={"edition": 1})
    store = published.store.open()
    checkpoints = checkpoints_of(store)
    weights = {"w": torch.zeros(2, 2)}
    kept = checkpoints.save(weights, 1, "sql/voter-0", dataset_digest=dataset.digest)
    assert cleaned(published) == []
    checkpoints.retire([kept])
    assert cleaned(published) == named(dataset)


def test_checkpoints_of_a_result_that_came_again_stay(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(seed: int) -> Artifact:
        folder = tmp_path / f"voters-{seed}"
        if not folder.exists():
            adapter_folder(folder / "v", seed=seed)
        about = {"model": "sql/v", "step": seed, "parent": None, "base_digest": None, "dataset_digest": None,
                 "recipe": {}, "metrics": {}, "tags": [], "code_version": "0", "sources": {}, "run": None}  # fmt: skip
        described = {"voters/v": Checkpointed(about, ())}
        return published.put("trained_adapters", SQL, trees={"voters": folder}, checkpoints=described)

    first = put(0)
    for seed in range(1, 6):
        put(seed)
    decided = unneeded.decide

    def decide_slowly(*arguments: Any, **named: Any) -> Any:
        decisions = decided(*arguments, **named)
        put(0)
        return decisions

    monkeypatch.setattr(unneeded, "decide", decide_slowly)
    assert len(cleaned(published)) == 5
    published.store.open().open("trained_adapters", SQL, first.digest).verify()


def test_what_a_removal_that_was_killed_left_goes(published: Published) -> None:
    first, _ = (published.put("e2b_logs", documents={"edition": i}) for i in range(2))
    folder = Path(first.path.path)
    (folder / "manifest.json").unlink()
    assert cleaned(published) == [] and not folder.exists()


def test_a_result_that_comes_again_while_others_are_removed_is_there_whole(published: Published) -> None:
    """Two contents take turns as the latest, while whatever is not is removed, and a third process lists."""
    store, over, failed = published.store.open(), threading.Event(), []

    def work(one: Callable[[], object]) -> None:
        while not over.is_set():
            try:
                one()
            except Exception as error:  # noqa: BLE001 - raised below
                failed.append(error)

    def remove() -> None:
        with store.locked(LOCK_EX):
            latest = store.latest_digest("e2b_logs", None)
            unneeded.discard(store, unneeded.unused(store, [("e2b_logs", None, str(latest))]))

    threads = [threading.Thread(target=work, args=(one,)) for one in (remove, lambda: store.list("e2b_logs"))]
    for thread in threads:
        thread.start()
    try:
        for turn in range(200):
            artifact = store.publish("e2b_logs", None, documents={"edition": turn % 2})
            assert store.latest_digest("e2b_logs", None) == artifact.digest
            artifact.verify()
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failed
