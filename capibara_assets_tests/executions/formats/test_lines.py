"""Lines of plain, gzip and zstd files: offsets, line ends, damage."""

import gzip
import hashlib
import io
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capibara_assets.executions.formats import lines
from capibara_assets.executions.formats.lines import LineReader

ENCODERS = {"plain": bytes, "gzip": gzip.compress, "zstd": zstandard.compress}


@pytest.mark.parametrize("encoding", ENCODERS)
@given(st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b"")), max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_line_is_found_at_its_offset(tmp_path: Path, encoding: str, texts: list[bytes]) -> None:
    content = b"{}\n" + b"".join(text + b"\n" for text in texts)
    path = tmp_path / "file"
    path.write_bytes(ENCODERS[encoding](content))
    reader = LineReader(path)
    found = list(reader)
    assert [item.data for item in found] == [b"{}", *texts] or lines._wide_encoding(content)
    if not lines._wide_encoding(content):
        assert all(content[item.offset :].startswith(item.data) for item in found)
        assert [item.number for item in found] == list(range(1, len(texts) + 2))
    assert reader.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert reader.bytes_read == path.stat().st_size


def test_compression_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    (tmp_path / "plain.gz").write_bytes(b"a\nb\n")
    (tmp_path / "gzip.jsonl").write_bytes(gzip.compress(b"a\nb\n"))
    for path in tmp_path.iterdir():
        assert [item.data for item in LineReader(path)] == [b"a", b"b"]


def test_members_and_frames_in_a_row_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "g").write_bytes(gzip.compress(b"a\nb") + gzip.compress(b"c\n") + b"\0" * 512)
    (tmp_path / "z").write_bytes(zstandard.compress(b"a\nb") + zstandard.compress(b"c\n"))
    for path in sorted(tmp_path.iterdir()):
        reader = LineReader(path)
        assert [item.data for item in reader] == [b"a", b"bc"]
        assert reader.closed
        assert reader.fault is None


@pytest.mark.parametrize(("compress", "name"), [(gzip.compress, "gzip"), (zstandard.compress, "zstd")])
def test_a_truncated_file_gives_what_is_whole_and_says_so(tmp_path: Path, compress: object, name: str) -> None:
    content = b"".join(hashlib.sha256(bytes([i])).hexdigest().encode() + b"\n" for i in range(200))
    whole = ENCODERS[name](content)
    path = tmp_path / "cut"
    path.write_bytes(whole[: len(whole) - 20])
    reader = LineReader(path)
    found = [item.data for item in reader if item.ended]
    assert found == content.split(b"\n")[: len(found)]
    assert reader.fault == f"truncated_{name}"
    assert not reader.closed


def test_a_damaged_gzip_is_named(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(b"line\n" * 1000))
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "broken").write_bytes(data)
    reader = LineReader(tmp_path / "broken")
    list(reader)
    assert reader.fault == "invalid_gzip"
    assert reader.bytes_read == len(data)


def test_crlf_and_byte_order_mark_are_no_part_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    assert [(item.data, item.offset) for item in LineReader(tmp_path / "f")] == [(b"a", 3), (b"b", 6)]


def test_the_last_line_without_a_line_feed_is_marked(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\nb")
    assert [item.ended for item in LineReader(tmp_path / "f")] == [True, False]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-be"])
def test_a_wide_encoding_is_one_fault_of_the_file(tmp_path: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-32-be" else ""
    (tmp_path / "f").write_bytes((mark + '{"code": "x"}\n' * 20).encode(encoding))
    reader = LineReader(tmp_path / "f")
    assert [item.number for item in reader] == [0]
    named = encoding[:6].upper()
    assert (reader.fault, reader.detail) == ("invalid_utf8", f"the file is {named}; save it as UTF-8")
    assert reader.digest == hashlib.sha256((tmp_path / "f").read_bytes()).hexdigest()


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_a_reader_that_stops_reads_no_more_than_a_line_of_a_bomb(
    tmp_path: Path, compress: Callable[..., bytes]
) -> None:
    (tmp_path / "bomb").write_bytes(compress(bytes(1 << 29)))
    tracemalloc.start()
    began = time.process_time()
    try:
        (line,) = LineReader(tmp_path / "bomb", stops=True)
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 2
    assert (line.number, line.fault, len(line.data)) == (1, "line_too_long", 4096)
    (tmp_path / "sound").write_bytes(compress(b"a\n" + bytes(1 << 20) + b"\nb"))
    assert [len(line.data) for line in LineReader(tmp_path / "sound", stops=True)] == [1, 1 << 20, 1]


def test_an_endless_line_costs_no_memory_and_the_next_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 3 << 20)
    stream = io.BytesIO(b"x" * (5 << 20) + b"\nnext\n")
    (tmp_path / "f").write_bytes(stream.getvalue())
    first, second = LineReader(tmp_path / "f")
    assert first.fault == "line_too_long"
    assert len(first.data) < 3 << 20
    assert (second.data, second.number, second.offset, second.fault) == (b"next", 2, (5 << 20) + 1, None)
