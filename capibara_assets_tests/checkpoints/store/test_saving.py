"""Saving in the background: what is stored is the state of the call, and no failure is lost."""

import copy
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from capibara_assets.checkpoints.store import files
from capibara_assets.checkpoints.store.saving import AsyncSaver
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.errors import InputError


class Held:
    """A store that does not begin to read before it is let go, then keeps what it was given as bytes of its own."""

    def __init__(self) -> None:
        self.go, self.reading, self.most, self.saved = threading.Event(), 0, 0, list[dict[str, Any]]()
        self.error: BaseException | None = None
        self.lock = threading.Lock()

    def save(self, state: Any, step: int, model_name: str, *, files: Any = (), **about: Any) -> str:
        with self.lock:
            self.reading += 1
            self.most = max(self.most, self.reading)
        assert self.go.wait(30)
        try:
            if self.error:
                raise self.error
            found = {"state": state, "step": step, "model": model_name, "files": dict(files), "about": about}
            tensors = {key: value.clone() for key, value in state.items() if isinstance(value, torch.Tensor)}
            self.saved.append(found | {"tensors": tensors})
            return f"id-{step}"
        finally:
            with self.lock:
                self.reading -= 1


@pytest.fixture
def held() -> Held:
    return Held()


def test_the_optimizer_steps_during_the_write_and_the_state_of_the_call_is_stored(held: Held) -> None:
    model = nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step() -> None:
        model(torch.ones(3, 64)).square().sum().backward()
        optimizer.step()

    step()
    with AsyncSaver(held) as saver:
        curve = [{"loss": 1.0}]
        moments = optimizer.state[model.weight]
        state = {"weight": model.weight, "first": moments["exp_avg"], "steps": moments["step"], "curve": curve}
        expected = {name: value.detach().clone() for name, value in state.items() if isinstance(value, torch.Tensor)}
        metrics = {"loss": 1.0}
        future = saver.save(state, 1, "m", metrics=metrics)
        assert not future.done()
        step()
        curve.append({"loss": 2.0})
        curve[0]["loss"] = 3.0
        metrics["loss"] = 3.0
        assert not torch.equal(model.weight, expected["weight"]) and moments["step"] == 2
        held.go.set()
        assert future.result(30) == "id-1"
    [saved] = held.saved
    assert saved["tensors"].keys() == expected.keys()
    assert all(torch.equal(saved["tensors"][name], value) for name, value in expected.items())
    assert saved["state"]["curve"] == [{"loss": 1.0}] and saved["about"] == {"metrics": {"loss": 1.0}}
    assert isinstance(saved["state"]["weight"], nn.Parameter)


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().flatten().view(torch.uint8).numpy()) if tensor.numel() else b""


