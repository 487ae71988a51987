"""A tiny deployment that is walked at random: its steps are processes, and some are killed at a change of a file.

`python -m capibara_assets_tests.reliability.walked` reads steps from standard input, forks a process for each and
answers how it ended. It computes nothing itself: a forked process has none of its parent's threads.

Dagster's part, which result of an asset is the current one, is a file here: `current.json`. The steps are those of the
asset bodies and of `capibara forget`, by the same library functions in the same order.
"""

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from capibara_assets.checkpoints.artifacts import checkpoints_of, open_artifacts
from capibara_assets.checkpoints.retention import RetentionPolicy
from capibara_assets.datasets.schema import Example, LeftOut
from capibara_assets.evaluation.serving.promotion import NOTHING, promote_manually, roll_back, served
from capibara_assets.evaluation.serving.promotion_log import PromotionLog, state_before
from capibara_assets.executions.ingest.forgotten import read_forgotten, write_tombstones
from capibara_assets.executions.ingest.ingest import VOLATILE, ingest, ledger_name
from capibara_assets.lineage.checkpoints import behind, needed_checkpoints, purge, still_holding
from capibara_assets.lineage.forget import (
    all_removed,
    alone,
    delete,
    doomed,
    drop_lines,
    find,
    note_lines,
    purge_ledgers,
    remove,
    work_folders,
)
from capibara_assets.lineage.records import Results
from capibara_assets.lineage.traces import holding
from capibara_assets.lineage.unneeded import prune_checkpoints
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.checkpointed import Checkpointed
from capibara_assets.storage.jsonfiles import read_json, write_json_atomic
from capibara_assets.storage.records import table
from capibara_assets.storage.store import ArtifactStore, Table
from capibara_assets_tests.executions.conftest import NOW, envelope, line
from capibara_assets_tests.lineage.conftest import example

CHANGES = ("rename", "replace", "unlink", "mkdir", "rmdir", "link", "fsync", "ftruncate")
DOMAIN = "python"


def needle(number: int) -> str:
    """Text that one record holds and nothing else."""
    return f"def walked_over_{number:05d}_times():"


def secret(number: int) -> str:
    """A secret that one record tells, and that the next record holds bare."""
    return f"kT9x2Lm{number:03d}vR4wZ7pQ"


@dataclass(frozen=True)
class World:
    """A deployment in a folder."""

    folder: Path

    @property
    def experience(self) -> Path:
        return self.folder / "experience"

    def store(self) -> ArtifactStore:
        return open_artifacts(self.folder / "store", self.folder / "work")

    def ledger(self) -> Path:
        return self.store().work_dir("e2b_logs", None, ledger_name(self.experience))

    def current(self) -> dict[str, str]:
        file = self.folder / "current.json"
        return dict(read_json(file)) if file.exists() else {}

    def note(self, artifact: Artifact) -> None:
        write_json_atomic(self.folder / "current.json", {**self.current(), _key(artifact): artifact.digest})

    def results(self, store: ArtifactStore) -> Results:
        named = [(*key.split("|"), digest) for key, digest in self.current().items()]
        return Results(store, {(a, p or None): store.open(a, p or None, digest) for a, p, digest in named})


def _key(artifact: Artifact) -> str:
    return f"{artifact.name}|{artifact.partition or ''}"


def arrive(world: World, first: int, number: int, file: str) -> None:
    """Lines that agents append to a log: each second one holds, bare, the secret that the one before it told."""
    world.experience.mkdir(exist_ok=True)
    with (world.experience / file).open("ab") as log:
        for n in range(first, first + number):
            told = f'api_key = "{secret(n)}"' if n % 2 == 0 else f"print('{secret(n - 1)}')"
            code = f"{needle(n)}\n    return {n}\n{told}"
            log.write(line(envelope(code, execution_id=f"walked-{n:05d}", sandbox_id=f"s{n}")) + b"\n")


def materialize(world: World) -> None:
    """What a sensor's run, or a backfill, makes of the logs."""
    store = world.store()
    forgotten, ledger = read_forgotten(store), world.ledger()
    with ingest(world.experience, now=NOW, ledger=ledger, forgotten=forgotten, processes=1) as read:
        tables = {name: Table(*one) for name, one in read.tables().items()}
        logs = store.publish("e2b_logs", None, tables=tables, documents=read.documents(), volatile=VOLATILE)
        rows = read.table("executions").select("execution_id", "code").rows()
    world.note(logs)
    examples = [
        example(f"e-{name}", f"g-{name}", "train", [name], messages=json.dumps([{"role": "user", "content": code}]))
        for name, code in rows
    ]
    made = store.publish(
        "moe_dataset",
        DOMAIN,
        tables={"examples": Table(Example, table(Example, examples)), "left_out": Table(LeftOut, table(LeftOut, []))},
        inputs={"upstream": {"e2b_logs|_": logs.digest}},
    )
    world.note(made)


def train(world: World) -> None:
    """An epoch's checkpoint, which no result names, and an adapter that is published."""
    import numpy as np

    store = world.store()
    dataset = world.current().get(f"moe_dataset|{DOMAIN}")
    if dataset is None:
        return
    folder = world.folder / "adapter"
    folder.mkdir(exist_ok=True)
    values = np.frombuffer(bytes.fromhex(dataset), dtype=np.uint8).astype(np.float32)
    save_file({"base_model.model.q.lora_A.weight": values[None]}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 1}))
    about = {"step": 1, "dataset_digest": dataset, "sources": {f"moe_dataset[{DOMAIN}]": dataset}}
    assert store.checkpoints is not None
    store.checkpoints.put(folder, {"model": f"{DOMAIN}/voter-0", **about})
    made = store.publish(
        "consensus_checkpoint",
        DOMAIN,
        trees={"adapter": folder},
        documents={"certificate": {"context": {}}},
        inputs={"upstream": {f"moe_dataset|{DOMAIN}": dataset}},
        checkpoints={"adapter": Checkpointed({"model": f"{DOMAIN}/consensus", **about})},
    )
    world.note(made)


