"""Memory for tensors: of the right shape, writable to the last byte, and in huge pages where the system has them."""

import mmap
from pathlib import Path

import pytest
import torch

from capibara_assets.checkpoints.memory import empty


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (1 << 20, 5)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float64])
def test_it_is_an_ordinary_tensor(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = empty(shape, dtype).fill_(1)
    assert tensor.shape == shape and tensor.dtype == dtype and tensor.is_contiguous()
    assert torch.equal(tensor, torch.ones(shape, dtype=dtype))


def huge_kb() -> int:
    """Anonymous memory of this process in huge pages."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("AnonHugePages"))


def test_a_large_one_lies_in_huge_pages() -> None:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.is_file() or "[never]" in setting.read_text():
        pytest.skip("this system gives no huge pages")
    if asked_for() < 32 << 10:
        pytest.skip("memory is in too small pieces now for the system to give huge pages")
    before = huge_kb()
    tensor = empty((64 << 20,), torch.uint8).fill_(1)
    assert huge_kb() - before >= 32 << 10
    del tensor


def asked_for() -> int:
    """KiB in huge pages of 64 MiB that asked the system for them by itself: what there is to be had."""
    before = huge_kb()
    with mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as plain:
        plain.madvise(mmap.MADV_HUGEPAGE)
        for start in range(0, len(plain), mmap.PAGESIZE):
            plain[start] = 1
        return huge_kb() - before
