"""The store on a local disk: what is published is whole, found again, and checked when it is read."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.lineage.store_head import head_of, rolled_back
from capibara_assets.storage import store as store_module
from capibara_assets.storage.records import SchemaError, table
from capibara_assets.storage.store import Artifact, ArtifactStore, MissingArtifact, Table
from capibara_assets_tests.storage.test_foreign import NO_FILES
from capibara_assets_tests.storage.test_records import row


@pytest.fixture
def store(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(tmp_path / "store")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "voters" / "v0").mkdir(parents=True)
    (folder / "voters" / "v0" / "adapter.bin").write_bytes(bytes(range(256)) * 64)
    (folder / "events.log").write_text("10:00 started\n")
    return folder


def frame(**changes: Any) -> pl.DataFrame:
    return table(
        type(row()), [row(**changes), row(row_id="r2", tags=["x", "y"], when=datetime(2026, 1, 1, tzinfo=UTC))]
    )


def publish(store: ArtifactStore, tree: Path, rows: pl.DataFrame | None = None, **document: Any) -> Artifact:
    return store.publish(
        "moe_dataset",
        "sql",
        tables={"rows": Table(type(row()), frame() if rows is None else rows)},
        documents={"statistics": document or {"rows": 2}},
        trees={"code": tree},
        inputs={"upstream": {"e2b_patterns|sql": "0" * 64}},
        volatile=("code/*.log",),
    )


def test_everything_comes_back(store: ArtifactStore, tree: Path) -> None:
    artifact = publish(store, tree)
    again = store.open("moe_dataset", "sql", artifact.digest)
    assert again == artifact == store.latest("moe_dataset", "sql")
    assert again.frame("rows").equals(frame())
    assert again.document("statistics") == {"rows": 2}
    assert (again.directory("code") / "voters/v0/adapter.bin").read_bytes() == bytes(range(256)) * 64
    assert again.manifest.inputs == {"upstream": {"e2b_patterns|sql": "0" * 64}}
    assert again.manifest.files["rows.parquet"].record == "Row/1"
    assert [again.has(name) for name in ("rows", "statistics", "code", "code/events.log", "ro")] == [True] * 4 + [False]
    again.verify()
    with pytest.raises(KeyError, match=r"has no absent\.parquet"):
        again.frame("absent")


def test_unpartitioned_and_partitioned_results_stand_apart(store: ArtifactStore) -> None:
    whole = store.publish("e2b_logs", None, documents={"summary": {"n": 1}})
    parts = [store.publish("moe_dataset", domain, documents={"summary": {"n": 1}}) for domain in ("sql", "python")]
    assert {artifact.digest for artifact in (whole, *parts)} == {whole.digest}  # the content is the same
    assert [artifact.partition for artifact in store.list("moe_dataset")] == ["python", "sql"]
    assert [artifact.partition for artifact in store.list("e2b_logs")] == [None]
    assert list(store.names()) == ["e2b_logs", "moe_dataset"]
    assert store.list("never") == []
    assert store.latest("never", None) is None


def test_same_content_is_the_same_artifact_kept_as_it_was(store: ArtifactStore, tree: Path) -> None:
    first = publish(store, tree)
    (tree / "events.log").write_text("11:30 started again\n")  # volatile file, volatile column, other order
    second = publish(store, tree, frame(source_file="elsewhere").reverse())
    assert second == first
    assert (second.directory("code") / "events.log").read_text() == "10:00 started\n"


def test_latest_moves_and_the_old_one_stays(store: ArtifactStore, tree: Path) -> None:
    old, new = publish(store, tree), publish(store, tree, rows_read=3)
    assert store.latest("moe_dataset", "sql") == new != old
    assert [artifact.digest for artifact in store.list("moe_dataset")] == [old.digest, new.digest]
    assert publish(store, tree) == old == store.latest("moe_dataset", "sql")


@pytest.mark.parametrize("name", ["rows.parquet", "statistics.json", "code/voters/v0/adapter.bin"])
def test_a_tampered_byte_is_found_and_named_and_publishing_again_repairs_it(
    store: ArtifactStore, tree: Path, name: str
) -> None:
    artifact = publish(store, tree)
    file = Path(str(artifact.path)) / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(IntegrityError, match=name):
        artifact.verify()
    reads = {"rows.parquet": artifact.frame, "statistics.json": artifact.document}
    with pytest.raises(IntegrityError, match=name):
        reads.get(name, lambda _: artifact.directory("code"))(name.split(".")[0])
    publish(store, tree).verify()


def test_missing_foreign_and_forged_files_are_found(store: ArtifactStore, tree: Path) -> None:
    artifact = publish(store, tree)
    folder = Path(str(artifact.path))
    (folder / "stray").write_text("?")
    with pytest.raises(IntegrityError, match="stray does not belong"):
        artifact.verify()
    (folder / "stray").unlink()
    (folder / "statistics.json").unlink()
    with pytest.raises(IntegrityError, match=r"statistics\.json is missing"):
        artifact.verify()
    manifest = folder / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"bytes":11', b'"bytes":12').replace(b"Row/1", b"Row/2"))
    manifest.write_bytes(manifest.read_bytes().replace(artifact.digest.encode(), b"f" * 64))
    with pytest.raises(IntegrityError, match="digest"):
        store.open("moe_dataset", "sql", artifact.digest)


def test_missing_artifact_says_what_to_do(store: ArtifactStore) -> None:
    with pytest.raises(MissingArtifact, match=r"no moe_dataset\[sql\] with digest abc .*materialize it first"):
        store.open("moe_dataset", "sql", "abc")
    assert issubclass(MissingArtifact, InputError)


def test_a_bad_table_or_document_publishes_nothing(store: ArtifactStore, tree: Path) -> None:
    with pytest.raises(SchemaError, match="count"):
        publish(store, tree, frame().with_columns(count=pl.lit(-1)))
    with pytest.raises(ValueError, match="JSON compliant"):
        publish(store, tree, loss=float("nan"))
    with pytest.raises(FileNotFoundError):
        store.publish("moe_dataset", "sql", trees={"code": tree / "absent"})
    assert store.list("moe_dataset") == []
    assert store.latest("moe_dataset", "sql") is None
    assert list((Path(store.root.path) / "staging").iterdir()) == []


@pytest.mark.parametrize("bad", ["../x", "", ".hidden", "a/b", "a b", "_"])
def test_names_stay_inside_the_store(store: ArtifactStore, bad: str) -> None:
    with pytest.raises(ValueError):
        store.publish("moe_dataset", bad, documents={"a": 1}) if bad else store.publish(bad, None)
    with pytest.raises(ValueError):
        store.publish("moe_dataset", None, documents={"../../x" if bad == "../x" else "manifest": 1})


def test_work_dirs_and_sweeping(store: ArtifactStore, tree: Path) -> None:
    work = store.work_dir("trained_adapters", "sql", "d" * 64)
    assert work.is_dir() and work.relative_to(store.work).as_posix() == f"trained_adapters/sql/{'d' * 64}"
    artifact = publish(store, tree)
    stale = Path(store.root.path) / "staging" / "stale"
    stale.mkdir()
    (stale / "half").write_text("half")
    assert store.sweep(older_than_s=3600) == 0
    assert store.sweep(older_than_s=-1) == 1
    assert not stale.exists()
    artifact.verify()


def test_a_writer_at_work_is_not_swept_whatever_the_clock_says(store: ArtifactStore, tree: Path) -> None:
    with store._staging() as staging:
        (staging / "half").write_text("half")
        assert store.sweep(older_than_s=-86_400) == 0
        assert (staging / "half").exists()


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(days=-1), timedelta(days=1)])
def test_what_is_published_later_is_later_whatever_the_clock_says(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, jump: timedelta
) -> None:
    first = store.publish("evaluation", "sql", documents={"decision": {"number": 1}})
    head = head_of(store)

    class Jumped(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + jump

    monkeypatch.setattr(store_module, "datetime", Jumped)
    second = store.publish("evaluation", "sql", documents={"decision": {"number": 2}})
    assert [one.digest for one in store.list("evaluation")] == [first.digest, second.digest]
    assert rolled_back(store, head) == [], "what goes on is no rollback"
    assert store.latest_digest("evaluation", "sql") == second.digest


def test_a_remote_store_needs_a_local_work_folder() -> None:
    with pytest.raises(InputError, match="name a local folder"):
        ArtifactStore("memory://bucket/store")


def test_a_pointer_nested_more_deeply_than_is_read_is_damage(store: ArtifactStore, tree: Path) -> None:
    publish(store, tree)
    Path(store.pointer("moe_dataset", "sql").path).write_bytes(b'{"digest":' * 100_000)
    for read in (lambda: store.latest("moe_dataset", "sql"), lambda: head_of(store)):
        with pytest.raises(IntegrityError, match="is damaged: materialize moe_dataset again"):
            read()
    assert publish(store, tree, more=1) == store.latest("moe_dataset", "sql"), "what is published replaces it"


@pytest.mark.parametrize("spoil", [NO_FILES["a pipe"], NO_FILES["a hole"]], ids=["a pipe", "a hole"])
@pytest.mark.parametrize("name", ["latest.json", "manifest.json", "statistics.json"])
def test_no_file_at_a_documents_place_is_damage(
    store: ArtifactStore, tree: Path, name: str, spoil: Callable[[Path], None]
) -> None:
    whole = publish(store, tree)
    assert store.latest("moe_dataset", "sql") == whole and rolled_back(store, head := head_of(store)) == []
    [file] = Path(store.root.path).rglob(name)
    file.unlink()
    spoil(file)

    def read() -> object:
        latest = store.latest("moe_dataset", "sql")
        return latest and latest.document("statistics")

    with pytest.raises(IntegrityError, match=f"{name} (is no file|has 4,398)"):
        read()
    if name != "latest.json":
        with pytest.raises(IntegrityError):
            whole.verify() if name == "statistics.json" else store.open("moe_dataset", "sql", whole.digest)
    if name == "statistics.json":
        assert any(name in lost for lost in rolled_back(store, head))
    else:
        with pytest.raises(IntegrityError, match=name):
            head_of(store)
    publish(store, tree)
    assert read() == {"rows": 2}, "what is published replaces it"