def test_copies_are_exact_and_ties_stay_ties(held: Held) -> None:
    held.go.set()
    payload = torch.tensor([[0x7FC00001, -0x80000000], [0x7F800123, 1]], dtype=torch.int32).view(torch.float32)
    embedding = torch.arange(12.0).reshape(3, 4)
    state = {
        "nan": payload.t(), "tied": embedding, "head": embedding, "slice": embedding[:, 1],
        "spread": torch.ones(1).expand(5), "scalar": torch.tensor(7), "empty": torch.empty(0, 3),
        "half": embedding.bfloat16(), "flag": torch.tensor([True]),
    }  # fmt: skip
    with AsyncSaver(held) as saver:
        saver.save(state, 1, "m").result()
        first = held.saved[0]["state"]
        assert first["tied"] is first["head"] and first["tied"] is not embedding
        for name, value in state.items():
            copied = held.saved[0]["tensors"][name]
            assert (copied.dtype, copied.shape) == (value.dtype, value.shape), name
            assert bits(copied) == bits(value), name
        # The buffers are used again: a second copy of the same shapes takes no second memory.
        saver.save(state, 2, "m").result()
        second = held.saved[1]["state"]
        assert {name: value.data_ptr() for name, value in first.items()} == {
            name: value.data_ptr() for name, value in second.items()
        }
        # Other shapes, types and names: the former ones are gone.
        saver.save({"tied": embedding.double(), "nan": payload[0]}, 3, "m").result()
        assert held.saved[2]["tensors"]["tied"].dtype == torch.float64
        assert held.saved[2]["tensors"]["nan"].shape == (2,)
        assert set(saver._copies._buffers) == {
            ("tied", (3, 4), torch.float64, False),
            ("nan", (2,), torch.float32, False),
        }


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As a voter has: threads that wait for each other on a busy machine are no measure of a copy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_the_caller_waits_for_little_more_than_a_copy(held: Held) -> None:
    """In processor time; a loop that waited for the store instead would wait until it is let go."""
    state = {str(number): torch.rand(1 << 18) for number in range(32)}  # 32 MiB
    copying, stalls = list[float](), list[float]()
    into = {name: torch.empty_like(value) for name, value in state.items()}
    with AsyncSaver(held) as saver:
        for step in range(6):
            begun = time.thread_time()
            for name, value in state.items():
                into[name].copy_(value)
            copying.append(time.thread_time() - begun)
            held.go.clear()
            begun = time.thread_time()
            future = saver.save(state, step, "m")
            stalls.append(time.thread_time() - begun)
            assert not future.done()
            held.go.set()
            future.result(30)
            held.saved.clear()
    assert min(stalls[1:]) < 5 * min(copying) + 0.01


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_from_a_gpu_through_pinned_memory(held: Held) -> None:
    state = {"a": torch.rand(1 << 22, device="cuda"), "b": torch.rand(64, 64, device="cuda").t(), "c": torch.rand(3)}
    expected = {name: value.clone() for name, value in state.items()}
    with AsyncSaver(held) as saver:
        saver.save(state, 1, "m")
        for value in state.values():
            value.zero_()
        held.go.set()
    assert {name: value.is_pinned() for name, value in held.saved[0]["state"].items()} == {
        "a": True, "b": True, "c": False,
    }  # fmt: skip
    assert all(torch.equal(held.saved[0]["tensors"][name], value.cpu()) for name, value in expected.items())


