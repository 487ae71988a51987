"""Pickles that make `torch.load(weights_only=True)` take memory or time, or show memory, are refused before it runs."""

import io
import struct
import zipfile
from pathlib import Path

import pytest
import torch

from capibara_assets.checkpoints.formats import read
from capibara_assets.checkpoints.formats.pytorch import load
from capibara_assets.errors import InputError

HASH = (1 << 61) - 1  # integers that differ by it have one hash


def text(said: str) -> bytes:
    return b"X" + struct.pack("<I", len(said.encode())) + said.encode()


def integer(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little")
    return b"\x8a" + bytes([len(raw)]) + raw


def entry(value: bytes) -> bytes:
    """The pickle of `{"w": value}`."""
    return b"\x80\x02}" + text("w") + value + b"s."


HOSTILE = {
    "a bytearray of 2 GiB": (entry(b"c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R"), "a bytearray"),
    "a codec that is quadratic": (
        entry(b"c_codecs\nencode\n" + text("\u4e00\U00010000" * 9) + text("PunyCode") + b"\x86R"),
        "the codec punycode",
    ),
    "uninitialised memory": (entry(b"ctorch\nTensor\nM\xe8\x03\x85R"), "uninitialised memory"),
    "uninitialised memory by a type": (
        entry(b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch\nTensor\nctorch\nTensor\nM\xe8\x03\x85}tR"),
        "uninitialised memory",
    ),
    "uninitialised memory of a type": (entry(b"ctorch\nFloatTensor\nM\xe8\x03\x85R"), "uninitialised memory"),
    "integers of one hash": (
        entry(b"}(" + b"".join(integer(k * HASH) + b"K\x01" for k in range(1, 1200)) + b"u"),
        "integers beyond 64 bits",
    ),
}


def archive(pickled: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        for name, content in (("data.pkl", pickled), ("version", b"3\n"), ("byteorder", b"little")):
            members.writestr(f"x/{name}", content)
    return file.getvalue()


def before_1_6(pickled: bytes) -> bytes:
    """The format of old: its magic number, its version and the machine's sizes stand before the state."""
    file = io.BytesIO()
    torch.save({"a": 1}, file, _use_new_zipfile_serialization=False)
    head, _, _ = file.getvalue().partition(b"}q\x00X\x01\x00\x00\x00aq\x01K\x01s.")
    return head.removesuffix(b"\x80\x02") + pickled + b"\x80\x02]q\x00."


def test_a_tensor_that_tells_its_type_is_read(tmp_path: Path) -> None:
    tensor = torch.arange(3.0)
    tensor.ds_id = 1  # type: ignore[attr-defined]  # as ZeRO's third stage marks its parameters
    torch.save({"w": tensor}, tmp_path / "x.pt")
    assert b"_rebuild_from_type_v2" in (tmp_path / "x.pt").read_bytes()
    assert bytes(next(iter(read(tmp_path / "x.pt").tensors["w"].pieces()))) == tensor.numpy().tobytes()


@pytest.mark.parametrize("wrap", [archive, before_1_6])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_it_is_refused_with_what_it_holds(hostile: str, wrap: object, tmp_path: Path) -> None:
    pickled, what = HOSTILE[hostile]
    (tmp_path / "x.pt").write_bytes(wrap(pickled))  # type: ignore[operator]
    with pytest.raises(InputError, match=rf"x.pt holds .*{what}"):
        read(tmp_path / "x.pt")


@pytest.mark.parametrize("hostile", HOSTILE)
def test_so_is_one_that_lacks_its_end(hostile: str, tmp_path: Path) -> None:
    pickled, what = HOSTILE[hostile]
    (tmp_path / "x.pt").write_bytes(archive(pickled.removesuffix(b"s.")))
    with pytest.raises(InputError, match=rf"x.pt holds .*{what}"):
        read(tmp_path / "x.pt")


@pytest.mark.parametrize("zipped", [True, False])
def test_what_programs_save_is_read(zipped: bool, tmp_path: Path) -> None:
    """Bytes, which are text for a codec, large integers of a random generator, and names that are codecs."""
    generator = {"state": 1 << 127, "inc": (1 << 126) + 1, "raw": b"\x00\xff", "hex": b"1", "punycode": 3}
    state = {"model": {"w": torch.ones(2)}, "rng": torch.get_rng_state(), "numpy": generator, "step": 7}
    plain = {**state, "numpy": {key: value for key, value in generator.items() if not isinstance(value, bytes)}}
    for saved in (plain, {"raw": b"\x00\xff", "w": torch.zeros(1)}):
        torch.save(saved, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
        assert load(tmp_path / "x.pt").keys() == saved.keys()
