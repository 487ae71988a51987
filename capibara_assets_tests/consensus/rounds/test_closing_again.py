"""A round that ended with an error is closed again; a voter keeps no result that does not hold; the place's clock."""

import copy
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from capibara_assets.consensus.agree import ConsensusError
from capibara_assets.consensus.certificates.certificate import read_certificate
from capibara_assets.consensus.election.keys import read_private_key
from capibara_assets.consensus.rounds.closing import AFTER, close_round, last_election
from capibara_assets.consensus.rounds.mailbox import Mailbox
from capibara_assets.consensus.rounds.messages import ORGANISER
from capibara_assets.consensus.rounds.places import RoundPlace, open_round_place
from capibara_assets.consensus.rounds.stated import RESULT
from capibara_assets.consensus.rounds.taking_part import vote_in
from capibara_assets.errors import InputError
from capibara_assets_tests.consensus.rounds.conftest import NAMES, Meet, Meeting, after_deadline, wait_for_deadline
from capibara_assets_tests.storage.gcs import BUCKET, gcs_emulator


def _close(m: Meeting, out: Path, seconds: float = 120) -> Any:
    box = after_deadline(m.box("organiser"))
    recipe = m.terms.consensus_recipe().model_copy(update={"consensus_timeout": seconds})
    box.terms = m.terms.model_copy()
    box.terms.__dict__["consensus_recipe"] = lambda: recipe
    return close_round(box, m.examples, m.base, read_private_key(m.key_file("organiser")), out)


def _voting(m: Meeting, pool: ThreadPoolExecutor, names: tuple[str, ...], attempt: int) -> list[Any]:
    return [
        pool.submit(vote_in, m.box(name), m.examples, copy.deepcopy(m.base), name, m.key_file(name),
                    m.home / f"out-{attempt}-{name}", 120)
        for name in names
    ]  # fmt: skip


def test_a_round_without_enough_answers_is_closed_again_and_nobody_answers_twice(meet: Meet, tmp_path: Path) -> None:
    m = meet(seconds=3600)
    for name in NAMES[:2]:
        m.hand_in(name)
    with pytest.raises(ConsensusError, match="no consensus"):
        _close(m, tmp_path / "first", seconds=0.1)
    with pytest.raises(InputError, match=r"ended without a consensus.*vote again"):
        vote_in(m.box("voter-0"), m.examples, m.base, "voter-0", m.key_file("voter-0"), tmp_path / "early", 5)
    with ThreadPoolExecutor(3) as pool:
        closing = pool.submit(_close, m, tmp_path / "second")
        looking, deadline = m.box("looking"), time.monotonic() + 120
        while len(looking.of("election")) < 2:
            assert time.monotonic() < deadline and not closing.done()
            looking.look()
            time.sleep(0.05)
        voting = _voting(m, pool, NAMES[:2], 2)
        agreement, named = closing.result(120)
        for each in voting:
            each.result(120)
    assert {(one.what, one.sender) for one in named} == {("missing", "voter-2")}
    digest = read_certificate(tmp_path / "out-2-voter-0" / "certificate.json").digest
    assert digest == agreement.certificate.digest
    again, _ = _close(m, tmp_path / "third")
    assert again.certificate.digest == digest
    looking.look()
    counts = {kind: len(looking.of(kind)) for kind in ("election", "ballots", "proposal", "confirmation", "result")}
    assert counts == {"election": 2, "ballots": 2, "proposal": 1, "confirmation": 2, "result": 2}


def _other_adapter(files: dict[str, bytes]) -> None:
    weights = bytearray(files["adapter/adapter_model.safetensors"])
    weights[-1] ^= 1
    files["adapter/adapter_model.safetensors"] = bytes(weights)


def _no_adapter(files: dict[str, bytes]) -> None:
    for name in [name for name in files if name.startswith("adapter")]:
        del files[name]


def _changed(files: dict[str, bytes]) -> None:
    certificate = json.loads(files["certificate.json"])
    files["certificate.json"] = json.dumps({**certificate, "election": "0" * 64}).encode()


