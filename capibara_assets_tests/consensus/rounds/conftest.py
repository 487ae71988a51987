"""A round of the honest voters in a folder, everybody's keys, and messages as a third party writes them."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from capibara_assets.consensus.election.keys import read_private_key, write_new_key
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.consensus.rounds.mailbox import Mailbox
from capibara_assets.consensus.rounds.messages import Kind, write_message
from capibara_assets.consensus.rounds.places import MESSAGES, RoundPlace, open_round_place
from capibara_assets.consensus.rounds.round import Round, RoundExamples, read_round, write_round
from capibara_assets.consensus.rounds.server import RoundServer
from capibara_assets.consensus.rounds.taking_part import submit
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.conftest import Tokens

NAMES = ("voter-0", "voter-1", "voter-2")
_TARGETS = ("q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass
class Meeting:
    """A round in a folder, and everybody's keys and adapters."""

    home: Path
    base: Base
    terms: Round
    examples: RoundExamples
    folders: dict[str, Path]
    place: Path

    def key_file(self, name: str) -> Path:
        return self.home / "keys" / f"{name}.key"

    def box(self, name: str, address: str | None = None) -> Mailbox:
        work = self.home / f"work-{name}-{os.urandom(3).hex()}"
        work.mkdir()
        return Mailbox(open_round_place(address or str(self.place), work), self.terms, work)

    def hand_in(self, name: str, address: str | None = None) -> Any:
        return submit(self.box(name, address), name, read_private_key(self.key_file(name)), self.folders[name])

    def files(self, name: str) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in sorted(self.folders[name].iterdir())}

    def put(self, name: str, data: bytes) -> None:
        """As a third party does that may write to the folder."""
        folder = self.place / self.terms.digest / MESSAGES
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


Meet = Callable[..., Meeting]


@pytest.fixture
def meet(
    tmp_path: Path, tiny: Base, folders: dict[str, Path], validation: list[Tokens], shards: dict[str, list[int]]
) -> Meet:
    def make(seconds: float = 60.0, max_bytes: int = 1 << 20, names: Sequence[str] = NAMES) -> Meeting:
        (tmp_path / "keys").mkdir(mode=0o700, exist_ok=True)
        keys = {name: write_new_key(name, tmp_path / "keys" / f"{name}.key") for name in (*names, "organiser")}
        own = {name: shards[name] for name in names}
        examples = RoundExamples(tuple(validation), own)  # type: ignore[arg-type]
        terms = write_round(
            open_round_place(str(tmp_path / "place"), tmp_path), tiny, examples, ConsensusRecipe(consensus_timeout=120),
            domain="python", dataset={"table": "a" * 64}, targets=_TARGETS, max_rank=8,
            deadline=datetime.now(UTC) + timedelta(seconds=seconds), max_bytes=max_bytes,
            keys={name: keys[name] for name in names}, organiser=keys["organiser"],
        )  # fmt: skip
        terms, examples = read_round(open_round_place(str(tmp_path / "place"), tmp_path), terms.digest)
        return Meeting(tmp_path, tiny, terms, examples, folders, tmp_path / "place")

    return make


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with RoundServer(("127.0.0.1", 0), folder) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def signed(
    m: Meeting, files: dict[str, bytes], sender: str = "voter-2", digest: str = "", kind: Kind = "submission",
    about: str = "",
) -> tuple[str, bytes]:  # fmt: skip
    """A message under the sender's registered key."""
    key = read_private_key(m.key_file(sender))
    return write_message(digest or m.terms.digest, kind, sender, files, key, about)


def wait_for_deadline(m: Meeting) -> None:
    while time.time() <= m.terms.closes + 0.1:
        time.sleep(0.05)


@dataclass
class After:
    """A place whose clock says that the deadline is over, so that no test waits for it; messages keep their times."""

    place: RoundPlace
    terms: Round

    def __getattr__(self, name: str) -> Any:
        return getattr(self.place, name)

    def now(self) -> float:
        return self.terms.closes + 2


def after_deadline(box: Mailbox) -> Mailbox:
    """The mailbox at a place whose clock is beyond the deadline."""
    return replace(box, place=After(box.place, box.terms))  # type: ignore[arg-type]
