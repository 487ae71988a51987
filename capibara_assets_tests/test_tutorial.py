"""The tutorial's commands, read out of the page and run in its order: a clone, real processes, a UI with its daemon.

What differs from the page: the clone has `.venv` already, whose programs run this code; its deployment is the small
materialized home, so that `make run` finds two domains made and not six to make; the UI has a free port.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from capibara_assets.assets.inputs import latest_digest
from capibara_assets.cli.graph.instance import open_instance
from capibara_assets.domains import Domain
from capibara_assets.processes.groups import family, runs
from capibara_assets_tests.home import DOMAINS, REPOSITORY, MadeHome
from capibara_assets_tests.served import free_port

PAGE = REPOSITORY / "docs" / "tutorial.md"
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
UI = "make ui\n"
WAIT_S = 900.0


def test_the_commands_are_where_this_file_looks_for_them():
    assert BLOCKS[0].startswith("git clone REPOSITORY") and BLOCKS.count(UI) == 1 and len(BLOCKS) >= 8
    assert BLOCKS.index(UI) < next(place for place, block in enumerate(BLOCKS) if "own_log.py" in block)
    assert BLOCKS.count("make run\n") == 2
    every = "".join(re.findall(r"^```.*?^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))
    assert every.count("```") == 2 * len(BLOCKS), "no command stands in another kind of block"


def set_up(clone: Path, made: MadeHome, port: int) -> dict[str, str]:
    """Give a clone programs and a small deployment; returns the environment of its commands."""
    programs = clone / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (programs / "capibara").write_text(
        "#!/bin/sh\ncase $1 in\n"
        f'  run) set -- "$@" --domains {",".join(DOMAINS)};;\n  ui) set -- "$@" --port {port};;\n'
        f'esac\nexec {shlex.quote(sys.executable)} -W ignore -m capibara_assets.cli "$@"\n'
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    (clone / ".venv" / ".installed").touch()
    shutil.rmtree(clone / "resources" / "experience")
    (clone / "resources" / "experience").symlink_to(made.folder / "experience")
    variables = made.environment | {"CAPIBARA_TICK_SECONDS": "3", "PYTHONPATH": str(REPOSITORY)}
    return {**os.environ, **variables}


def done(block: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a block as one script that ends at its first error; returns what it printed.

    A certificate of quick recipes holds with reservations, which is exit code 3.
    """
    command = ["bash", "-euo", "pipefail", "-c", block]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode in ((0, 3) if "lineage certificate" in block else (0,)), (
        f"{block}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    )
    return ended.stdout


@contextmanager
def in_a_second_terminal(block: str, folder: Path, environment: dict[str, str]) -> Iterator[Path]:
    """Run a block until the end of the `with`, which is Ctrl-C; gives the file of what it prints."""
    log = folder / "ui.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["bash", "-c", block], cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            yield log
        finally:
            below = family(process.pid)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all in front
            process.wait(timeout=90)
            assert not [one for one in below if runs(one)], "ended means ended"


@pytest.mark.extended
@pytest.mark.timeout(2400)
def test_from_nothing_to_a_promoted_model(made: MadeHome, tmp_path: Path):
    port = free_port()
    done(BLOCKS[0].replace("REPOSITORY", shlex.quote(f"file://{REPOSITORY}")), tmp_path, dict(os.environ))
    clone = tmp_path / "capibara-assets"
    environment = set_up(clone, made, port)
    at_ui = BLOCKS.index(UI)
    for block in BLOCKS[1:at_ui]:
        assert done(block, clone, environment).strip()
    with open_instance(made.deployment) as instance:
        agreed = "consensus_checkpoint", Domain.SQL
        before = latest_digest(instance, *agreed)
        with in_a_second_terminal(UI, clone, environment) as log:
            deadline = time.monotonic() + WAIT_S
            done(BLOCKS[at_ui + 1], clone, environment)
            while latest_digest(instance, *agreed) == before:
                assert time.monotonic() < deadline, log.read_text()[-4000:]
                time.sleep(0.5)
        assert f"http://127.0.0.1:{port}" in log.read_text()
    printed = [done(block, clone, environment) for block in BLOCKS[at_ui + 2 :]]
    traced = next(text for text in printed if "e2b_logs/own.jsonl" in text)
    assert "moe_dataset[sql]" in traced and any("the certificate holds" in text for text in printed)
    promoted = next(text for text in printed if "files match their digests" in text)
    # where the gate was first, it serves already
    assert "sql" in promoted and ("the tutorial" in promoted or "nothing moved: that serves already" in promoted)
