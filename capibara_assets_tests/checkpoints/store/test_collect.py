"""Collection: what nobody needs goes, what anybody needs stays, whatever writers and readers do at that moment."""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from capibara_assets.checkpoints.content import PIECE
from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store import files, leases
from capibara_assets.checkpoints.store.leases import GRACE_S, LIFE_S, LeaseExpired
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets_tests.checkpoints.states import adapter, same, unsynced  # noqa: F401 - a fixture
from capibara_assets_tests.forked import Forked

pytestmark = pytest.mark.usefixtures("unsynced")
BIG = {"w": torch.arange(5000)}


def names(root: Path, folder: str) -> list[str]:
    """Names of the files in a folder of a store."""
    return sorted(path.name for path in (root / folder).iterdir()) if (root / folder).is_dir() else []


def at(monkeypatch: pytest.MonkeyPatch, call: str, when: Callable[..., bool], do: Callable[[], None]) -> list[str]:
    """Do something once, just before the first call of `files.<call>` for which `when` is true; a list of what ran."""
    original, ran = getattr(files, call), []

    def hooked(*args: Any) -> Any:
        if not ran and when(*args):
            ran.append(call)
            do()
        return original(*args)

    monkeypatch.setattr(files, call, hooked)
    return ran


def test_a_dry_run_says_what_goes_and_why_and_does_nothing(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, compression="none")
    store.save(BIG, 1, "kept")
    store.retire([store.save({"v": torch.ones(5000)}, 1, "gone")])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    plan = store.collect(dry_run=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    why = {item.name.split("/")[0]: item.why for item in plan.deleted}
    assert why == {"manifests": "no version points at it", "packs": "no checkpoint needs it"}
    assert plan.bytes_freed > 20_000
    assert store.collect() == plan
    assert sum(len(data) for data in before.values()) - plan.bytes_freed == sum(
        path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()
    )
    assert store.collect().deleted == () and store.verify() == []
    assert same(store.load("kept"), BIG)


@pytest.mark.parametrize("vault", [None, Vault.new()], ids=["plain", "encrypted"])
def test_a_pack_that_is_mostly_dead_is_rewritten(tmp_path: Path, vault: Vault | None) -> None:
    """Manifests name pieces, not places: they stay as they are, and a reader that knew the old place finds the new."""
    store = CheckpointStore(tmp_path, vault=vault)
    small = {"base": torch.arange(4000, dtype=torch.int16), "noise": torch.rand(10)}
    store.retire([store.save({**small, "big": torch.rand(100_000)}, 1, "m")])
    kept = store.save(small, 2, "m")
    reader = CheckpointStore(tmp_path, vault=vault)
    lazy = reader.open(kept).content()
    manifests = names(tmp_path, "manifests")
    [old] = names(tmp_path, "packs")
    collected = store.collect()
    assert [item.name for item in collected.repacked] == [f"packs/{old}"] and "are needed" in collected.repacked[0].why
    [new] = names(tmp_path, "packs")
    assert new != old and (tmp_path / "packs" / new).stat().st_size < 50_000
    assert set(names(tmp_path, "manifests")) < set(manifests)
    assert b"".join(bytes(piece) for piece in lazy.tensors["base"].pieces()) == small["base"].numpy().tobytes()
    for one in (reader, store, CheckpointStore(tmp_path, vault=vault)):
        assert same(one.load(kept), small) and one.verify() == []
    assert store.collect() == store.collect()  # and that is that


def test_a_reader_with_an_open_pack_reads_on(tmp_path: Path) -> None:
    state = {"w": torch.randint(0, 255, (4 * PIECE,), dtype=torch.uint8)}
    store = CheckpointStore(tmp_path, compression="none")
    identity = store.save(state, 1, "m")
    reading = CheckpointStore(tmp_path).open(identity).content().tensors["w"].pieces()
    first = bytes(next(reading))
    gone = CheckpointStore(tmp_path).open(identity).content()
    store.retire([identity])
    store.collect()
    assert names(tmp_path, "packs") == []
    assert first + b"".join(bytes(piece) for piece in reading) == state["w"].numpy().tobytes()
    with pytest.raises(IntegrityError, match="lacks the piece"):  # whoever begins only now has come too late
        list(gone.tensors["w"].pieces())


WRITER_STOPS = {
    "before its first byte": ("create", lambda path, *_: path.name.endswith(".pack")),
    "in its pack": ("pwrite", lambda fd, data, offset: len(data) > 10_000),
    "before its pack is there": ("rename", lambda source, target: target.parent.name == "packs"),
    "before its manifest is there": ("rename", lambda source, target: target.parent.name == "manifests"),
    "before its version is there": ("link", lambda source, target: target.parent.parent.name == "models"),
}


@pytest.mark.parametrize("stop", WRITER_STOPS)
def test_collections_while_a_writer_is_at_every_critical_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str
) -> None:
    """It relies on a pack that was live when it began; meanwhile that is retired, and collected twice over."""
    store = CheckpointStore(tmp_path, compression="none")
    first = store.save(BIG, 1, "m")
    collected = []

    def collect() -> None:
        other = CheckpointStore(tmp_path)
        other.retire([first])
        collected.extend([other.collect(), other.collect()])

    ran = at(monkeypatch, *WRITER_STOPS[stop], collect)
    state = {**BIG, "new": torch.rand(5000)}
    second = store.save(state, 2, "m")
    assert ran and [found.bytes_freed > 10_000 for found in collected] == [False, False]  # it waits for the writer
    assert any(found.waiting for found in collected)
    assert same(CheckpointStore(tmp_path).load(second), state) and store.verify() == []
    store.collect()
    assert same(CheckpointStore(tmp_path).load(second), state) and store.verify() == []
    assert names(tmp_path, "condemned") == [] and names(tmp_path, "leases") == [] and names(tmp_path, "parts") == []


