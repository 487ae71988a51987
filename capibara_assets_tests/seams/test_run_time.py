"""What goes wrong or is added at run time: memory that runs out, devices and networks that fail, a user's own calls."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torch import distributed

from capibara_assets.errors import InputError
from capibara_assets.training.causes import explained
from capibara_assets.training.data.voter_run import VoterRun
from capibara_assets.training.loop.gradients import BatchGradients
from capibara_assets.training.loop.setup import set_up
from capibara_assets.training.loop.train import batch_trainer
from capibara_assets.training.plan.plan import plan_training
from capibara_assets.training.plan.text import plan_lines
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.supervisor import run
from capibara_assets.training.supervisor.run import TooFewVoters, train_domain
from capibara_assets.training.supervisor.signals import StopSignal
from capibara_assets.training.supervisor.worker import attempt
from capibara_assets_tests.modeling.tiny import save_tiny
from capibara_assets_tests.seams import little_memory
from capibara_assets_tests.training import stub_voters
from capibara_assets_tests.training.conftest import MakeRequest, request_maker, save_dataset

ONE: dict[str, Any] = {
    "voters": [{"name": "voter-0", "seed": 0, "shard": 0}],
    "lora": {"rank": 2, "alpha": 4, "dropout": 0.0, "use_rslora": False},
    "global_batch": 6,
    "micro_batch": 6,
}


@pytest.fixture
def make_request(tmp_path: Path, nano: Path) -> MakeRequest:
    base = save_tiny(tmp_path / "tiny", tokenizer_of=nano)
    (tmp_path / "data").mkdir()
    return request_maker(base, save_dataset(tmp_path / "data"), tmp_path)


def told(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


def test_memory_that_runs_out_is_met_by_the_plans_next_smaller_setting(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of the training: it goes on from its resume point, with the same steps."""
    monkeypatch.setattr(run, "_enter", little_memory.enter)
    request, events = make_request(**ONE, max_steps=6, checkpoint_every=2), list[dict[str, Any]]()
    planned = plan_training(request)
    assert planned.smaller == "micro_batch 3 x accumulation 2 in place of micro_batch 6"
    assert any(f"if it runs out, once: {planned.smaller}" in line for line in plan_lines(planned))
    little_memory.tell(request, rows=3, after=4)
    outcome = train_domain(request, events.append)

    (made,) = told(events, "made_smaller")
    assert made["setting"] == planned.smaller and "can't allocate memory" in made["reason"]
    (resumed,) = told(events, "resumed")
    assert resumed["step"] == 4 and resumed["differs"] == ["micro_batch"]
    assert outcome.summary["voters"]["voter-0"]["steps"] == 6
    passes = {event["step"]: event["micro_steps"] for event in told(events, "step")}
    assert passes == {1: 1, 2: 1, 3: 1, 4: 1, 5: 2, 6: 2}


