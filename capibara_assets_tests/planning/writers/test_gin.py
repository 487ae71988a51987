"""gin files: what T5X needs is in them, and a mistyped name does not pass."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.planning.accounting import Remat
from capibara_assets.planning.models import read_shape
from capibara_assets.planning.recipe import PlanningRecipe
from capibara_assets.planning.writers.gin import T5xRun, check_gin, render_gin, size_of, t5x_names
from capibara_assets_tests.planning.shapes import NANO


def run(size: str = "large", remat: Remat = Remat.NONE) -> T5xRun:
    return T5xRun(
        domain="sql",
        shape=read_shape(f"t5_1_1-{size}"),
        submesh=(2, 1, 1, 1),
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
        "partitioning.PjitPartitioner.model_parallel_submesh = (2, 1, 1, 1)",
        "partitioning.PjitPartitioner.num_partitions = None",
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


@pytest.mark.parametrize(
    ("size", "submesh", "message"),
    [
        ("small", (2, 2, 1, 1), "model axis of 4 chips (2, 2, 1, 1) does not divide heads 6"),
        ("base", (8, 1, 1, 1), "does not divide heads 12"),
        ("xxl", (8, 16, 1, 1), "does not divide heads 64"),
    ],
)
def test_a_model_axis_that_does_not_divide_is_refused(
    size: str, submesh: tuple[int, int, int, int], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        render_gin(run(size)._replace(submesh=submesh))
    assert message in str(refused.value)


REAL = """
import sys
import gin
from t5x.train import train
gin.configurable(train)
for folder in sys.argv[2:]:
    gin.add_config_file_search_path(folder)
    sys.path.append(folder)
gin.parse_config_file(sys.argv[1], skip_unknown=False)
gin.finalize()
assert gin.query_parameter("TRAIN_STEPS/macro.value") == 1_000_400
assert gin.query_parameter("DROPOUT_RATE/macro.value") == 0.1
print("finalized")
"""


@pytest.mark.parametrize("remat", [Remat.NONE, Remat.FULL])
def test_the_real_t5x_finalizes_it(remat: Remat, tmp_path: Path) -> None:
    pytest.importorskip("t5x", reason="T5X is no package of PyPI: docs/planning.md says how to install it")
    from capibara_assets.deployment.locations import resources_root

    checkout = Path(str(find_spec("t5x").submodule_search_locations[0])).parent  # type: ignore[union-attr,index]
    right, wrong = tmp_path / "right.gin", tmp_path / "wrong.gin"
    right.write_text(render_gin(run(remat=remat)))
    wrong.write_text(right.read_text().replace("model_parallel_submesh", "model_paralel_submesh"))
    folders = [str(checkout), str(resources_root() / "gin")]

    def parsed(file: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", REAL, str(file), *folders]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = parsed(right)
    assert done.stdout.endswith("finalized\n"), done.stderr[-3000:]
    refused = parsed(wrong)
    assert refused.returncode != 0 and "model_paralel_submesh" in refused.stderr


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
    from benchmarks.planning.t5x_names import table

    assert table(Path(checkout))["configurables"] == t5x_names()["configurables"]


def test_the_seqio_module_is_python_and_registers_the_task_of_the_gin_file() -> None:
    from capibara_assets.deployment.locations import resources_root
    from capibara_assets.domains import DOMAINS

    source = (resources_root() / "gin" / "capibara_tasks.py").read_text()
    compile(source, "capibara_tasks.py", "exec")
    for domain in DOMAINS:
        assert f'"{domain}"' in source
