"""Compressed pieces: every bit pattern survives, weights shrink, noise does not cost, damage is found."""

import gzip
import io
import struct
import threading
import tracemalloc
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from capibara_assets.checkpoints.content import DTYPES, PIECE, numpy_dtype
from capibara_assets.checkpoints.store.codec import decode, encode
from capibara_assets.errors import IntegrityError

FLOATS = ("BF16", "F16", "F32", "F64", "C64", "C128")


def there_and_back(piece: bytes, dtype: str, compression: str = "zstd", shift: int = 0) -> tuple[str, int]:
    """(encoding, stored bytes) of a piece that came back; it lies `shift` bytes off alignment throughout."""
    around = bytearray(shift) + piece
    encoding, stored = encode(memoryview(around)[shift:], dtype, compression)  # type: ignore[arg-type]
    kept = bytearray(shift) + stored
    out = bytearray(b"\xa5" * (shift + len(piece)))
    decode(encoding, memoryview(kept)[shift:], memoryview(out)[shift:])
    assert out[shift:] == piece
    return encoding, len(stored)


def normal(count: int, dtype: str, seed: int = 0) -> bytes:
    values = np.random.default_rng(seed).standard_normal(count) * 0.02
    return values.astype(np.float32 if dtype == "BF16" else np.float64).astype(numpy_dtype(dtype)).tobytes()


@st.composite
def pieces(draw: st.DrawFn) -> bytes:
    """Bytes of every kind: noise, runs, repetitions, and any ends that are no whole element."""
    seed, count = draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 5000))
    values = draw(st.sampled_from([2, 7, 100, 256]))  # how many byte values there are: few compress, all do not
    noise = np.random.default_rng(seed).integers(0, values, count).astype(np.uint8).tobytes()
    return noise + draw(st.binary(max_size=40)) * draw(st.integers(0, 60)) + draw(st.binary(max_size=9))


@given(pieces(), st.sampled_from(DTYPES), st.sampled_from(["zstd", "gzip", "none"]), st.integers(0, 3))
@example(b"", "BF16", "zstd", 0)
@example(b"\x00" * 4097, "F64", "zstd", 1)
def test_any_bytes_survive_and_never_grow(piece: bytes, dtype: str, compression: str, shift: int) -> None:
    encoding, stored = there_and_back(piece, dtype, compression, shift)
    assert stored <= len(piece)
    assert stored < 0.97 * len(piece) or encoding == "raw"


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_every_pattern_of_sixteen_bits_survives(dtype: str) -> None:
    """All NaN payloads, both zeros, denormals, infinities: in an order that compresses."""
    patterns = np.sort(np.tile(np.arange(2**16, dtype=np.uint16), 4)).tobytes()
    assert there_and_back(patterns, dtype)[0] == "planes2-zstd"


@pytest.mark.parametrize("dtype", ["F32", "F64"])
def test_nan_payloads_and_signs_survive(dtype: str) -> None:
    width = np.dtype(numpy_dtype(dtype)).itemsize
    bits = np.random.default_rng(1).integers(0, 2 ** (8 * width - 12), 10_000, dtype=np.uint64)
    exponent = 0x7F80_0000 if width == 4 else 0x7FF0_0000_0000_0000
    sign = (bits & 1) << (8 * width - 1)
    words = (bits | np.uint64(exponent) | sign).astype(f"u{width}")
    assert np.isnan(words.view(numpy_dtype(dtype))).mean() > 0.99
    assert there_and_back(words.tobytes(), dtype)[0] == f"planes{width}-zstd"


@pytest.mark.parametrize(
    ("dtype", "at_least"),
    [("BF16", 1.45), ("F16", 1.17), ("F32", 1.18), ("F64", 1.1), ("F8_E4M3", 1.02), ("C64", 1.18)],
)
def test_weights_of_a_normal_distribution_shrink(dtype: str, at_least: float) -> None:
    piece = normal(300_000, dtype)
    assert len(piece) / there_and_back(piece, dtype)[1] >= at_least


@pytest.mark.parametrize("kib", [2, 8, 64])
def test_small_lora_matrices_shrink_too(kib: int) -> None:
    piece = normal(kib << 9, "BF16")
    assert len(piece) / there_and_back(piece, "BF16")[1] >= 1.4


