"""Rounds of several organisations: they agree over a folder and HTTP; what others send is named and changes nothing."""

import copy
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
import torch

from capibara_assets.consensus.certificates.certificate import read_certificate, verify_certificate
from capibara_assets.consensus.certificates.public_record import PublicRecord
from capibara_assets.consensus.election.ballots import new_key
from capibara_assets.consensus.election.keys import read_private_key
from capibara_assets.consensus.rounds.closing import close_round
from capibara_assets.consensus.rounds.mailbox import Mailbox
from capibara_assets.consensus.rounds.messages import write_message
from capibara_assets.consensus.rounds.places import MESSAGES, open_round_place
from capibara_assets.consensus.rounds.round import read_round
from capibara_assets.consensus.rounds.submissions import sort_submissions
from capibara_assets.consensus.rounds.taking_part import vote_in
from capibara_assets.errors import InputError
from capibara_assets.modeling.base import load_base
from capibara_assets_tests.consensus.rounds.conftest import NAMES, Meet, Meeting, served, signed, wait_for_deadline
from capibara_assets_tests.forked import Forked


def _vote(address: str, digest: str, name: str, key: Path, base: Path, home: Path) -> None:
    """What the process of another organisation does."""
    torch.set_num_threads(1)
    (work := home / "work").mkdir(parents=True)
    place = open_round_place(address, work)
    terms, examples = read_round(place, digest)
    vote_in(Mailbox(place, terms, work), examples, load_base(base), name, key, home / "out", 60)


@pytest.mark.parametrize("way", ["http", pytest.param("folder", marks=pytest.mark.extended)])
def test_two_organisations_in_processes_of_their_own_agree(way: str, meet: Meet, tmp_path: Path) -> None:
    """A third one is late, and somebody forges a message of its name: the same consensus comes out at both."""
    meeting = meet(seconds=8)
    with served(meeting.place) as url:
        address = url if way == "http" else str(meeting.place)
        for name in NAMES[:2]:
            meeting.hand_in(name, address)
        forged, data = write_message(meeting.terms.digest, "submission", "voter-2", meeting.files("voter-2"), new_key())
        meeting.put(forged, data)
        own = [
            Forked(
                lambda _say, name=name: _vote(
                    address, meeting.terms.digest, name, meeting.key_file(name), meeting.base.path,
                    tmp_path / f"home-{name}",
                )
            )
            for name in NAMES[:2]
        ]  # fmt: skip
        key = read_private_key(meeting.key_file("organiser"))
        closing = meeting.box("organiser")
        agreement, named = close_round(closing, meeting.examples, meeting.base, key, tmp_path / "out")
        assert [process.wait() for process in own] == [0, 0]
    assert {(one.what, one.sender) for one in named} == {("forged", "voter-2"), ("missing", "voter-2")}
    for folder in (tmp_path / "out", *(tmp_path / f"home-{name}" / "out" for name in NAMES[:2])):
        certificate = read_certificate(folder / "certificate.json")
        assert certificate.digest == agreement.certificate.digest
        assert certificate.trust_model == "several-organisations"
        record = PublicRecord.read(folder / "election.json", None, None)
        found = verify_certificate(
            folder / "certificate.json", {name: folder / "voters" / name for name in NAMES}, keys=meeting.terms.keys,
            record=record,
        )  # fmt: skip
        assert found.problems == () and "result" in found.recomputed


def _forged(m: Meeting) -> tuple[str, bytes]:
    return write_message(m.terms.digest, "submission", "voter-1", m.files("voter-2"), new_key())


def _foreign(m: Meeting) -> tuple[str, bytes]:
    return write_message(m.terms.digest, "submission", "voter-9", m.files("voter-2"), new_key())


def _elsewhere(m: Meeting) -> tuple[str, bytes]:
    return signed(m, m.files("voter-2"), digest="0" * 64)


def _anothers(m: Meeting) -> tuple[str, bytes]:
    return signed(m, m.files("voter-0"))


