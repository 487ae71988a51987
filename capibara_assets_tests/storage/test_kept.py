"""What is kept of program texts: never seen in a result, never more than the last run asked for."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.code import sessions
from capibara_assets.datasets.code.structure import structural_key
from capibara_assets.executions.patterns.extract import idioms_of
from capibara_assets.storage import kept
from capibara_assets.storage.cache import Cache
from capibara_assets.storage.kept import keeping, of_text

CODES = (
    (
        'import math\n\ndef area(r):\n    """The area of a circle, from its radius."""\n    return math.pi * r\n',
        "python",
    ),
    ("total = area(2)\ntotal += 1\nprint(total)", "python"),
    ("text = '\ud800'  # a lone surrogate", "python"),
    ("const twice = (x) => 2 * x;\nconsole.log([1, 2].map(twice));", "javascript"),
    ("-- all the orders that there are\nSELECT id FROM orders WHERE total > 3 ORDER BY id;", "sql"),
    ("", "python"),
)

Read = Callable[[str, str], int]


def counted(calls: list[str]) -> Read:
    """A function of text of which it is known when it really ran; each one has a memory of its own, as a process."""

    @of_text("words", int, int)
    def words(code: str, language: str) -> int:
        calls.append(code)
        return len(code.split())

    return words


def file_in(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def held(folder: Path) -> int:
    return len(Cache(file_in(folder), "texts").read().values)


def test_a_later_run_reads_only_what_is_new(tmp_path: Path) -> None:
    calls: list[str] = []
    for codes, new in ((["a b", "c"], ["a b", "c"]), (["c", "a b", "d"], ["d"]), (["d"], []), (["a b"], ["a b"])):
        words = counted(calls)
        with keeping(tmp_path):
            assert [words(code, "python") for code in codes] == [len(code.split()) for code in codes]
        assert calls == new
        assert held(tmp_path) == len(codes)  # and what was not asked for is gone
        calls.clear()


def test_what_memory_answers_is_kept_too(tmp_path: Path) -> None:
    words = counted([])
    words("a b", "python")  # outside: nothing is kept
    with keeping(tmp_path):
        words("a b", "python")
        words("a b", "sql")
    assert held(tmp_path) == 2
    with keeping(None):
        words("c", "python")
    assert held(tmp_path) == 2


def test_a_run_that_fails_leaves_what_there_was(tmp_path: Path) -> None:
    with keeping(tmp_path):
        counted([])("a", "python")
    before = file_in(tmp_path).read_bytes()
    with pytest.raises(ZeroDivisionError), keeping(tmp_path):
        counted([])("b", "python")
        raise ZeroDivisionError
    assert file_in(tmp_path).read_bytes() == before
    calls: list[str] = []
    counted(calls)("a", "python")  # nothing is open any more
    assert calls == ["a"]


def test_damage_and_another_program_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with keeping(tmp_path):
        counted([])("a b", "python")
    path = file_in(tmp_path)
    whole = path.read_bytes()
    # a sound file with a value that does not fit its checksum
    wrong = "UPDATE cached SET value = CAST('7' || char(10) AS BLOB)"
    for damage in (
        lambda: path.write_bytes(whole[:-9]),
        lambda: path.write_bytes(b""),
        lambda: changed(path, wrong),
    ):
        damage()
        calls: list[str] = []
        with keeping(tmp_path):
            assert counted(calls)("a b", "python") == 2
        assert calls == ["a b"]
        assert path.read_bytes() == whole
    monkeypatch.setattr(kept, "program_digest", lambda: "0" * 64)
    calls = []
    with keeping(tmp_path):
        assert counted(calls)("a b", "python") == 2
    assert calls == ["a b"]
    assert file_in(tmp_path) != path  # the former program's are gone


def test_a_file_of_the_former_form_makes_way(tmp_path: Path) -> None:
    (tmp_path / "texts-0123.parquet").write_bytes(b"text of records")
    with keeping(tmp_path):
        pass
    assert file_in(tmp_path).suffix == ".sqlite"


def changed(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute(statement).rowcount == 1


def test_every_marked_function_gives_back_what_it_made(tmp_path: Path) -> None:
    def idioms(code: str, language: str) -> object:
        return idioms_of(language, code)

    functions = (dissect, structural_key, sessions.statements, idioms)
    fresh = [[function(*code) for code in CODES] for function in functions]
    with keeping(tmp_path):
        assert [[function(*code) for code in CODES] for function in functions] == fresh
    rows = held(tmp_path)
    assert rows == 4 * len(CODES)
    for function in (dissect, structural_key, sessions.statements, kept_idioms()):
        function.cache_clear()  # type: ignore[attr-defined]
    with keeping(tmp_path):
        again = [[function(*code) for code in CODES] for function in functions]
    assert again == fresh
    assert repr(again[0]) == repr(fresh[0])  # tuples stay tuples
    assert held(tmp_path) == rows


def kept_idioms() -> object:
    from capibara_assets.executions.patterns import extract as patterns

    return patterns._idioms
