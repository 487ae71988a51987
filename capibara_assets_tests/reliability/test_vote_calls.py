"""Whoever is killed or refused at whatever system call of a vote: it completes or says why not, and again completes."""

import errno
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.consensus.certificates.certificate import verify_certificate
from capibara_assets.errors import InputError, remedy_of
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.conftest import Tokens, folders, honest, shards, tiny, validation
from capibara_assets_tests.reliability.vote_calls import COORDINATOR, FAILED, REFUSED, hold, strike

__all__ = ["folders", "honest", "shards", "tiny", "validation"]  # fixtures of votes
FAULTS = [
    *(("signal=KILL", call) for call in ("write", "fsync", "rename", "mkdir", "unlinkat", "rmdir")),
    *(("error=ENOSPC", call) for call in ("write", "rename", "mkdir", "fsync")),
    *(("error=EIO", call) for call in ("write", "fsync")),
]
QUICK = [("voter-1", "signal=KILL", "fsync"), (COORDINATOR, "error=ENOSPC", "mkdir")]


@pytest.fixture(scope="module")
def _strace() -> None:
    if shutil.which("strace") is None or subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"]).returncode:
        pytest.skip("strace is not installed, or may not trace here")


@pytest.fixture
def home(
    tmp_path: Path,
    tiny: Base,
    folders: Mapping[str, Path],
    validation: list[Tokens],
    shards: dict[str, list[int]],
) -> Path:
    """A base model, four voters and their examples, for processes that hold their vote."""
    shutil.copytree(tiny.path, tmp_path / "base")
    for name, folder in folders.items():
        shutil.copytree(folder, tmp_path / "voters" / name)
    document = {"validation": [astuple(each) for each in validation], "shards": shards}
    (tmp_path / "vote.json").write_text(json.dumps(document))
    return tmp_path


def struck(home: Path, base: Base, who: str, fault: str, call: str, points: Sequence[int]) -> int:
    """Strike somebody at each of these calls, look what is there, hold the vote again; how often it was struck."""
    voters = {folder.name: folder for folder in (home / "voters").iterdir()}
    codes = dict(zip(points, strike(home, who, call, fault, points), strict=True))
    for point, code in codes.items():
        place, where = home / str(point), f"{who}, {fault} at call {point} of {call}"
        said = (place / "said").read_text() if (place / "said").exists() else ""
        assert code in (0, REFUSED, FAILED, -9), (where, code, said)
        assert code != FAILED or (remedy_of(said) and "/" in said), (
            f"{where}: {said!r} does not say where, or what to do"
        )
        certificate = place / "out" / "certificate.json"
        assert certificate.exists() or code != 0, where
        if certificate.exists():
            assert verify_certificate(certificate, voters).problems == (), where
        if code >= 0:
            assert list((place / "tmp").iterdir()) == [], where
        if code != 0:
            hold(base, home, place / "out")
            assert verify_certificate(certificate, voters).problems == (), where
    return sum(code != 0 for code in codes.values())


def test_refused_a_folder_it_says_so_and_completes_later(
    home: Path, tiny: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator's second folder, as on a full disk; refused in this process, where strace would load torch."""
    asked, out, work, make = list[Path](), tmp_path / "out", tmp_path / "tmp", os.mkdir
    work.mkdir()

    def refuse(path: Any, *rest: Any, **options: Any) -> None:
        asked.append(Path(path))
        if len(asked) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        make(path, *rest, **options)

    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(work))
        patch.setattr(os, "mkdir", refuse)
        with pytest.raises((InputError, OSError)) as refused:
            hold(tiny, home, out)
    assert isinstance(refused.value, InputError) or (remedy_of(str(refused.value)) and "/" in str(refused.value))
    assert list(work.iterdir()) == [] and not (out / "certificate.json").exists()
    hold(tiny, home, out)
    voters = {folder.name: folder for folder in (home / "voters").iterdir()}
    assert verify_certificate(out / "certificate.json", voters).problems == ()


@pytest.mark.extended
@pytest.mark.usefixtures("_strace")
@pytest.mark.parametrize(("who", "fault", "call"), QUICK)
def test_struck_at_a_call(home: Path, tiny: Base, who: str, fault: str, call: str) -> None:
    count = struck(home, tiny, who, fault, call, (2,))
    assert count == (1 if who == COORDINATOR else 0), "a voter is started again, and nothing is lost"


@pytest.mark.extended
@pytest.mark.usefixtures("_strace")
@pytest.mark.parametrize("who", [COORDINATOR, "voter-1"])
@pytest.mark.parametrize(("fault", "call"), FAULTS)
def test_struck_anywhere(home: Path, tiny: Base, who: str, fault: str, call: str) -> None:
    struck(home, tiny, who, fault, call, (1, 2, 3, 5, 8, 13, 21) if who == COORDINATOR else (1, 2, 4))