def _twice(m: Meeting) -> tuple[str, bytes]:
    return signed(m, m.files("voter-2"), "voter-1")


def _huge(m: Meeting) -> tuple[str, bytes]:
    return signed(m, {**m.files("voter-2"), "manifest.json": bytes(m.terms.max_bytes + (256 << 10))})


def _cut(m: Meeting) -> tuple[str, bytes]:
    name, data = signed(m, m.files("voter-2"))
    return name, data[:-1]


def _swapped(m: Meeting) -> tuple[str, bytes]:
    name, data = signed(m, m.files("voter-2"))
    return name, data[:-1] + bytes([data[-1] ^ 1])


def _renamed(m: Meeting) -> tuple[str, bytes]:
    return "f" * 64, signed(m, m.files("voter-2"))[1]


def _outside(m: Meeting) -> tuple[str, bytes]:
    return signed(m, {**m.files("voter-2"), "../../escaped": b"x"})


def _garbage(m: Meeting) -> tuple[str, bytes]:
    return "e" * 64, b'{"content": ' + b"[" * 5000 + b"\n"


def _of_voter_as_organiser(m: Meeting) -> tuple[str, bytes]:
    key = read_private_key(m.key_file("voter-2"))
    return write_message(m.terms.digest, "election", "organiser", {"election.json": b"{}"}, key)


