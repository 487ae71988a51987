"""What must hold of a checkpoint store after any crash: whole checkpoints only, all whose `save` had returned."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from capibara_assets.checkpoints.store import collect as collecting
from capibara_assets.checkpoints.store import leases
from capibara_assets.checkpoints.store.checkpoint import Checkpoint
from capibara_assets.checkpoints.store.store import CheckpointStore, MissingCheckpoint
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets_tests.checkpoints.drills.states import same, small_state


@dataclass
class Ledger:
    """What writers told: a checkpoint counts from the return of `save` to the call of `retire`.

    Attributes:
        saved: id -> (seed of its writer, step).
        retiring: ids that `retire` was called with; they may be there or not.
    """

    saved: dict[str, tuple[int, int]] = field(default_factory=dict)
    retiring: set[str] = field(default_factory=set)

    def add(self, note: Any) -> None:
        """One note of a writer: `["saved", id, seed, step]` or `["retiring", id, ...]`; others say nothing here."""
        if note[0] == "saved":
            self.saved[note[1]] = (note[2], note[3])
        elif note[0] == "retiring":
            self.retiring.update(note[1:])

    @property
    def owed(self) -> set[str]:
        """Ids that must be there."""
        return self.saved.keys() - self.retiring


def model_name(seed: int) -> str:
    """The model under which the writer of this seed saves."""
    return f"writer-{seed}"


def found_in(store: CheckpointStore) -> tuple[dict[str, Checkpoint], list[str]]:
    """(checkpoints by id, problems): every listed checkpoint loads, to the last bit what its writer saved.

    One that is retired meanwhile, and not listed any more then, is no problem.
    """
    problems: list[str] = []
    whole: dict[str, Checkpoint] = {}
    try:
        listed = store.list()
    except (InputError, IntegrityError, OSError) as error:
        return {}, [f"the store does not even list: {type(error).__name__}: {error}"]
    for checkpoint in listed:
        about = checkpoint.manifest.about
        try:
            state = store.load(checkpoint.id)
        except (InputError, IntegrityError, OSError) as error:
            if _listed(store, checkpoint.id):
                problems.append(f"{about.model} step {about.step} is listed and does not load: {error}")
            continue
        if not same(state, small_state(int(about.model.removeprefix("writer-")), about.step)):
            problems.append(f"{about.model} step {about.step} loads and is not what was saved")
            continue
        whole[checkpoint.id] = checkpoint
    return whole, problems


def _listed(store: CheckpointStore, checkpoint: str) -> bool:
    try:
        store.open(checkpoint)
    except MissingCheckpoint:
        return False
    return True


def problems_after_crash(
    make_store: Callable[[], CheckpointStore], ledger: Ledger, *, work_on: bool, seed: int = 0, step: int = 0
) -> dict[str, list[str]]:
    """Corrupt reads and lost checkpoints, none when all is well.

    Args:
        work_on: the next writer saves (small_state(seed, step)), verify finds nothing, gc runs, and then all that is
            owed is still there. Only where no other writer is at work.
    """
    store = make_store()
    whole, corrupt = found_in(store)
    lost = [_named(ledger, each) for each in sorted(ledger.owed - whole.keys())]
    if not work_on or corrupt or lost:
        return {"corrupt": corrupt, "lost": lost}
    state = small_state(seed, step)
    saved = store.save(state, step, model_name(seed))
    if not same(make_store().load(saved), state):
        corrupt.append("the checkpoint saved after the crash is not what was saved")
    corrupt += [f"verify after the crash: {damage}" for damage in store.verify()]
    with much_later():  # or the leases of the dead, who cannot be told from writers elsewhere, keep everything
        store.collect()
        store.collect()  # what the first condemned is gone, and what remains is needed
    whole, more = found_in(make_store())
    lost += [f"{_named(ledger, each)}, after gc" for each in sorted(ledger.owed - whole.keys())]
    if saved not in whole:
        lost.append("the checkpoint saved after the crash")
    corrupt += [f"gc leaves {name}" for name in rubbish(make_store())]
    return {"corrupt": corrupt + more, "lost": lost}


def try_collect(store: CheckpointStore) -> None:
    """gc, unless another one runs: then it says so, and nothing else is an answer."""
    try:
        store.collect()
    except InputError as error:
        if "another collection" not in str(error):
            raise


@contextmanager
def much_later() -> Iterator[None]:
    """The clock of leases and collections stands an hour on: whoever died has lost his lease."""
    later = SimpleNamespace(**{**vars(time), "time": lambda: time.time() + 3600.0})
    with ExitStack() as patched:
        for module in (leases, collecting):
            if hasattr(module, "time"):
                patched.enter_context(mock.patch.object(module, "time", later))
        elapsed = leases.since_boot
        patched.enter_context(mock.patch.object(leases, "since_boot", lambda: elapsed() + 3600.0))
        yield


def _named(ledger: Ledger, checkpoint: str) -> str:
    seed, step = ledger.saved[checkpoint]
    return f"{model_name(seed)} step {step} ({checkpoint[:12]})"


def rubbish(store: CheckpointStore) -> list[str]:
    """What lies in a local store although no checkpoint needs it and no writer is at work, found without gc's help."""
    root = Path(store.root)
    manifests = [checkpoint.manifest for checkpoint in store.list()]
    needed = {
        digest
        for manifest in manifests
        for entry in (*manifest.tensors.values(), *manifest.files.values())
        for digest in entry.pieces
    }
    packs = store.catalog.refresh()
    found = [index.name for index in packs.values() if needed.isdisjoint(index.pieces)]
    found += [
        path.relative_to(root).as_posix()
        for folder in ("parts", "leases", "condemned")
        for path in (root / folder).glob("*")
    ]
    listed = {checkpoint.id for checkpoint in store.list()}
    return found + [path.name for path in (root / "manifests").glob("*") if path.name.partition("-")[0] not in listed]


def files_under(root: Path) -> Mapping[str, int]:
    """Every file below a folder and its length."""
    return {path.relative_to(root).as_posix(): path.stat().st_size for path in root.rglob("*") if path.is_file()}