@pytest.mark.parametrize("count", [16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 140_001])
@pytest.mark.parametrize(("dtype", "tail"), [("BF16", 1), ("F32", 3), ("F64", 7)])
def test_blocks_and_samples_meet_at_any_length(count: int, dtype: str, tail: int) -> None:
    """Around the sizes at which a sample is not the whole, and at which a block ends; and a last element cut off."""
    for piece in (normal(count, dtype), normal(count, dtype) + b"\x80" * tail):
        encoding, stored = there_and_back(piece, dtype)
        assert encoding.startswith("planes") and stored < 0.95 * len(piece)


def test_mantissas_are_stored_as_they_are() -> None:
    """No time goes into what cannot shrink: three of float32's planes are raw, found in a sample and in full alike."""
    for count in (4096, 1 << 20):
        _, stored = encode(memoryview(normal(count, "F32")), "F32", "zstd")
        lengths = struct.unpack_from("<4I", stored)
        assert lengths[:3] == (count, count, count) and lengths[3] < 0.5 * count


def test_where_a_sixth_of_a_large_piece_is_empty_it_is_found() -> None:
    """Rows that never had a gradient: moments of an embedding. The sample is spread over the piece."""
    words = np.frombuffer(normal(1 << 20, "F32"), np.float32).copy()
    words[400_000:600_000] = 0
    _, stored = encode(memoryview(words.tobytes()), "F32", "zstd")
    assert all(length < 0.9 * (1 << 20) for length in struct.unpack_from("<4I", stored))


def test_noise_is_returned_uncopied() -> None:
    noise = memoryview(np.random.default_rng(2).integers(0, 256, 200_000).astype(np.uint8).tobytes())
    for dtype in (*FLOATS, "U8", "I64"):
        for compression in ("zstd", "gzip"):
            encoding, stored = encode(noise, dtype, compression)  # type: ignore[arg-type]
            assert encoding == "raw" and stored is noise


def test_the_same_piece_gives_the_same_bytes_on_any_thread_at_once() -> None:
    piece = memoryview(normal(1 << 19, "BF16"))
    expected = bytes(encode(piece, "BF16", "zstd")[1])
    found: list[bool] = []

    def work() -> None:
        out = memoryview(bytearray(len(piece)))
        for _ in range(5):
            encoding, stored = encode(piece, "BF16", "zstd")
            decode(encoding, memoryview(stored), out)
            found.append(bytes(stored) == expected and out == piece)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 20


def test_stored_bytes_do_not_change_when_more_is_encoded() -> None:
    first = encode(memoryview(normal(100_000, "BF16", seed=1)), "BF16", "zstd")[1]
    before = bytes(first)
    encode(memoryview(normal(100_000, "BF16", seed=2)), "BF16", "zstd")
    assert first == before


def test_other_readers_agree_on_what_frames_are() -> None:
    text = b"a checkpoint's config, again and again. " * 500
    assert gzip.GzipFile(fileobj=io.BytesIO(encode(memoryview(text), "U8", "gzip")[1])).read() == text
    assert zstandard.ZstdDecompressor().decompress(encode(memoryview(text), "U8", "zstd")[1]) == text


def test_the_layout_of_planes_is_what_the_module_says() -> None:
    """Read with nothing but the description: rotated left by one bit, least significant byte first, tail last."""
    words = (np.random.default_rng(3).standard_normal(1000) * 0.02).astype(ml_dtypes.bfloat16).view(np.uint16)
    encoding, stored = encode(memoryview(words.tobytes() + b"\x07"), "BF16", "zstd")
    low, high = struct.unpack_from("<2I", stored)
    assert encoding == "planes2-zstd" and low == 1000
    exponents = np.frombuffer(zstandard.ZstdDecompressor().decompress(stored[8 + low : 8 + low + high]), np.uint8)
    assert (exponents == (words >> 7) % 256).all()
    assert (np.frombuffer(stored[8 : 8 + low], np.uint8) == (words << 1 | words >> 15) % 256).all()
    assert stored[8 + low + high :] == b"\x07"


def whole_and_encodings() -> Iterator[tuple[bytes, str, bytes]]:
    text = b"capibara " * 700
    for piece, dtype, compression in (
        (text, "U8", "zstd"), (text, "U8", "gzip"), (text, "U8", "none"),
        (normal(3000, "BF16"), "BF16", "zstd"), (normal(2000, "F32") + b"xy", "F32", "zstd"),
        (np.arange(900).tobytes(), "I64", "zstd"),
    ):  # fmt: skip
        encoding, stored = encode(memoryview(piece), dtype, compression)  # type: ignore[arg-type]
        yield piece, encoding, bytes(stored)


STORED = list(whole_and_encodings())