ATTACKS = {
    "forged": _forged, "foreign": _foreign, "replayed": _elsewhere, "replayed-weights": _anothers,
    "duplicate": _twice, "oversized": _huge, "damaged-cut": _cut, "damaged-swapped": _swapped,
    "damaged-renamed": _renamed, "unfit": _outside, "damaged-garbage": _garbage,
    "forged-election": _of_voter_as_organiser,
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_does_not_count_is_named_and_changes_nothing(attack: str, meet: Meet) -> None:
    meeting = meet()
    for name in NAMES[:2]:
        meeting.hand_in(name)
    without = meeting.box("before")
    without.look()
    before = sort_submissions(without)
    time.sleep(0.01)  # the file system's clock ticks
    name, data = ATTACKS[attack](meeting)
    meeting.put(name, data)
    box = meeting.box("after")
    box.look()
    after = sort_submissions(box)
    assert {n: x.head for n, x in after.accepted.items()} == {n: x.head for n, x in before.accepted.items()}
    (one,) = set(after.named) - set(before.named)
    assert (one.what, one.letter) == (attack.split("-")[0], name) and one.why
    assert not list(meeting.home.rglob("escaped"))


def test_what_comes_after_the_deadline_is_late_whatever_its_sender_says(meet: Meet) -> None:
    meeting = meet(seconds=1.5)
    wait_for_deadline(meeting)
    name, data = signed(meeting, meeting.files("voter-2"))
    meeting.put(name, data)
    os.utime(meeting.place / meeting.terms.digest / MESSAGES / name, (0, 0))
    box = meeting.box("late")
    box.look()
    found = sort_submissions(box)
    assert found.accepted == {} and ("late", "voter-2") in {(one.what, one.sender) for one in found.named}
    with pytest.raises(InputError, match="the deadline of the round was"):
        meeting.hand_in("voter-0")
    with served(meeting.place) as url:
        refused = httpx2.put(f"{url}/{meeting.terms.digest}/{MESSAGES}/{name}", content=data)
        assert refused.status_code == 403 and "late" in refused.text


def test_a_clock_set_back_does_not_open_a_round_whose_submissions_were_seen(
    meet: Meet, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = meet()
    with served(meeting.place) as url:
        path, now = f"{url}/{meeting.terms.digest}/{MESSAGES}", time.time
        name, data = signed(meeting, meeting.files("voter-0"), "voter-0")
        late, body = signed(meeting, meeting.files("voter-1"), "voter-1")
        assert httpx2.put(f"{path}/{name}", content=data).status_code == 201
        monkeypatch.setattr(time, "time", lambda: now() + 3600)
        assert httpx2.get(f"{path}/{name}").status_code == 200
        monkeypatch.setattr(time, "time", now)
        assert httpx2.get(f"{path}/{name}").status_code == 200
        assert httpx2.put(f"{path}/{late}", content=body).status_code == 403, "its sender may have seen the other's"


@pytest.mark.parametrize("jump_s", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps_ends_no_wait(meet: Meet, monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    box, now, looks = meet().box("organiser"), time.time, 0

    def found() -> bool:
        nonlocal looks
        looks += 1
        monkeypatch.setattr(time, "time", lambda: now() + jump_s)
        return looks >= 3

    assert box.wait(found, 30.0)
    assert not box.wait(lambda: False, 0.0)


def test_a_server_takes_signed_messages_once_and_nothing_else(meet: Meet) -> None:
    meeting = meet()
    with served(meeting.place) as url:
        at = f"{url}/{meeting.terms.digest}"
        name, data = signed(meeting, meeting.files("voter-0"), "voter-0")
        path = meeting.place / meeting.terms.digest / MESSAGES / name
        assert httpx2.put(f"{at}/{MESSAGES}/{name}", content=data).status_code == 201
        before = path.stat().st_ctime_ns
        assert httpx2.put(f"{at}/{MESSAGES}/{name}", content=data).status_code == 200
        assert path.stat().st_ctime_ns == before, "its time stays that of the first"
        assert httpx2.get(f"{at}/{MESSAGES}/{name}").status_code == 404, "nobody can copy it before the deadline"
        assert httpx2.get(f"{at}/{MESSAGES}").json() == []
        for attack, status in (("forged", 403), ("foreign", 403), ("oversized", 413), ("damaged-swapped", 403)):
            bad, body = ATTACKS[attack](meeting)
            assert httpx2.put(f"{at}/{MESSAGES}/{bad}", content=body).status_code == status
        for odd in ("round.json", "../x", "%2e%2e/x", f"{MESSAGES}/{name}/x", f"{MESSAGES}/x"):
            assert httpx2.put(f"{at}/{odd}", content=b"x").status_code == 403
        assert httpx2.put(f"{at}/{MESSAGES}/{name}", content=iter([b"x"])).status_code == 411
        assert httpx2.get(f"{url}/{'0' * 64}/round.json").status_code == 404
    assert [file.name for file in path.parent.iterdir()] == [name]
    assert list((meeting.place / "parts").iterdir()) == []
    box = meeting.box("organiser")
    box.look()
    whats = [one.what for one in sort_submissions(box).named]
    assert sorted(whats) == ["damaged", "foreign", "forged", "missing", "missing", "oversized"]


def test_a_voter_refuses_an_election_that_does_not_follow(meet: Meet, tmp_path: Path) -> None:
    """The organiser leaves an adapter out: voters read the place themselves."""
    meeting = meet(seconds=2)
    for name in NAMES:
        meeting.hand_in(name)
    key = read_private_key(meeting.key_file("organiser"))
    closing = meeting.box("organiser")
    hidden = next(n for n, x in _looked(closing).messages.items() if x.sender == "voter-2")

    class Blind(Mailbox):
        def look(self) -> None:
            super().look()
            self.messages.pop(hidden, None)

    blind = Blind(closing.place, closing.terms, closing.work)
    with ThreadPoolExecutor(2) as pool:
        base = copy.deepcopy(meeting.base)
        own = pool.submit(
            vote_in, meeting.box("voter-0"), meeting.examples, base, "voter-0", meeting.key_file("voter-0"),
            tmp_path / "own", 30,
        )  # fmt: skip
        terms = blind.terms.consensus_recipe().model_copy(update={"consensus_timeout": 1})
        blind.terms.__dict__["consensus_recipe"] = lambda: terms
        with pytest.raises(InputError, match="no consensus"):
            close_round(blind, meeting.examples, meeting.base, key, tmp_path / "out")
        with pytest.raises(InputError, match="is not what was handed in for this round"):
            own.result(60)


def _looked(box: Mailbox) -> Mailbox:
    box.look()
    return box
