"""Results that a newer one has replaced go at night; what anything in use or ever served was made from stays."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from capibara_assets.automation.clean_up import clean_up
from capibara_assets.domains import Domain
from capibara_assets.evaluation.serving.promotion import promote_manually
from capibara_assets.evaluation.serving.promotion_log import Move, PromotionLog
from capibara_assets.lineage.store_head import head_of, rolled_back
from capibara_assets.resources import Recipes
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.removal import discard_superseded
from capibara_assets_tests.published import Published

SQL = Domain.SQL


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Published]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Published.afresh(instance, tmp_path)


def cleaned(published: Published, result_days: float | None = 0.0) -> list[str]:
    """What the job removes of results, as `asset[partition] digest`."""
    resources = {"store": published.store, "recipes": Recipes(profile="demo")}
    job = dg.Definitions(jobs=[clean_up], resources=resources).resolve_job_def("clean_up")
    config = {"ops": {"remove_unneeded": {"config": {"result_days": result_days, "imports": False}}}}
    result = job.execute_in_process(instance=published.instance, run_config=config)
    (output,) = [event for event in result.all_node_events if event.is_successful_output]
    metadata = output.step_output_data.metadata
    return list(metadata["results"].value["removed"]) if "results" in metadata else []


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


def test_a_result_that_comes_again_while_it_is_removed_is_there_whole(published: Published) -> None:
    """Two contents take turns as the latest, while whatever was replaced is discarded."""
    store, over = published.store.open(), threading.Event()

    def discard() -> None:
        while not over.is_set():
            for one in store.root.glob("artifacts/e2b_logs/_/*/manifest.json"):
                discard_superseded(store, "e2b_logs", None, one.parent.name)

    thread = threading.Thread(target=discard)
    thread.start()
    try:
        for turn in range(200):
            artifact = store.publish("e2b_logs", None, documents={"edition": turn % 2})
            assert store.latest_digest("e2b_logs", None) == artifact.digest
            artifact.verify()
    finally:
        over.set()
        thread.join()
