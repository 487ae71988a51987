"""A mutator over every format: nothing crashes a reader, and a damaged line costs no other line."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from capibara_assets.executions.formats.detection import CountedEntry, is_whole, layout, read_parts
from capibara_assets.executions.formats.envelope_reader import Fault, Recorded
from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets_tests.executions.conftest import NOW, envelope, executed, line
from capibara_assets_tests.executions.formats.test_detection import ENTRY, EVENT
from capibara_assets_tests.executions.formats.test_notebooks import RAISED, code, notebook, shown, stream
from capibara_assets_tests.executions.formats.test_otlp_spans import call, span, trace

ORIGINALS = [
    line(envelope("print('a')", execution=executed("a\n", "w", "1", ("ValueError", "no", "\x1b[31mTraceback")))),
    line(envelope(execution={"results": [{"text": "1"}], "logs": {"stdout": ["a"], "stderr": []}})),
    line(envelope("ls", language="bash", execution={"stdout": "a", "stderr": "", "exit_code": 1, "error": "e"})),
    line(envelope(execution=None, exception={"name": "TimeoutException", "message": "slow"})),
    line(notebook(code("x", stream("a"), shown("1")), code("y", RAISED, count=2), language_info={"name": "python"})),
    line(trace(span(call({"code": "x"}, {"stdout": "a", "exit_code": 0}), status={"code": 2}), span({}, name="chat"))),
    line([EVENT, EVENT]),
    line({"logs": [ENTRY], "logEntries": [ENTRY]}),
]
TOKENS = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"null", b"NaN", b"-1e999", b"true", b"'", b"\n", b"\r"),
    *(b"\x00", b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\xef\xbb\xbf", b"\x1f\x8b", b"\xe2\x80\xa8"),
    *(b'"code"', b'"logs"', b'{"a":1,"a":2}', b"[" * 300, b"9" * 5000),
)


def mutated(generator: random.Random) -> bytes:
    """One of the originals after one to four changes: bytes flipped, cut, moved, doubled, or replaced by a token."""
    data = generator.choice(ORIGINALS)
    for _ in range(generator.randint(1, 4)):
        at, to = sorted(generator.randrange(len(data) + 1) for _ in range(2))
        match generator.randrange(6):
            case 0 if at < len(data):
                data = data[:at] + bytes([data[at] ^ (1 << generator.randrange(8))]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[min(to, at + 40) :]
            case 2:
                data = data[:at] + generator.choice(TOKENS) + data[at:]
            case 3:
                data = data[:at] + generator.choice(TOKENS) + data[min(to, at + 12) :]
            case 4:
                data = data[:to] + data[at:to] + data[to:]
            case _:
                data = data[:at]
    return data


def mutants(count: int, seed: int) -> Iterator[bytes]:
    generator = random.Random(seed)
    return (mutated(generator) for _ in range(count))


@pytest.mark.parametrize("lines", [6_000, pytest.param(100_000, marks=pytest.mark.extended)])
def test_no_mutated_line_crashes_a_reader(lines: int) -> None:
    kinds = {Recorded: 0, Fault: 0, CountedEntry: 0}
    for data in mutants(lines, seed=3):
        layout(data.split(b"\n"))
        is_whole(data)
        for part in read_parts(data, NOW):
            kinds[type(part.content)] += 1
    assert min(kinds.values()) > lines // 200  # the mutator damages some and leaves some whole


@pytest.mark.parametrize("lines", [150, pytest.param(500, marks=pytest.mark.extended)])
def test_mutated_lines_cost_no_valid_line(tmp_path: Path, lines: int) -> None:
    valid = [line(envelope(f"print({number})", execution_id=f"e{number}")) for number in range(lines)]
    damaged = [data.replace(b"\n", b" ") for data in mutants(lines, seed=4)]
    (tmp_path / "log.jsonl").write_bytes(b"".join(a + b"\n" + b + b"\n" for a, b in zip(valid, damaged, strict=True)))
    ingest = read_experience(tmp_path, now=NOW)
    assert set(ingest.executions["execution_id"].to_list()) >= {f"e{number}" for number in range(lines)}


def test_mutated_files_are_read_or_quarantined(tmp_path: Path) -> None:
    generator = random.Random(5)
    for number, data in enumerate(mutants(300, seed=6)):
        try:
            text = json.dumps(json.loads(data), indent=1).encode()
        except (ValueError, RecursionError):
            text = data
        at = generator.randrange(len(text) + 1)
        (tmp_path / f"{number}.json").write_bytes(
            text if number % 2 else text[:at] + generator.choice(TOKENS) + text[at:]
        )
    (tmp_path / "valid.jsonl").write_bytes(line(envelope(execution_id="valid")) + b"\n")
    ingest = read_experience(tmp_path, now=NOW)
    assert "valid" in ingest.executions["execution_id"].to_list()
    assert ingest.files.height == 301
