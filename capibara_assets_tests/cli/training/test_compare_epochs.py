"""`capibara compare-epochs` after a real training, and on the checkpoints of a store."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from capibara_assets.checkpoints.formats import FORMATS
from capibara_assets.checkpoints.store.manifest import About
from capibara_assets.checkpoints.store.opening import open_store
from capibara_assets.cli.training.compare_epochs import compare_epochs
from capibara_assets.cli.training.train import train
from capibara_assets.errors import InputError
from capibara_assets.modeling.files import base_digest
from capibara_assets.training.standalone.output_folder import read_info
from capibara_assets_tests.modeling.tiny import save_tiny

QUICK = (
    "--learning-rate", "0.01", "--lora-r", "2", "--lora-alpha", "4", "--max-length", "128", "--global-batch", "6",
    "--precision", "fp32", "--set", "hardware.threads=1", "--epochs", "3",
)  # fmt: skip


def invoke(command: Any, *arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "tiny", tokenizer_of=nano)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "data.jsonl"
    words = ["lamp", "river", "copper", "anchor", "velvet", "thunder", "marble", "saffron", "pilot", "orchard"]
    rows = [{"prompt": f"Say {words[n % 10]} {n}.", "completion": f"{n} {words[n % 10]}"} for n in range(60)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(scope="module")
def output(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    held = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    folder = tmp_path_factory.mktemp("trained") / "out"
    invoke(train, "--base-model", base, "--data", data, "--output", folder, *QUICK)
    for number, handler in held.items():
        signal.signal(number, handler)
    yield folder


def test_the_epochs_of_a_training_on_its_own_validation(output: Path, tmp_path: Path) -> None:
    page = tmp_path / "epochs.html"
    document = json.loads(
        invoke(compare_epochs, output, "--json", "--answers", 2, "--output", page, "--resamples", 500)
    )
    (found,) = document["voters"].values()
    rows = found["rows"]
    assert [row["name"] for row in rows] == ["0", "1", "2", "3"] and rows[0]["step"] == 0
    info = read_info(output)
    assert rows[0]["loss"]["estimate"] == pytest.approx(info["base_validation_loss"], abs=1e-4)
    assert min(row["loss"]["estimate"] for row in rows) <= info["validation_loss"] + 1e-4
    assert found["examples"] == info["validation_examples"] and rows[1]["train_loss"] is not None
    assert found["keep"] == min(rows, key=lambda row: row["loss"]["estimate"])["name"]
    assert list(found["answers"]) == ["python-1", "python-2"] and len(found["answers"]["python-1"]) == 4
    written = page.read_text()
    assert "<svg" in written and found["verdict"] in written
    assert not any(outside in written for outside in ("src=", "href=", "<script", "@import"))


def test_a_table_and_a_curve_on_other_examples_also_of_a_folder_that_was_copied(
    output: Path, base: Path, data: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(output, copied, ignore=shutil.ignore_patterns(".capibara"))
    with pytest.raises(InputError, match="give --base and --data"):
        invoke(compare_epochs, copied)
    curve = tmp_path / "curve.svg"
    said = invoke(compare_epochs, copied, "--base", base, "--data", data, "--output", curve, "--resamples", 500)
    assert "keep epoch 3" in said and " *" in said and "no over-fitting on these 60 examples" in said
    assert curve.read_text().startswith("<svg")
    with pytest.raises(InputError, match=r"ends in \.svg or \.html"):
        invoke(compare_epochs, copied, "--output", tmp_path / "curve.png")


def test_an_epoch_that_was_spoilt_is_named(output: Path, data: Path, base: Path, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(output, copied)
    file = copied / "checkpoint-epoch-3" / "adapter_model.safetensors"
    torch.manual_seed(0)
    save_file({name: value + 0.5 * torch.randn_like(value) for name, value in load_file(file).items()}, file)
    said = invoke(compare_epochs, copied, "--data", data, "--resamples", 500)
    assert "over-fitting: since then the training loss fell" in said


def test_another_base_is_refused(output: Path, nano: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="were trained on the base"):
        invoke(compare_epochs, output, "--base", nano)
    with pytest.raises(InputError, match="no epochs in"):
        invoke(compare_epochs, tmp_path)
    with pytest.raises(InputError, match="no voter 'x'"):
        invoke(compare_epochs, output, "--voter", "x")


def test_the_checkpoints_of_a_store_by_their_steps(output: Path, base: Path, data: Path, tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", work=tmp_path / "work")
    for epoch in (1, 2):
        store.write(
            FORMATS["huggingface"].read(output / f"checkpoint-epoch-{epoch}"),
            About(
                model="sql/voter-0", step=epoch * 9, code_version="1", base_digest=base_digest(base),
                dataset_digest="0" * 64,
            ),
        )  # fmt: skip
    words = ("sql/voter-0", "--store", tmp_path / "store", "--resamples", 500)
    found = json.loads(invoke(compare_epochs, *words, "--base", base, "--data", data, "--json"))
    (rows,) = [one["rows"] for one in found["voters"].values()]
    assert [row["name"] for row in rows] == ["0", "step 9", "step 18"]
    with pytest.raises(InputError, match="give some with --data"):
        invoke(compare_epochs, *words, "--base", base)
    with pytest.raises(InputError, match="no checkpoint sql/voter-9"):
        invoke(compare_epochs, "sql/voter-9", "--store", tmp_path / "store")
