"""Precision by the processor's flags: x86 and ARM spellings, and no flags at all."""

from pathlib import Path

import pytest
import torch

from capibara_assets.modeling import precision
from capibara_assets.modeling.precision import fast_precision, processor_flags


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor : 0\nflags\t\t: fpu avx512f avx512_bf16 sse\n", "bf16"),
        ("processor : 0\nflags\t\t: fpu avx2 sse\n", "fp32"),
        ("processor : 0\nFeatures\t: fp asimd svebf16 bf16\n", "bf16"),
        ("", "fp32"),
    ],
)
def test_flags_decide(text: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    found = processor_flags(tmp_path / "cpuinfo")
    monkeypatch.setattr(precision, "processor_flags", lambda: found)
    assert fast_precision(torch.device("cpu")) == expected


def test_without_the_file_there_are_no_flags(tmp_path: Path) -> None:
    assert processor_flags(tmp_path / "none") == frozenset()
