"""Epoch checkpoints: what is in the store after a training, however often it was stopped, killed or refused a write."""

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from capibara_assets import __version__
from capibara_assets.checkpoints.store import files
from capibara_assets.checkpoints.store.store import Checkpoint, CheckpointStore
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import read_adapter
from capibara_assets.training.data.voter_run import Interrupted
from capibara_assets.training.loop import resuming
from capibara_assets.training.loop import train as loop
from capibara_assets.training.resume import points as resume
from capibara_assets.training.supervisor.run import train_domain
from capibara_assets_tests.training.conftest import MakeRequest, request_maker
from capibara_assets_tests.training.loop.test_train import StopAt, digests, train
from capibara_assets_tests.training.supervisor.test_run import Killer

ALL = {"epoch_checkpoints": {"keep_last": 99}}


def published(root: Path) -> list[Checkpoint]:
    """What a store holds, after every byte of it was read."""
    store = CheckpointStore(root)
    assert store.verify() == []
    return store.list()


def ids(root: Path) -> list[tuple[str, int, int, str]]:
    return [(one.manifest.about.model, one.version, one.manifest.about.step, one.id) for one in published(root)]


def rows(result: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((result / "checkpoints.json").read_text())
    return found


@pytest.fixture(scope="module")
def expected(tiny_folder: Path, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What an undisturbed training leaves: its store, and its result."""
    folder = tmp_path_factory.mktemp("undisturbed")
    request = request_maker(tiny_folder, dataset, folder)(work="whole", checkpoints=folder / "store")
    return folder / "store", train(request)


def test_every_validation_leaves_a_checkpoint_that_says_where_it_came_from(
    make_request: MakeRequest, tmp_path: Path
) -> None:
    events = list[dict[str, Any]]()
    request = make_request(checkpoints=tmp_path / "store", run="run-1", **ALL)
    result = train(request, events=events)
    found = published(tmp_path / "store")
    assert [(one.manifest.about.model, one.version, one.manifest.about.step) for one in found] == [
        ("python/voter-0", 1, 3), ("python/voter-0", 2, 6), ("python/voter-0", 3, 8),
    ]  # fmt: skip
    curve = {
        (point["step"], name): point[name]
        for point in json.loads((result / "curve.json").read_text())
        for name in ("loss", "validation_loss")
        if name in point
    }
    best = json.loads((result / "manifest.json").read_text())["best_step"]
    parent = None
    for one in found:
        about = one.manifest.about
        assert (about.parent, about.base_digest, about.dataset_digest) == (parent, request.base_digest, "of the rows")
        assert (about.code_version, about.run) == (__version__, "run-1")
        assert (
            about.recipe is not None and about.recipe["training"]["learning_rate"] == 0.01 and about.recipe["seed"] == 1
        )
        assert "threads" not in about.recipe["hardware"]
        assert about.metrics == {
            "validation_loss": curve[about.step, "validation_loss"],
            "loss": curve[about.step, "loss"],
            "base_validation_loss": curve[0, "validation_loss"],
        }
        assert about.tags[0] == "voter-0" and about.tags[1].startswith("inputs-")
        assert one.manifest.kind == "adapter" and set(one.manifest.files) == {"adapter_config.json"}
        parent = one.id
    assert "best" in next(one for one in found if one.manifest.about.step == best).manifest.about.tags
    # The best one is the adapter that is published, to the bit.
    adapter = read_adapter(result)
    stored = next(one for one in found if one.manifest.about.step == best).state()
    assert stored.keys() == adapter.tensors.keys()
    assert all(torch.equal(stored[name], value) for name, value in adapter.tensors.items())
    assert [event["id"] for event in events if event["event"] == "epoch_checkpoint"] == [one.id for one in found]
    assert rows(result) == [
        {"step": one.manifest.about.step, "id": one.id, "version": one.version,
         "validation_loss": one.manifest.about.metrics["validation_loss"]}
        for one in found
    ]  # fmt: skip


def test_the_last_and_the_best_stay_and_other_trainings_are_left_alone(
    make_request: MakeRequest, tmp_path: Path
) -> None:
    shared = tmp_path / "store"
    worse = {
        "learning_rate": 1.0,
        "warmup": 0.0,
        "max_steps": 3,
        "evaluate_every": 1,
    }  # the first validation is the best
    first = rows(train(make_request(work="first", checkpoints=shared, **worse)))
    best = min(first, key=lambda row: row["validation_loss"])
    assert [row["step"] for row in first] == sorted({best["step"], 3})
    assert {one.id for one in published(shared)} == {row["id"] for row in first}
    second = rows(train(make_request(work="second", checkpoints=shared, seed=2, **worse)))
    assert {one.id for one in published(shared)} == {row["id"] for row in [*first, *second]}
    again = rows(train(make_request(work="again", checkpoints=shared, **worse)))  # publishes what was not kept, anew
    assert again == first
    assert {one.id for one in published(shared)} == {row["id"] for row in [*first, *second]}
    only = make_request(
        work="only", checkpoints=tmp_path / "only", epoch_checkpoints={"every": 2, "keep_best": None}, **worse
    )
    assert [row["step"] for row in rows(train(only))] == [3]


def test_the_same_inputs_have_the_same_ids_whatever_the_run_and_its_speed(
    make_request: MakeRequest, tmp_path: Path
) -> None:
    few = ALL | {"max_steps": 4}
    results = [
        train(make_request(work="one", checkpoints=tmp_path / "one", run="a", **few)),
        train(
            make_request(work="two", checkpoints=tmp_path / "two", run="b", report_every=7, checkpoint_every=1, **few)
        ),
    ]
    assert ids(tmp_path / "one") == ids(tmp_path / "two")
    train(make_request(work="again", checkpoints=tmp_path / "one", run="c", **few))
    assert ids(tmp_path / "one") == ids(tmp_path / "two")  # a training done again adds nothing
    # And a store changes nothing of what is trained.
    assert digests(results[0]) == digests(results[1]) == digests(train(make_request(work="without", max_steps=4)))
    assert not (tmp_path / "without" / "voter-0" / "result" / "checkpoints.json").exists()


def test_with_the_optimizers_state_when_the_recipe_says_so(make_request: MakeRequest, tmp_path: Path) -> None:
    request = make_request(checkpoints=tmp_path / "store", epoch_checkpoints={"optimizer": True})
    adapter = read_adapter(train(request))
    [*_, last] = published(tmp_path / "store")
    state = last.state()
    assert state.keys() == {"adapter", "optimizer"}
    assert state["adapter"].keys() == adapter.tensors.keys()
    assert len(state["optimizer"]) == 3 * len(adapter.tensors)
    assert all(float(value) == 8 for name, value in state["optimizer"].items() if name.endswith(".step"))


@pytest.mark.resume
@pytest.mark.parametrize("calls", [(6, 14), pytest.param((7, 9, 23), marks=pytest.mark.extended)])
def test_stopped_anywhere_and_resumed_there_is_each_checkpoint_once(
    make_request: MakeRequest, tmp_path: Path, expected: tuple[Path, Path], calls: tuple[int, ...]
) -> None:
    store, whole = expected
    for call in calls:
        request = make_request(work=f"stopped-{call}", checkpoints=tmp_path / f"store-{call}")
        for _ in range(100):
            try:
                result = train(request, poll=StopAt(call))
                break
            except Interrupted:
                if call <= 6:
                    result = train(request)
                    break
        assert ids(tmp_path / f"store-{call}") == ids(store), call
        assert rows(result) == rows(whole) and digests(result) == digests(whole)


@pytest.mark.resume
def test_killed_after_what_was_not_needed_went_and_before_the_result_was_there(
    make_request: MakeRequest, tmp_path: Path, expected: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt comes by the last step again; the parent that it names is gone by then."""
    store, whole = expected
    request = make_request(checkpoints=tmp_path / "store")
    with monkeypatch.context() as killed:
        killed.setattr(loop, "write_result", lambda *rest: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            train(request)
    assert rows(train(request)) == rows(whole)
    assert ids(tmp_path / "store") == ids(store)


@pytest.mark.resume
@pytest.mark.extended
def test_killed_voters_leave_nothing_half_there_and_nothing_twice(make_request: MakeRequest, tmp_path: Path) -> None:
    two = [{"name": f"voter-{number}", "seed": number, "shard": number} for number in range(2)]
    changes: dict[str, Any] = {"max_steps": 8, "parallel": 2, "checkpoint_every": 1, "voters": two}
    train_domain(make_request(work="undisturbed", checkpoints=tmp_path / "expected", **changes), lambda event: None)
    request = make_request(work="disturbed", checkpoints=tmp_path / "store", **changes)
    killer = Killer({"voter-0": 2, "voter-1": 2}, at_step=4)
    outcome = train_domain(request, killer)
    assert outcome.finished == ("voter-0", "voter-1") and set(killer.of("restarted")) == {"voter-0", "voter-1"}
    assert ids(tmp_path / "store") == ids(tmp_path / "expected")
    kept = outcome.summary["voters"]["voter-1"]["checkpoints"]
    assert {row["id"] for row in kept} == {
        one.id for one in published(tmp_path / "store") if one.manifest.about.model == "python/voter-1"
    }


def test_an_object_store_gets_the_same_checkpoints(
    make_request: MakeRequest, tmp_path: Path, expected: tuple[Path, Path]
) -> None:
    root = f"memory://{tmp_path}/store"
    train(make_request(work="remote", checkpoints=root))
    remote = CheckpointStore(root, work=tmp_path / "parts")
    assert remote.verify() == []
    assert [one.id for one in remote.list()] == [one.id for one in published(expected[0])]
    assert not list((tmp_path / "remote").rglob("*.part"))


class Gate:
    """Holds the writing thread at its first `sync` of a store until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.open, self.reached, real = threading.Event(), threading.Event(), files.sync

        def sync(fd: int) -> None:
            self.reached.set()
            assert self.open.wait(60)
            real(fd)

        monkeypatch.setattr(files, "sync", sync)


def test_a_slow_store_does_not_hold_the_steps_and_a_point_waits_for_what_it_would_lack(
    make_request: MakeRequest, tmp_path: Path, expected: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, whole = expected
    gate, events = Gate(monkeypatch), list[dict[str, Any]]()

    def poll() -> None:
        if [event["step"] for event in events if event["event"] == "step"][-1:] == [5]:
            gate.open.set()  # two steps after the validation at 3, whose checkpoint stood still all the while

    result = train(make_request(checkpoints=tmp_path / "store"), poll=poll, events=events)
    order = [
        (event["event"], event["step"]) for event in events if event["event"] in ("checkpoint", "epoch_checkpoint")
    ]
    assert order[:2] == [("checkpoint", 1), ("checkpoint", 2)]  # the first is the rehearsal
    assert ("checkpoint", 4) not in order  # it was due, but what was published at 3 was not yet known
    later = [place for place, (event, step) in enumerate(order) if event == "checkpoint" and step > 3]
    assert all(order.index(("epoch_checkpoint", 3)) < place for place in later)
    assert digests(result) == digests(whole) and ids(tmp_path / "store") == ids(store)


@pytest.mark.resume
def test_asked_to_stop_while_the_store_stands_still_an_older_point_does_and_the_same_comes_of_it(
    make_request: MakeRequest, tmp_path: Path, expected: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _ = expected
    request, events = make_request(checkpoints=tmp_path / "store"), list[dict[str, Any]]()
    with monkeypatch.context() as slow:
        slow.setattr(resuming, "_STOP_GRACE_S", 0.1)
        gate = Gate(slow)

        def poll() -> None:
            if any(event["event"] == "validation" and event["step"] == 3 for event in events):
                assert gate.reached.wait(30)
                threading.Timer(1.0, gate.open.set).start()  # as the process would be gone by then, nearly
                raise Interrupted

        with pytest.raises(Interrupted):
            train(request, poll=poll, events=events)
    stopped = next(event for event in events if event["event"] == "interrupted")
    assert stopped["step"] == 2  # of the point that is there, not the step that was reached
    train(request, events=events)
    assert [event["step"] for event in events if event["event"] == "resumed"] == [2]
    assert ids(tmp_path / "store") == ids(store)


@pytest.mark.resume
def test_a_checkpoint_that_cannot_be_written_stops_the_training_and_the_next_attempt_publishes_it(
    make_request: MakeRequest, tmp_path: Path, expected: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, whole = expected
    request, events = make_request(checkpoints=tmp_path / "store"), list[dict[str, Any]]()
    with monkeypatch.context() as full:
        full.setattr(files, "sync", lambda fd: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(InputError, match="no room to write") as caught:
            train(request, events=events)
    assert "of python/voter-0 at step 3" in "".join(caught.value.__notes__)
    assert max(event["step"] for event in events if event["event"] == "step") <= 6  # at a next step, not at the end
    assert CheckpointStore(tmp_path / "store").list() == []
    assert rows(train(request)) == rows(whole)
    assert ids(tmp_path / "store") == ids(store)


def test_a_resume_point_that_cannot_be_written_stops_it_too(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = list[dict[str, Any]]()
    monkeypatch.setattr(
        resume, "write_durable", lambda *rest: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match="No space left on device"):
        train(make_request(), events=events)
    assert max(event["step"] for event in events if event["event"] == "step") == 1  # the rehearsal finds it


@pytest.mark.resume
def test_a_resume_point_holds_the_step_it_is_called_by_whatever_was_trained_while_it_was_written(
    make_request: MakeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The classic bug of saving beside the training: weights of one step, moments of the next."""

    def points(work: str, wait: Callable[[], Any] = lambda: None) -> dict[str, dict[str, bytes]]:
        request = make_request(work=work, keep_checkpoints=9)
        kept, real = request.work.parent / f"kept-{work}", resume.write_durable

        def slow(path: Path, data: bytes) -> None:
            wait()
            real(path, data)

        with monkeypatch.context() as patched:
            patched.setattr(resume, "write_durable", slow)
            patched.setattr(loop, "drop_points", lambda folder: shutil.copytree(folder, kept))
            train(request)
        return {
            path.name: {file.name: file.read_bytes() for file in path.glob("*.safetensors")}
            for path in sorted(kept.glob("checkpoint-*"))
        }

    at_once = points("at-once")
    assert sorted(at_once) == ["checkpoint-1", "checkpoint-2", "checkpoint-4", "checkpoint-6"]
    assert points("slowly", lambda: time.sleep(0.05)) == at_once


def test_a_damaged_store_is_said_before_the_training(make_request: MakeRequest, tmp_path: Path) -> None:
    train(make_request(work="first", checkpoints=tmp_path / "store"))
    [*_, version] = sorted((tmp_path / "store" / "models" / "python%2Fvoter-0").iterdir())
    version.write_bytes(b"damaged")
    events = list[dict[str, Any]]()
    with pytest.raises(Exception, match=r"v0000\d\d is damaged"):
        train(make_request(work="second", checkpoints=tmp_path / "store"), events=events)
    assert not [event for event in events if event["event"] == "step"]
