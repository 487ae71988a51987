"""The bench `ingest`: its corpus holds no two equal records, and a missing peer is named before it is measured."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.experience.corpus import write_corpus
from benchmarks.experience.ingest import measure, measure_alone, measure_one_more
from capibara_assets.errors import InputError
from capibara_assets.executions.formats.lines import LineReader
from capibara_assets.executions.ingest.ingest import read_experience
from capibara_assets_tests.executions.conftest import envelope, executed, line


@pytest.fixture
def experience(tmp_path: Path) -> Path:
    folder = tmp_path / "experience"
    folder.mkdir()
    code = "total = 12\nfor value in range(total):\n    print(value)"
    records = [
        envelope(code, execution_id="a", sandbox_id="s", execution=executed(stdout="11\n")),
        envelope("def half(number):\n    return number / 2", execution_id="b", sandbox_id="s"),
        envelope("late", execution_id="c", execution=None, exception={"name": "TimeoutException", "message": "10 s"}),
    ]
    (folder / "log.jsonl").write_bytes(b"".join(line(record) + b"\n" for record in records))
    return folder


def test_copies_differ_in_ids_names_and_numbers_and_are_all_valid(experience: Path, tmp_path: Path) -> None:
    size = write_corpus(experience, tmp_path / "corpus", 30)
    found = read_experience(tmp_path / "corpus", now=datetime.now(UTC))
    assert (found.summary["executions"], found.summary["quarantined"], found.summary["sandboxes"]) == (30, 0, 20)
    texts = [row.data for path in (tmp_path / "corpus").iterdir() for row in LineReader(path)]
    assert size == sum(len(text) + 1 for text in texts)
    codes = {json.loads(text)["code"] for text in texts}
    assert len(codes) > 15, "copies are hardly perturbed"


def test_without_the_peers_environment_the_command_to_build_it_is_named(
    experience: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPIBARA_BENCH_ENV", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="make bench-env"):
        measure(str(experience), 30, 1)


def test_ours_alone_says_what_it_cost(experience: Path) -> None:
    found = measure_alone(str(experience), 30, 1)
    assert (found["our_rows"], found["records"], found["our_quarantined"]) == (30, 30, 0)
    assert found["our_peak_memory_mib"] > 10
    assert found["our_cpu_us_per_record"] > 0


@pytest.mark.extended
def test_one_more_file_is_what_the_second_look_reads(experience: Path) -> None:
    found = measure_one_more(str(experience), 30, 10)
    assert (found["new_rows"], found["files"], found["records"]) == (3, 10, 30)
    assert 0 < found["one_more_share"] == pytest.approx(found["one_more_cpu_s"] / found["whole_cpu_s"], rel=0.2)
