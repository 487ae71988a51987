"""Training by several processes outside the graph: ranks, supervisor, exporters and resume mean the same folder."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from peft import PeftModel
from torch import distributed

from capibara_assets.modeling.base import load_base
from capibara_assets.training import __main__ as publish
from capibara_assets.training import rank
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.standalone.choices import RunOptions
from capibara_assets.training.standalone.output_folder import finished_output, read_info
from capibara_assets.training.standalone.run import prepare
from capibara_assets.training.supervisor import reporting
from capibara_assets_tests.commands import command_of
from capibara_assets_tests.modeling.tiny import save_tiny
from capibara_assets_tests.served import free_port

TINY = (
    "hardware.precision=fp32", "hardware.gradient_checkpointing=0", "hardware.threads=1", "data.max_length=128",
    "model.lora.rank=2", "model.lora.alpha=4", "training.global_batch=8", "training.micro_batch=2",
    "training.max_steps=6", "training.evaluate_every=3", "checkpoint.every=2", "report.every=1",
    "checkpoint.restart_delay_s=0",
)  # fmt: skip
EXPORTERS = "report.exporters=[tensorboard, wandb]"


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory, nano: Path) -> Path:
    return save_tiny(tmp_path_factory.mktemp("base") / "mistral", tokenizer_of=nano, kind="mistral")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "data.jsonl"
    words = ["lamp", "river", "copper", "anchor", "velvet", "thunder", "marble", "saffron", "pilot", "orchard"]
    rows = [{"prompt": f"Say {a} and {b}.", "completion": f"{b} then {a}, not {b}"} for a in words for b in words]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CAPIBARA_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def alone_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process as the only rank that torchrun has started; its signals and process group are put back."""
    held = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    port = free_port()
    place = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in place.items():
        monkeypatch.setenv(name, str(value))
    yield
    if distributed.is_initialized():
        distributed.destroy_process_group()
    for number, handler in held.items():
        signal.signal(number, handler)


def tensorboard_steps(home: Path, run: str) -> list[int]:
    """The steps whose loss TensorBoard shows."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulated = EventAccumulator(str(home / "metrics" / "tensorboard" / run))
    accumulated.Reload()
    return [scalar.step for scalar in accumulated.Scalars("train/loss")]


def wandb_losses(home: Path, last: int) -> list[int]:
    """For each offline run, how many of its rows hold a training loss; waits a minute for `last` in the newest.

    W&B's own process closes a run's file after the run has ended for who wrote it.
    """
    deadline = time.monotonic() + 60
    while (counts := _wandb_losses(home))[-1:] != [last] and time.monotonic() < deadline:
        time.sleep(0.1)
    return counts


def _wandb_losses(home: Path) -> list[int]:
    from wandb.proto import wandb_internal_pb2  # seconds, in every worker of the suite if it stood above
    from wandb.sdk.internal import datastore

    counts = []
    for file in sorted((home / "metrics" / "wandb").glob("offline-run-*/*.wandb")):
        store = datastore.DataStore()
        store.open_for_scan(str(file))
        losses = 0
        while (data := store.scan_data()) is not None:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            losses += any(item.nested_key[:1] == ["train/loss"] or item.key == "train/loss"
                          for item in record.history.item)  # fmt: skip
        counts.append(losses)
    return counts


@pytest.mark.usefixtures("alone_under_torchrun")
def test_a_rank_writes_where_the_publisher_the_exporters_and_a_resume_look(
    mistral: Path, data: Path, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The steps that docs/training.md names for several hosts: a rank by torchrun, then the publisher."""
    # W&B starts a process of its own: where all is busy that takes longer than a training waits for its exporters
    monkeypatch.setattr(reporting, "_PATIENT_S", 300.0)
    output = tmp_path / "out"

    def request(steps: int, exporters: str = EXPORTERS, resume: str | None = None) -> Path:
        changes = (*TINY, exporters, f"training.max_steps={steps}", "hardware.backend=ddp", "hardware.processes=1")
        options = RunOptions(
            recipe="mistral7b_8xh100", model=str(mistral), data=(data,), output=output, resume_from=resume,
            settings=(*changes, "training.accumulation=4", "model.quantization=none", "model.attention=auto"),
        )  # fmt: skip
        made, _ = prepare(options)
        file = made.work / "request.json"
        file.write_text(made.model_dump_json())
        return file

    asked = ["--request", str(request(6))]
    assert rank.main([*asked, "--voter", "voter"]) == 0
    assert not (output / ".capibara" / "voter").exists(), "a second notion of where the voter works"
    assert tensorboard_steps(home, "mistral7b_8xh100/voter") == [1, 2, 3, 4, 5, 6]
    assert wandb_losses(home, last=6) == [6]
    distributed.destroy_process_group()
    assert rank.main([*asked, "--voter", "voter"]) == 0  # the same script again, before anything was published
    assert {event["attempt"] for event in read_events(output / "events.jsonl")} == {1}

    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name)
    capsys.readouterr()
    assert publish.main(asked) == 0
    assert "voter was finished before" in capsys.readouterr().out
    assert read_info(output)["steps"] == 6
    assert PeftModel.from_pretrained(load_base(mistral).model, output).peft_config["default"].r == 2

    # Without exporters, which take longer to start than it trains; `latest` is refused where no point is found
    longer = ["--request", str(request(8, "report.exporters=[]", resume="latest"))]
    assert publish.main(longer) == 0
    assert re.search(r"voter goes on from step 6", capsys.readouterr().out)
    assert read_info(output)["steps"] == 8


