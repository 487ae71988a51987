"""A store that was put back to an older copy of itself is whole; a signed head that was kept elsewhere shows it."""

import base64
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from capibara_assets.checkpoints.artifacts import checkpoints_of, open_artifacts
from capibara_assets.cli.checkpoint.checkpoint import checkpoint
from capibara_assets.consensus.certificates.certificate_log import append_certificate
from capibara_assets.consensus.election.ballots import new_key, public_key
from capibara_assets.consensus.election.keys import write_new_key
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.evaluation.serving.promotion import promote_manually
from capibara_assets.evaluation.serving.promotion_log import PromotionLog
from capibara_assets.lineage.store_head import read_head, rolled_back, write_head
from capibara_assets.storage.digests import canonical_json
from capibara_assets.storage.removal import add_tombstone, remove_artifact
from capibara_assets.storage.store import ArtifactStore


class Kept:
    """A store, and a head of it that lies elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "kept" / "head.json"
        self.file.parent.mkdir()
        self.key: Ed25519PrivateKey = new_key()
        self.count = 0

    @property
    def store(self) -> ArtifactStore:
        return open_artifacts(self.folder / "store", self.folder / "work")

    def publish(self) -> None:
        self.count += 1
        self.store.publish("moe_dataset", "sql", documents={"said": self.count})

    def save(self) -> None:
        self.count += 1
        adapter = self.folder / "adapter"
        adapter.mkdir(exist_ok=True)
        (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": self.count}))
        import numpy as np
        from safetensors.numpy import save_file

        save_file({"a": np.full((2, 2), self.count, np.float32)}, adapter / "adapter_model.safetensors")
        checkpoints = self.store.checkpoints
        assert checkpoints is not None
        checkpoints.put(adapter, {"model": "sql/voter-0", "step": self.count})

    def promote(self) -> None:
        self.count += 1
        change = lambda now, _: (promote_manually(now, "sql", str(self.count), "why"), "because")  # noqa: E731
        PromotionLog(self.store).move("promote", change, by="ana")

    def certify(self) -> None:
        self.count += 1
        append_certificate(self.folder / "store" / "certificates.jsonl", f"{self.count:064d}", f"{self.count + 1:064d}")

    def forget(self) -> None:
        self.count += 1
        add_tombstone(self.store, {"execution": f"{self.count:064d}"})

    def remove(self) -> None:
        first = self.store.list("moe_dataset")[0]
        remove_artifact(self.store, "moe_dataset", "sql", first.digest)

    def announce(self) -> None:
        self.count += 1
        folder = self.folder / "store" / "elections"
        folder.mkdir(exist_ok=True)
        (folder / f"{self.count:064d}.json").write_text(json.dumps({"election": self.count}))

    def everything(self) -> None:
        for step in (self.publish, self.save, self.promote, self.certify, self.forget, self.announce):
            step()

    def check(self) -> list[str]:
        return rolled_back(self.store, read_head(self.file, public_key(self.key)))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    kept = Kept(tmp_path)
    kept.everything()
    return kept


STEPS: dict[str, tuple[Callable[[Kept], None], str]] = {
    "checkpoints": (Kept.save, "sql/voter-0@v2 was there, and v1 is the newest now"),
    "results": (Kept.publish, "moe_dataset|sql was published"),
    "promotions": (Kept.promote, "promotion 2 is not the one that was made: there are 1 now"),
    "certificates": (Kept.certify, "line 2 of the log of certificates is not what it was: there are 1 now"),
    "tombstones": (Kept.forget, "1 tombstone(s) are gone"),
    "removals": (Kept.remove, "the note that moe_dataset|sql|"),
    "elections": (Kept.announce, "the election 0000000000000000000000000000000000000000000000000000000000000007"),
}


@pytest.mark.parametrize("name", list(STEPS))
def test_an_older_copy_of_the_store_is_told_from_it(kept: Kept, name: str) -> None:
    """And with what came after it: the numbers are the same then, what they number is not."""
    step, told = STEPS[name]
    if name == "removals":
        kept.publish()
    shutil.copytree(kept.folder / "store", kept.folder / "older")
    step(kept)
    write_head(kept.file, kept.store, kept.key)
    assert kept.check() == []
    shutil.rmtree(kept.folder / "store")
    shutil.copytree(kept.folder / "older", kept.folder / "store")
    [found] = [line for line in kept.check() if line.startswith(told[:20])]
    assert told in found
    if name in ("checkpoints", "promotions", "certificates", "tombstones", "elections"):
        kept.count += 10
        step(kept)
        assert len(kept.check()) == 1, "another went on where it had been"


def _latest(kept: Kept) -> Path:
    artifact = kept.store.latest("moe_dataset", "sql")
    assert artifact is not None
    return Path(artifact.path.path)


def _point_to_the_first(kept: Kept) -> None:
    first = kept.store.list("moe_dataset")[0].digest
    pointer = Path(kept.store.pointer("moe_dataset", "sql").path)
    pointer.write_text(json.dumps(json.loads(pointer.read_text()) | {"digest": first}))


def _replace_a_document(kept: Kept) -> None:
    document = next(path for path in _latest(kept).rglob("said*"))
    document.write_bytes(document.read_bytes().replace(b"7", b"6"))


def _elections(kept: Kept) -> Path:
    return kept.folder / "store" / "elections"


LOSSES: dict[str, tuple[Callable[[Kept], object], str]] = {
    "an older one is pointed to": (_point_to_the_first, "was .{12}, and is .{12} now"),
    "the newest is gone": (lambda kept: shutil.rmtree(_latest(kept)), "is gone, and no note says that it was removed"),
    "a document is gone": (lambda kept: next(_latest(kept).rglob("said*")).unlink(), "said.* is missing"),
    "all elections are gone": (
        lambda kept: shutil.rmtree(_elections(kept)),
        "the election 0+6 was published, and is gone",
    ),
    "an election is another": (
        lambda kept: next(_elections(kept).glob("*.json")).write_text("{}"),
        "the file of the election 0+6 is another",
    ),
    "a document is another": (_replace_a_document, "said.* is not the file that was published"),
}


@pytest.mark.parametrize("name", list(LOSSES))
def test_a_result_that_is_no_longer_what_it_was_is_told(kept: Kept, name: str) -> None:
    kept.publish()
    kept.count = 6
    kept.publish()
    write_head(kept.file, kept.store, kept.key)
    assert kept.check() == []
    lose, told = LOSSES[name]
    lose(kept)
    assert any(re.search(told, line) for line in kept.check())


def test_what_goes_on_is_no_rollback(kept: Kept) -> None:
    assert write_head(kept.file, kept.store, kept.key).number == 1
    kept.publish()
    kept.everything()
    checkpoints = checkpoints_of(kept.store)
    checkpoints.retire([checkpoints.list("sql/voter-0")[0].id])
    checkpoints.collect()
    kept.remove()
    assert kept.check() == []
    assert write_head(kept.file, kept.store, kept.key).number == 2
    checkpoints_of(kept.store).retire([one.id for one in checkpoints_of(kept.store).list()])
    assert kept.check() == []


def test_a_new_head_is_not_signed_over_a_rollback(kept: Kept) -> None:
    shutil.copytree(kept.folder / "store", kept.folder / "older")
    kept.everything()
    write_head(kept.file, kept.store, kept.key)
    before = kept.file.read_bytes()
    shutil.rmtree(kept.folder / "store")
    (kept.folder / "older").rename(kept.folder / "store")
    with pytest.raises(IntegrityError, match="the store is older than the head"):
        write_head(kept.file, kept.store, kept.key)
    assert kept.file.read_bytes() == before


def test_a_head_that_was_changed_is_anothers_or_older_is_none(kept: Kept) -> None:
    write_head(kept.file, kept.store, kept.key)
    first, public = kept.file.read_bytes(), public_key(kept.key)
    with pytest.raises(InputError, match="not signed by this key"):
        read_head(kept.file, public_key(new_key()))
    document = json.loads(first)
    for name, value in (("number", 9), ("tombstones", []), ("promotions", [0, ""])):
        kept.file.write_text(json.dumps(document | {"head": document["head"] | {name: value}}))
        with pytest.raises(InputError, match="not signed by this key"):
            read_head(kept.file, public)
    for text in ("", "{}", "[]", '{"head": {}, "signature": ""}', '{"head": 1, "signature": 2}'):
        kept.file.write_text(text)
        with pytest.raises(InputError, match="is no head of a store"):
            read_head(kept.file, public)
    kept.file.write_bytes(b'{"head": {"number": 9},' + first.lstrip()[1:])
    with pytest.raises(InputError, match="is ambiguous: 'head' is there twice"):
        read_head(kept.file, public)
    kept.file.write_bytes(first)
    write_head(kept.file, kept.store, kept.key)
    assert read_head(kept.file, public, at_least=2).number == 2
    kept.file.write_bytes(first)
    with pytest.raises(InputError, match="has number 1, and 2 was seen before"):
        read_head(kept.file, public, at_least=2)


def test_a_head_of_before_elections_is_read_and_says_that_it_names_none(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPIBARA_HOME", str(kept.folder))
    head = write_head(kept.file, kept.store, kept.key)
    former = {**head.model_dump(mode="json", exclude={"elections"}), "schema_version": 1}
    signature = base64.b64encode(kept.key.sign(b"capibara store head\n" + canonical_json(former))).decode()
    kept.file.write_bytes(canonical_json({"head": former, "signature": signature}))
    shutil.rmtree(_elections(kept))
    done = CliRunner().invoke(checkpoint, ["head", str(kept.file), "--public", public_key(kept.key)])
    assert done.exit_code == 0 and "of elections it says nothing" in done.output
    kept.announce()
    assert write_head(kept.file, kept.store, kept.key).elections.keys() == {f"{7:064d}"}
    done = CliRunner().invoke(checkpoint, ["head", str(kept.file), "--public", public_key(kept.key)])
    assert done.exit_code == 0 and "elections" not in done.output


def test_the_command_writes_compares_and_says_so(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPIBARA_HOME", str(kept.folder))
    kept.file.parent.chmod(0o700)
    public = write_new_key("ops", kept.file.parent / "ops.key")

    def run(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(checkpoint, ["head", str(kept.file), *arguments])
        assert done.exit_code == code, done.output
        return done.output

    assert "head 1 of" in run("--write", "--key", str(kept.file.parent / "ops.key"))
    assert "the store has all of it" in run("--public", public)
    shutil.rmtree(kept.folder / "store" / "tombstones")
    assert json.loads(run("--public", public, "--json", code=1))["rolled_back"] == [
        "1 tombstone(s) are gone: records that were forgotten can come back"
    ]
    assert isinstance(CliRunner().invoke(checkpoint, ["head", str(kept.file)]).exception, InputError)