def test_it_is_tried_once_and_the_failure_says_what_else_there_is(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_enter", little_memory.enter)
    request, events = make_request(**ONE, max_steps=6), list[dict[str, Any]]()
    little_memory.tell(request, rows=1)
    with pytest.raises(TooFewVoters, match=r"out of memory .*; the plan's next smaller setting, too: hold the base"):
        train_domain(request, events.append)
    assert len(told(events, "made_smaller")) == 1


def test_a_voter_that_the_system_killed_for_memory_is_not_started_again_as_it_was(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_enter", stub_voters.enter)
    counted = iter([7, 8, 8])
    monkeypatch.setattr(run, "kills_for_memory", lambda: next(counted))
    request, events = make_request(**ONE), list[dict[str, Any]]()
    stub_voters.tell(request, voter_0="dies 1")
    train_domain(request, events.append)
    (made,) = told(events, "made_smaller")
    assert made["reason"] == "killed by the system for want of memory" and not told(events, "restarted")


NCCL = "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, unhandled system error\n"
SAID = {
    "InfiniBand fails: `ibstat`": f"{NCCL}Last error:\nCall to ibv_modify_qp failed with error Connection timed out",
    "InfiniBand may not lock memory: raise": f"{NCCL}Call to ibv_create_cq failed with error Cannot allocate memory",
    "two processes have the same GPU: a process": "ncclInvalidUsage\nDuplicate GPU detected : rank 0 and rank 1 both",
    "no network card: export NCCL_SOCKET_IFNAME": "ncclInternalError\nBootstrap : no socket interface found",
    "too little shared memory: raise": f"{NCCL}Error while creating shared memory segment /dev/shm/nccl-Ab12",
    "waited too long for another process": "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)",
    "NCCL lost another process": "ncclRemoteError: A call failed possibly due to a network error or a remote process",
    "NCCL fails: start again with NCCL_DEBUG=INFO": f"{NCCL}ncclUnhandledCudaError: Call to CUDA function failed.",
    "TPU not found: run on a TPU VM": "Unable to initialize backend 'tpu': INTERNAL: Failed to get TPU topology.",
    "rendezvous is taken: export MASTER_PORT": "The server socket has failed to listen on any address. EADDRINUSE",
}


@pytest.mark.parametrize("cause", SAID)
def test_a_failure_of_a_device_or_network_names_cause_and_remedy(cause: str) -> None:
    """By what NCCL, the rendezvous and XLA write."""
    text = SAID[cause]
    said = explained(RuntimeError(text))
    assert cause in said and said.endswith(f"(RuntimeError: {text.splitlines()[0]})")


def test_what_is_not_known_is_said_as_it_was() -> None:
    assert explained(KeyError("weights")) == "KeyError: 'weights'"


def test_hosts_that_do_not_meet_are_told_how(tmp_path: Path) -> None:
    """torch's own error, of a first host that is not there."""
    with pytest.raises(distributed.DistNetworkError) as raised:
        distributed.init_process_group(
            "gloo", init_method="tcp://127.0.0.1:9", rank=1, world_size=2, timeout=timedelta(seconds=1)
        )
    assert "the processes do not reach each other: MASTER_ADDR has to be" in explained(raised.value)


@pytest.mark.extended
def test_a_tpu_that_is_not_there_is_named_by_the_trainer(tmp_path: Path) -> None:
    """JAX's own error."""
    program = "import jax\nfrom capibara_assets.training.causes import explained\ntry:\n    jax.devices()\n"
    program += "except RuntimeError as error:\n    print(explained(error))\n"
    environment = os.environ | {"JAX_PLATFORMS": "tpu"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("TPU not found: run on a TPU VM, install libtpu"), done.stderr


@pytest.mark.extended
def test_there_is_nothing_for_data_loaders_to_do(make_request: MakeRequest, nano: Path) -> None:
    """On the base that ships, the smallest there is: a larger one leaves batches a smaller share of its steps."""
    request = make_request(**(ONE | {"micro_batch": None}), base=nano, max_steps=8)
    voter = request.recipe.voters[0]
    trainer = batch_trainer(set_up(VoterRun(request, voter, request.folder(voter), lambda event: None, lambda: None)))
    source, batches, steps = trainer.source, 0.0, 0.0
    assert isinstance(source, BatchGradients)
    for number in range(8):
        begun = time.process_time()
        for part in source.curriculum.step(number).parts:
            source.subject.collate(part)
        made = time.process_time()
        trainer.setup.stepper.step(source.gather(number).rate)
        batches, steps = batches + made - begun, steps + time.process_time() - made
    assert 0 < batches < steps / 20


CALLBACKS = """\
import json
from pathlib import Path


class Notes:
    def on_step(self, event):
        self.note("step", event["step"], event["loss"])

    def on_evaluate(self, event):
        self.note("evaluate", event["step"], event["validation_loss"])
        if event["step"] == 3:
            raise OSError("the notebook is full")

    def on_save(self, event):
        self.note(event["what"], event["step"], Path(event["path"]).is_dir())

    def note(self, *words):
        with (Path(__file__).parent / "notes.jsonl").open("a") as file:
            file.write(json.dumps(words) + "\\n")


quiet = Notes()
quiet.on_evaluate = None
nothing = object()
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's module, and the entry point of its distribution, as pip leaves them."""
    folder = tmp_path / "site"
    about = folder / "notebook-1.dist-info"
    about.mkdir(parents=True)
    (folder / "notebook.py").write_text(CALLBACKS)
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: notebook\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[capibara.callbacks]\nnotebook = notebook:quiet\n")
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("notebook", None)


def train_here(request: TrainingRequest) -> tuple[int, list[dict[str, Any]]]:
    events = list[dict[str, Any]]()
    return attempt(request, request.recipe.voters[0], events.append, StopSignal()), events


@pytest.mark.parametrize("how", ["notebook", "notebook:quiet", "file"])
def test_a_users_calls_see_every_step_validation_and_save(make_request: MakeRequest, package: Path, how: str) -> None:
    name = f"{package / 'notebook.py'}:Notes" if how == "file" else how
    request = make_request(**ONE, max_steps=6, evaluate_every=3, checkpoint_every=2, callbacks=[name])
    code, events = train_here(request)
    assert code == 0
    notes = [json.loads(line) for line in (package / "notes.jsonl").read_text().splitlines()]
    losses = [["step", event["step"], event["loss"]] for event in told(events, "step")]
    assert len(losses) == 6
    if how == "file":  # whose on_evaluate raises at step 3: said, not called again, and the training ends well
        assert [note for note in notes if note[0] == "step"] == losses[:3]
        assert [note[1] for note in notes if note[0] == "evaluate"] == [0, 3]
        (warning,) = told(events, "warning")
        assert "Notes failed and is not called again: OSError: the notebook is full" in warning["text"]
        return
    assert [note for note in notes if note[0] == "step"] == losses
    assert all(there for what, _, there in notes if what not in ("step", "evaluate"))
    saved = [(what, step) for what, step, _ in notes if what in ("resume point", "result")]
    assert saved == [("resume point", 1), ("resume point", 2), ("resume point", 4), ("result", 6)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "nowhere.to:find",
            r"callback nowhere\.to:find is neither an entry point of capibara\.callbacks \(there",
        ),
        ("./missing.py:Notes", r"missing\.py:Notes is neither"),
    ],
)
def test_a_callback_that_is_not_there_is_missed_before_the_start(
    make_request: MakeRequest, name: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        train_domain(make_request(**ONE, callbacks=[name]), lambda event: None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("notebook:nothing", "has none of on_step, on_evaluate, on_save: give it one of them"),
        ("notebook:Absent", "cannot be loaded: AttributeError"),
    ],
)
def test_a_callback_that_calls_nothing_is_bad_input(
    make_request: MakeRequest, package: Path, name: str, said: str
) -> None:
    code, events = train_here(make_request(**ONE, callbacks=[name]))
    (failed,) = told(events, "failed")
    assert code != 0 and failed["bad_input"] and said in failed["error"]
    assert re.search(r"callback notebook:", failed["error"])
