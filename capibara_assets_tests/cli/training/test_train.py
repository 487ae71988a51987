"""`capibara train` and `capibara epochs` with real processes on a tiny model: outputs, the same again, new starts."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from capibara_assets.cli.main import cli
from capibara_assets.cli.training.epochs import epochs
from capibara_assets.cli.training.train import train
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.modeling.base import load_base
from capibara_assets.storage.digests import sha256_file
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.standalone import output_folder as outputs
from capibara_assets.training.standalone.output_folder import read_info, verify_output
from capibara_assets_tests.modeling.tiny import save_tiny

HELP = Path(__file__).with_name("train_help.txt")
QUICK = (
    "--learning-rate", "0.01", "--lora-r", "2", "--lora-alpha", "4", "--max-length", "128", "--global-batch", "6",
    "--precision", "fp32", "--set", "hardware.threads=1", "--set", "training.evaluate_every=4", "--set",
    "checkpoint.every=3", "--set", "report.every=1", "--set", "checkpoint.restart_delay_s=0",
)  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "tiny", tokenizer_of=nano)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "data.jsonl"
    words = ["lamp", "river", "copper", "anchor", "velvet", "thunder", "marble", "saffron", "pilot", "orchard"]
    rows = [
        {
            "prompt": f"Say {words[n % 10]} and {words[n // 10]} {n}.",
            "completion": f"{words[n // 10]} {n} {words[n % 10]}",
        }
        for n in range(60)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A training takes over the signals of its process, which here is the test's."""
    held = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in held.items():
        signal.signal(number, handler)


