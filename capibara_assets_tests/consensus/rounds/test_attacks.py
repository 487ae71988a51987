"""A third organisation attacks a whole round: the agreed adapter and the certificate stay what they are without it."""

import copy
import errno
import json
import os
import shutil
import socket
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from capibara_assets.checkpoints.inspect.verify import adapter_digest
from capibara_assets.consensus.election.ballots import Ballot, new_key, public_key
from capibara_assets.consensus.election.ballots import signed as signed_ballot
from capibara_assets.consensus.election.keys import read_private_key
from capibara_assets.consensus.rounds.closing import close_round
from capibara_assets.consensus.rounds.mailbox import MOST_MESSAGES, Mailbox
from capibara_assets.consensus.rounds.messages import Head, Kind, write_message
from capibara_assets.consensus.rounds.places import MESSAGES, Arrival, RoundPlace, StoredPlace
from capibara_assets.consensus.rounds.round import EXAMPLES, ROUND, Round, read_round
from capibara_assets.consensus.rounds.submissions import REFUSED, Named, documents, refusals
from capibara_assets.consensus.rounds.taking_part import vote_in
from capibara_assets.errors import InputError
from capibara_assets.storage.digests import canonical_json
from capibara_assets_tests.consensus.rounds.conftest import NAMES, Meet, Meeting, after_deadline, signed

LIAR = "voter-3"
"""Registered, with a good adapter; from then on it does what it likes."""
Attack = Callable[[Meeting, Head, bytes], None]
"""Is told each message that the organiser or an honest voter sends: its head, and the bytes after that."""


@dataclass
class Watched:
    """A place at which the attacker sees each message of the others before they go on."""

    place: RoundPlace
    meeting: Meeting
    attack: Attack

    def __getattr__(self, name: str) -> Any:
        return getattr(self.place, name)

    def create(self, name: str, data: bytes) -> bool:
        made = self.place.create(name, data)
        line, _, rest = data.partition(b"\n")
        self.attack(self.meeting, Head.model_validate_json(line), rest)
        return made


@dataclass
class Outcome:
    """What came out of a round: its files by name, without what names the refused."""

    files: dict[str, bytes]
    named: list[Named] = field(default_factory=list)

    @property
    def certificate(self) -> dict[str, Any]:
        return dict(json.loads(self.files["certificate.json"]))


def hold_round(meeting: Meeting, attack: Attack, names: tuple[str, ...] = NAMES) -> Outcome:
    """The organiser and honest voters hold a round at the meeting's place, once all have handed in."""

    def box(name: str) -> Mailbox:
        own = after_deadline(meeting.box(name))
        return replace(own, place=Watched(own.place, meeting, attack))  # type: ignore[arg-type]

    outs = {name: meeting.home / f"out-{meeting.place.name}-{name}" for name in names}
    with ThreadPoolExecutor(len(names)) as pool:
        votes = [
            pool.submit(vote_in, box(name), meeting.examples, copy.deepcopy(meeting.base), name,
                        meeting.key_file(name), outs[name], 120)
            for name in names
        ]  # fmt: skip
        key = read_private_key(meeting.key_file("organiser"))
        out = meeting.home / f"out-{meeting.place.name}"
        named = close_round(box("organiser"), meeting.examples, meeting.base, key, out)[1]
        for each in votes:
            each.result(120)
    paths = [out / "certificate.json", *sorted((out / "adapter").iterdir())]
    for own in outs.values():
        assert all((own / path.relative_to(out)).read_bytes() == path.read_bytes() for path in paths)
    return Outcome({path.name: path.read_bytes() for path in paths}, named)


def beside(meeting: Meeting, name: str) -> Meeting:
    """The same round once more, at another place."""
    shutil.copytree(meeting.place, meeting.home / name)
    return replace(meeting, place=meeting.home / name)


def nothing(meeting: Meeting, head: Head, rest: bytes) -> None:
    """No attack."""


def forged(m: Meeting, kind: Kind, sender: str, files: dict[str, bytes], about: str = "") -> tuple[str, bytes]:
    return write_message(m.terms.digest, kind, sender, files, new_key(), about)


