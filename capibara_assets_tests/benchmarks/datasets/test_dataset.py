"""The bench `dataset`: dealt anew a collection holds the same lines, and small experience shows every figure."""

import gzip
import shutil
from pathlib import Path

import pytest

from benchmarks.datasets.dataset import _copy, _shuffled, measure
from benchmarks.experience_input import BenchInput, bench_input
from capibara_assets.errors import InputError


def lines_of(folder: Path) -> list[bytes]:
    files = [path for path in (folder / "e2b_logs").iterdir() if path.suffix != ".ipynb"]
    texts = [gzip.decompress(f.read_bytes()) if f.suffix == ".gz" else f.read_bytes() for f in files]
    return sorted(line for text in texts for line in text.split(b"\n") if line)


def test_shuffled_experience_holds_the_same_lines_under_other_names(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "e2b_logs").mkdir(parents=True)
    (source / "playbooks").mkdir()
    (source / "playbooks" / "a.json").write_text("{}")
    (source / "e2b_logs" / "one.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(20)))
    (source / "e2b_logs" / "two.jsonl.gz").write_bytes(gzip.compress(b'{"n": 20}\n{"n": 21}\n'))
    (source / "e2b_logs" / "book.ipynb").write_text("{}")
    made = _shuffled(source, tmp_path / "made")
    assert lines_of(made) == lines_of(source)
    assert (made / "playbooks" / "a.json").exists()
    names = {path.name for path in (made / "e2b_logs").iterdir()}
    assert len(names) == 3
    assert not names & {"one.jsonl", "two.jsonl.gz", "book.ipynb"}
    assert (source / "e2b_logs" / "one.jsonl").exists()


def test_of_one_log_file_none_can_come_later(tmp_path: Path, small_experience: Path) -> None:
    source = BenchInput(_copy(small_experience, tmp_path / "experience"), "small", None)
    for log in (source.folder / "e2b_logs").iterdir():
        log.write_text("")
    with pytest.raises(InputError, match="at least two are needed"):
        measure(source, reexecution=False)


@pytest.mark.extended
@pytest.mark.extended
def test_small_experience_is_the_same_in_any_order(tmp_path: Path, small_experience: Path) -> None:
    folder = tmp_path / "experience"
    shutil.copytree(small_experience, folder)
    log = folder / "e2b_logs" / "sessions.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(lines[:-20]))
    (folder / "e2b_logs" / "zz-later.jsonl").write_text("".join(lines[-20:]))
    result = measure(bench_input(str(folder), None), reexecution=False)
    assert result["same"], result["differ"]
    assert result["compared_tables"] > 40
    assert result["executions"] == len(lines)
    assert 0 < result["one_file_read_share"] < 0.5
    assert set(result["stages"]) > set(result["one_file_stages"])
    assert min(result["examples"].values()) > 0