def test_a_writer_that_began_after_the_mark_does_not_rely_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector stops right before it deletes the pack; a writer saves the very content that is in it."""
    store = CheckpointStore(tmp_path, compression="none")
    store.retire([store.save(BIG, 1, "m")])
    [old] = names(tmp_path, "packs")
    saved = []
    ran = at(
        monkeypatch,
        "unlink",
        lambda path: path.name == old,
        lambda: saved.append(CheckpointStore(tmp_path).save(BIG, 2, "m")),
    )
    store.collect()
    assert ran and old not in names(tmp_path, "packs")
    assert same(CheckpointStore(tmp_path).load(saved[0]), BIG) and store.verify() == []


@pytest.mark.parametrize("call", ["rename", "link", "unlink", "create"])
def test_a_writer_at_any_moment_of_a_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Every call with which the collector changes something is preceded, in one run each, by a whole save."""
    done = False
    turn = 0
    while not done:
        root = tmp_path / str(turn)
        store = CheckpointStore(root, compression="none")
        store.retire([store.save({**BIG, "dead": torch.rand(20_000)}, 1, "m"), store.save({"x": BIG["w"] + 1}, 2, "m")])
        store.save({"w2": BIG["w"][:PIECE]}, 3, "n")
        countdown = iter([*[False] * turn, True])
        saved: list[str] = []
        with monkeypatch.context() as patch:
            ran = at(
                patch,
                call,
                lambda *_, countdown=countdown: next(countdown, False),
                lambda root=root, saved=saved: saved.append(
                    CheckpointStore(root).save({**BIG, "x": BIG["w"] + 1}, 4, "m")
                ),
            )
            store.collect()
        done = not ran
        for _ in range(2):
            reader = CheckpointStore(root)
            assert reader.verify() == [], (call, turn)
            assert all(same(reader.load(one), {**BIG, "x": BIG["w"] + 1}) for one in saved), (call, turn)
            assert same(reader.load("n"), {"w2": BIG["w"]})
            reader.collect()
        turn += 1
    assert turn >= {"link": 1, "create": 2}.get(call, 4)  # there were moments


