"""Whoever is killed or refused at whatever system call of a vote: it completes or says why not, and again completes."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

import pytest

from capibara_assets.consensus.certificates.certificate import verify_certificate
from capibara_assets.errors import remedy_of
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.conftest import Tokens, folders, honest, shards, tiny, validation
from capibara_assets_tests.reliability.vote_calls import COORDINATOR, FAILED, REFUSED, hold, strike

__all__ = ["folders", "honest", "shards", "tiny", "validation"]  # fixtures of votes
FAULTS = [
    *(("signal=KILL", call) for call in ("write", "fsync", "rename", "mkdir", "unlinkat", "rmdir")),
    *(("error=ENOSPC", call) for call in ("write", "rename", "mkdir", "fsync")),
    *(("error=EIO", call) for call in ("write", "fsync")),
]
QUICK = [
    pytest.param("voter-1", "signal=KILL", "fsync", marks=pytest.mark.extended),
    (COORDINATOR, "error=ENOSPC", "mkdir"),
]


@pytest.fixture(scope="module", autouse=True)
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


@pytest.mark.parametrize(("who", "fault", "call"), QUICK)
def test_struck_at_a_call(home: Path, tiny: Base, who: str, fault: str, call: str) -> None:
    count = struck(home, tiny, who, fault, call, (2,))
    assert count == (1 if who == COORDINATOR else 0), "a voter is started again, and nothing is lost"


@pytest.mark.extended
@pytest.mark.parametrize("who", [COORDINATOR, "voter-1"])
@pytest.mark.parametrize(("fault", "call"), FAULTS)
def test_struck_anywhere(home: Path, tiny: Base, who: str, fault: str, call: str) -> None:
    struck(home, tiny, who, fault, call, (1, 2, 3, 5, 8, 13, 21) if who == COORDINATOR else (1, 2, 4))