def promote(world: World) -> None:
    """The newest adapter serves."""
    digest = world.current().get(f"consensus_checkpoint|{DOMAIN}")
    if digest is not None:
        _move(world, "promote", lambda now, _: (promote_manually(now, DOMAIN, digest, "walked"), "walked"))


def take_back(world: World) -> None:
    """What served before serves again."""
    moves = PromotionLog(world.store()).moves()
    if moves and served(moves[-1].promotion)[DOMAIN] is not None:
        number, document = state_before(moves)
        _move(world, "rollback", lambda now, _: (roll_back(now or NOTHING, document, None, "walked"), f"to {number}"))


def _move(world: World, action: Any, change: Any) -> None:
    store = world.store()
    document, _ = PromotionLog(store).move(action, change, by="ana")
    world.note(store.publish("promoted_model", None, documents={"promotion": document}))


def prune(world: World) -> None:
    """What the nightly clean-up does."""
    store = world.store()
    prune_checkpoints(store, RetentionPolicy(keep_last=1))
    store.sweep(0.0)


def forget(world: World, name: str) -> None:
    """`capibara forget`, without Dagster's history."""
    store = world.store()
    with alone(store):
        records = find(world.results(store), [name])
        if records.tombstones:
            write_tombstones(store, records.tombstones, "walked")
        note_lines(store, records)
        materialize(world)
        results = world.results(store)
        gone, waiting = doomed(results, records)
        assert waiting == []
        digests = frozenset(artifact.digest for artifact in gone) | all_removed(store)
        assert purge(store, behind(store, gone, digests, records.needles)) == []
        purge_ledgers(store, records, world.ledger())
        delete(work_folders(store, digests, records.needles))
        remove(store, gone)
        drop_lines(store, records)
        store.sweep(0.0)


def faults(world: World, arrived: int, forgotten: list[int], all_read: bool) -> list[str]:
    """What must never be, after any step and any crash.

    Args:
        arrived: how many records did.
        forgotten: numbers of those whose forget ended.
        all_read: whether a run read the logs since, so that every record has to be there.
    """
    store, found = world.store(), list[str]()
    every = [artifact for name in store.names() for artifact in store.list(name)]
    for artifact in every:
        artifact.verify()
    results = world.results(store)  # raises where a current result is not there
    checkpoints = checkpoints_of(store)
    there = {one.id for one in checkpoints.list()}
    found += [f"{why} dangles" for name, why in needed_checkpoints(store).items() if name not in there]
    found += [f"damaged: {one}" for one in checkpoints.verify()]
    moves = PromotionLog(store).moves()
    serves = served(moves[-1].promotion)[DOMAIN] if moves and DOMAIN in served(moves[-1].promotion) else None
    if serves is not None and not store.holds("consensus_checkpoint", DOMAIN, serves):
        found.append(f"{serves} serves and is not there")
    logs, dataset = results.get("e2b_logs"), results.get("moe_dataset", DOMAIN)
    ids = logs.frame("executions")["execution_id"].to_list() if logs else []
    wanted = {f"walked-{n:05d}" for n in range(arrived)} - {f"walked-{n:05d}" for n in forgotten}
    if len(ids) != len(set(ids)) or not set(ids) <= wanted or (all_read and set(ids) != wanted):
        found.append(f"executions {sorted(ids)} instead of {sorted(wanted)}")
    used = dataset.frame("examples")["execution_ids"].explode().to_list() if dataset else []
    if all_read and sorted(used) != sorted(ids):
        found.append(f"examples of {used}, executions {ids}")
    for words in ([needle(n) for n in forgotten], [secret(n) for n in range(arrived)]):
        found += [f"{path} holds {words}" for path in holding(world.folder, words, skip=[world.experience])]
        found += [f"{title} holds {words}" for title in still_holding(store, words)]
    return found


STEPS: dict[str, Callable[..., Any]] = {
    one.__name__: one for one in (arrive, materialize, train, promote, take_back, prune, forget, faults)
}


def in_a_process(work: Callable[[], Any], kill: int | None) -> Any:
    """What `work` gives in a forked process; "killed" where that was killed at its change number `kill` of a file.

    Raises:
        RuntimeError: it failed, with its traceback.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            with _killed_at(kill):
                answer = {"value": work()}
        except BaseException:  # noqa: BLE001 - the parent raises it
            answer = {"error": traceback.format_exc()}
        os.write(write, json.dumps(answer, default=str).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == -signal.SIGKILL:
        return "killed"
    answer = json.loads(said)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["value"]


@contextmanager
def _killed_at(number: int | None) -> Iterator[None]:
    """This process is killed by itself before its change number `number` of a file."""
    left = [number if number is not None else 1 << 60]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*args: Any, **options: Any) -> Any:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return real(*args, **options)

        return change

    kept = {name: getattr(os, name) for name in CHANGES}
    for name, real in kept.items():
        setattr(os, name, counted(real))
    yield
    for name, real in kept.items():
        setattr(os, name, real)


def main() -> None:
    for asked in sys.stdin:
        step, folder, arguments, kill = json.loads(asked)
        try:
            answer = {"value": in_a_process(lambda: STEPS[step](World(Path(folder)), **arguments), kill)}  # noqa: B023
        except RuntimeError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
