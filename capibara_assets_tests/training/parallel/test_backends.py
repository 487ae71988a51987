"""Two processes give what one gives, by every back end; interrupted and resumed, the same bits."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed.tensor import DTensor

from capibara_assets.datasets.tokens.tokenising import Encoded
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.training.data.batches import Curriculum, plain_level
from capibara_assets.training.monitoring.events import read_events
from capibara_assets.training.parallel.backends import make_stepper
from capibara_assets.training.ranks import Ranks, group_of_one
from capibara_assets.training.request import TrainingRequest
from capibara_assets.training.step.settings import Settings, resolve
from capibara_assets.training.step.subject import Subject, load_subject
from capibara_assets_tests.late import late
from capibara_assets_tests.training.conftest import MakeRequest, request_maker
from capibara_assets_tests.training.in_ranks import in_processes, train
from capibara_assets_tests.training.loop.test_train import digests

late("deepspeed", reason="deepspeed is an extra")

# The losses, weights and resumes of the others are in `make test-all`; what is their own (shards, gradients of an empty
# batch, what they refuse) is tested in one process.
OTHERS = ("fsdp2", "zero2", "accelerate")
BACKENDS = ("ddp", *OTHERS)
EACH = ["ddp", *(pytest.param(name, marks=pytest.mark.extended) for name in OTHERS)]
# Five examples of a step, each alone in its micro-batch: the second process has an empty one.
UNEVEN: dict[str, Any] = {
    "voters": [{"name": "voter-0", "seed": 0, "shard": 0}],
    "lora": {"rank": 2, "alpha": 4, "dropout": 0.0, "use_rslora": False},
    "global_batch": 5,
    "micro_batch_tokens": 8,
    "max_steps": 4,
    "ema": {"decay": 0.9},
}
SPLIT = {"processes": 2}
STOP_AT = 21  # questions: after the second step, in the middle of the third


@dataclass(frozen=True)
class Runs:
    """Finished trainings by name."""

    requests: dict[str, TrainingRequest]

    def curve(self, name: str) -> list[dict[str, float]]:
        found: list[dict[str, float]] = json.loads((self.result(name) / "curve.json").read_text())
        return found

    def result(self, name: str) -> Path:
        return self.requests[name].work / "voter-0" / "result"

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        return [
            event
            for event in read_events(self.requests[name].work / "voter-0" / "events.jsonl")
            if event["event"] == kind
        ]


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of this process alone, for as long as a test lasts."""
    group_of_one()
    yield
    distributed.destroy_process_group()


def prepared(request: TrainingRequest) -> tuple[Subject, Settings]:
    settings = resolve(request.recipe, request.lora, fastest="fp32")
    return load_subject(request, settings, torch.device("cpu")), settings


@pytest.mark.usefixtures("group")
def test_fsdp2_shards_the_whole_base_and_no_trained_weight(make_request: MakeRequest) -> None:
    request = make_request(backend="fsdp2", **UNEVEN)
    subject, settings = prepared(request)
    make_stepper(request.recipe, subject, settings, Ranks())
    values = dict(subject.adapted.named_parameters())
    assert subject.trainable.keys() < values.keys()
    for name, value in values.items():
        assert isinstance(value, DTensor) == (name not in subject.trainable)


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("name", ["ddp", "fsdp2", "accelerate"])
def test_a_batch_without_loss_gives_every_trained_weight_a_gradient_of_zero(
    make_request: MakeRequest, name: str
) -> None:
    request = make_request(backend=name, **UNEVEN)
    subject, settings = prepared(request)
    stepper = make_stepper(request.recipe, subject, settings, Ranks())
    with stepper.micro_step(last=True):
        losses = stepper.loss(subject.collate([]))
        stepper.backward(losses.sum())
    assert losses.shape == (0,)
    for value in subject.trainable.values():
        assert value.grad is not None and not value.grad.any()


def test_what_a_backend_cannot_do_is_refused_with_what_to_choose(make_request: MakeRequest) -> None:
    request = make_request()
    subject, settings = prepared(request)
    for backend, changed, message in (
        ("fsdp2", {"quantization": "nf4"}, "held in nf4: name ddp or zero2"),
        ("zero2", {"precision": "fp16"}, "set precision to bf16, or name ddp"),
        ("single", {}, "2 processes were started"),
    ):
        recipe = make_request(backend=backend).recipe
        with pytest.raises(InputError, match=message):
            make_stepper(recipe, subject, replace(settings, **changed), Ranks(0, 2))
    recipe = make_request(backend="zero2", deepspeed={"gradient_clipping": 7}).recipe
    with pytest.raises(InputError, match=r"gradient_clipping is 7, the recipe says 1\.0"):
        make_stepper(recipe, subject, settings, Ranks())


