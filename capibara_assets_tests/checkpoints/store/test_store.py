"""The store: what is saved comes back bit for bit, under its id, version and step; what is wrong is said clearly."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from safetensors import safe_open

from capibara_assets.checkpoints.content import PIECE, Content, InFile, InMemory, of_bytes, of_file, of_torch
from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store.manifest import About
from capibara_assets.checkpoints.store.store import CheckpointStore, MissingCheckpoint
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets_tests.checkpoints.states import adapter, bits, same, states, unsynced  # noqa: F401 - a fixture

KINDS = pytest.mark.parametrize("vault", [None, Vault(bytes(range(32)))], ids=["plain", "encrypted"])


@given(state=states())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("unsynced")
def test_any_state_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, state: Any) -> None:
    root = tmp_path_factory.mktemp("store")
    identity = CheckpointStore(root).save(state, 7, "model")
    assert same(CheckpointStore(root).load(identity), state)


@KINDS
@pytest.mark.parametrize("compression", ["zstd", pytest.param("gzip", marks=pytest.mark.extended), "none"])
def test_tensors_of_many_pieces_come_back(tmp_path: Path, vault: Vault | None, compression: Any) -> None:
    state = {
        "pieces": torch.randn(5 * PIECE // 8 + 3).bfloat16(),
        "zeros": torch.zeros(3 * PIECE, dtype=torch.int8),
        "noise": torch.frombuffer(bytearray(os.urandom(PIECE + 1)), dtype=torch.uint8),
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "exactly": torch.randn(PIECE // 4),
    }
    store = CheckpointStore(tmp_path, vault=vault, compression=compression)
    identity = store.save(state, 1, "m", files={"config.json": b"{}", "sub/empty": b""})
    reader = CheckpointStore(tmp_path, vault=vault)
    assert same(reader.load(identity), state)
    content = reader.open(identity).content()
    for name, source in content.tensors.items():  # read lazily, piece by piece
        assert b"".join(bytes(piece) for piece in source.pieces()) == bits(state[name])
        assert all(len(piece) == PIECE for piece in list(source.pieces())[:-1])
    assert [b"".join(content.files[name].pieces()) for name in ("config.json", "sub/empty")] == [b"{}", b""]
    assert reader.verify() == []


def test_lazy_reading_may_stop_and_begin_again(tmp_path: Path) -> None:
    big = torch.randn(3 * PIECE // 4)
    store = CheckpointStore(tmp_path, compression="none")
    store.save({"big": big, "small": torch.ones(3)}, 1, "m")
    source = store.open("m").content().tensors["big"]
    first = bytes(next(source.pieces()))
    assert first == bits(big)[:PIECE]
    together = zip(source.pieces(), source.pieces(), strict=True)  # two readers of one source do not disturb each other
    assert all(left == right for left, right in together)


def test_an_encrypted_store_shows_nothing(tmp_path: Path) -> None:
    """No name, value, shape or digest in the clear (numbers too long to occur by chance), and nobody else may read."""
    secret = torch.full((1234567,), 1.25)
    store = CheckpointStore(tmp_path / "s", vault=Vault.new(), compression="none")
    store.save({"secret_name": secret}, 424242424242, "secret/model", metrics={"secret_loss": 0.5})
    store.retire([store.save({"secret_name": secret}, 1, "secret/model")])
    plain = CheckpointStore(tmp_path / "p", compression="none")
    plain.save({"secret_name": secret}, 424242424242, "secret/model")
    [digest] = plain.open("secret/model").manifest.tensors["secret_name"].pieces
    for path in (tmp_path / "s").rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
        assert "secret" not in str(path.relative_to(tmp_path))
        if path.is_file():
            data = path.read_bytes()
            for shown in (
                b"secret",
                b"424242424242",
                bits(secret)[:16],
                digest.encode(),
                bytes.fromhex(digest),
                b"1234567",
            ):
                assert shown not in data, (path, shown)


def test_the_same_again_is_the_same_checkpoint(tmp_path: Path) -> None:
    store, other = CheckpointStore(tmp_path / "a"), CheckpointStore(tmp_path / "b", compression="gzip")
    state = adapter(1)
    first = store.save(state, 1, "m", run="monday")
    before = sorted(tmp_path.rglob("*"))
    assert store.save(state, 1, "m", run="tuesday") == first
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before] == []
    assert other.save(state, 1, "m") == first  # wherever and however it is stored
    assert len(first) == 64 and set(first) <= set("0123456789abcdef")
    assert store.save(state, 2, "m") != first != store.save(state, 1, "n")
    assert [(one.manifest.about.model, one.version) for one in store.list()] == [("m", 1), ("m", 2), ("n", 1)]


def test_an_id_is_what_it_always_was(tmp_path: Path) -> None:
    """Ids are written into certificates: the same checkpoint has the same one in every later version of the code."""
    state = {"w": torch.arange(6, dtype=torch.float32).reshape(2, 3), "step": 3, "tied": None}
    state["tied"] = state["w"]
    identity = CheckpointStore(tmp_path).save(
        state, 3, "python/voter-1", code_version="1.0", metrics={"loss": 0.5}, files={"config.json": b"{}"}
    )
    assert identity == "db43a5471c21c337fa514b97dcf0da7a7555f9a33b84904aac0cbe7064d45d07"


def test_what_is_stored_is_not_stored_again(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, compression="none")
    base = torch.randn(1000, 1000)

    def packs() -> int:
        return sum(path.stat().st_size for path in (tmp_path / "packs").iterdir())

    store.save({"base": base, "lora": torch.zeros(10)}, 1, "a")
    once = packs()
    store.save({"base": base.clone(), "again": base.clone(), "lora": torch.ones(10)}, 1, "b")
    CheckpointStore(tmp_path).save({"weights": base.reshape(-1)}, 1, "c")  # by content, whatever its name and shape
    assert packs() - once < 2000
    assert store.open("b").stored_bytes == base.nbytes + 40


def test_references(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    names = ["python/voter-1", ".", "..", "a b%2F", "ü/模型", "m@v2"]
    ids = {name: [store.save(adapter(step), step, name) for step in (10, 20, 20)] for name in names}
    assert store.save({"other": torch.ones(1)}, 20, "m") == store.open("m@latest").id
    reader = CheckpointStore(tmp_path)
    for name, (first, second, again) in ids.items():
        assert second == again
        assert [one.version for one in reader.list(name)] == [1, 2]
        assert reader.open(first).id == reader.open(first[:12]).id == reader.open(f"{name}@v1").id == first
        assert reader.open(name).id == reader.open(f"{name}@latest").id == reader.open(f"{name}@step:20").id == second
        assert reader.open(f"{name}@v0001").id == first
    with pytest.raises(MissingCheckpoint, match=r"no checkpoint \.@v3 in .*: of \. there are v1 \(step 10\), v2 \(st"):
        reader.open(".@v3")
    with pytest.raises(MissingCheckpoint, match="there is"):
        reader.open("nobody")
    with pytest.raises(MissingCheckpoint):
        reader.open("f" * 64)
    with pytest.raises(MissingCheckpoint, match="it is empty"):
        CheckpointStore(tmp_path / "new").open("m")
    assert not (tmp_path / "new").exists()  # looking makes nothing


def test_the_beginning_of_two_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twins = ["ab" * 32, "ab" * 31 + "cd"]
    monkeypatch.setattr("capibara_assets.checkpoints.store.store.manifest_id", lambda one, _: twins[one.about.step])
    store = CheckpointStore(tmp_path)
    for step in range(2):
        with pytest.raises(IntegrityError, match="is another checkpoint"):  # what it says has another digest
            store.save({}, step, "m")
    monkeypatch.setattr("capibara_assets.checkpoints.store.versions.manifest_id", lambda one, _: twins[one.about.step])
    with pytest.raises(InputError, match="beginning of several ids"):
        store.open("ab" * 20)


def test_ties_are_kept_and_views_are_stored_as_values(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.randn(4, 3))
    state = {"embed": weight, "head": weight, "rows": weight.detach()[1:], "every_second": weight.detach()[::2]}
    back = CheckpointStore(tmp_path).load(CheckpointStore(tmp_path).save(state, 1, "m"))
    assert back["embed"] is back["head"] and isinstance(back["head"], torch.nn.Parameter)
    assert same({**back}, state)
    back["rows"].zero_()
    assert same(back["embed"], weight)


def test_one_tensor_and_stored_bytes(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, compression="none")
    weight = torch.randn(10)
    state = {"embed": weight, "head": weight, "copy": weight.clone()}
    checkpoint = store.open(store.save(state, 1, "m"))
    assert same(checkpoint.tensor("head"), weight) and checkpoint.stored_bytes == 40
    with pytest.raises(InputError, match=r"has no tensor 'tail': copy, embed"):
        checkpoint.tensor("tail")


def test_any_content_streams_in_and_out(tmp_path: Path) -> None:
    """Sources that reuse their buffer, as files do, are not mixed up with later pieces."""
    data = os.urandom(3 * PIECE + 5)
    (tmp_path / "file").write_bytes(data)
    flat = {"b": InFile(tmp_path / "file", "U8", (len(data),)), "a": of_torch(torch.ones(2, dtype=torch.bfloat16))}
    content = Content(flat, kind="adapter", ties={"c": "a"}, files={"f": of_file(tmp_path / "file")}, origin={"x": [1]})
    store = CheckpointStore(tmp_path / "store")
    checkpoint = store.write(content, About(model="m", step=0, parent="p"))
    back = CheckpointStore(tmp_path / "store").open("m").content()
    assert (back.kind, back.tree, back.ties, back.origin) == ("adapter", None, {"c": "a"}, {"x": [1]})
    assert b"".join(bytes(piece) for piece in back.tensors["b"].pieces()) == data
    assert b"".join(bytes(piece) for piece in back.files["f"].pieces()) == data
    state = checkpoint.state()
    assert list(state) == ["a", "b", "c"] and state["c"] is state["a"]
    assert checkpoint.manifest.about.parent == "p"


@pytest.mark.parametrize(
    ("state", "about", "message"),
    [
        ({"x": object()}, {}, "x is a builtins.object"),
        ({"x": torch.ones(2).to_sparse()}, {}, "x: a torch.sparse_coo tensor"),
        ({"x": torch.ones(2, device="meta")}, {}, "x is on the meta device"),
        ({"a": {"x": torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)}}, {}, "a/x: .*qint8"),
        ({}, {"metrics": {"loss": float("nan")}}, "not JSON"),
        ({}, {"metric": 1}, "metric"),
        ({}, {"parent": 7}, "parent"),
        ({}, {"files": {"../x": b""}}, r"'\.\./x' is no path"),
    ],
)
def test_what_cannot_be_stored_is_named(tmp_path: Path, state: Any, about: dict[str, Any], message: str) -> None:
    store = CheckpointStore(tmp_path)
    with pytest.raises(InputError, match=message):
        store.save(state, 1, "m", **about)
    assert store.list() == []
    with pytest.raises(InputError, match="too long"):
        store.save({}, 1, "m" * 300)
    with pytest.raises(InputError, match="step"):
        store.save({}, -1, "m")


def test_a_tie_that_leads_nowhere_and_a_truncated_source(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    with pytest.raises(InputError, match="b is tied to a"):
        store.write(Content({}, ties={"b": "a"}), About(model="m", step=0))
    (tmp_path / "short").write_bytes(b"123")
    with pytest.raises(InputError, match="cut off"):
        store.write(Content({"x": InFile(tmp_path / "short", "U8", (4,))}), About(model="m", step=0))
    assert store.list() == [] and store.verify() == [] and list((tmp_path / "parts").iterdir()) == []


def test_retired_is_gone_and_its_number_is_not_given_again(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    first, second = (store.save(adapter(step), step, "m") for step in (1, 2))
    with pytest.raises(MissingCheckpoint):
        store.retire([first, "0" * 64])
    assert len(store.list()) == 2  # all or none
    store.retire([second])
    with pytest.raises(MissingCheckpoint):
        store.open(second)
    assert store.open("m").id == first
    store.save(adapter(3), 3, "m")
    assert [one.version for one in store.list()] == [1, 3]
    store.collect()
    store.save(adapter(4), 4, "m")
    assert [one.version for one in store.list("m")] == [1, 3, 4] and store.verify() == []


def test_packs_are_safetensors_files(tmp_path: Path) -> None:
    for vault in (None, Vault.new()):
        root = tmp_path / str(vault is None)
        CheckpointStore(root, vault=vault).save(adapter(1), 1, "m")
        [pack] = (root / "packs").iterdir()
        with safe_open(pack, "pt") as file:
            assert sorted(file.keys()) == ["index", "payload"]
            assert file.metadata()["format"] == "capibara-pack/1"
            assert file.get_tensor("payload").dtype == torch.uint8


def test_a_store_of_the_other_kind(tmp_path: Path) -> None:
    CheckpointStore(tmp_path / "plain").save({}, 1, "m")
    CheckpointStore(tmp_path / "sealed", vault=Vault.new()).save({}, 1, "m")
    with pytest.raises(InputError, match="not encrypted; open_store"):
        CheckpointStore(tmp_path / "plain", vault=Vault.new()).open("m")
    with pytest.raises(InputError, match="is encrypted; open_store"):
        CheckpointStore(tmp_path / "sealed").save({}, 1, "m")
    with pytest.raises(IntegrityError, match="damaged"):
        CheckpointStore(tmp_path / "sealed", vault=Vault.new()).open("m")


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for step in range(3):
        identity = store.save(adapter(step), step, "m")
        store.load(identity)
        list(store.open(identity).content().tensors["base/embed"].pieces())
    store.verify()
    store.collect()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_source_in_memory_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What reaches the file is the tensor's own memory."""
    tensor = torch.randn(PIECE // 4 + 10)
    written: list[int] = []

    def record(fd: int, data: Any, offset: int) -> None:
        written.append(torch.frombuffer(data, dtype=torch.uint8).data_ptr() if len(data) > 4096 else 0)
        pwrite(fd, data, offset)

    from capibara_assets.checkpoints.store import files

    pwrite = files.pwrite
    monkeypatch.setattr(files, "pwrite", record)
    CheckpointStore(tmp_path, compression="none").save({"t": tensor}, 1, "m")
    assert tensor.data_ptr() in written


def test_sources_from_memory(tmp_path: Path) -> None:
    content = Content({"x": InMemory("I16", (2,), memoryview(b"\1\0\2\0"))}, files={"f": of_bytes(b"abc")})
    checkpoint = CheckpointStore(tmp_path).write(content, About(model="m", step=0))
    assert checkpoint.state()["x"].tolist() == [1, 2]
    assert checkpoint.manifest.files["f"].sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_root_that_cannot_be_a_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for use in (lambda store: store.list(), lambda store: store.save({}, 1, "m")):
        with pytest.raises(InputError, match="is a file"):
            use(CheckpointStore(tmp_path / "file"))
    with pytest.raises(InputError, match=r"is a file|cannot write to .*file/store"):
        CheckpointStore(tmp_path / "file" / "store").save({}, 1, "m")
    assert CheckpointStore(tmp_path / "new").collect().deleted == () and not (tmp_path / "new").exists()