def test_what_interrupted_writers_left_is_swept_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path, compression="none")
    store.save(BIG, 1, "m")

    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    # a killed process runs no `finally`: its lease and its part stay
    with monkeypatch.context() as patch:
        patch.setattr(files, "unlink", lambda path: None)
        patch.setattr(leases, "_host", lambda: "another machine")
        at(patch, "rename", lambda source, target: target.parent.name == "packs", die)
        with pytest.raises(Killed):
            store.save({"x": torch.rand(9999)}, 2, "m")
    assert len(names(tmp_path, "leases")) == 1 and any(name.endswith(".pack") for name in names(tmp_path, "parts"))
    assert [one.version for one in store.list()] == [1] and store.verify() == []
    kept = store.collect()  # its machine may be at work
    assert not any("interrupted" in item.why for item in kept.deleted)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + LIFE_S + GRACE_S + 1)
    swept = store.collect()
    assert swept.bytes_freed > 9999 * 4 and names(tmp_path, "parts") == names(tmp_path, "leases") == []
    assert same(store.load("m"), BIG)


def test_a_lease_of_a_dead_process_counts_no_more(tmp_path: Path) -> None:
    """On its own machine nobody waits for a quarter of an hour."""
    store = CheckpointStore(tmp_path)
    lease = leases.Lease(store.place, None, "save")
    assert leases.alive(store.place, None) == {lease.id: "save"}
    body = (tmp_path / lease.name).read_bytes()
    other = Forked(lambda say: say(leases.Lease(CheckpointStore(tmp_path).place, None, "save").id)).rest()
    assert set(names(tmp_path, "leases")) == {lease.id, other.strip()}
    assert leases.alive(store.place, None) == {lease.id: "save"}
    (tmp_path / lease.name).write_bytes(body[:-5])  # torn, as only a crash of its machine leaves it
    assert leases.alive(store.place, None) == {}


def test_a_writer_whose_lease_ran_out_does_not_publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path)
    now = leases.since_boot()
    late = lambda: monkeypatch.setattr(leases, "since_boot", lambda: now + LIFE_S + 1)  # noqa: E731
    at(monkeypatch, "rename", lambda source, target: target.parent.name == "manifests", late)
    with pytest.raises(LeaseExpired, match="stalled for over 15 minutes"):
        store.save(BIG, 1, "m")
    assert store.list() == []


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps_ends_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    """A writer whose machine's clock is set publishes, and no collection beside it takes what it relies on."""
    store, now = CheckpointStore(tmp_path), time.time

    def jump() -> None:
        monkeypatch.setattr(time, "time", lambda: now() + jump_s)
        assert leases.alive(store.place, None)
        CheckpointStore(tmp_path).collect()

    at(monkeypatch, "rename", lambda source, target: target.parent.name == "packs", jump)
    assert same(store.load(store.save(BIG, 1, "m")), BIG)


@pytest.mark.parametrize("collection", ["none", "takes its pack", "takes its unpublished version, too"])
def test_a_writer_that_was_suspended_at_the_last_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collection: str
) -> None:
    """Its lease was looked at; then it stood still until the lease had run out, and a collection may have come."""
    store = CheckpointStore(tmp_path)
    later, elapsed = time.time() + LIFE_S + GRACE_S + 1, leases.since_boot() + LIFE_S + GRACE_S + 1

    def sleep() -> None:
        monkeypatch.setattr(time, "time", lambda: later)
        monkeypatch.setattr(leases, "since_boot", lambda: elapsed)
        if collection == "takes its pack":
            for part in (tmp_path / "parts").iterdir():
                os.utime(part, (later, later))
        if collection != "none":
            assert CheckpointStore(tmp_path).collect().deleted

    ran = at(monkeypatch, "link", lambda source, target: target.parent.parent.name == "models", sleep)
    if collection == "none":
        assert same(store.load(store.save(BIG, 1, "m")), BIG)
    else:
        with pytest.raises(InputError, match="stalled") as caught:
            store.save(BIG, 1, "m")
        assert isinstance(caught.value, LeaseExpired) == (collection == "takes its pack")
        assert store.list() == []
    assert ran and store.verify() == []


