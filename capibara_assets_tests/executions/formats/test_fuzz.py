"""Damaged lines and files: nothing crashes, no valid line beside the damage is lost, and each line ends somewhere."""

import json
import random
from pathlib import Path

import pytest

from capibara_assets.executions.formats.detection import read_parts
from capibara_assets.executions.formats.envelope_reader import Recorded, read_quickly
from capibara_assets.executions.formats.lines import LineReader
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets.executions.ingest.ingest import ingest
from capibara_assets_tests.executions.conftest import NOW, envelope, executed, line
from capibara_assets_tests.executions.mutator import damaged, damaged_file

ENDS = ("kept", "quarantined", "duplicates", "ignored", "pending")


def seeds() -> list[bytes]:
    """Lines of every everyday shape."""
    nested = {"results": [{"text": "a"}, {"text": None, "data": {"x": [1, {"y": None}]}}], "error": None}
    plain = {"logs": {"stdout": ["a", "b"], "stderr": []}}
    trace = "\x1b[31m----------------------\x1b[0mTraceback (most recent call last)Cell 1"
    error = ("ValueError", 'no: "x" :', trace)
    return [
        line(envelope("d = {'a' : 1, \"b\":2}\nprint(':')", execution=executed(stdout='{"k" : "v", "z":1}\n'))),
        line(envelope("raise", execution=executed(error=error))),
        line(envelope("console.assert(0)", language="javascript", execution=nested | plain)),
        line(envelope("SELECT ':'", language="sql", task="Say :", messages=[{"role": "user", "content": "x"}])),
        line(envelope("x", execution=None, exception={"name": "TimeoutException", "message": "slow"})),
        line(
            envelope(
                "twice", execution=executed(stdout="a") | {"logs": '{"stdout": ["a"], "stdout" : [], "stderr": []}'}
            )
        ),
        json.dumps(envelope('é \\" \\\\', tenant="ü"), ensure_ascii=False, separators=(",", ":")).encode(),
    ]


def check_line(data: bytes, keys: int) -> None:
    """A damaged line is read or refused, and the quick reader says what the strict one does."""
    fast = read_quickly(data, NOW, keys)
    parts = list(read_parts(data, NOW)) if data.strip() else []
    assert all(isinstance(part.content, Recorded | Fault) or part.content.number >= 0 for part in parts)
    if fast is not None:
        assert [part.content for part in parts] == [fast], data


def fuzz_lines(folder: Path, count: int, seed: int) -> int:
    """Damaged lines between whole ones, in files of 500; returns how many were read by the fast reader."""
    chance, pool, fast = random.Random(seed), seeds(), 0
    for number in range(0, count, 500):
        path = folder / "lines"
        path.write_bytes(
            b"".join(damaged(chance.choice(pool), chance) + b"\n" for _ in range(min(500, count - number)))
        )
        for each in LineReader(path):
            check_line(each.data, each.keys)
            fast += read_quickly(each.data, NOW, each.keys) is not None
    return fast


def fuzz_files(folder: Path, count: int, seed: int) -> None:
    """Folders of ten damaged files and one whole one, read together: of that one no line is lost."""
    chance, pool = random.Random(seed), seeds()
    for number in range(count):
        logs = folder / f"{seed}-{number}"
        logs.mkdir()
        good = [line(envelope(f"x = {i}", execution_id=f"good-{i}", sandbox_id=f"whole-{i % 3}")) for i in range(12)]
        between = [damaged(chance.choice(pool), chance) for _ in good]
        mixed = b"".join(whole + b"\n" + torn + b"\n" for whole, torn in zip(good, between, strict=True))
        (logs / "mixed.jsonl").write_bytes(mixed)
        for other in range(10):
            content = b"".join(damaged(chance.choice(pool), chance) + b"\n" for _ in range(chance.randint(0, 30)))
            (logs / f"{other}.log").write_bytes(damaged_file(content, chance))
        with ingest(logs, now=NOW, processes=1) as tables:
            found = tables.load()
        assert {f"good-{i}" for i in range(12)} <= set(found.executions["execution_id"])
        for log in found.files.iter_rows(named=True):
            if log["kind"] == "executions" and log["path"] == "mixed.jsonl":
                assert log["lines"] == 24
                assert log["lines"] <= sum(log[name] for name in ENDS) + sum(tables.summary["known"].values())


def test_the_fast_reader_says_what_the_strict_one_does_on_damaged_lines(tmp_path: Path) -> None:
    assert fuzz_lines(tmp_path, 5_000, seed=1) > 300, "hardly a line was fast: the comparison says little"


def test_damaged_files_cost_no_valid_line(tmp_path: Path) -> None:
    fuzz_files(tmp_path, 4, seed=2)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_thousand_damaged_lines_and_files(tmp_path: Path, seed: int) -> None:
    fuzz_lines(tmp_path, 25_000, seed=10 + seed)
    fuzz_files(tmp_path, 25, seed=20 + seed)


def test_the_fast_reader_takes_nearly_all_real_lines_and_says_the_same(shared_data: Path) -> None:
    paths = sorted((shared_data / "experience" / "e2b_logs").iterdir())[:6]
    taken = total = 0
    for each in (item for path in paths for item in LineReader(path)):
        fast = read_quickly(each.data, NOW, each.keys)
        total += 1
        if fast is not None:
            taken += 1
            assert [part.content for part in read_parts(each.data, NOW)] == [fast]
    assert taken > 0.99 * total


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('{"a": 1, "b": {"c": [{"d": "x"}]}}', 4),
        ('{"a\\\\": 1, "b\\"": "say \\":\\" twice"}', 2),
        ('{"a": "\\\\\\":", "b": 1}', 2),
    ],
)
def test_keys_are_counted_past_escapes(tmp_path: Path, text: str, keys: int) -> None:
    (tmp_path / "f").write_bytes(b"{}\n" + text.encode() + b"\n")
    assert [found.keys for found in LineReader(tmp_path / "f")] == [0, keys]
