"""The bench `fuzz`: coverage-guided fuzzing of every reader of logs and playbooks, each in a process of its own."""

import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchmarks.output import print_result
from capibara_assets.errors import InputError
from capibara_assets.executions.formats.agents.readers import READERS
from capibara_assets.executions.formats.agents.runs import LogDocument

TARGETS = ("log", "line", "playbook", *(reader.name for reader in READERS))
_LARGEST = 16_384  # bytes of an input
_SECONDS = 10  # for one input: what takes longer hangs
_MIB = 2_500  # of the process
_DONE = re.compile(r"Done (\d+) (?:runs|in)")
_COVERAGE = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: \d+ corp: (\d+)/")


@click.command("fuzz")
@click.option("--inputs", default=1_000_000, show_default=True, type=click.IntRange(min=1), help="For each reader.")
@click.option("--reader", "readers", type=click.Choice(TARGETS), multiple=True, help="Default: all.")
@click.option("--corpus", type=click.Path(path_type=Path, file_okay=False), default=".capibara/fuzz", show_default=True)
@click.option(
    "--pack",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A .tar.xz of the smallest corpora that cover as much; fuzzes nothing.",
)
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(min=1), help="Readers at a time.")
@click.option("--seed", default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def fuzz(
    inputs: int, readers: Sequence[str], corpus: Path, pack: Path | None, jobs: int, seed: int, as_json: bool
) -> None:
    """Coverage-guided fuzzing of every reader: inputs, edges covered, and those that it crashed or hung on.

    A corpus grows in its folder: the next run goes on from there. The first begins with what the readers' tests read.
    """
    if pack is not None:
        print_result(packed(readers or TARGETS, corpus.absolute(), pack), as_json)
        return

    def one(name: str) -> dict[str, Any]:
        found = fuzzed(name, inputs, corpus.absolute(), seed)
        click.echo(f"{name}: {found}", err=True)
        return found

    names = readers or TARGETS
    with ThreadPoolExecutor(jobs) as pool:
        figures = dict(zip(names, pool.map(one, names), strict=True))
    failed = sorted(name for name, found in figures.items() if found["failures"])
    print_result(
        {"inputs": sum(found["inputs"] for found in figures.values()), "failed": failed, "readers": figures}, as_json
    )


def fuzzed(name: str, inputs: int, corpus: Path, seed: int) -> dict[str, Any]:
    """Fuzz one reader; `inputs` are new ones, `failures` files with those that it failed on."""
    own, failed = corpus / name, corpus / "failed"
    own.mkdir(parents=True, exist_ok=True)
    failed.mkdir(exist_ok=True)
    for seed_file in seeds(name, corpus):
        if not (target := own / seed_file.name).exists():
            target.write_bytes(seed_file.read_bytes())
    known = sum(1 for _ in own.iterdir())  # read first, and counted by libFuzzer as inputs
    command = [
        *(*_target(name), str(own)),
        *(
            f"-runs={known + inputs}",
            f"-seed={seed}",
            f"-max_len={_LARGEST}",
            f"-timeout={_SECONDS}",
            f"-rss_limit_mb={_MIB}",
        ),
        f"-artifact_prefix={failed}/{name}-",
    ]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if "No module named 'atheris'" in run.stdout:
        raise InputError("atheris is not installed: run `make fuzz`, or pip install 'capibara-assets[fuzz]'")
    seen = _COVERAGE.findall(run.stdout)
    done = _DONE.search(run.stdout)
    read = int(done[1]) if done else int(seen[-1][0]) if seen else 0
    return {
        "inputs": max(0, read - known),
        "edges": int(seen[-1][1]) if seen else 0,
        "corpus": int(seen[-1][2]) if seen else 0,
        "failures": sorted(path.name for path in failed.glob(f"{name}-*")),
        **({} if run.returncode == 0 else {"said": _reason(run.stdout)}),
    }


def packed(names: Sequence[str], corpus: Path, out: Path) -> dict[str, Any]:
    """Write the corpora as `reader/digest`; of each no more than what together covers what all of it does."""
    count = 0
    with TemporaryDirectory() as folder, tarfile.open(out, "w:xz", preset=9) as archive:
        for name in names:
            small = Path(folder) / name
            small.mkdir()
            subprocess.run(
                [*_target(name), "-merge=1", f"-max_len={_LARGEST}", str(small), str(corpus / name)],
                check=True,
                capture_output=True,
            )
            for file in sorted(small.iterdir(), key=lambda file: file.read_bytes()):  # alike beside each other
                about = tarfile.TarInfo(f"{name}/{file.name[:16]}")
                about.size = file.stat().st_size
                with file.open("rb") as content:
                    archive.addfile(about, content)
                count += 1
    return {"inputs": count, "bytes": out.stat().st_size}


def _target(name: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.experience.fuzz_target", name]


def seeds(name: str, corpus: Path) -> Iterator[Path]:
    """What the readers' tests read and this reader takes for its own; all of it for a target that is no such reader."""
    files = sorted((corpus / "seeds").glob("*"))
    reader = next((reader for reader in READERS if reader.name == name), None)
    for path in files:
        document = LogDocument(path.read_bytes())
        if reader is None or (any(mark in document.data for mark in reader.marks) and reader.reads(document)):
            yield path


def _reason(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    at = next((number for number, line in enumerate(lines) if "Traceback" in line), max(0, len(lines) - 12))
    return "\n".join(lines[at : at + 25])