def test_a_lease_is_renewed_while_its_writer_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LIFE_S", 5.0)  # it is renewed each second; a busy machine may be late by several
    store = CheckpointStore(tmp_path)
    with leases.hold(store.place, None, "save") as lease:
        first, deadline = (tmp_path / lease.name).read_bytes(), time.monotonic() + 60
        while (tmp_path / lease.name).read_bytes() == first:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        lease.check()
    assert names(tmp_path, "leases") == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lease-")]


def test_two_collections_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path)
    store.retire([store.save(BIG, 1, "m")])
    refused = []

    def collect() -> None:
        with pytest.raises(InputError, match="another collection"):
            CheckpointStore(tmp_path).collect()
        refused.append(True)

    at(monkeypatch, "unlink", lambda path: path.parent.name == "packs", collect)
    assert store.collect().bytes_freed and refused


def test_nothing_is_deleted_while_it_is_not_known_who_needs_what(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(BIG, 1, "m")
    store.retire([store.save({"x": torch.rand(10)}, 2, "m")])
    [manifest] = [
        path for path in (tmp_path / "manifests").iterdir() if path.name in store.versions.of("m")[0].manifest
    ]
    manifest.write_bytes(manifest.read_bytes()[:-1] + b"?")
    before = names(tmp_path, "packs")
    with pytest.raises(IntegrityError, match=manifest.name):
        CheckpointStore(tmp_path).collect()
    assert names(tmp_path, "packs") == before


def test_a_sparse_pack_that_is_damaged_is_left_alone(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, compression="none")
    store.retire([store.save({"base": torch.ones(1000), "big": torch.rand(100_000)}, 1, "m")])
    store.save({"base": torch.ones(1000)}, 2, "m")
    [pack] = (tmp_path / "packs").iterdir()
    data = bytearray(pack.read_bytes())
    data[600] ^= 1
    pack.write_bytes(data)
    collected = store.collect()
    assert [item.name for item in collected.left] == [f"packs/{pack.name}"] and "damaged" in collected.left[0].why
    assert pack.exists()


class Life(RuleBasedStateMachine):
    """Saves, retirements, collections and fresh readers in any order, against a plain dictionary."""

    root: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = self.root / str(time.monotonic_ns())
        self.store = CheckpointStore(self.folder)
        self.saved: dict[str, tuple[str, int, Any]] = {}

    @rule(seed=st.integers(0, 5), model=st.sampled_from(["a", "b"]))
    def save(self, seed: int, model: str) -> None:
        state = adapter(seed, size=8)
        self.saved[self.store.save(state, seed, model)] = (model, seed, state)

    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        if self.saved:
            some = data.draw(st.lists(st.sampled_from(sorted(self.saved)), unique=True, max_size=3))
            self.store.retire(some)
            for one in some:
                del self.saved[one]

    @rule()
    def collect(self) -> None:
        planned = self.store.collect(dry_run=True)
        collected = self.store.collect()
        assert {item.name for item in planned.deleted} <= {item.name for item in collected.deleted}
        assert not self.saved or self.store.catalog.listed()
        if not self.saved:
            assert self.store.catalog.listed() == {} and names(self.folder, "manifests") == []

    @rule()
    def another_process(self) -> None:
        self.store = CheckpointStore(self.folder)

    @invariant()
    def everything_is_there(self) -> None:
        assert {one.id for one in self.store.list()} == set(self.saved)
        for one, (model, seed, state) in self.saved.items():
            assert same(self.store.load(one), state)
            assert self.store.open(f"{model}@step:{seed}").id == one

    def teardown(self) -> None:
        assert self.store.verify() == []


def test_any_order_of_saves_retirements_and_collections(tmp_path: Path) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        type("Here", (Life,), {"root": tmp_path}),
        settings=settings(max_examples=settings.default.max_examples // 3, stateful_step_count=12),
    )
