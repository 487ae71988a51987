"""Writers killed at, or failed by, each of their system calls: strace stands between a real process and the kernel.

`python -m capibara_assets_tests.reliability.system_calls SCENARIO FOLDER CALL POINTS`, under strace, which acts on call
number WHEN of a process: each point is a forked process that first makes so many idle calls that call number WHEN is
the point's of those that the writer makes.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.consensus.certificates.certificate_log import append_certificate, read_log
from capibara_assets.consensus.election.keys import read_private_key, write_new_key
from capibara_assets.errors import InputError
from capibara_assets.evaluation.decision.test_uses import Trial, record_test_use, recorded_uses
from capibara_assets.evaluation.serving.promotion import promote_manually, served
from capibara_assets.evaluation.serving.promotion_log import PromotionLog
from capibara_assets.executions.ingest.ingest import ingest
from capibara_assets.executions.ingest.ledger import Ledger
from capibara_assets.storage.cache import Cache
from capibara_assets.storage.mirror import mirror
from capibara_assets.storage.removal import add_tombstone, read_tombstones, remove_artifact, removed
from capibara_assets.storage.store import ArtifactStore
from capibara_assets_tests.executions.conftest import NOW, envelope, line
from capibara_assets_tests.late import Late

WHEN = 400
"""More than the points of any scenario."""
_NO_FILE = 1 << 20
REFUSED = 3  # exit code: the writer raised what a user is told
IDLE: dict[str, Callable[[Path], object]] = {
    "write": lambda folder: os.write(_NO_FILE, b""),
    "pwrite64": lambda folder: os.pwrite(_NO_FILE, b"", 0),
    "fsync": lambda folder: os.fsync(_NO_FILE),
    "fdatasync": lambda folder: os.fdatasync(_NO_FILE),
    "ftruncate": lambda folder: os.ftruncate(_NO_FILE, 0),
    "rename": lambda folder: (folder / "none").rename(folder / "neither"),
    "link": lambda folder: os.link(folder / "none", folder / "neither"),
    "unlink": lambda folder: (folder / "none").unlink(),
    "unlinkat": lambda folder: os.unlink("none", dir_fd=_NO_FILE),
    "rmdir": lambda folder: (folder / "none").rmdir(),
    "mkdir": lambda folder: folder.mkdir(),
}
"""System call -> the same one, in vain."""
serving = Late("capibara_assets.evaluation.serving.export")  # it imports torch, which takes longer than all the others


@dataclass(frozen=True)
class Scenario:
    """A writer, and what a reader finds.

    Attributes:
        prepare: what is there before.
        write: what is interrupted, and done again after that.
        read: what a reader finds; raises where something is damaged.
        between: what it may also find of a writer that was interrupted.
        durable: no loss of power takes back what it has written; else it can be computed again.
    """

    prepare: Callable[[Path], object]
    write: Callable[[Path], object]
    read: Callable[[Path], Any]
    between: tuple[Any, ...] = ()
    durable: bool = True


def _log(folder: Path, name: str, number: int) -> None:
    (folder / "logs").mkdir(exist_ok=True)
    records = [envelope(f"print({i})", sandbox_id=name, execution_id=f"{name}{i}") for i in range(number)]
    (folder / "logs" / f"{name}.jsonl").write_bytes(b"".join(line(record) + b"\n" for record in records))


def _ingest(folder: Path) -> None:
    with ingest(folder / "logs", now=NOW, ledger=folder / "ledger", processes=1):
        pass


def _two_logs(folder: Path) -> None:
    _log(folder, "a", 3)
    _ingest(folder)
    _log(folder, "b", 2)


def _ingested(folder: Path) -> Any:
    generation = Ledger(folder / "ledger").last()
    assert generation is not None, "what was read is forgotten"
    return sorted(pl.read_parquet(generation.executions)["sandbox_id"]), sorted(generation.files)


def _publish(folder: Path, text: str) -> None:
    (folder / "tree").mkdir(exist_ok=True)
    (folder / "tree" / "weights.bin").write_bytes(text.encode() * 1000)
    ArtifactStore(folder / "store").publish(
        "moe_dataset", "sql", documents={"said": {"text": text}}, trees={"code": folder / "tree"}
    )


def _published(folder: Path) -> Any:
    store = ArtifactStore(folder / "store")
    for artifact in store.list("moe_dataset"):
        artifact.verify()
    latest = store.latest("moe_dataset", "sql")
    assert latest is not None
    return latest.document("said"), (latest.directory("code") / "weights.bin").read_bytes()[:5]


def _promote(folder: Path, digest: str) -> None:
    change = lambda now, _: (promote_manually(now, "sql", digest, "why"), "because")  # noqa: E731
    PromotionLog(ArtifactStore(folder / "store")).move("promote", change, by="ana")


def _promoted(folder: Path) -> Any:
    moves = PromotionLog(ArtifactStore(folder / "store")).moves()
    return [served(move.promotion)["sql"] for move in moves]


def _certificates(folder: Path) -> Any:
    log = read_log(folder / "log")
    assert not log.problem, log.problem
    return [line.election for line in log.lines]


def _key(folder: Path) -> None:
    if not (folder / "ana.key").exists():
        write_new_key("ana", folder / "ana.key")


def _keys(folder: Path) -> Any:
    return (folder / "ana.key").exists() and bool(read_private_key(folder / "ana.key"))


def _export(folder: Path, number: int) -> None:
    (folder / "router").mkdir(exist_ok=True)
    (folder / "router" / "router.json").write_text(str(number) * 100)
    parts = serving.ExportParts({"serving": {}}, number, "tiny", "b" * 64, router=("r" * 64, folder / "router"))
    serving.write_export(parts, folder / "out", "card")


def _exported(folder: Path) -> Any:
    return serving.check_export(folder / "out")["number"] if (folder / "out").exists() else None


def _remove(folder: Path) -> None:
    remove_artifact(ArtifactStore(folder / "store"), "moe_dataset", "sql", (folder / "digest").read_text())


def _removable(folder: Path) -> None:
    _publish(folder, "first")
    (folder / "digest").write_text(ArtifactStore(folder / "store").list("moe_dataset")[0].digest)


def _left(folder: Path) -> Any:
    """Artifacts there are, and whether one is noted as removed; a noted one is not published."""
    store = ArtifactStore(folder / "store")
    for artifact in store.list("moe_dataset"):
        artifact.verify()
    return store.latest("moe_dataset", "sql") is not None, len(store.list("moe_dataset")), len(removed(store))


def _mirror(folder: Path, *names: str) -> None:
    (folder / "there").mkdir(exist_ok=True)
    for name in names:
        (folder / "there" / name).write_text(name * 2000)
    mirror(f"file://{folder / 'there'}", folder / "here")


def _mirrored(folder: Path) -> Any:
    index = json.loads((folder / "here.index.json").read_bytes())
    return {name: (folder / "here" / name).read_text() == name * 2000 for name in index}


def _generations(folder: Path) -> Any:
    return len(list(folder.glob("ledger/generations/*/executions.parquet"))), _ingested(folder)


def _two_generations(folder: Path) -> None:
    _two_logs(folder)
    with Ledger(folder / "ledger").reading():
        _ingest(folder)


def _tombstone(folder: Path, name: str) -> None:
    add_tombstone(ArtifactStore(folder / "store"), {"name": name})


def _use(folder: Path, candidate: str) -> None:
    record_test_use(folder / "uses", "sql", Trial(("item",), candidate, candidate, {}), 0.05)


SCENARIOS = {
    "ingest": Scenario(_two_logs, _ingest, _ingested),
    "publish": Scenario(lambda folder: _publish(folder, "first"), lambda folder: _publish(folder, "other"), _published),
    "promote": Scenario(lambda folder: _promote(folder, "a"), lambda folder: _promote(folder, "b"), _promoted),
    "log": Scenario(
        lambda folder: append_certificate(folder / "log", "0" * 64, "1" * 64),
        lambda folder: append_certificate(folder / "log", "2" * 64, "3" * 64),
        _certificates,
    ),
    "export": Scenario(lambda folder: _export(folder, 1), lambda folder: _export(folder, 2), _exported, (None,)),
    "remove": Scenario(_removable, _remove, _left, ((True, 1, 1), (False, 1, 1))),
    "key": Scenario(lambda folder: None, _key, _keys),
    "cache": Scenario(
        lambda folder: Cache(folder / "kept.sqlite", "tests").add({b"a": b"1"}),
        lambda folder: Cache(folder / "kept.sqlite", "tests").add({b"b": b"2" * 5000}),
        lambda folder: Cache(folder / "kept.sqlite", "tests").read(),
        durable=False,
    ),
    "mirror": Scenario(lambda folder: _mirror(folder, "a"), lambda folder: _mirror(folder, "b"), _mirrored),
    "purge": Scenario(_two_generations, lambda folder: Ledger(folder / "ledger").keep_last_only(), _generations),
    "tombstone": Scenario(
        lambda folder: _tombstone(folder, "a"),
        lambda folder: _tombstone(folder, "b"),
        lambda folder: sorted(one["name"] for one in read_tombstones(ArtifactStore(folder / "store"))),
    ),
    "use": Scenario(
        lambda folder: _use(folder, "a"),
        lambda folder: _use(folder, "b"),
        lambda folder: [one["candidate"] for one in recorded_uses(folder / "uses", "sql")],
    ),
}


def inject(scenario: str, folder: Path, call: str, fault: str, points: range) -> list[int]:
    """Interrupt a scenario's writer at these of its calls; the exit code at each (negative: a signal's number).

    Args:
        fault: as strace has it: `signal=KILL`, `error=ENOSPC`.
    """
    command = [
        *("strace", "-f", "-qqq", "-o", os.devnull, "-e", f"trace={call}", "--signal=none"),
        *("-e", f"inject={call}:{fault}:when={WHEN}"),
        *(sys.executable, "-m", "capibara_assets_tests.reliability.system_calls"),
        *(scenario, str(folder), call, f"{points.start}", f"{points.stop}", f"{points.step}"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(code) for code in done.stdout.split()]


def _child(scenario: str, folder: Path, call: str, point: int) -> int:
    for _ in range(WHEN - point):
        with suppress(OSError):
            IDLE[call](folder)
    try:
        SCENARIOS[scenario].write(folder)
    except (InputError, OSError) as error:
        print(f"{scenario} {call} {point}: {type(error).__name__}: {error}", file=sys.stderr)
        return REFUSED
    return 0


def main() -> None:
    scenario, folder, call, *bounds = sys.argv[1:]
    if scenario == "export":
        serving.write_export  # noqa: B018 - imported here, not in each fork
    codes = []
    for point in range(*map(int, bounds)):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = _child(scenario, Path(folder) / str(point), call, point)
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    print(*codes)


def copies(before: Path, folder: Path, points: range) -> None:
    """What was there before, once for each point."""
    for point in points:
        shutil.copytree(before, folder / str(point))


if __name__ == "__main__":
    main()
