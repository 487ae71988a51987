"""Pieces of a record are found in whatever form a file holds them, and only where they are."""

import bz2
import gzip
import json
import lzma
import sqlite3
import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
import zstandard

from capibara_assets.errors import InputError
from capibara_assets.lineage import traces
from capibara_assets.lineage.history import databases
from capibara_assets.lineage.traces import contains, holding, holds, needles, pieces, readings, telling
from capibara_assets.storage.cache import Cache

CANARY = "kanarienvogel_sings_at_noon"


def rows(code: str, **values: str) -> pl.DataFrame:
    return pl.DataFrame({"execution_id": ["0123456789-abc"], "code": [code], "stdout": [values.get("stdout", "")]})


def test_pieces_are_stretches_of_plain_text_and_the_id() -> None:
    [found] = pieces(rows(f"def {CANARY}(values):\n    return 'short'\n", stdout="a\nthe output of it all\n"))
    assert "0123456789-abc" in found and f"def {CANARY}(values):" in found and "the output of it all" in found
    assert all(12 <= len(piece) <= 40 for piece in found)
    assert not any("'" in piece for piece in found)  # in JSON and HTML it looks otherwise


def test_a_record_without_plain_text_has_pieces_too() -> None:
    [piece, escaped] = sorted(set(pieces(rows("печать('канарейка поёт')"))[0]) - {"0123456789-abc"}, reverse=True)
    assert json.dumps("печать('канарейка поёт')")[1:-1].startswith(escaped)
    assert piece == "печать('канарейка поёт')"


def test_pieces_that_stand_elsewhere_tell_nothing() -> None:
    [candidates] = pieces(rows("import numpy as np\nkanarienvogel = np.zeros(3)"))
    left = telling(candidates, [pl.DataFrame({"code": ["import numpy as np\nprint(np.pi)"], "n": [1]})])
    assert left == ["kanarienvogel = np.zeros(3)", "0123456789-abc"]
    assert telling(candidates, [pl.DataFrame({"text": candidates})]) == []


def database(path: Path, text: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, event TEXT)")
        # longer than a page, so that it lies on overflow pages with a page number in its middle
        connection.executemany("INSERT INTO events (event) VALUES (?)", [("x" * n + text,) for n in range(3990, 4110)])


def zipped(path: Path, text: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("empty", "")
        archive.writestr("deep/a.log", text * 3)


FORMS = {
    "plain.log": lambda path, text: path.write_text(text),
    "a.gz": lambda path, text: path.write_bytes(gzip.compress(text.encode() * 3)),
    "a.zst": lambda path, text: path.write_bytes(zstandard.ZstdCompressor().compress(text.encode() * 3)),
    "a.bz2": lambda path, text: path.write_bytes(bz2.compress(text.encode() * 3)),
    "a.xz": lambda path, text: path.write_bytes(lzma.compress(text.encode() * 3)),
    "a.zip": zipped,
    "a.parquet": lambda path, text: pl.DataFrame({"a": [text] * 3}).write_parquet(path),
    "nested.parquet": lambda path, text: pl.DataFrame({"a": [[{"b": text}]]}).write_parquet(path),
    "binary.parquet": lambda path, text: pl.DataFrame({"a": [text.encode()] * 3}).write_parquet(path),
    "a.arrow": lambda path, text: pl.DataFrame({"a": [text] * 3}).write_ipc(path, compression="zstd"),
    "a.db": database,
}


@pytest.mark.parametrize("name", sorted(FORMS))
def test_every_form_is_read(name: str, tmp_path: Path) -> None:
    FORMS[name](tmp_path / name, f"before {CANARY} after")
    assert holds(tmp_path / name, ["nothing of it", CANARY])
    assert not holds(tmp_path / name, ["nothing of it"])
    assert holding(tmp_path, [CANARY]) == [tmp_path / name]
    assert holding(tmp_path, [CANARY], skip=[tmp_path / name]) == []


@pytest.mark.parametrize("name", ["a.gz", "a.xz", "a.zip", "a.parquet", "a.arrow"])
def test_what_cannot_be_decoded_is_told(name: str, tmp_path: Path) -> None:
    """It could hold a piece: that nothing was found in it is no answer."""
    FORMS[name](tmp_path / name, f"before {CANARY} after" * 20)
    data = bytearray((tmp_path / name).read_bytes())
    data[80:90] = bytes(10)  # in a member of the archive
    data[20:-20] = data[20:-20] if name == "a.zip" else data[20:-40]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=rf"{name} cannot be searched, since it is damaged"):
        holds(tmp_path / name, ["nothing of it"])
    with pytest.raises(InputError, match="cannot be searched"):
        list(readings(tmp_path / name))


