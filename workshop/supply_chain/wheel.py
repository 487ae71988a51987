"""The wheel, built twice from the committed files: the same bytes each time."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from capibara_assets.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Wheel:
    """A built wheel."""

    file: Path
    digest: str


def built_twice(out: Path, commit: str = "HEAD") -> Wheel:
    """Build a commit's wheel in two folders, with the commit's time as that of every file; keep one in `out`.

    Raises:
        InputError: the two differ, or this is no git checkout.
    """
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        first, second = _built(commit, Path(one)), _built(commit, Path(other))
        if first.digest != second.digest:
            raise InputError(f"two builds of {commit} differ: {first.digest} and {second.digest}")
        kept = out / first.file.name
        kept.write_bytes(first.file.read_bytes())
        return Wheel(kept, first.digest)


def _built(commit: str, folder: Path) -> Wheel:
    """A wheel of a commit, in a folder that holds nothing but its files."""
    source = folder / "source"
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", commit))) as archive:
        archive.extractall(source, filter="data")
    environment = os.environ | {"SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct", commit).decode().strip()}
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=source, env=environment, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    return Wheel(file, hashlib.sha256(file.read_bytes()).hexdigest())


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        raise InputError(f"git {' '.join(arguments)}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