def test_files_are_read_at_the_call(held: Held, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("then")
    with AsyncSaver(held) as saver:
        saver.save({}, 1, "m", files={"config.json": tmp_path / "config.json", "a": b"bytes"})
        (tmp_path / "config.json").write_text("now")
        held.go.set()
    assert held.saved[0]["files"] == {"config.json": b"then", "a": b"bytes"}


def test_a_second_save_waits_for_the_first_and_never_are_two_written_at_once(held: Held) -> None:
    with AsyncSaver(held) as saver:
        saver.save({"a": torch.zeros(2)}, 1, "m")
        threading.Timer(0.3, held.go.set).start()
        begun = time.monotonic()
        saver.save({"a": torch.ones(2)}, 2, "m")
        assert time.monotonic() - begun > 0.25
        for number in range(3, 20):
            saver.save({"a": torch.full((2,), float(number))}, number, "m")
    assert held.most == 1
    assert [saved["step"] for saved in held.saved] == list(range(1, 20))
    assert [float(saved["tensors"]["a"][0]) for saved in held.saved] == [0.0, 1.0, *map(float, range(3, 20))]


def fail(saver: AsyncSaver) -> None:
    saver.save({}, 5, "python/voter-0")
    while saver._pending.save is not None and not saver._pending.save.done():
        time.sleep(0.001)


@pytest.mark.parametrize("later", [
    lambda saver: saver.check(), lambda saver: saver.save({}, 2, "m"), lambda saver: saver.close(),
])  # fmt: skip
def test_a_failed_save_is_raised_by_the_next_call_once_and_as_it_was(
    held: Held, later: Callable[[AsyncSaver], Any]
) -> None:
    held.go.set()
    held.error = OSError(28, "No space left on device")
    saver = AsyncSaver(held)
    fail(saver)
    with pytest.raises(OSError, match="No space left") as caught:
        later(saver)
    assert caught.value is held.error
    assert caught.value.__notes__ == ["while the checkpoint of python/voter-0 at step 5 was saved in the background"]
    saver.check()
    held.error = None
    saver.close()
    assert held.saved == []  # the save that raised did not begin


def test_an_error_on_its_way_is_not_replaced_by_that_of_a_save(held: Held) -> None:
    held.go.set()
    held.error = OSError(28, "No space left on device")
    with pytest.raises(KeyError) as caught, AsyncSaver(held) as saver:
        saver.save({}, 5, "m")
        raise KeyError("the loop's own")
    assert "No space left on device" in "".join(caught.value.__notes__) and "step 5" in "".join(caught.value.__notes__)
    with pytest.raises(OSError, match="No space left") as itself, AsyncSaver(held) as saver:
        saver.save({}, 5, "m").result()
    assert itself.value is held.error and len(itself.value.__notes__) == 2  # once per save that failed with it


def test_leaving_waits_and_a_closed_saver_refuses(held: Held) -> None:
    threading.Timer(0.2, held.go.set).start()
    with AsyncSaver(held) as saver:
        saver.save({"a": torch.ones(1)}, 1, "m")
    assert len(held.saved) == 1
    with pytest.raises(RuntimeError, match="closed"):
        saver.save({}, 2, "m")


def test_closing_within_a_budget_says_whether_it_was_enough_and_can_be_asked_again(held: Held) -> None:
    saver = AsyncSaver(held)
    future = saver.save({"a": torch.ones(1)}, 1, "m")
    assert not saver.close(0.05) and not future.done()
    held.go.set()
    assert saver.close() and future.done()
    assert len(held.saved) == 1


@pytest.mark.parametrize(("value", "what"), [
    (object(), "weights/odd is a builtins.object"),
    (torch.ones(2).to_sparse(), "weights/odd: a torch.sparse_coo tensor"),
    (torch.ones(2, device="meta"), "weights/odd is on the meta device"),
])  # fmt: skip
def test_what_cannot_be_stored_is_refused_at_the_call(held: Held, value: Any, what: str) -> None:
    with AsyncSaver(held) as saver, pytest.raises(InputError, match=what):
        saver.save({"weights": {"odd": value}}, 1, "m")


def test_a_forked_child_neither_waits_for_the_parents_write_nor_uses_its_saver(held: Held) -> None:
    saver = AsyncSaver(held)
    future: Future[str] = saver.save({"a": torch.ones(1)}, 1, "m")
    if (child := os.fork()) == 0:
        code = 1
        try:
            saver.check()
            saver.close()
            saver.save({}, 2, "m")
        except RuntimeError as error:
            code = 7 if "before a fork" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    held.go.set()
    assert future.result(30) == "id-1"
    saver.close()


def test_a_forgotten_savers_failure_is_printed(held: Held, capsys: pytest.CaptureFixture[str]) -> None:
    held.error = OSError(28, "No space left on device")
    saver = AsyncSaver(held)
    saver.save({}, 5, "m")
    del saver
    gc.collect()
    held.go.set()
    deadline = time.monotonic() + 120
    while "No space left on device" not in (printed := capsys.readouterr().err) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "No space left on device" in printed


ENDS = """
import os, sys, time
import torch
from capibara_assets.checkpoints.store.saving import AsyncSaver
from capibara_assets.checkpoints.store.store import CheckpointStore

class Slow:
    def save(self, state, step, model_name, **about):
        time.sleep(0.5)
        if step == 2:
            raise OSError(28, "No space left on device")
        print("written", float(state["a"][0]), flush=True)
        return "id"

def begins(name):
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        return False
    for number, stream in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{sys.argv[1]}/{name}.{stream}", os.O_WRONLY | os.O_CREAT), number)
    return True

if begins("written"):
    saver = AsyncSaver(Slow())
    saver.save({"a": torch.ones(1)}, 1, "m")
elif begins("failed"):
    saver = AsyncSaver(Slow())
    saver.save({"a": torch.ones(1)}, 2, "m")
elif begins("store"):
    torch.set_num_threads(1)
    saver = AsyncSaver(CheckpointStore(sys.argv[1] + "/store"))
    saver.save({str(number): torch.rand(1 << 18) for number in range(12)}, 1, "m")
"""


@dataclass(frozen=True)
class Ended:
    stdout: str
    stderr: str
    returncode: int
    store: Path


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Interpreters that end without closing their saver: forks of one, which has imported torch for all of them."""
    folder = tmp_path_factory.mktemp("ended")
    done = subprocess.run(
        [sys.executable, "-c", ENDS, str(folder)], capture_output=True, text=True, check=True, timeout=600
    )
    names = ("written", "failed", "store")
    return {
        name: Ended(
            (folder / f"{name}.out").read_text(), (folder / f"{name}.err").read_text(), int(code), folder / "store"
        )
        for name, code in zip(names, done.stdout.split(), strict=True)
    }


def test_an_interpreter_that_ends_waits_for_the_write_and_says_what_failed(ended: dict[str, Ended]) -> None:
    done = ended["written"]
    assert (done.stdout, done.stderr, done.returncode) == ("written 1.0\n", "", 0)
    done = ended["failed"]
    assert "No space left on device" in done.stderr and "of m at step 2" in done.stderr


# With the real store.


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "store")


@pytest.mark.parametrize(
    ("call", "number"),
    [("pwrite", 1), ("pwrite", 2), ("pwrite", 3), ("sync", 1), ("sync", 2), ("rename", 1), ("link", 1)],
)
def test_the_store_gets_the_state_of_the_call_wherever_its_write_stands_still(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    go, there, calls, real = threading.Event(), threading.Event(), [0], getattr(files, call)

    def held(*args: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            there.set()
            assert go.wait(30)
        return real(*args)

    monkeypatch.setattr(files, call, held)
    model = nn.Linear(300, 300)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2, 300)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    expected = copy.deepcopy(state)
    with AsyncSaver(store) as saver:
        future = saver.save(state, 1, "m", files={"config.json": b"{}"}, metrics={"loss": 0.5})
        optimizer.step()  # at once,
        assert there.wait(30)
        optimizer.step()  # and while it stands still
        assert not future.done() and not torch.equal(model.weight, expected["model"]["weight"])
        go.set()
        identity = future.result(30)
    found = store.load(identity)
    assert found["optimizer"]["param_groups"] == expected["optimizer"]["param_groups"]
    for part, name in [("model", "weight"), ("model", "bias")]:
        assert bits(found[part][name]) == bits(expected[part][name])
    for number, moments in expected["optimizer"]["state"].items():
        for name, value in moments.items():
            assert bits(found["optimizer"]["state"][number][name]) == bits(value), (number, name)
    # As if it had been saved the other way: the same id, no second version.
    assert store.save(expected, 1, "m", files={"config.json": b"{}"}, metrics={"loss": 0.5}) == identity
    assert [one.version for one in store.list("m")] == [1]


def test_a_full_disk_is_an_error_at_the_next_step_and_the_one_before_stays(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = AsyncSaver(store)
    first = saver.save({"a": torch.ones(3)}, 1, "m").result()
    with monkeypatch.context() as full:
        full.setattr(files, "sync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        future = saver.save({"a": torch.zeros(3)}, 2, "m")
        wait_for([future], 30)
    with pytest.raises(InputError, match=r"no room to write to .*No space left on device") as caught:
        saver.check()
    assert caught.value.__notes__ == ["while the checkpoint of m at step 2 was saved in the background"]
    assert [one.id for one in store.list()] == [first] and store.verify() == []
    second = saver.save({"a": torch.zeros(3)}, 2, "m")  # there is room again
    saver.close()
    assert [one.id for one in store.list()] == [first, second.result()]


def test_a_bad_field_is_an_error_too(store: CheckpointStore) -> None:
    with pytest.raises(InputError, match="colour"), AsyncSaver(store) as saver:
        saver.save({"a": torch.ones(1)}, 1, "m", colour="red")


def test_an_interpreter_that_ends_without_closing_leaves_nothing_half_there(ended: dict[str, Ended]) -> None:
    done = ended["store"]
    store = CheckpointStore(done.store)
    assert bool(store.list()) == ("while the checkpoint of m at step 1" not in done.stderr)
    assert store.verify() == []
