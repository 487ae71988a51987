"""What `capibara dataset export --storage` writes is what every trainer of a TPU plan reads, validation included."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from capibara_assets.planning.writers.jax_config import read_jax_config
from capibara_assets.training.jax.__main__ import main
from capibara_assets_tests.home import MadeHome, command_here

# SeqIO and TensorFlow as far as the tasks of T5X need them: the data source is called for each split.
STUBS = """
import importlib.util, json, os, sys, types
rows = {}
tf = types.ModuleType("tensorflow")
tf.TensorSpec = lambda *a: None
tf.string = None
tf.io = types.SimpleNamespace(gfile=types.SimpleNamespace(GFile=lambda path: open(path, encoding="utf-8")))
tf.data = types.SimpleNamespace()
seqio = types.ModuleType("seqio")
seqio.SentencePieceVocabulary = seqio.Feature = lambda *a, **k: None
seqio.preprocessors = types.SimpleNamespace(tokenize=None, append_eos_after_trim=None)
seqio.FunctionDataSource = lambda function, splits: (function, splits)
seqio.TaskRegistry = types.SimpleNamespace(add=lambda name, source, **rest: rows.update({name: source}))
tf.data.Dataset = type("Dataset", (), {"from_generator": staticmethod(lambda read, output_signature: list(read()))})
sys.modules |= {"tensorflow": tf, "seqio": seqio}
spec = importlib.util.spec_from_file_location("capibara_tasks", sys.argv[1])
tasks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tasks)
function, splits = rows["capibara_python"]
print(json.dumps({split: len(function(split)) for split in splits}))
"""


class Planned(NamedTuple):
    """A storage root with an export of `python`, a plan's files, the base that it is for, and examples by split."""

    root: Path
    files: Path
    base: Path
    examples: dict[str, int]


@pytest.fixture(scope="module")
def planned(shared_home: MadeHome, tmp_path_factory: pytest.TempPathFactory) -> Planned:
    folder = tmp_path_factory.mktemp("layout")
    root = folder / "storage"
    recipe = yaml.safe_load((shared_home.folder / "recipes" / "planning.yaml").read_text())
    recipe["tpu"]["storage_root"] = str(root)
    (folder / "planning.yaml").write_text(yaml.safe_dump(recipe))
    told = command_here(shared_home.environment, "dataset", "export", "python", "--storage", str(root), "--json")
    base = shared_home.folder / "base_model"
    wanted = ("--model", str(base), "--hardware", "tpu-v5e-8", "--recipe", str(folder / "planning.yaml"))
    command_here(shared_home.environment, "plan", *wanted, "--examples", "40", "--out", str(folder / "plan"))
    return Planned(root, folder / "plan", base, json.loads(told)["examples"])


def test_every_trainer_finds_the_exported_examples(planned: Planned) -> None:
    root, files, _, examples = planned
    jax, maxtext = read_jax_config(files / "jax.yaml"), yaml.safe_load((files / "maxtext.yml").read_text())
    assert jax.validation is not None
    for split, theirs in (("train", maxtext["hf_train_files"]), ("validation", maxtext["hf_eval_files"])):
        ours = {"train": jax.data, "validation": jax.validation}[split]
        assert ours == theirs
        assert len(Path(ours).read_text().splitlines()) == examples[split] > 0
    run = (files / "run.sh").read_text()
    tasks = [sys.executable, "-c", STUBS, str(files / "capibara_tasks.py")]
    assert f"CAPIBARA_DATA={root}" in run
    environment = {**os.environ, "CAPIBARA_DATA": str(root)}
    read = subprocess.run(tasks, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(read.stdout) == {split: examples[split] for split in ("train", "validation")}


@pytest.mark.extended  # in `make test`: the test above, and training/jax/test_trainer.py
def test_the_jax_trainer_validates_on_the_exported_validation(
    planned: Planned, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jax")
    root, files, folder, _ = planned
    written = yaml.safe_load((files / "jax.yaml").read_text())
    base = Path(written["base"])
    base.parent.mkdir()
    base.symlink_to(folder)
    small = {"mesh": {"data": 1, "fsdp": 1, "tensor": 1}, "sequences": 2, "sequence": 512, "logit_chunks": 1}
    short = {"steps": 2, "evaluate_every": 1, "save_every": 2, "packing": False, "compute_dtype": "float32"}
    schedule = {"schedule": {"peak": 0.01, "kind": "constant"}, "xla_flags": [], "remat": "none"}
    (files / "short.yaml").write_text(yaml.safe_dump(written | small | short | schedule))
    assert main([str(files / "short.yaml")]) == 0
    result = json.loads((root / "python" / "jax" / "result.json").read_text())
    assert result["validation_loss"] < result["base_validation_loss"]
    lines = [json.loads(line) for line in (root / "python" / "jax" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "validation_loss" in line] == [0, 1, 2]
    assert result["measured"]["compile_seconds"] > 0 and result["measured"]["share_of_peak"] is None
    validation = Path(written["validation"])
    aside = validation.rename(validation.with_name("aside"))
    assert main([str(files / "short.yaml")]) == 2 and "capibara dataset export" in capsys.readouterr().err
    aside.rename(validation)  # the other test reads it, in whatever order they run