def invoke(command: Any, *arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_the_help_is_as_it_was_agreed() -> None:
    """Another help is another interface: `python -m capibara_assets_tests.cli.training.test_train` writes it down."""
    assert shown_help() == HELP.read_text()


def shown_help() -> str:
    """As a user sees it: `capibara` adds options to each command that it loads."""
    shown = CliRunner().invoke(cli, ["train", "--help"], prog_name="capibara", terminal_width=110).output
    return shown.replace("-h, --help", "--help    ")  # click keeps the names of who asked first, `capibara` or a test


def test_a_run_leaves_all_that_is_promised_and_the_same_again_does_nothing(
    base: Path, data: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    command = ("--base-model", base, "--data", data, "--output", output, "--epochs", "2", *QUICK)
    said = invoke(train, *command)
    assert "60 validate" not in said and re.search(r"\d+ examples train, \d+ validate in \d+ groups held back", said)
    assert re.search(r"2 epochs, \d+ optimizer steps of \d+ micro-steps", said)
    assert "verified: adapter_model.safetensors" in said

    info = read_info(output)
    assert info["epochs"] == 2 and info["examples"] + info["validation_examples"] == 60 and info["minutes"] > 0
    assert info["trainable_parameters"] == 2 * 2 * (4 * (32 + 32) + 3 * (32 + 64)) and info["status"] == "finished"
    assert info["started_from"] is None and info["steps"] == info["steps_planned"]
    there = {path.name for path in output.iterdir()}
    assert {
        "adapter_config.json", "adapter_model.safetensors", "training_info.json", "epoch_info.json", "events.jsonl",
        "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "checkpoint-epoch-1", "checkpoint-epoch-2",
        f"checkpoint-{info['steps']}", "curve.json", "manifest.json",
    } <= there  # fmt: skip
    assert "result" not in there
    for path in (output, *output.glob("checkpoint-*")):
        model = PeftModel.from_pretrained(load_base(base).model, path)
        assert sum(value.numel() for name, value in model.named_parameters() if "lora_" in name) > 0
    assert AutoTokenizer.from_pretrained(output).chat_template

    # The same again trains nothing; the folder is verified each time.
    before = {path: path.stat().st_mtime_ns for path in output.iterdir() if path.is_file()}
    assert "was finished before, from the same inputs" in invoke(train, *command)
    assert {path: path.stat().st_mtime_ns for path in before} == before

    # What each epoch came to; also of a folder that has moved.
    table = invoke(epochs, output)
    assert len(table.splitlines()) == 3 and "checkpoint-epoch-2" in table
    moved = Path(shutil.copytree(output, tmp_path / "moved"))
    (found,) = json.loads(invoke(epochs, moved, "--json")).values()
    assert [row["epoch"] for row in found] == [1, 2] and all(row["there"] for row in found)
    assert found[0]["checkpoint_path"] == str(moved / "checkpoint-epoch-1")

    # A start from the first epoch: what came after it is set aside, and said.
    said = invoke(train, *command, "--from-epoch", "1")
    aside = output / "replaced-1"
    assert f"results after epoch 1 were moved to {aside}" in said
    assert read_info(aside)["started_from"] is None and (aside / "checkpoint-epoch-2").is_dir()
    info = read_info(output)
    first = sha256_file(output / "checkpoint-epoch-1" / "adapter_model.safetensors")
    assert info["started_from"] == {"epoch": 1, "digest": first} and info["epochs"] == 2
    assert [row["epoch"] for row in json.loads((output / "epoch_info.json").read_text())] == [1, 2]
    assert "was finished before" in invoke(train, *command, "--from-epoch", "1")

    # Another recipe in the same folder is refused by name; the folder stays as it is.
    assert "was made from another" in invoke(train, *command, "--seed", "7", code=2)
    assert verify_output(output)


def test_what_was_damaged_is_found(base: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    invoke(
        train,
        "--model",
        base,
        "--data",
        data,
        "--val",
        data_of_its_own(tmp_path),
        "--output",
        output,
        "--epochs",
        "1",
        *QUICK,
    )
    assert verify_output(output)[0] == "."

    def damaged(change: Any, said: str) -> None:
        copy = Path(shutil.copytree(output, tmp_path / "copy"))
        change(copy)
        with pytest.raises(IntegrityError, match=said):
            verify_output(copy)
        shutil.rmtree(copy)

    def shorten(folder: Path) -> None:
        file = folder / "checkpoint-epoch-1" / "adapter_model.safetensors"
        file.write_bytes(file.read_bytes()[:-1])

    damaged(shorten, "checkpoint-epoch-1 is no adapter that loads")
    damaged(lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing")
    damaged(lambda folder: (folder / "adapter_config.json").write_text("{}"), "is not as it was written")
    damaged(lambda folder: shutil.rmtree(folder / "checkpoint-epoch-1"), "lists other epochs than there are folders")
    damaged(lambda folder: (folder / "events.jsonl").unlink(), "events.jsonl is missing")


def data_of_its_own(folder: Path) -> Path:
    file = folder / "val.jsonl"
    rows = [{"instruction": f"Count to {n} in a row.", "output": " ".join(map(str, range(n)))} for n in range(6, 12)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_killed_while_the_output_is_put_in_place_the_same_again_puts_it_there(
    base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("--model", base, "--data", data, "--output", tmp_path / "out", "--epochs", "1", *QUICK)

    def killed(*_arguments: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(outputs, "write_json_atomic", killed)  # the adapter has moved, its description has not
        with pytest.raises(RuntimeError, match="killed"):
            CliRunner().invoke(train, [str(argument) for argument in command], catch_exceptions=False)
    assert not (tmp_path / "out" / "training_info.json").exists()
    assert "nano_cpu/voter was finished before" in invoke(train, *command)
    assert verify_output(tmp_path / "out")


def test_ranks_that_a_strategy_has_cut_are_no_damage(base: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    voters = "voters=[{name: one, seed: 0, shard: 0, strategy: {kind: convexity, regularization: 1000}}]"
    invoke(train, "--model", base, "--data", data, "--output", output, "--epochs", "1", "--set", voters, *QUICK)
    assert len(verify_output(output)) > 1
    rank = json.loads((output / "adapter_config.json").read_text())["r"]
    assert rank < json.loads((output / "checkpoint-epoch-1" / "adapter_config.json").read_text())["r"] == 2
    file = output / "checkpoint-epoch-1" / "adapter_model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if ".lora_A." in name)
    save_file({**tensors, name: tensors[name][:, :-1].contiguous()}, file, {"format": "pt"})
    with pytest.raises(IntegrityError, match="holds other weights"):
        verify_output(output)


def test_several_voters_have_a_folder_each(base: Path, data: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    voters = "voters=[{name: one, seed: 0, shard: 0}, {name: two, seed: 1, shard: 1}]"
    said = invoke(train, "--model", base, "--data", data, "--output", output, "--epochs", "1", "--set", voters, *QUICK)
    for name in ("one", "two"):
        folder = output / "voters" / name
        assert f"{folder}: validation loss" in said and read_info(folder)["voter"] == name
        assert verify_output(folder)
    assert sorted(json.loads((output / "summary.json").read_text())["finished"]) == ["one", "two"]
    assert list(json.loads(invoke(epochs, output, "--json"))) == ["one", "two"]
    with pytest.raises(InputError, match="only a recipe with one voter can name one"):
        invoke(train, "--model", base, "--data", data, "--output", output, "--set", voters, "--from-epoch", "1")


@pytest.mark.extended  # shorter: `training/test_run.py` kills voters, and above the output is put in place again
@pytest.mark.resume
def test_killed_and_run_again_it_ends_the_same_to_the_bit(base: Path, data: Path, tmp_path: Path) -> None:
    def arguments(name: str) -> list[str]:
        chosen = ("--model", base, "--data", data, "--output", tmp_path / name, "--epochs", "2", *QUICK)
        return [str(argument) for argument in chosen]

    invoke(train, *arguments("whole"))
    command = [sys.executable, "-m", "capibara_assets.cli", "train", *arguments("killed")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    log = tmp_path / "killed" / "events.jsonl"
    while not any(event["event"] == "step" and event["step"] >= 11 for event in read_events(log)):
        assert process.poll() is None, "it ended before it was killed"
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not (tmp_path / "killed" / "training_info.json").exists()
    again = invoke(train, *arguments("killed"))
    assert re.search(r"goes on from step [1-9]\d* \(exact\)", again)
    for name in ("", "checkpoint-epoch-1", "checkpoint-epoch-2"):
        one, other = (tmp_path / run / name / "adapter_model.safetensors" for run in ("whole", "killed"))
        assert sha256_file(one) == sha256_file(other)
    rows = [json.loads((tmp_path / run / "epoch_info.json").read_text()) for run in ("whole", "killed")]
    assert [row["train_loss"] for row in rows[0]] == [row["train_loss"] for row in rows[1]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--recipe", "mistral7b_cpu"), "the recipe names no base model: give one with --model"),
        (("--model", "no/such"), "base model folder no/such does not exist"),
        (("--from-epoch", "2"), "no epoch 2 in .*: there are none"),
        (("--resume-from-checkpoint", "latest"), "no resume point in .*: leave --resume-from-checkpoint out"),
        (("--resume-from-checkpoint", "checkpoint-epoch-3"), "is no resume point .*: .* use --from-epoch 3"),
        (("--resume-from-checkpoint", "latest", "--from-epoch", "1"), "give one of them"),
        (("--data", "nowhere.jsonl"), "nowhere.jsonl does not exist"),
        (("--batch-size", "3"), "no multiple of micro_batch 3"),
        (("--set", "hardware.backnd=ddp"), "did you mean 'backend'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    data: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        invoke(train, "--data", data, "--output", tmp_path / "out", *arguments)
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_not_written_to(data: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds other files \(notes.txt\): give a new folder"):
        invoke(train, "--data", data, "--output", tmp_path)
    with pytest.raises(InputError, match="is a file: give a folder"):
        invoke(train, "--data", data, "--output", tmp_path / "notes.txt")
    with pytest.raises(InputError, match=r"no epoch_info.json in"):
        invoke(epochs, tmp_path)


def test_an_error_is_one_sentence_and_exit_code_2(capibara: Any, data: Path, tmp_path: Path) -> None:
    """In this process; in one of its own an error of `capibara run` (`cli/test_errors.py`)."""
    done = capibara("train", "--data", str(data), "--recipe", "nano_gpu", home=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "capibara: no training recipe 'nano_gpu': did you mean 'nano_cpu'?\n"


if __name__ == "__main__":
    HELP.write_text(shown_help())
