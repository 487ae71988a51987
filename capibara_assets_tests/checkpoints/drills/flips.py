"""Bits that flip: one at a time, in every file of a store; is it found, and are file and tensor named?"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from capibara_assets.checkpoints.store.store import CheckpointStore
from capibara_assets_tests.checkpoints.drills.check import files_under, found_in, model_name
from capibara_assets_tests.checkpoints.drills.states import small_state

StoreAt = Callable[[Path], CheckpointStore]
Range = tuple[str, int, int]
"""(file, first byte, last byte + 1)"""


@dataclass(frozen=True)
class Sound:
    """A store before anything happens to it: who uses which range of which file, as (checkpoint, tensor or file)."""

    files: dict[str, int]
    users: dict[Range, set[tuple[str, str]]]

    def hit(self, file: str, byte: int) -> set[tuple[str, str]]:
        """Who is hurt when this byte changes: whose piece it is in; outside all pieces of a pack, all its users."""
        mine = {place: users for place, users in self.users.items() if place[0] == file}
        inside = [users for (_, start, end), users in mine.items() if start <= byte < end]
        return {user for users in inside or mine.values() for user in users}


def flip_bits(folder: Path, store_at: StoreAt, flips: int, seed: int, every: int = 1) -> dict[str, Any]:
    """So many random bits, files in turn, in a store of several checkpoints; then one bit of every byte of a tiny one
    (of every seventh, if `every` is 7).

    `missed` lists flips that `verify` did not find, or whose file or whose every tensor it did not name, and flips
    after which something loaded that is not what was saved.
    """
    chance = random.Random(seed)
    root = folder / "flipped"
    for step in range(4):
        store_at(root).save(small_state(1, step), step, model_name(1), files={"config.json": b'{"a": %d}' % step})
    sound = survey(store_at(root))
    names = sorted(name for name, size in sound.files.items() if size)
    random_bits = [
        (name, chance.randrange(sound.files[name] * 8)) for name in (names[n % len(names)] for n in range(flips))
    ]
    missed = _missed(store_at(root), sound, random_bits)

    tiny = folder / "tiny"
    store_at(tiny).save({"a": torch.tensor([1.0, 2.0, 3.0]), "b": torch.tensor(True)}, 1, "tiny")
    small = survey(store_at(tiny))
    exhaustive = [
        (name, byte * 8 + chance.randrange(8)) for name, size in small.files.items() for byte in range(0, size, every)
    ]
    missed += _missed(store_at(tiny), small, exhaustive, load=False)
    return {
        "flips": len(random_bits) + len(exhaustive),
        "exhaustive": len(exhaustive),
        "missed": missed,
        "files": len(names),
    }


def survey(store: CheckpointStore) -> Sound:
    """Where everything lies, from the packs' own indexes. Raises RuntimeError: the store is not sound."""
    if damages := store.verify():
        raise RuntimeError(f"the store is damaged before anything was done to it: {damages}")
    of_piece: dict[str, set[tuple[str, str]]] = {}
    for checkpoint in store.list():
        for name, entry in {**checkpoint.manifest.tensors, **checkpoint.manifest.files}.items():
            for digest in entry.pieces:
                of_piece.setdefault(digest, set()).add((checkpoint.id, name))
    users: dict[Range, set[tuple[str, str]]] = {}
    for index in store.catalog.refresh().values():
        for digest, place in index.pieces.items():
            users[index.name, place.offset, place.offset + place.stored] = of_piece.get(digest, set())
    return Sound(dict(files_under(Path(store.root))), users)


def _missed(store: CheckpointStore, sound: Sound, bits: list[tuple[str, int]], load: bool = True) -> list[str]:
    return [problem for name, bit in bits for problem in _flip(store, sound, name, bit, load)]


def _flip(store: CheckpointStore, sound: Sound, name: str, bit: int, load: bool) -> Iterator[str]:
    """Problems with one flipped bit; it is flipped back."""
    path, byte = Path(store.root, name), bit // 8
    fresh = partial(CheckpointStore, store.root, vault=store.vault)  # it has read nothing yet
    where = f"bit {bit % 8} of byte {byte} of {name}"
    before = path.read_bytes()
    changed = bytearray(before)
    changed[byte] ^= 1 << (bit % 8)
    path.write_bytes(changed)
    try:
        damages = fresh().verify()
        if not any(damage.file == name for damage in damages):
            yield f"{where}: not found, or the file is not named: {damages}"
        named = {(damage.checkpoint, damage.tensor) for damage in damages}
        if hurt := sound.hit(name, byte) - named:
            yield f"{where}: hurt and not named: {sorted(hurt)}"
        if load:
            _, problems = found_in(fresh())
            yield from (f"{where}: {problem}" for problem in problems if "is not what was saved" in problem)
    finally:
        path.write_bytes(before)
