"""Where a process may open few files, a writer says so and leaves nothing half-written; it leaks no descriptor."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capibara_assets_tests.reliability.few_files import TRIES
from capibara_assets_tests.reliability.system_calls import REFUSED, SCENARIOS

QUICK = ("publish",)
EACH = [pytest.param(name, marks=() if name in QUICK else pytest.mark.extended) for name in SCENARIOS]


def numbers(how: str, name: str, folder: Path, most: int) -> list[int]:
    command = [sys.executable, "-m", "capibara_assets_tests.reliability.few_files", how, name, str(folder), str(most)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(each) for each in done.stdout.split()]


@pytest.mark.parametrize("name", EACH)
def test_with_few_open_files_it_is_done_or_refused_whole(tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    scenario.prepare(before)
    shutil.copytree(before, after)
    scenario.write(after)
    expected = scenario.read(after)
    for number in range(TRIES):
        shutil.copytree(before, tmp_path / "limited" / str(number))
    codes = numbers("limit", name, tmp_path / "limited", TRIES)
    assert set(codes) <= {0, REFUSED} and codes[0] == REFUSED, codes
    for number, code in enumerate(codes):
        place = tmp_path / "limited" / str(number)
        if code == REFUSED:
            said = (place / "said").read_text()
            (place / "said").unlink()
            assert "limit of open files" in said or "unable to open" in said, said  # the latter: SQLite
        whole = (expected,) if code == 0 else (scenario.read(before), expected, *scenario.between)
        assert scenario.read(place) in whole
        scenario.write(place)
        assert scenario.read(place) == expected


@pytest.mark.parametrize("name", EACH)
def test_descriptors_are_closed(tmp_path: Path, name: str) -> None:
    SCENARIOS[name].prepare(tmp_path)
    counts = numbers("leak", name, tmp_path, 6)
    assert len(set(counts[2:])) == 1, counts


STARVED = """
import os, resource
from pathlib import Path
import click
from capibara_assets.cli.main import run_command_line
from capibara_assets.storage.jsonfiles import read_json

@click.command()
def starved():
    resource.setrlimit(resource.RLIMIT_NOFILE, (os.open(os.devnull, os.O_RDONLY) + 1, 512))
    read_json(Path("recipe.json"))

run_command_line(starved, "capibara")
"""


def test_a_command_names_the_limit() -> None:
    few = ("prlimit", "--nofile=512:512", sys.executable, "-c", STARVED)
    done = subprocess.run(few, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "cannot read recipe.json: Too many open files; raise this process's limit" in done.stderr
    assert "of open files, 512: ulimit -n" in done.stderr
