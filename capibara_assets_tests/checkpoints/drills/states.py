"""What the benches of checkpoints save: states of any size, made fast, alike in every process that asks for them."""

import hashlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from capibara_assets.checkpoints.encryption.keys import RawKey
from capibara_assets.checkpoints.encryption.vault import Vault
from capibara_assets.checkpoints.store.codec import Compression
from capibara_assets.checkpoints.store.places import open_place
from capibara_assets.checkpoints.store.slots import create_vault, is_encrypted, open_vault
from capibara_assets.checkpoints.store.store import CheckpointStore

_BLOCK = 16 << 20  # elements of the block of normal numbers that large states are made of
_TENSOR = 32 << 20  # bytes of most tensors of a large state


def large_state(size: int, dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    """Normal weights (standard deviation 0.02) of so many bytes in tensors of 32 MiB; no two are the same.

    One block is drawn; each tensor is the block with its number flipped into the lowest bits of the elements, so that
    2 GiB take a second and still neither deduplicate nor compress better than freshly drawn ones.
    """
    width = torch.empty(0, dtype=dtype).element_size()
    generator = torch.Generator().manual_seed(1)
    block = (torch.randn(_BLOCK, generator=generator) * 0.02).to(dtype)[: _TENSOR // width]
    bits = block.view({2: torch.int16, 4: torch.int32}[width])
    state = {}
    for number in range(-(-size // _TENSOR)):
        length = min(_TENSOR, size - number * _TENSOR) // width
        rows = max(1, length // 1024)
        values = (bits[: rows * (length // rows)] ^ (number + 1)).view(dtype)
        state[f"layers.{number:03d}.weight"] = values.reshape(rows, -1)
    return state


def small_state(seed: int, step: int) -> dict[str, Any]:
    """What a small training would save at a step: a frozen base, an adapter and moments, counters; about 60 kB.

    A function of its arguments alone: whoever reads step `step` of writer `seed` knows every bit it must find.
    Some steps have a tensor without elements, a scalar, a tie.
    """
    base = torch.Generator().manual_seed(seed)
    mine = torch.Generator().manual_seed(seed * 1_000_003 + step)
    weight = torch.randn(48, 32, generator=mine)
    state: dict[str, Any] = {
        "base": {"embed": torch.randn(200, 64, generator=base).bfloat16(), "norm": torch.ones(64)},
        "adapter": {"down": torch.randn(8, 64, generator=mine), "up": weight, "tied": weight},
        "optimizer": {
            "state": {0: {"step": torch.tensor(float(step)), "exp_avg": torch.randn(48, 32, generator=mine)}},
            "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.95)}],
        },
        "step": step,
    }
    if step % 3 == 0:
        state["empty"] = torch.empty(0, 4)
    if step % 4 == 0:
        state["adapter"]["head"] = torch.randn(64, random.Random(step).randrange(1, 64), generator=mine).half()
    return state


def same(left: Any, right: Any) -> bool:
    """Whether two nested states are the same, tensors to the bit, types and keys included."""
    if isinstance(left, torch.Tensor):
        return (
            isinstance(right, torch.Tensor)
            and left.dtype == right.dtype
            and left.shape == right.shape
            and torch.equal(_bits(left), _bits(right))
        )
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8) if flat.numel() else flat.to(torch.uint8)


def tensors_of(state: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a nested state; a tied one as often as it is named."""
    if isinstance(state, torch.Tensor):
        yield state
    elif isinstance(state, dict | list | tuple):
        for child in state.values() if isinstance(state, dict) else state:
            yield from tensors_of(child)


def throwaway_vault() -> Vault:
    """Keys of a store that is removed after the bench: the same in each of its processes, and no secret."""
    return Vault(hashlib.sha256(b"capibara bench checkpoint").digest())


def encrypted_store(root: Path, compression: Compression) -> CheckpointStore:
    """The encrypted store at a place, its key slot made where there is none; the key is no secret."""
    key = RawKey(hashlib.sha256(b"capibara bench checkpoint, wrapping").digest(), "the bench")
    place = open_place(root, private=True)
    vault = open_vault(place, key) if is_encrypted(place) else create_vault(place, key)
    return CheckpointStore(root, vault=vault, compression=compression)


def disk_bytes(folder: Path) -> int:
    """Bytes of disk under a folder, as `du` counts them: whole blocks, folders too, a file of two names once."""
    seen: dict[int, int] = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in names)):
            status = path.lstat()
            seen[status.st_ino] = status.st_blocks * 512
    return sum(seen.values())
