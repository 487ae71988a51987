"""Arrays in zarr: regions are contiguous and whole chunks, pieces are of one size, damage is found."""

from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.checkpoints.content import PIECE, of_numpy, to_numpy
from capibara_assets.checkpoints.formats import zarr
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets_tests.late import late

late("tensorstore", reason="the extra tpu is not installed")

SHAPES = st.lists(st.integers(1, 9), max_size=4).map(tuple)


@given(SHAPES, st.integers(1, 8), st.integers(8, 600), st.data())
def test_regions_cover_an_array_in_order_and_cut_no_chunk(shape, size, limit, data):
    chunk = tuple(data.draw(st.integers(1, length)) for length in shape)
    numbers = np.arange(prod(shape)).reshape(shape)
    found = []
    for region in zarr.regions(shape, chunk, size, limit):
        block = numbers[region]
        assert block.size * size <= max(limit, size * chunk[0] * prod(shape[1:]) if shape else size)
        for part, length, whole in zip(region, chunk, shape, strict=True):
            assert part.start % length == 0 and (part.stop % length == 0 or part.stop == whole)
        found += block.reshape(-1).tolist()
    assert found == list(range(prod(shape)))


@given(SHAPES, st.integers(1, 16), st.integers(16, 4000))
def test_our_chunks_are_contiguous_and_within_the_limit(shape, size, limit):
    chunk = zarr.chunk_shape(shape, size, limit)
    assert len(chunk) == len(shape) and all(1 <= part <= length for part, length in zip(chunk, shape, strict=True))
    assert prod(chunk) * size <= limit
    first = next((axis for axis, part in enumerate(chunk) if part > 1), len(shape))
    assert chunk[first + 1 :] == shape[first + 1 :]
    if size * prod(shape) <= limit:
        assert chunk == shape


def test_rows_of_a_chunk_divide_evenly_where_a_divisor_is_near():
    assert zarr.even_rows(32128, 4000) == 2008  # 16 chunks, all alike
    assert zarr.even_rows(50257, 20000) == 16753  # 29 * 1733: no divisor between 10000 and 20000
    assert zarr.even_rows(7, 10) == 7


@given(st.lists(st.binary(max_size=30), max_size=8), st.integers(1, 12))
def test_pieces_are_of_one_size_whatever_the_blocks(blocks, size):
    pieces = [bytes(piece) for piece in zarr.regroup((memoryview(block) for block in blocks), size)]
    assert b"".join(pieces) == b"".join(blocks)
    assert all(len(piece) == size for piece in pieces[:-1]) and (not pieces or 0 < len(pieces[-1]) <= size)


def spec(folder: Path, chunks: list[int], shape: list[int]) -> dict:
    metadata = {"shape": shape, "chunks": chunks, "compressor": {"id": "gzip"}}
    kvstore = {"driver": "file", "path": f"{folder}/"}
    return {"driver": "zarr", "dtype": "float32", "kvstore": kvstore, "metadata": metadata}


def source(folder: Path, shape: tuple[int, ...], **more) -> zarr.InZarr:
    return zarr.InZarr(
        {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{folder}/"}, **more}, str(folder), "F32", shape
    )


@pytest.mark.parametrize(
    "chunks", [[5, 3000], [700, 11], pytest.param([1, 1000], marks=pytest.mark.extended), [999, 3000]]
)
def test_an_array_comes_back_in_pieces_whatever_its_chunks(tmp_path: Path, chunks: list[int]):
    array = np.random.default_rng(0).standard_normal((999, 3000)).astype(np.float32)
    array[0, 0], array[1, 1] = -0.0, np.nan
    zarr.write(spec(tmp_path / "a", chunks, [999, 3000]), of_numpy(array))
    back = source(tmp_path / "a", (999, 3000))
    assert [len(piece) for piece in back.pieces()] == [PIECE, array.nbytes - PIECE]
    assert to_numpy(back).tobytes() == array.tobytes()
    assert back.layer(1, 7).tobytes() == array[:, 7].tobytes()


def test_a_missing_chunk_and_a_flipped_bit_are_found(tmp_path: Path):
    zarr.write(spec(tmp_path / "a", [2, 2], [4, 2]), of_numpy(np.ones((4, 2), np.float32)))
    stored = (tmp_path / "a/1.0").read_bytes()
    (tmp_path / "a/1.0").unlink()
    strict = source(tmp_path / "a", (4, 2), fill_missing_data_reads=False)
    with pytest.raises(InputError, match=r"/a is damaged or incomplete: NOT_FOUND.*1\.0.*missing"):
        to_numpy(strict)
    unseen = 0
    for bit in range(8 * len(stored)):
        flipped = bytearray(stored)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "a/1.0").write_bytes(flipped)
        try:
            assert (to_numpy(strict) == 1).all()  # deflate's padding, or a time in gzip's header: no value changes
            unseen += 1
        except InputError as error:
            assert "damaged" in str(error)
    assert unseen < 8 * 10
    with pytest.raises(InputError, match=r"float32\[4, 2\].*F32\[2, 4\]"):
        to_numpy(source(tmp_path / "a", (2, 4)))


def test_a_source_that_ends_early_is_an_error(tmp_path: Path):
    class Short:
        dtype, shape = "F32", (4, 2)

        def pieces(self):
            yield memoryview(bytes(20))

    with pytest.raises(IntegrityError, match="12 bytes before"):
        zarr.write(spec(tmp_path / "a", [4, 2], [4, 2]), Short())