def outside_messages(m: Meeting, head: Head, rest: bytes) -> Iterator[tuple[str, str, bytes]]:
    """What somebody without a key makes of an honest message: what it should be named, name, bytes."""
    content = head.content
    files = dict.fromkeys(content.files, b"{}")
    whole = head.line + rest
    changed = content.model_copy(update={"about": "0" * 64})
    yield "forged", *forged(m, content.kind, content.sender, files, content.about)
    resigned = head.model_copy(update={"content": changed})  # the honest signature over something else
    yield "forged", resigned.name, resigned.line + rest
    stranger = content.model_copy(update={"sender": "\x1b[2J../../voter-0"})
    yield "foreign", (strange := head.model_copy(update={"content": stranger})).name, strange.line + rest
    elsewhere = head.model_copy(update={"content": content.model_copy(update={"round": "0" * 64})})
    yield "replayed", elsewhere.name, elsewhere.line + rest
    yield "damaged", "0" * 63 + str(len(whole) % 10), whole  # the same message under a name of its own
    line = head.line.decode()
    for number, text in enumerate((
        line[:-1] * 2 + "\n", line.replace('{"content"', '{"content":0,"content"', 1), line.replace(":", ":NaN,", 1),
        "[" * 100_000 + "\n", '{"content":' + "9" * 5000 + "}\n", line[:200], "", "\0" * 4096, "\ufeff" + line,
        line.replace('"kind"', '"more":1,"kind"', 1), " " * (300 << 10) + line, '"\\ud800"\n',
    )):  # fmt: skip
        yield "damaged", f"{number:x}".rjust(64, "ab"[len(whole) % 2]), text.encode() + rest


def outsider(m: Meeting, head: Head, rest: bytes) -> None:
    """Answers each honest message with many of its own, in the folder where it lies."""
    for _, name, data in outside_messages(m, head, rest):
        m.put(name, data)


def odd_files(m: Meeting) -> None:
    """Files that are no messages, beside the messages and where the server keeps what it refused."""
    folder = m.place / m.terms.digest / MESSAGES
    os.mkfifo(folder / ("1" * 64))
    (folder / ("2" * 64)).symlink_to("/dev/zero")
    (folder / ("3" * 64)).symlink_to(next(folder.iterdir()))
    (folder / ("4" * 64)).mkdir()
    (folder / "\n\x1b[2J%2e%2e").write_bytes(b"x")
    (folder / ("n" * 255)).write_bytes(b"x")
    (folder.parent / REFUSED).write_bytes(b'{"what": 1}\n[1]\n\xff\xfe\n' + b"[" * 100_000 + b"\n{")


def test_a_round_comes_out_the_same_whatever_somebody_without_a_key_puts_beside_its_messages(meet: Meet) -> None:
    """Forged, replayed, re-signed, cut and unreadable copies of all messages of all kinds, and files that are none."""
    alone = meet(seconds=3600)
    for name in NAMES:
        alone.hand_in(name)
    attacked = beside(alone, "attacked")
    odd_files(attacked)
    without, beneath = hold_round(alone, nothing), hold_round(attacked, outsider)
    assert beneath.files == without.files
    assert without.named == []
    kinds = {"forged", "foreign", "replayed", "damaged"}
    assert kinds <= {one.what for one in beneath.named}
    assert all(one.what in kinds | {"late"} and one.why.isprintable() for one in beneath.named)
    messages = {one.letter for one in beneath.named}
    assert {str(number) * 64 for number in range(1, 5)} <= messages


