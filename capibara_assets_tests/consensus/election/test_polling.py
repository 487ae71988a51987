"""Votes by real processes: keys, signatures, voters that are killed, hang, fail or make things up; none is fatal."""

import json
import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from capibara_assets.checkpoints.inspect.verify import adapter_digest
from capibara_assets.consensus.agree import ConsensusError, agree
from capibara_assets.consensus.certificates.certificate import verify_certificate
from capibara_assets.consensus.election import polling
from capibara_assets.consensus.election.ballots import is_signed_by, new_key, public_key, signed
from capibara_assets.consensus.election.polling import Poll, hold_vote
from capibara_assets.consensus.election.voter import (
    ANSWER,
    PULSE,
    Assignment,
    BaseModelSource,
    answer,
    read_answer,
    run,
)
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.errors import InputError
from capibara_assets.modeling.adapters import LoraAdapter, write_adapter
from capibara_assets.modeling.base import Base
from capibara_assets_tests.consensus.conftest import Tokens
from capibara_assets_tests.consensus.in_process import hold_here

Writer = Callable[[Mapping[str, LoraAdapter]], dict[str, Path]]
ELECTION = "e" * 64


@pytest.fixture(scope="module")
def assignments(
    honest: dict[str, LoraAdapter],
    validation: list[Tokens],
    shards: dict[str, list[int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Assignment]:
    """Four voters with two rounds each."""
    folder = tmp_path_factory.mktemp("voters")
    for name, adapter in honest.items():
        write_adapter(adapter, folder / name)
    digests = {name: adapter_digest(folder / name) for name in honest}
    return [
        Assignment(
            voter=name,
            rounds=tuple(tuple(validation[i] for i in shards[name][number::2]) for number in range(2)),
            candidates={other: folder / other for other in honest if other != name},
            digests={other: digests[other] for other in honest if other != name},
            election=ELECTION,
            faults=1,
        )
        for name in honest
    ]


def _bad(how: str, who: str, until: int, assignment: Assignment, base: Base, folder: Path, threads: int) -> None:
    """Entry of a voter's process that misbehaves in its first `until` attempts, and judges after them."""
    _misbehave(how, who, until, assignment, folder)
    run(assignment, base, folder, threads)


@pytest.fixture(scope="module")
def answers(tiny: Base, assignments: list[Assignment]) -> dict[str, str]:
    """What each voter hands in, judged beforehand: so that a vote takes no time but what it waits."""
    return {one.voter: json.dumps(answer(one, tiny)) for one in assignments}


def _hands_in(
    answers: dict[str, str],
    how: str,
    who: str,
    until: int,
    assignment: Assignment,
    base: Base,
    folder: Path,
    threads: int,
) -> None:
    """Entry of a voter's process that misbehaves in its first `until` attempts, and hands in its answer after them."""
    _misbehave(how, who, until, assignment, folder)
    (folder / "part").write_text(answers[assignment.voter])
    (folder / "part").replace(folder / ANSWER)


def _misbehave(how: str, who: str, until: int, assignment: Assignment, folder: Path) -> None:
    if assignment.voter == who and int(folder.name.rpartition("-")[2]) <= until:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif how == "silent":
            time.sleep(600)
        elif how == "garbage":
            (folder / ANSWER).write_bytes(b"\xff{")
            os._exit(0)
        elif how == "raises":
            raise RuntimeError("no good")
        elif how == "beats":  # shows signs of life for ever
            while True:
                (folder / PULSE).touch()
                time.sleep(0.05)


def _judgements(poll: Poll) -> list[dict[str, object]]:
    return [ballot.model_dump(exclude={"signature"}) for ballot in poll.ballots]


def test_every_voter_signs_with_a_key_of_its_own(tiny: Base, assignments: list[Assignment]) -> None:
    poll = hold_vote(tiny, assignments)
    assert poll.absent == {} and len(poll.ballots) == 4 * 3 * 2
    assert len(set(poll.keys.values())) == 4, "keys are drawn after the fork"
    assert all(is_signed_by(ballot, poll.keys[ballot.voter]) for ballot in poll.ballots)
    assert all(ballot.election == ELECTION and ballot.candidate_digest and ballot.examples for ballot in poll.ballots)
    rounds = {(b.voter, b.round): b.examples for b in poll.ballots}
    assert len(set(rounds.values())) == 8, "each round of each voter reads other examples"
    again = hold_vote(tiny, list(reversed(assignments)), processes=1, start_method="fork")
    assert set(again.keys.values()).isdisjoint(poll.keys.values()), "no key is used for two votes"
    here = hold_here(tiny, assignments, 600, 5)
    assert _judgements(poll) == _judgements(again)
    assert sorted(map(str, _judgements(here))) == sorted(map(str, _judgements(poll)))


@pytest.mark.extended
def test_new_processes_judge_as_forked_ones_do(tiny: Base, assignments: list[Assignment]) -> None:
    spawned = hold_vote(tiny, assignments[:1], start_method="spawn")
    forked = hold_vote(tiny, assignments[:1], start_method="fork")
    assert spawned.absent == {} and _judgements(spawned) == _judgements(forked)


class _AsSpawned:
    """Starts forks that get what a new process gets, as its bytes: without the seconds that one needs to import."""

    def Process(self, *, target: Callable[..., None], args: tuple[Any, ...], **more: Any) -> BaseProcess:
        forks = multiprocessing.get_context("fork")
        return forks.Process(target=_unpickled, args=(pickle.dumps((target, args)),), **more)


def _unpickled(data: bytes) -> None:
    target, args = pickle.loads(data)
    assert isinstance(args[1], BaseModelSource)
    target(*args)


def test_what_a_new_process_is_given_suffices_to_judge(
    tiny: Base, assignments: list[Assignment], monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = hold_vote(tiny, assignments[:1], start_method="fork")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})  # one thread: after a fork OpenMP makes no more
    monkeypatch.setattr(polling, "multiprocessing", SimpleNamespace(get_context=lambda method: _AsSpawned()))
    spawned = hold_vote(tiny, assignments[:1], start_method="spawn")
    assert spawned.absent == {} and _judgements(spawned) == _judgements(forked)


@pytest.mark.parametrize(
    "how",
    ["killed", "stopped", "garbage", *(pytest.param(how, marks=pytest.mark.extended) for how in ("silent", "raises"))],
)
def test_a_voter_that_dies_or_hangs_is_asked_again(
    how: str, tiny: Base, assignments: list[Assignment], answers: dict[str, str]
) -> None:
    poll = hold_vote(tiny, assignments, timeout=20, retries=19, entry=partial(_hands_in, answers, how, "voter-2", 1))
    assert poll.absent == {} and len(poll.ballots) == 24
    assert {b.voter for b in poll.ballots} == {f"voter-{n}" for n in range(4)}


@pytest.mark.timeout(300)  # a vote that does not close waits without end for a voter that shows signs of life
@pytest.mark.parametrize(
    ("how", "timeout", "retries", "words"),
    [
        ("killed", 60, 2, "3 attempts, last: killed by signal 9"),
        pytest.param("stopped", 6, 1, "no sign of life for 3 s", marks=pytest.mark.extended),
        pytest.param(
            "garbage", 60, 1, "2 attempts, last: the answer of voter-2 is no answer", marks=pytest.mark.extended
        ),
        ("raises", 60, 0, "1 attempt, last: ended with exit code 1, no answer"),
        ("beats", 4, 1, "late: no answer within 4 s"),
    ],
)
def test_a_voter_that_stays_away_is_absent_and_not_fatal(
    how: str,
    timeout: float,
    retries: int,
    words: str,
    tiny: Base,
    assignments: list[Assignment],
    answers: dict[str, str],
) -> None:
    entry = partial(_hands_in, answers, how, "voter-2", 99)
    poll = hold_vote(tiny, assignments, timeout=timeout, retries=retries, entry=entry)
    assert list(poll.absent) == ["voter-2"] and words in poll.absent["voter-2"]
    assert sorted(poll.keys) == ["voter-0", "voter-1", "voter-3"] and len(poll.ballots) == 18


def test_a_failure_is_named(tiny: Base, assignments: list[Assignment]) -> None:
    wrong = Assignment(**{**vars(assignments[0]), "digests": dict.fromkeys(assignments[0].digests, "0" * 64)})
    poll = hold_vote(tiny, [wrong, *assignments[1:]], retries=0)
    assert "InputError" in poll.absent["voter-0"] and "the vote is about 000000000000" in poll.absent["voter-0"]


def test_a_base_model_that_is_another_is_refused(tiny: Base, tmp_path: Path) -> None:
    other = BaseModelSource(tiny.path, "0" * 64, next(tiny.model.parameters()).dtype, "cpu", tmp_path / "shared")
    with pytest.raises(InputError, match="the vote is about 000000000000"):
        other.load()


def test_what_is_no_answer(tiny: Base, assignments: list[Assignment], tmp_path: Path) -> None:
    good = answer(assignments[0], tiny)
    assert "private" not in json.dumps(good)
    file = tmp_path / ANSWER
    for found, words in (
        ({**good, "voter": "voter-1"}, "is not its own"),
        ({**good, "ballots": good["ballots"] * 3}, "cast 18 ballots where 12 are the most"),
        ({**good, "ballots": [{"voter": 1}]}, "is no answer"),
        ({**good, "public_key": 7}, "has no key"),
        ([], "is no answer"),
        ({**good, "ballots": [{**good["ballots"][0], "tokens": 2**53}]}, "is no answer"),
        ({**good, "ballots": [{**good["ballots"][0], "voter": "voter-1"}]}, "no ballot of its own, but of 'voter-1'"),
        ({**good, "ballots": [{**good["ballots"][0], "candidate": "\ud800"}]}, "surrogates not allowed"),
        ({**good, "ballots": [{**good["ballots"][0], "loss": float("nan")}]}, "NaN is no JSON number"),
        ({**good, "more": "x" * 100_000}, "bytes for at most 12 ballots"),
    ):
        file.write_text(json.dumps(found))
        with pytest.raises(InputError, match=words):
            read_answer(file, assignments[0])
    file.write_text(json.dumps(good))
    assert read_answer(file, assignments[0])[0] == good["public_key"]


def _agree(
    tiny: Base,
    honest: dict[str, LoraAdapter],
    validation: list[Tokens],
    shards: dict[str, list[int]],
    on_disk: Writer,
    entry: Callable[..., None],
):  # type: ignore[no-untyped-def]
    recipe = ConsensusRecipe(consensus_timeout=30, max_retries=1)
    voters = on_disk(honest)
    return voters, agree(tiny, voters, validation, shards, recipe, {}, hold=partial(hold_vote, entry=entry))


def test_an_absent_voter_does_not_stop_an_agreement(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], on_disk: Writer
) -> None:
    entry = partial(_bad, "killed", "voter-1", 9)
    voters, agreement = _agree(tiny, honest, validation, shards, on_disk, entry)
    certificate = agreement.certificate
    assert certificate.accepted == tuple(honest), "its adapter is as good as before"
    assert certificate.absent == {"voter-1": "2 attempts, last: killed by signal 9"}
    assert certificate.voters[1].public_key is None
    assert "; no ballot of voter-1" in certificate.voters[0].reason
    assert verify_certificate(certificate, voters).problems == ()


