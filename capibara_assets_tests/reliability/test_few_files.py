"""Where a process may open few files, a writer says so and leaves nothing half-written; it leaks no descriptor."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capibara_assets_tests.reliability import few_files
from capibara_assets_tests.reliability.few_files import TRIES
from capibara_assets_tests.reliability.system_calls import REFUSED, SCENARIOS

QUICK = ("publish",)
EACH = [pytest.param(name, marks=() if name in QUICK else pytest.mark.extended) for name in SCENARIOS]


@pytest.mark.parametrize("name", EACH)
def test_with_few_open_files_it_is_done_or_refused_whole_and_descriptors_are_closed(tmp_path: Path, name: str) -> None:
    scenario = SCENARIOS[name]
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    scenario.prepare(before)
    first = scenario.read(before)
    shutil.copytree(before, after)
    scenario.write(after)
    expected = scenario.read(after)
    for number in range(TRIES):
        shutil.copytree(before, tmp_path / "limited" / str(number))
    command = [sys.executable, "-m", few_files.__name__, name, str(tmp_path / "limited"), str(before)]
    done = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    codes, counts = done["codes"], done["open"]
    assert len(set(counts[2:])) == 1, counts
    assert set(codes) <= {0, REFUSED} and codes[0] == REFUSED, codes
    for number, code in enumerate(codes):
        place = tmp_path / "limited" / str(number)
        if code == REFUSED:
            said = (place / "said").read_text()
            (place / "said").unlink()
            assert "limit of open files" in said or "unable to open" in said, said  # the latter: SQLite
        whole = (expected,) if code == 0 else (first, expected, *scenario.between)
        assert scenario.read(place) in whole
        scenario.write(place)
        assert scenario.read(place) == expected


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