def test_a_late_and_an_oversized_submission_leave_the_results_bytes_unchanged(
    meet: Meet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both under a registered key, of a voter that handed in nothing that counts."""
    alone = meet(seconds=3600)
    for name in NAMES[:2]:
        alone.hand_in(name)
    attacked = beside(alone, "attacked")
    files = attacked.files("voter-2")
    late, data = signed(attacked, files)
    attacked.put(late, data)
    attacked.put(*signed(attacked, {**files, "manifest.json": bytes(attacked.terms.max_bytes + (256 << 10))}))
    arrivals, closes = StoredPlace.arrivals, alone.terms.closes

    def arrived(place: StoredPlace, digest: str) -> list[Arrival]:
        return sorted(replace(a, received=closes + 1) if a.name == late else a for a in arrivals(place, digest))

    monkeypatch.setattr(StoredPlace, "arrivals", arrived)
    without, beneath = (hold_round(each, nothing, NAMES[:2]) for each in (alone, attacked))
    assert beneath.files == without.files
    assert [one.what for one in without.named] == ["missing"]
    assert {one.what for one in beneath.named} == {"late", "oversized", "missing"}


def _of_liar(m: Meeting, files: dict[str, bytes], kind: Kind, election: str) -> tuple[str, bytes]:
    return signed(m, files, LIAR, kind=kind, about=election)


def _answer(m: Meeting, rest: bytes, ballots: list[Any] | None = None) -> bytes:
    """An honest voter's answer under the liar's name and key."""
    found = {**json.loads(rest), "voter": LIAR, "public_key": m.terms.keys[LIAR]}
    return json.dumps(found if ballots is None else {**found, "ballots": ballots}).encode()


def _ballots(m: Meeting, rest: bytes, **changed: Any) -> list[dict[str, Any]]:
    """Ballots that the liar signs: everybody is perfect on its examples."""
    likes = {one["round"]: one for one in json.loads(rest)["ballots"]}.values()
    own = {"voter": LIAR, "loss": 1.0, "best_loss": 1.0, "base_loss": 4.0, "quality": 1.0, "signature": None}
    made = []
    for name in NAMES:
        about = {"candidate": name, "candidate_digest": adapter_digest(m.folders[name])}
        for one in likes:
            ballot = Ballot.model_construct(**{**one, **own, **about, **changed})
            with warnings.catch_warnings(action="ignore"):  # of what is no ballot
                made.append(signed_ballot(ballot, read_private_key(m.key_file(LIAR))).model_dump(mode="python"))
    return made


ANSWERS: dict[str, Callable[[Meeting, bytes], bytes]] = {
    "nothing": lambda m, rest: b"",
    "a list": lambda m, rest: b"[]",
    "deep": lambda m, rest: b"[" * 100_000,
    "another's as it is": lambda m, rest: rest,
    "another's signed ballots": lambda m, rest: _answer(m, rest),
    "NaN": lambda m, rest: _answer(m, rest, _ballots(m, rest)).replace(b"1.0", b"NaN"),
    "a name twice": lambda m, rest: b'{"voter":"voter-0",' + _answer(m, rest, _ballots(m, rest))[1:],
    "half a character": lambda m, rest: _answer(m, rest, _ballots(m, rest, candidate="\ud800")),
    "tokens without end": lambda m, rest: _answer(m, rest, _ballots(m, rest, tokens=10**400)),
    "rounds without end": lambda m, rest: _answer(m, rest, _ballots(m, rest, round=10**4000)),
    "a hundred times too many": lambda m, rest: _answer(m, rest, _ballots(m, rest) * 100),
}
LOVES_ALL, WITH_COPIES = "ballots that count", "the same, and copies of another's"
BALLOTS_THAT_COUNT: dict[str, Callable[[Meeting, bytes], bytes]] = {
    LOVES_ALL: lambda m, rest: _answer(m, rest, _ballots(m, rest)),
    WITH_COPIES: lambda m, rest: _answer(m, rest, _ballots(m, rest) + json.loads(rest)["ballots"]),
}
CONFIRMATIONS: dict[str, bytes] = {
    "nothing": b"",
    "a text": b'"refused"',
    "half a character": b'{"refused": "\\ud800\\u001b[2J"}',
    "no text": b'{"refused": [[[1]]]}',
    "huge": b'{"refused": "' + b"x" * 500_000 + b'"}',
    "deep": b'{"confirmation":' + b"[" * 100_000,
}


def liar(answer: str, confirmation: str = "nothing") -> Attack:
    """A registered voter that answers as named, once it has seen an honest answer; and confirms as named."""
    seen: set[str] = set()

    def attack(m: Meeting, head: Head, rest: bytes) -> None:
        kind, election = head.content.kind, head.content.about
        if kind == "ballots" and kind not in seen:
            seen.add(kind)
            said = (BALLOTS_THAT_COUNT | ANSWERS)[answer](m, rest)
            m.put(*_of_liar(m, {"answer.json": said}, kind, election))
        if kind == "confirmation" and kind not in seen:
            seen.add(kind)
            m.put(*_of_liar(m, {"confirmation.json": CONFIRMATIONS[confirmation]}, kind, election))

    return attack


def _of_honest(certificate: dict[str, Any]) -> dict[str, Any]:
    """What a certificate says of everybody but the liar."""
    ballots = [ballot for ballot in certificate["ballots"] if ballot["voter"] != LIAR]
    tried = [(one["name"], one["digest"], one["loss"]) for one in certificate["tried"]]
    return {"ballots": ballots, "tried": tried, "chosen": certificate["chosen"], "result": certificate["result"]}


@pytest.fixture
def four(meet: Meet) -> Meeting:
    """Four voters, of whom one may lie; all have handed in."""
    meeting = meet(seconds=3600, names=(*NAMES, LIAR))
    for name in (*NAMES, LIAR):
        meeting.hand_in(name)
    return meeting


@pytest.mark.extended
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_registered_voter_that_answers_nonsense_is_absent_and_no_more(answer: str, four: Meeting) -> None:
    quiet = beside(four, "quiet")
    lied, silent = hold_round(four, liar(answer)), hold_round(quiet, liar("a list"))
    assert _of_honest(lied.certificate) == _of_honest(silent.certificate)
    adapters = [{name: data for name, data in one.files.items() if "adapter" in name} for one in (lied, silent)]
    assert adapters[0] == adapters[1]
    assert set(lied.certificate["absent"]) == {LIAR}


@pytest.mark.extended
def test_copies_of_another_voters_ballots_beside_its_own_change_nothing(four: Meeting) -> None:
    alone = beside(four, "alone")
    copied, without = hold_round(four, liar(WITH_COPIES)).certificate, hold_round(alone, liar(LOVES_ALL)).certificate
    assert (_of_honest(copied), copied["absent"]) == (_of_honest(without), {})


def test_a_voter_that_signs_two_different_ballots_in_two_messages_has_none(four: Meeting) -> None:
    """Whoever reads one of the messages, and whoever reads the other, must not see two votes that hold."""
    loves, seen = liar(LOVES_ALL), list[str]()

    def twice(m: Meeting, head: Head, rest: bytes) -> None:
        loves(m, head, rest)
        if head.content.kind == "ballots" and not seen:
            seen.append(head.name)
            hates = _answer(m, rest, _ballots(m, rest, quality=0.0, loss=4.0))
            m.put(*_of_liar(m, {"answer.json": hates}, "ballots", head.content.about))

    certificate = hold_round(four, twice).certificate
    assert certificate["equivocated"] == [LIAR]
    assert {one["voter"] for one in certificate["confirmations"]} == set(NAMES)


@pytest.mark.parametrize(
    "confirmation",
    ["half a character", *(pytest.param(c, marks=pytest.mark.extended) for c in CONFIRMATIONS if c[:2] != "ha")],
)
def test_an_accepted_voter_that_confirms_nonsense_has_not_confirmed(confirmation: str, four: Meeting) -> None:
    lied = hold_round(four, liar(LOVES_ALL, confirmation)).certificate
    assert all(one["accepted"] for one in lied["voters"]) and lied["absent"] == {}
    assert set(lied["unconfirmed"]) == {LIAR} and lied["unconfirmed"][LIAR].isprintable()
    assert {one["voter"] for one in lied["confirmations"]} == set(NAMES)


@pytest.mark.parametrize("odd", ["a folder", "a link to itself", "a pipe", "a socket", "a link to a device"])
def test_what_is_no_file_is_none(odd: str, meet: Meet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write to the folder needs no key for it."""
    m = meet()
    path = m.place / m.terms.digest / REFUSED
    path.parent.mkdir(parents=True, exist_ok=True)
    if odd == "a folder":
        path.mkdir()
    elif odd == "a pipe":
        os.mkfifo(path)
    elif odd == "a socket":
        with socket.socket(socket.AF_UNIX) as bound:
            monkeypatch.chdir(path.parent)  # a socket's path is short
            bound.bind(path.name)
    else:
        path.symlink_to(path.name if odd == "a link to itself" else "/dev/zero")
    assert refusals(m.box("organiser").place, m.terms.digest) == []


def test_of_a_sender_eight_messages_are_read_and_one_that_cannot_be_is_named(
    meet: Meet, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = meet()
    for number in range(MOST_MESSAGES + 2):
        m.put(*signed(m, {**m.files("voter-2"), "manifest.json": b"%d" % number}))
    unreadable, data = signed(m, m.files("voter-0"), "voter-0")
    m.put(unreadable, data)
    whole = StoredPlace.read

    def read(place: StoredPlace, name: str, most: int) -> bytes:
        if name.endswith(unreadable):
            raise PermissionError(errno.EACCES, "Permission denied")
        return whole(place, name, most)

    monkeypatch.setattr(StoredPlace, "read", read)
    box = m.box("organiser")
    box.look()
    assert len(box.messages) == MOST_MESSAGES and len(list(box.work.iterdir())) == MOST_MESSAGES
    assert sorted(fault.fault for fault in box.faults.values()) == ["damaged", "duplicate", "duplicate"]
    assert "Permission denied" in str(box.faults[unreadable])


def test_a_flood_of_strangers_messages_is_counted_and_leaves_room_for_the_result() -> None:
    flood = [Named("foreign", "\x1b[2J" * 100, "a" * 10_000, str(number)) for number in range(5000)]
    listed = documents([*flood, Named("missing", "voter-2", "no adapter that takes part")])
    assert len(listed) == 1002 and listed[-1]["why"] == "4,000 further messages, not listed"
    assert len(json.dumps(listed)) < 2 << 20 and all(one["sender"].isprintable() for one in listed)


@pytest.mark.parametrize("name", ["..", "/tmp/elsewhere", "voter\n1"])
def test_a_round_whose_voter_is_named_by_a_path_is_none(name: str, meet: Meet) -> None:
    """What `close` writes lies in a folder of the voter's name."""
    meeting = meet(seconds=60)
    box = meeting.box(NAMES[0])
    plain = box.terms.model_dump(mode="json")
    terms = Round.model_validate({**plain, "keys": {**box.terms.keys, name: public_key(new_key())}})
    box.place.create(f"{terms.digest}/{EXAMPLES}", box.place.read(f"{box.terms.digest}/{EXAMPLES}", 1 << 30))
    box.place.create(f"{terms.digest}/{ROUND}", canonical_json(terms.model_dump(mode="json")))
    with pytest.raises(InputError, match="is no name of a voter"):
        read_round(box.place, terms.digest)