def _kill_two(assignment: Assignment, base: Base, folder: Path, threads: int) -> None:
    if assignment.voter in ("voter-1", "voter-3"):
        os.kill(os.getpid(), signal.SIGKILL)
    run(assignment, base, folder, threads)


def test_below_quorum_it_says_who_is_missing(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], on_disk: Writer
) -> None:
    with pytest.raises(ConsensusError, match="2 of 4 voters answered, 3 needed") as raised:
        _agree(tiny, honest, validation, shards, on_disk, _kill_two)
    assert "Missing: voter-1: 2 attempts, last: killed by signal 9; voter-3:" in str(raised.value)
    assert raised.value.reasons["voter-3"] == "2 attempts, last: killed by signal 9"


def _lies(assignment: Assignment, base: Base, folder: Path, threads: int) -> None:
    """voter-0 also votes in voter-1's name, twice for one candidate, and for another election."""
    if assignment.voter != "voter-0":
        run(assignment, base, folder, threads)
        return
    found = answer(assignment, base)
    ballots = read_answer_of(found, assignment)
    forger = new_key()
    forged = [signed(b.model_copy(update={"voter": "voter-1", "quality": 0.0}), forger) for b in ballots[:1]]
    replayed = [signed(ballots[0].model_copy(update={"election": "0" * 64}), forger)]
    twice = [signed(ballots[1].model_copy(update={"tokens": 1}), forger)]
    mine = [signed(ballot, forger) for ballot in ballots]
    found = {
        **found,
        "public_key": public_key(forger),
        "ballots": [b.model_dump(mode="json") for b in (*mine, *forged, *replayed, *twice)],
    }
    (folder / ANSWER).write_text(json.dumps(found))