@pytest.mark.extended
@pytest.mark.resume
@pytest.mark.parametrize("backend", ["zero2", "ddp"])
def test_the_recipe_of_eight_gpus_on_two_processes_of_a_cpu(
    backend: str, mistral: Path, data: Path, home: Path, tmp_path: Path
) -> None:
    """Finishes, comes back after `kill -9` of a rank, is exported while it runs, and PEFT loads what it leaves."""
    output = tmp_path / "out"
    settings = (
        *TINY, EXPORTERS, f"hardware.backend={backend}", "hardware.processes=2", "training.accumulation=2",
        "model.quantization=none", "training.max_steps=40",
    )  # fmt: skip
    command = [
        *(sys.executable, "-m", "capibara_assets.cli", "train", "--recipe", "mistral7b_8xh100"),
        *("--model", str(mistral), "--data", str(data), "--output", str(output)),
        *(word for setting in settings for word in ("--set", setting)),
    ]
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    deadline = time.monotonic() + 300
    while not list(output.glob("checkpoint-*/state.json")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    family = psutil.Process(process.pid).children(recursive=True)
    ranks = [one for one in family if "-m capibara_assets.training.rank" in " ".join(command_of(one)[:5])]
    assert len(ranks) == 2
    ranks[1].kill()
    said, _ = process.communicate(timeout=500)
    assert process.returncode == 0, said
    assert "killed by signal 9, started again" in said
    assert re.search(r"voter goes on from step [1-9]\d* \(exact\)", said), said

    made, _ = prepare(
        RunOptions(
            recipe="mistral7b_8xh100", model=str(mistral), data=(data,), output=output, settings=settings
        )
    )  # fmt: skip
    assert finished_output(made), "verified, and of exactly this request"
    assert read_info(output)["steps"] == 40
    loaded = PeftModel.from_pretrained(load_base(mistral).model, output)
    assert sum("lora_A" in name for name, _ in loaded.named_parameters()) == 14
    assert tensorboard_steps(home, "mistral7b_8xh100/voter") == list(range(1, 41))
    assert len(counts := wandb_losses(home, last=40)) == 2 and counts[-1] == 40, "a run per attempt, the last one whole"
