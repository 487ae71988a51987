"""gin files: what T5X needs is in them, and a mistyped name does not pass."""

import os
from pathlib import Path

import pytest

from capibara_assets.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Remat
from capibara_assets.planning.gin import T5xRun, check_gin, render_gin, size_of, t5x_names
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets_tests.planning.shapes import NANO


def run(size: str = "large", remat: Remat = Remat.NONE) -> T5xRun:
    return T5xRun(
        domain="sql",
        shape=read_shape(f"t5_1_1-{size}"),
        submesh=(2, 2, 1, 1),
        shard_parameters=True,
        input_length=512,
        target_length=256,
        steps=400,
        global_batch=128,
        remat=remat,
        recipe=shipped_recipe("planning", PlanningRecipe).tpu,
    )


@pytest.mark.parametrize("size", ["small", "base", "large", "xl", "xxl"])
@pytest.mark.parametrize("remat", list(Remat))
def test_every_size_and_policy_fits_t5x(size: str, remat: Remat) -> None:
    check_gin(render_gin(run(size, remat)))


def test_the_traps_are_avoided() -> None:
    lines = render_gin(run()).splitlines()
    includes = [line for line in lines if line.startswith("include")]
    # The model comes first: included after the run it would reset DROPOUT_RATE to "required".
    assert includes == ["include 't5x/examples/t5/t5_1_1/large.gin'", "include 't5x/configs/runs/finetune.gin'"]
    for expected in (
        "TRAIN_STEPS = 1_000_400",
        "LOSS_NORMALIZING_FACTOR = 233472",
        "DROPOUT_RATE = 0.1",
        "USE_CACHED_TASKS = False",
        'MIXTURE_OR_TASK_NAME = "capibara_sql"',
        'TASK_FEATURE_LENGTHS = {"inputs": 512, "targets": 256}',
        "partitioning.PjitPartitioner.model_parallel_submesh = (2, 2, 1, 1)",
        "partitioning.standard_logical_axis_rules.parameter_partitioning_dims = 2",
    ):
        assert expected in lines
    assert not any("pipeline" in line or "remat" in line for line in lines)


def test_recomputation_needs_the_scanned_network() -> None:
    text = render_gin(run(remat=Remat.FULL))
    assert "include 't5x/examples/scalable_t5/t5_1_1/large.gin'" in text
    assert "network.T5Config.remat_policy = 'full'" in text
    assert "convert the public one first" in text


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (
            "PjitPartitioner.model_parallel_submesh",
            "PjitPartitioner.model_paralel_submesh",
            "did you mean 'model_parallel_submesh'",
        ),
        ("PjitPartitioner.model", "PjitPartitoner.model", "did you mean 't5x.partitioning.PjitPartitioner'"),
        ("trainer.Trainer.num_microbatches", "trainer.Trainer.microbatches", "no parameter 'microbatches'"),
        ("DROPOUT_RATE", "DROPUOT_RATE", "did you mean 'DROPOUT_RATE'"),
        ("from t5x import trainer\n", "", "'trainer' is not imported"),
        ("runs/finetune.gin", "runs/finetuning.gin", "did you mean 't5x/configs/runs/finetune.gin'"),
        ('MODEL_DIR = "', '# "', "requires MODEL_DIR, which nothing sets"),
        ("BATCH_SIZE = 128", "BATCH_SIZE = = 128", "gin file:"),
        (
            "BATCH_SIZE = 128",
            "partitioning.PjitPartitioner.pipeline_parallelism = 2",
            "no parameter 'pipeline_parallelism'",
        ),
    ],
)
def test_a_mistyped_file_does_not_pass(right: str, wrong: str, message: str) -> None:
    text = render_gin(run())
    assert right in text
    with pytest.raises(InputError) as refused:
        check_gin(text.replace(right, wrong, 1))
    assert message in str(refused.value)


def test_only_t5_sizes_have_gin_files() -> None:
    assert size_of(read_shape("t5_1_1-xl").model_copy(update={"name": "flan-t5-xl"})) == "xl"
    assert size_of(NANO) is None
    with pytest.raises(InputError, match=r"T5 1\.1 sizes"):
        render_gin(run()._replace(shape=NANO))


def test_the_table_names_source_and_commit() -> None:
    names = t5x_names()
    assert names["source"] == "google-research/t5x"
    assert len(names["commit"]) == 40
    assert "num_partitions" in names["configurables"]["t5x.partitioning.PjitPartitioner"]


def test_the_table_is_what_the_source_says() -> None:
    checkout = os.environ.get("CAPIBARA_T5X")
    if not checkout:
        pytest.skip("set CAPIBARA_T5X to a git checkout of google-research/t5x to compare the table with its source")
    from capibara_assets.planning.t5x_table import table

    assert table(Path(checkout))["configurables"] == t5x_names()["configurables"]


def test_the_seqio_module_is_python_and_registers_the_task_of_the_gin_file() -> None:
    from capibara_assets.domains import DOMAINS
    from capibara_assets.locations import resources_root

    source = (resources_root() / "gin" / "capibara_tasks.py").read_text()
    compile(source, "capibara_tasks.py", "exec")
    for domain in DOMAINS:
        assert f'"{domain}"' in source
