"""What an organiser's messages state: a document that is none ends in one sentence that says whose it is."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capibara_assets.consensus.rounds.messages import ORGANISER, Kind
from capibara_assets.consensus.rounds.places import MESSAGES
from capibara_assets.consensus.rounds.stated import (
    AFTER,
    PROPOSAL,
    RESULT,
    StatedResult,
    read_after,
    read_proposal,
    read_result,
)
from capibara_assets.consensus.rounds.taking_part import vote_in
from capibara_assets.errors import InputError
from capibara_assets_tests.consensus.rounds.conftest import NAMES, Meet, Meeting, after_deadline, served, signed

NAMED = {"what": "late", "sender": "voter-1", "why": "it came late", "letter": "ab"}
NO_RESULTS = {
    "a list": b"[]",
    "nothing": b"{}",
    "another's list of messages": b'{"consensus": "a", "named": [1]}',
    "a message without a reason": b'{"consensus": "a", "named": [{"what": "late", "sender": "x"}]}',
    "both ends": b'{"consensus": "a", "error": "b", "named": []}',
    "an error that is no text": b'{"error": [1, 2], "named": []}',
    "no JSON": b"\xff\xfe",
    "a depth": b"[" * 100_000,
    "a key twice": b'{"error": "a", "error": "b", "named": []}',
}
NO_PROPOSALS = {
    "a list": b"[]",
    "nothing": b"{}",
    "no losses": b'{"common": {}, "own": {"voter-0": "x"}}',
    "a list of voters": b'{"common": {}, "own": [1]}',
    "nothing in common": b'{"common": null, "own": {}}',
}

NO_AFTER = {
    "a list": b"[]",
    "nothing": b"{}",
    "a number": b'{"result": 1}',
    "two": b'{"result": "a", "result": "b"}',
    "no JSON": b"\xff",
}


def _read(m: Meeting, kind: Kind, file: str, data: bytes | None, read: Callable[..., Any]) -> Any:
    box = after_deadline(m.box("voter-0"))
    m.put(*signed(m, {} if data is None else {file: data}, ORGANISER, kind=kind))
    box.look()
    return read(box.first_of(kind))


@pytest.mark.parametrize("data", [*NO_RESULTS.values(), None], ids=[*NO_RESULTS, "no file"])
def test_what_is_no_result(data: bytes | None, meet: Meet) -> None:
    with pytest.raises(
        InputError, match=r"^the result of organiser \(message [0-9a-f]{12}\) (is (none|not|nested|ambig)|has no)[^/]*$"
    ):
        _read(meet(), "result", RESULT, data, read_result)


@pytest.mark.parametrize("data", [*NO_PROPOSALS.values(), None], ids=[*NO_PROPOSALS, "no file"])
def test_what_is_no_proposal(data: bytes | None, meet: Meet) -> None:
    with pytest.raises(InputError, match=r"^the proposal of organiser \(message [0-9a-f]{12}\) (is|has) no[^/]*$"):
        _read(meet(), "proposal", PROPOSAL, data, read_proposal)


@pytest.mark.parametrize("data", NO_AFTER.values(), ids=NO_AFTER)
def test_an_election_that_does_not_say_what_it_follows(data: bytes, meet: Meet) -> None:
    with pytest.raises(
        InputError, match=r"^the election of organiser \(message [0-9a-f]{12}\) is (none|not|ambig)[^/]*$"
    ):
        _read(meet(), "election", AFTER, data, read_after)


def test_a_first_election_follows_none(meet: Meet) -> None:
    assert _read(meet(), "election", AFTER, None, read_after) is None


def test_texts_of_a_result_are_made_printable(meet: Meet) -> None:
    named = {**NAMED, "why": "late\x1b[2J\nforged: x"}
    read: StatedResult = _read(
        meet(), "result", RESULT, json.dumps({"consensus": "a", "named": [NAMED, named]}).encode(), read_result
    )
    assert [vars(one) for one in read.named] == [NAMED, {**NAMED, "why": r"late\x1b[2J\nforged: x"}]


def test_an_end_that_says_nothing_is_told(meet: Meet, tmp_path: Path) -> None:
    m = meet(seconds=3600)
    m.put(*signed(m, {RESULT: b"[]"}, ORGANISER, kind="result"))
    with pytest.raises(InputError, match=r"the result of organiser .* is none that this software reads"):
        vote_in(after_deadline(m.box("voter-0")), m.examples, m.base, "voter-0", m.key_file("voter-0"), tmp_path, 0)
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("kind", ["election", "proposal", "result"])
def test_a_server_takes_no_decision_before_the_deadline(kind: Kind, meet: Meet) -> None:
    """It would show the submissions, and shut out who has not handed in yet."""
    m = meet(seconds=3600)
    with served(m.place) as url:
        first = m.hand_in(NAMES[0], url)
        files = {"proposal": {PROPOSAL: b"{}"}, "result": {RESULT: b"{}"}, "election": {"election.json": b"{}"}}
        name, data = signed(m, files[kind], ORGANISER, kind=kind)
        box = m.box("organiser", url)
        with pytest.raises(InputError, match="before the deadline"):
            box.place.create(f"{m.terms.digest}/{MESSAGES}/{name}", data)
        box.look()
        assert first.head.name not in box.messages and name not in box.messages
        m.hand_in(NAMES[1], url)