def read_answer_of(found: dict, assignment: Assignment):  # type: ignore[no-untyped-def, type-arg]
    from capibara_assets.consensus.election.ballots import Ballot

    return [Ballot.model_validate(ballot) for ballot in found["ballots"]]


def test_a_lying_process_is_named_and_harms_nobody(
    tiny: Base, honest: dict[str, LoraAdapter], validation: list[Tokens], shards: dict[str, list[int]], on_disk: Writer
) -> None:
    voters, agreement = _agree(tiny, honest, validation, shards, on_disk, _lies)
    certificate = agreement.certificate
    assert certificate.accepted == tuple(honest)
    assert certificate.equivocated == ("voter-0",)
    assert {(r.voter, r.fault) for r in certificate.refused} == {
        ("voter-0", "equivocation"), ("voter-0", "replay"), ("voter-1", "bad signature"),
    }  # fmt: skip
    assert all(tally.missing in ((), ("voter-0",)) for tally in certificate.tallies)
    assert certificate.unconfirmed == {"voter-0": "contradicted itself in the first round"}
    assert verify_certificate(certificate, voters).problems == ()


def test_a_clock_that_jumps_neither_ends_a_voter_nor_keeps_a_hung_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence is counted by a clock that nobody sets, from the last change of the pulse, whatever time it bears."""
    now = 100.0
    monkeypatch.setattr(polling, "time", SimpleNamespace(monotonic=lambda: now, time=lambda: 1e9))
    voter = polling._Voter(None, tmp_path, None, None, quiet_s=5.0)  # type: ignore[arg-type]
    voter.heard = now
    pulse = voter.place / PULSE
    pulse.parent.mkdir(parents=True)
    for jumped in (2e9, 5e8, 1.9e9):  # years ahead, years back, and ahead again, while it works
        now += 4.0
        pulse.touch()
        os.utime(pulse, (jumped, jumped))
        assert voter._problem(None) is None
    now += 4.0
    assert voter._problem(None) is None
    now += 2.0
    assert voter._problem(None) == "no sign of life for 5 s", "it hangs, though its pulse bears a time to come"