@pytest.mark.parametrize("number", [0, 1])
def test_a_step_that_does_not_divide_evenly_has_an_empty_micro_batch(make_request: MakeRequest, number: int) -> None:
    request = make_request(**UNEVEN)
    examples = [Encoded(input_ids=[1] * 8, labels=[-100] * 6 + [1] * 2, supervised=2) for _ in range(5)]
    names = [f"e{index}" for index in range(5)]
    settings = resolve(request.recipe, request.lora, fastest="fp32")
    level = plain_level(names, examples, 1, "seed", settings, request.recipe)
    parts = Curriculum([level], request.recipe, Ranks(number, 2)).step(0).parts
    assert [len(part) for part in parts] == [[1, 1, 1], [1, 1, 0]][number]


def trained_by(make: MakeRequest, backends: tuple[str, ...]) -> dict[str, TrainingRequest]:
    """All trainings of two processes in one pair of them: starting torch is most of their time."""
    requests = {name: make(work=name, backend=name, **UNEVEN, **SPLIT) for name in backends}
    requests |= {f"{name}, stopped": make(work=f"{name}-stopped", backend=name, **UNEVEN, **SPLIT) for name in backends}
    jobs = [(name, 0) for name in backends]
    jobs += [job for name in backends for job in ((f"{name}, stopped", STOP_AT), (f"{name}, stopped", 0))]
    if "ddp" in backends:
        requests["moved"] = make(work="moved", backend="ddp", **UNEVEN, **SPLIT)
        jobs += [("moved", STOP_AT)]
    train_in_ranks(2, [(requests[name], stop_at) for name, stop_at in jobs])
    requests["single"] = make(work="single", **UNEVEN)
    train(requests["single"])
    if "ddp" in backends:
        train(make(work="moved", **UNEVEN))  # one process goes on where two stopped
    return requests


def runs_by(
    backends: tuple[str, ...], tiny_folder: Path, dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    """Trainings by some back ends and by one process, for as long as a fixture lasts."""
    requests = trained_by(request_maker(tiny_folder, dataset, tmp_path_factory.mktemp("backends")), backends)
    yield Runs(requests)
    for request in requests.values():
        shutil.rmtree(request.work)


@pytest.fixture(scope="module")
def runs_by_ddp(tiny_folder: Path, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    yield from runs_by(("ddp",), tiny_folder, dataset, tmp_path_factory)


@pytest.fixture(scope="module")
def runs_by_others(tiny_folder: Path, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    yield from runs_by(OTHERS, tiny_folder, dataset, tmp_path_factory)


@pytest.fixture
def runs(name: str, request: pytest.FixtureRequest) -> Runs:
    """Those that a test of this name looks at; only what is asked for is trained."""
    found: Runs = request.getfixturevalue("runs_by_others" if name in OTHERS else "runs_by_ddp")
    return found


def train_in_ranks(processes: int, jobs: list[tuple[TrainingRequest, int]]) -> None:
    """Train requests one after the other in the same processes, each stopped at a question (0: never)."""
    store = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # as torchrun's agent has it
    there = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    with TemporaryDirectory() as folder:
        in_processes(processes, jobs, there, Path(folder))


@pytest.mark.parametrize("name", [*EACH, "moved"])
def test_two_processes_give_the_losses_and_weights_of_one(runs: Runs, name: str) -> None:
    one, two = runs.curve("single"), runs.curve(name)
    assert len(one) == len(two) >= 7
    for expected, found in zip(one, two, strict=True):
        assert found == pytest.approx(expected, rel=1e-4)
    expected_adapter, found_adapter = read_adapter(runs.result("single")), read_adapter(runs.result(name))
    for module in expected_adapter.modules:
        torch.testing.assert_close(found_adapter.delta(module), expected_adapter.delta(module), rtol=1e-3, atol=1e-6)


@pytest.mark.resume
@pytest.mark.parametrize("name", EACH)
def test_stopped_in_a_step_and_resumed_by_two_processes_gives_the_same_bits(runs: Runs, name: str) -> None:
    assert digests(runs.result(f"{name}, stopped")) == digests(runs.result(name))
    (resumed,) = runs.events(f"{name}, stopped", "resumed")
    assert resumed["continuation"] == "exact" and 0 < resumed["step"] < 4
    assert not runs.events(name, "resumed")


@pytest.mark.resume
def test_resumed_by_another_number_of_processes_it_says_statistical(runs_by_ddp: Runs) -> None:
    (resumed,) = runs_by_ddp.events("moved", "resumed")
    assert resumed["continuation"] == "statistical" and resumed["step"] > 0
    assert [event["processes"] for event in runs_by_ddp.events("moved", "started")] == [2, 1]


@pytest.mark.extended
@pytest.mark.resume
@pytest.mark.parametrize("name", BACKENDS)
def test_three_processes_add_in_the_same_order_after_a_resume(make_request: MakeRequest, name: str) -> None:
    """With two, a sum has one order; with three, it hangs on how a back end lays out what it exchanges."""
    whole, stopped = (make_request(work=work, backend=name, **UNEVEN, processes=3) for work in ("whole", "stopped"))
    train_in_ranks(3, [(whole, 0), (stopped, 20), (stopped, 0)])
    one, other = (request.work / "voter-0" / "result" for request in (whole, stopped))
    assert digests(one) == digests(other)