@pytest.mark.parametrize(
    "change", [_other_adapter, pytest.param(_no_adapter, marks=pytest.mark.extended),
               pytest.param(_changed, marks=pytest.mark.extended)],
)  # fmt: skip
def test_a_voter_keeps_no_result_that_does_not_hold(
    change: Callable[[dict[str, bytes]], None], meet: Meet, tmp_path: Path
) -> None:
    m = meet(seconds=3600)
    for name in NAMES[:2]:
        m.hand_in(name)

    class Changing(Mailbox):
        def send(self, kind: Any, sender: str, files: Any, key: Any, about: str = "") -> Any:
            files = dict(files)
            if kind == "result":
                change(files)
            return super().send(kind, sender, files, key, about)

    honest = after_deadline(m.box("organiser"))
    box = Changing(honest.place, honest.terms, honest.work)
    with ThreadPoolExecutor(2) as pool:
        voting = _voting(m, pool, NAMES[:2], 1)
        close_round(box, m.examples, m.base, read_private_key(m.key_file(ORGANISER)), tmp_path / "out")
        for name, each in zip(NAMES, voting, strict=False):
            with pytest.raises(InputError, match="the organiser's result does not hold"):
                each.result(120)
            assert not (m.home / f"out-1-{name}" / RESULT).exists()


def test_the_deadline_is_the_places_and_not_the_organisers(meet: Meet, tmp_path: Path) -> None:
    """A place whose clock is behind: its deadline is not over yet, and what comes is waited for."""
    m = meet(seconds=0.5)
    wait_for_deadline(m)
    asked: list[float] = []

    class Behind:
        def __init__(self, place: RoundPlace) -> None:
            self.place = place

        def __getattr__(self, name: str) -> Any:
            return getattr(self.place, name)

        def now(self) -> float:
            asked.append(self.place.now() - (3600 if len(asked) < 2 else 0))
            return asked[-1]

    box = m.box("organiser")
    late = replace(box, place=Behind(box.place))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no consensus"):
        close_round(late, m.examples, m.base, read_private_key(m.key_file("organiser")), tmp_path / "out")
    assert len(asked) >= 3 and asked[-1] > m.terms.closes
    assert list((m.place / "parts").iterdir()) == []


@pytest.mark.parametrize("address", ["memory://rounds-clock", f"gs://{BUCKET}/rounds"])
def test_a_buckets_time_is_that_of_its_objects(address: str, meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    m = meet()
    with gcs_emulator() as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        place = open_round_place(address, m.home)
        assert abs(place.now() - time.time()) < 60
        before = place.now()
        assert place.create(f"{m.terms.digest}/letters/{'a' * 64}", b"one")
        assert place.create(f"{m.terms.digest}/letters/{'b' * 64}", b"other")
        first, second = place.arrivals(m.terms.digest)
        assert (first.name[0], first.size, second.name[0], second.size) == ("a", 3, "b", 5)
        assert before <= first.received < second.received <= place.now()
        assert place.read(f"{m.terms.digest}/letters/{second.name}", 2) == b"ot"
        with pytest.raises(FileNotFoundError):
            place.read(f"{m.terms.digest}/letters/{'c' * 64}", 2)


def test_the_last_election_is_the_one_that_follows_whatever_the_clock_said(tmp_path: Path) -> None:
    """The place's clock was set back between an attempt and the next, and again before the third."""
    messages: dict[str, list[Any]] = {"election": [], "result": []}
    for number, received in ((1, 3000.0), (2, 2000.0), (3, 1000.0)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / AFTER).write_text(json.dumps({"result": f"result-{number - 1}"}))
        content = SimpleNamespace(kind="election", files={AFTER: "digest"} if number > 1 else {}, about="e" * 64)
        head = SimpleNamespace(name=f"election-{number}", content=content)
        messages["election"].insert(0, SimpleNamespace(head=head, sender="organiser", folder=folder, received=received))
        ended = SimpleNamespace(name=f"result-{number}", content=SimpleNamespace(about=f"election-{number}"))
        messages["result"].append(SimpleNamespace(head=ended))
    last = last_election(SimpleNamespace(of=lambda kind: messages[kind]))  # type: ignore[arg-type]
    assert last is not None and last.head.name == "election-3"
    assert last_election(SimpleNamespace(of=lambda kind: [])) is None  # type: ignore[arg-type]