def test_a_piece_across_the_border_of_two_blocks_is_found(tmp_path: Path) -> None:
    for shift in range(0, 40, 7):
        (tmp_path / "a.gz").write_bytes(gzip.compress(b"." * ((1 << 20) - shift) + CANARY.encode()))
        assert holds(tmp_path / "a.gz", [CANARY])


def test_empty_and_missing_files_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert not holds(tmp_path / "empty", [CANARY]) and not holds(tmp_path / "missing", [CANARY])
    assert holding(tmp_path / "nowhere", [CANARY]) == []


def test_what_a_cache_holds_is_found_wherever_its_pages_cut_it(tmp_path: Path) -> None:
    cut = 0
    for before in range(1850, 1950, 5):
        cache = Cache(tmp_path / f"{before}.sqlite", "texts")
        cache.add({b"key": b"x" * before + CANARY.encode() + b"x" * (6000 - before)})
        cut += CANARY.encode() not in cache.path.read_bytes()
        assert holds(cache.path, [CANARY])
    assert cut


BEGIN = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute('BEGIN IMMEDIATE')"


@pytest.mark.parametrize("log", ["DELETE", "WAL"])
def test_a_search_does_not_take_the_locks_of_a_transaction_under_way(log: str, tmp_path: Path) -> None:
    """Closing any descriptor of a file drops the process's POSIX locks on it: another one could then write, too."""
    database(tmp_path / "a.db", CANARY)
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {log}")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM events WHERE id = 1")
        assert tmp_path / "a.db" in holding(tmp_path, [CANARY]) and not holding(tmp_path, ["nothing of it"])
        assert databases(tmp_path) == [tmp_path / "a.db"]
        assert any(CANARY.encode() in data for data in readings(tmp_path / "a.db"))
        other = subprocess.run([sys.executable, "-c", BEGIN, tmp_path / "a.db"], capture_output=True, check=False)
        assert b"database is locked" in other.stderr


def test_sqlite_is_asked_about_no_file_that_cannot_be_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database(tmp_path / "a.db", CANARY)
    (tmp_path / "a.txt").write_text(CANARY)
    (tmp_path / "page.txt").write_text("x" * 512)
    asked = []
    reader = traces._reader
    monkeypatch.setattr(traces, "_reader", lambda path: [asked.append(path.name), reader(path)][1])
    assert holding(tmp_path, [CANARY]) == [tmp_path / "a.db", tmp_path / "a.txt"]
    assert set(asked) == {"a.db", "page.txt"}


def test_of_many_records_each_is_searched_for() -> None:
    long = [[f"{'long piece ' * 3}{record} {number:02d}" for number in range(24)] for record in range(200)]
    short = [["the only piece"], []]
    chosen = needles([*long, *short], [piece for own in [*long, *short] for piece in own])
    assert "the only piece" in chosen and len(chosen) == 4 * 200 + 1
    assert all(sum(piece in chosen for piece in own) == 4 for own in long)
    assert needles([["common words here", "telling words"]], ["telling words"]) == ["telling words"]


@pytest.mark.parametrize("where", ["begin", "border", "end", None])
def test_many_words_are_found_in_one_pass_as_one_by_one(
    where: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "_ONE_BY_ONE", 0)
    monkeypatch.setattr(traces, "_WINDOW", 1000)
    word, path = "печать канарейки №7391", tmp_path / "file"
    text = bytearray(b"\xff\x00 nothing of it " * 200)
    if where is not None:
        at = {"begin": 0, "border": 995, "end": len(text) - len(word.encode())}[where]
        text[at : at + len(word.encode())] = word.encode()
    path.write_bytes(text)
    words = [f"another word {number}" for number in range(50)] + [word]
    assert holds(path, words) == (where is not None)
    assert contains(text.decode("utf-8", "surrogateescape"), words) == (where is not None)
