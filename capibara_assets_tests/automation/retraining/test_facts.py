"""What is known of trainings: counted in real datasets, read from a real history."""

import shutil
import time
from dataclasses import replace

import dagster as dg

from capibara_assets.automation.retraining.facts import attempts_since, facts_of
from capibara_assets.automation.retraining.rules import Facts, TrainingAttempt
from capibara_assets.datasets.schema import Example
from capibara_assets.deployment.environment import Deployment
from capibara_assets.deployment.file import Choice, DomainHardware
from capibara_assets.domains import Domain
from capibara_assets.partitions import domains
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.records import table
from capibara_assets_tests.lineage.conftest import example
from capibara_assets_tests.published import Published

PYTHON = Domain.PYTHON


def dataset(published: Published, *names: str, split: str = "train") -> Artifact:
    """A dataset of python with these examples, and one to validate on."""
    rows = [example(name, f"g-{name}", split, [f"e-{name}"]) for name in names]
    rows.append(example("v", "g-v", "validation", ["e-v"]))
    return published.put("moe_dataset", PYTHON, tables={"examples": (Example, table(Example, rows))})


def train(published: Published, made_of: Artifact) -> None:
    published.put(
        "trained_adapters",
        PYTHON,
        documents={"summary": made_of.digest},
        upstream={"moe_dataset|python": made_of.digest},
    )


def facts(published: Published, attempts: tuple[TrainingAttempt, ...] = ()) -> Facts:
    deployment = Deployment.from_environment(
        {"CAPIBARA_STORE": published.store.root, "CAPIBARA_WORK": published.store.work}
    )
    return facts_of(published.instance, deployment, PYTHON, attempts)


def test_new_are_the_train_examples_that_were_not_trained_on(published: Published):
    assert not facts(published).pending, "nothing to train on"
    first = dataset(published, "a", "b")
    assert facts(published).pending and facts(published).new == 2
    train(published, first)
    assert not facts(published).pending and facts(published).new is None
    dataset(published, "b", "c", "d", "e")
    known = facts(published)
    assert known.pending and known.new == 3 and known.last_end is not None
    dataset(published, "a", "b", "w", split="test")
    assert facts(published).new == 0, "what is tested on teaches nothing"


def test_of_a_dataset_that_is_gone_all_are_new(published: Published):
    train(published, first := dataset(published, "a", "b"))
    dataset(published, "a", "b", "c")
    shutil.rmtree(first.path)
    assert facts(published).new == 3


def test_another_plan_is_a_reason_to_train_without_new_examples(published: Published):
    plan = published.put("lora_config", PYTHON, documents={"plan": 1})
    made_of = {"moe_dataset|python": dataset(published, "a").digest, "lora_config|python": plan.digest}
    published.put("trained_adapters", PYTHON, documents={"summary": 1}, upstream=made_of)
    assert not facts(published).pending
    published.put("lora_config", PYTHON, documents={"plan": 2})
    assert facts(published).pending and facts(published).new is None


FAILING: set[str] = set()


@dg.asset(partitions_def=domains)
def trained_adapters(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    if context.partition_key in FAILING:
        raise dg.Failure("no")
    return dg.MaterializeResult()


def test_every_training_counts_also_one_that_failed_or_has_not_begun(published: Published):
    """The dearest target of each domain tells what it cost."""
    FAILING.add("sql")
    began = time.time()
    for domain in ("python", "sql"):
        dg.materialize([trained_adapters], partition_key=domain, instance=published.instance, raise_on_error=False)
    going = dg.Definitions([trained_adapters]).resolve_implicit_global_asset_job_def()
    published.instance.create_run_for_job(
        going,
        asset_selection={trained_adapters.key},
        status=dg.DagsterRunStatus.STARTED,
        tags={"dagster/partition": "ml"},
    )
    targets = (Choice(target="cpu-laptop", usd_per_hour=1), Choice(target="cpu-laptop", usd_per_hour=3))
    deployment = replace(Deployment.from_environment({}), hardware=DomainHardware(targets=targets))
    found = attempts_since(published.instance, deployment, began - 1)
    assert {one.domain: one.ended is None for one in found} == {"python": False, "sql": False, "ml": True}
    assert all(began <= one.began <= (one.ended or time.time()) for one in found)
    assert {one.usd_per_hour for one in found} == {3.0}
    assert attempts_since(published.instance, deployment, time.time() + 1) == ()


def test_a_training_that_failed_on_the_present_data_is_known(published: Published):
    dataset(published, "a")
    now = time.time()
    failed = TrainingAttempt(PYTHON, "r", now + 1, now + 2, None)
    assert facts(published, (failed,)).failed_at == now + 2
    train(published, dataset(published, "a"))
    assert facts(published, (replace(failed, began=now - 9, ended=now - 8),)).failed_at is None
    assert facts(published, (replace(failed, ended=None),)).running == now + 1