@given(st.sampled_from(STORED), st.data())
def test_damage_is_an_error_or_harmless_and_stays_within_the_piece(
    case: tuple[bytes, str, bytes], data: st.DataObject
) -> None:
    """Bits flipped, bytes cut or added, another length expected: IntegrityError or `out` filled, nothing else."""
    piece, encoding, stored = case
    damaged = bytearray(stored)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))] + data.draw(st.binary(max_size=5))
    size = data.draw(st.sampled_from([len(piece), len(piece) - 1, len(piece) + 1, 0, 5]))
    around = bytearray(b"\xa5" * (size + 64))
    try:
        decode(encoding, memoryview(bytes(damaged)), memoryview(around)[32 : 32 + size])
    except IntegrityError as error:
        assert encoding in str(error)
    else:
        assert size == len(piece)  # a piece of another length is never made up
    assert around[:32] == around[-32:] == b"\xa5" * 32


@pytest.mark.parametrize(("piece", "encoding", "stored"), STORED)
def test_a_piece_that_is_cut_off_is_named(piece: bytes, encoding: str, stored: bytes) -> None:
    for keep in (0, 1, len(stored) // 2, len(stored) - 1):
        with pytest.raises(IntegrityError, match=f"stored as {encoding} is damaged"):
            decode(encoding, memoryview(stored[:keep]), memoryview(bytearray(len(piece))))


@given(st.sampled_from(["zstd", "gzip", "planes2-zstd", "planes4-zstd", "planes8-zstd"]), st.binary(max_size=300))
def test_any_bytes_are_no_reason_to_crash(encoding: str, stored: bytes) -> None:
    with pytest.raises(IntegrityError):
        decode(encoding, memoryview(stored), memoryview(bytearray(2048)))


@pytest.mark.parametrize("encoding", ["planes3-zstd", "planes16-zstd", "planes-zstd", "ZSTD", "", "pickle"])
def test_an_unknown_encoding_is_named(encoding: str) -> None:
    with pytest.raises(IntegrityError, match="does not know"):
        decode(encoding, memoryview(b"xxxx"), memoryview(bytearray(4)))


def bombs() -> Iterator[tuple[str, bytes]]:
    zeros = bytes(1 << 30)
    plain = zstandard.ZstdCompressor(level=1).compress(zeros)
    yield "zstd", plain
    unsized = zstandard.ZstdCompressor(level=1, write_content_size=False).compress(zeros)
    yield "zstd", unsized
    params = zstandard.ZstdCompressionParameters(window_log=27, strategy=zstandard.STRATEGY_FAST)
    wide = zstandard.ZstdCompressor(compression_params=params).compressobj(size=1 << 28)
    yield "zstd", wide.compress(zeros[: 1 << 28]) + wide.flush()
    yield "gzip", gzip.compress(zeros[: 1 << 28], 1)
    yield "planes2-zstd", struct.pack("<2I", len(plain), 512) + plain + bytes(512)
    yield "planes2-zstd", struct.pack("<2I", 2**32 - 1, 2**32 - 1)


def test_a_few_bytes_cannot_ask_for_gigabytes() -> None:
    for encoding, bomb in bombs():
        out = memoryview(bytearray(1024))
        tracemalloc.start()
        with pytest.raises(IntegrityError):
            decode(encoding, memoryview(bomb), out)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < (1 << 18) + len(bomb), (encoding, peak)


def test_a_frame_cannot_ask_for_a_window_wider_than_the_piece() -> None:
    """RFC 8878, 3.1.1.1: the decoder would keep a window of 128 MiB for 512 bytes; the frame is valid otherwise."""
    piece = bytes(range(256)) * 2
    head = b"\x28\xb5\x2f\xfd" + bytes([0x80, 17 << 3]) + struct.pack("<I", len(piece))
    frame = head + struct.pack("<I", len(piece) << 3 | 1)[:3] + piece
    assert zstandard.ZstdDecompressor().decompress(frame) == piece
    with pytest.raises(IntegrityError, match="stored as zstd is damaged"):
        decode("zstd", memoryview(frame), memoryview(bytearray(len(piece))))


def test_a_whole_piece_is_decoded_without_a_second_copy_of_it() -> None:
    """Beyond the scratch that a thread keeps, decoding allocates next to nothing."""
    piece = normal(PIECE // 2, "BF16")
    encoding, stored = encode(memoryview(piece), "BF16", "zstd")
    out = memoryview(bytearray(PIECE))
    decode(encoding, memoryview(stored), out)
    tracemalloc.start()
    decode(encoding, memoryview(stored), out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 16
