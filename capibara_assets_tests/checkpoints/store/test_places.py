"""The store on object stores: gs:// through an emulator, conditional creation through fsspec's memory file system."""

import stat
import sys
from pathlib import Path

import pytest
import torch
from upath import UPath

from capibara_assets.checkpoints.content import PIECE
from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store.places import LocalPlace, RemotePlace, StorePlace, open_place
from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets_tests.checkpoints.states import adapter, same
from capibara_assets_tests.storage.test_remote import emulator  # noqa: F401 - a fixture

STATE = {**adapter(1), "pieces": torch.arange(2 * PIECE // 4 + 7, dtype=torch.int32)}


@pytest.fixture(params=["local", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StorePlace:
    """A new place of each kind."""
    if request.param == "local":
        return open_place(tmp_path / "store")
    return open_place(UPath(f"memory://{tmp_path}/store"), work=tmp_path / "work")


def test_the_operations_of_a_place(place: StorePlace) -> None:
    assert place.list("a") == {} and place.folders("a") == ()
    with pytest.raises(FileNotFoundError):
        place.read("a/x")
    with pytest.raises(FileNotFoundError):
        place.size("a/x")
    assert place.create("a/x", b"one") and not place.create("a/x", b"two")
    assert place.read("a/x") == b"one" and place.size("a/x") == 3
    place.replace("a/x", b"three")
    place.replace("a/b/y", b"")
    assert dict(place.list("a")) == {"x": 5} and place.folders("a") == ("b",)
    part = place.parts / "p"
    part.write_bytes(bytes(range(100)))
    place.publish(part, "packs/p")
    assert not part.exists() and place.size("packs/p") == 100
    reading = place.open("packs/p")
    view = memoryview(bytearray(10))
    reading.read_into(view, 50)
    assert bytes(view) == bytes(range(50, 60))
    reading.read_into(view[:0], 0)
    reading.will_read(0, 100)
    with pytest.raises(IntegrityError, match="ends"):
        reading.read_into(view, 95)
    place.delete("packs/p")
    place.delete("packs/p")
    assert place.list("packs") == {}
    assert list(place.parts.iterdir()) == []


def test_which_place_it_is(tmp_path: Path) -> None:
    assert isinstance(open_place(str(tmp_path)), LocalPlace)
    assert open_place(f"file://{tmp_path}").root == str(tmp_path)
    with pytest.raises(InputError, match="name a local folder"):
        open_place("memory://bucket/store")
    one, two = (open_place(f"memory://bucket/{name}", work=tmp_path) for name in "ab")
    assert isinstance(one, RemotePlace) and one.parts != two.parts  # one store's parts are not the other's to sweep up


def test_files_of_a_private_place(tmp_path: Path) -> None:
    place = open_place(tmp_path / "s", private=True)
    place.create("a/b/x", b"")
    for path in (tmp_path / "s").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700


@pytest.mark.parametrize("vault", [None, Vault.new()], ids=["plain", "encrypted"])
def test_a_whole_life_in_memory(tmp_path: Path, vault: Vault | None) -> None:
    whole_life(tmp_path, UPath(f"memory://{tmp_path}/store"), vault)


@pytest.mark.gcs
@pytest.mark.parametrize("vault", [None, Vault.new()], ids=["plain", "encrypted"])
def test_a_whole_life_on_gs(emulator: str, tmp_path: Path, vault: Vault | None) -> None:  # noqa: F811
    whole_life(tmp_path, UPath(f"gs://bucket/{tmp_path.name}", token="anon", endpoint_url=emulator), vault)


def whole_life(tmp_path: Path, root: UPath, vault: Vault | None) -> None:
    """Saves, reads from elsewhere, retirement, repacking and collection, damage."""

    def elsewhere(name: str) -> CheckpointStore:
        return CheckpointStore(root, vault=vault, work=tmp_path / name)

    store = elsewhere("a")
    assert store.list() == [] and store.verify() == []
    first = store.save(STATE, 1, "python/voter-1", files={"config.json": b"{}"})
    assert first == store.save(STATE, 1, "python/voter-1", files={"config.json": b"{}"})
    if vault is None:  # an id does not depend on where it is
        assert first == CheckpointStore(tmp_path / "l").save(STATE, 1, "python/voter-1", files={"config.json": b"{}"})
    second = elsewhere("b").save(adapter(2), 2, "python/voter-1")
    reader = elsewhere("c")
    assert [(one.id, one.version) for one in reader.list()] == [(first, 1), (second, 2)]
    assert same(reader.load("python/voter-1@step:1"), STATE) and same(reader.load(second[:10]), adapter(2))
    pieces = reader.open(first).content().tensors["pieces"].pieces()
    assert b"".join(bytes(piece) for piece in pieces) == STATE["pieces"].numpy().tobytes()
    before = dict(store.catalog.listed())
    reader.retire([first])
    collected = store.collect()
    assert collected.repacked and collected.bytes_freed > 2**16
    assert sum(store.catalog.listed().values()) < sum(before.values()) / 2
    assert same(reader.load("python/voter-1"), adapter(2)) and store.verify() == []
    [pack] = [name for name in store.catalog.listed() if name not in before]
    name = f"packs/{pack}.safetensors"
    store.place.replace(name, store.place.read(name)[:-1])
    assert {damage.file for damage in store.verify()} == {name}
    assert list((tmp_path / "a").rglob("*.pack")) == []


def test_two_writers_of_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The condition of an object store decides: who comes second takes the next number."""
    stores = [CheckpointStore(UPath(f"memory://{tmp_path}/s"), work=tmp_path / name) for name in "ab"]
    create = RemotePlace.create
    raced: list[str] = []

    def race(self: RemotePlace, name: str, data: bytes, *, durable: bool = True) -> bool:
        if name.startswith("models/") and not raced:
            raced.append(name)
            stores[1].save(adapter(2), 2, "m")
            stores[1].save(adapter(1), 1, "m")
        return create(self, name, data, durable=durable)

    monkeypatch.setattr(RemotePlace, "create", race)
    mine = stores[0].save(adapter(1), 1, "m")
    assert raced == ["models/m/v000001"]
    assert [(one.version, one.manifest.about.step) for one in stores[0].list()] == [(1, 2), (2, 1)]
    assert stores[1].open("m@v2").id == mine  # the very checkpoint that the other had saved meanwhile


@pytest.mark.parametrize("address", ["foo://bucket/x", "gs://bucket/x"])
def test_a_protocol_that_is_not_there_is_told(address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    for name in ("gs", "gcs"):
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, name, raising=False)
    with pytest.raises(InputError, match="is no place for a store that can be reached") as told:
        open_place(address, work=tmp_path)
    assert ("capibara-assets[gcp]" in str(told.value)) is address.startswith("gs:")
