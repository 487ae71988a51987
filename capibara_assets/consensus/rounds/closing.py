"""The organiser's part of a round: read the submissions, hold the vote by messages, publish the result."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from capibara_assets.consensus.agree import Agreement, ConsensusError, agree
from capibara_assets.consensus.certificates.certificate import certify
from capibara_assets.consensus.certificates.published_election import PublishedElection
from capibara_assets.consensus.election.ballots import Ballot, in_order
from capibara_assets.consensus.election.confirmations import Confirmation
from capibara_assets.consensus.election.keys import VoterKeys
from capibara_assets.consensus.election.polling import Decide, Poll
from capibara_assets.consensus.election.voter import Assignment, Proposal, read_answer, read_confirmation
from capibara_assets.consensus.rounds.mailbox import Mailbox
from capibara_assets.consensus.rounds.messages import ORGANISER, Kind, Message
from capibara_assets.consensus.rounds.round import RoundExamples
from capibara_assets.consensus.rounds.stated import AFTER, PROPOSAL, RESULT, StatedAfter, read_after
from capibara_assets.consensus.rounds.submissions import Named, Submissions, documents, sort_submissions
from capibara_assets.errors import InputError
from capibara_assets.modeling.base import Base
from capibara_assets.modeling.files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from capibara_assets.storage.commit import copy_folder, sync_tree
from capibara_assets.storage.jsonfiles import delete_durable, readable_json, write_json_atomic

ELECTION, CERTIFICATE = "election.json", "certificate.json"
SIGNED = "submissions.json"
"""Of a result: voter -> first line of its submission, which has its signature over the files in `voters/`."""
_LOOK_S = 0.25  # between two looks at the place's clock
_GRACE_S = 1.0  # beyond a deadline until the place shows what came before it


@dataclass
class MessageVote:
    """A vote whose voters are remote: does by messages what `hold_vote` does with processes.

    Attributes:
        key: the organiser's.
        posted: the message with the election, once it is announced; another one each time the round is closed again
            after it had ended with an error.
    """

    box: Mailbox
    key: Ed25519PrivateKey
    posted: Message | None = None
    named: list[Named] = field(default_factory=list)

    def announce(self, published: PublishedElection) -> None:
        """Publish the election at the place; an open election that is there is continued."""
        last, files = last_election(self.box), {ELECTION: readable_json(published.model_dump(mode="json"))}
        ended = None if last is None else error_after(self.box, last)
        if last is not None and ended is None and last.head.content.about == published.digest:
            self.posted = last
            return
        if ended is not None:
            files[AFTER] = readable_json(StatedAfter(result=ended.head.name).model_dump())
        self.posted = self.box.send("election", ORGANISER, files, self.key, published.digest)

    def hold(
        self, base: Base, assignments: Sequence[Assignment], timeout: float, retries: int, decide: Decide | None = None
    ) -> Poll:
        """Implements `polling.Hold`; a voter answers once and is not restarted."""
        assert self.posted is not None and decide is not None
        election = self.posted.head.content.about
        answers, silent = self._gather("ballots", [a.voter for a in assignments], election, self.posted, timeout)
        keys: dict[str, str] = {}
        ballots: list[Ballot] = []
        absent = dict(silent)
        for each in assignments:
            if each.voter in answers:
                try:
                    counted = answers[each.voter]
                    keys[each.voter], own = read_answer(counted.folder / "answer.json", each)
                    others = self._later_ballots(each, counted, self.posted.received + timeout)
                    # with two different ones for a candidate, none of the voter's counts
                    ballots += [*own, *(ballot for ballot in dict.fromkeys(others) if ballot not in own)]
                except InputError as error:
                    absent[each.voter] = str(error)
        poll = Poll(keys, in_order(ballots), dict(sorted(absent.items())))
        asked = decide(poll)
        if not asked:
            return poll
        about = self.posted.head.name
        proposal = self.box.send("proposal", ORGANISER, _proposal_files(asked), self.key, about)
        messages, unconfirmed = self._gather("confirmation", sorted(asked), proposal.head.name, proposal, timeout)
        given: list[Confirmation] = []
        for voter, message in sorted(messages.items()):
            try:
                candidates = len(asked[voter]["losses"])
                given.append(read_confirmation(message.folder / "confirmation.json", voter, candidates))
            except InputError as error:
                unconfirmed[voter] = str(error)
        return Poll(keys, poll.ballots, poll.absent, tuple(given), dict(sorted(unconfirmed.items())))

    def _later_ballots(self, each: Assignment, counted: Message, closes: float) -> list[Ballot]:
        """The ballots that a voter signed in further messages in time."""
        found: list[Ballot] = []
        for message in self.box.of("ballots", counted.head.content.about):
            if message.sender == each.voter and message != counted and message.received <= closes:
                with suppress(InputError):  # no ballots, which say nothing
                    found += read_answer(message.folder / "answer.json", each)[1]
        return found

    def _gather(
        self, kind: Kind, voters: Sequence[str], about: str, asked: Message, timeout: float
    ) -> tuple[dict[str, Message], dict[str, str]]:
        """The first message of each voter, and the reason for those without one in time."""
        box, closes = self.box, asked.received + timeout

        def in_time() -> dict[str, Message]:
            own = {voter: box.first_of(kind, voter, about) for voter in voters}
            return {
                voter: message for voter, message in own.items() if message is not None and message.received <= closes
            }

        box.wait(lambda: len(in_time()) == len(voters), timeout + _GRACE_S)
        punctual = in_time()
        counted = {message.head.name for message in punctual.values()}
        earlier = {x.head.content.about for x in box.of("election")} | {x.head.name for x in box.of("proposal")}
        for message in box.of(kind):
            answers = message.head.content.about
            if message.head.name not in counted and (answers == about or answers not in earlier):
                late = "late" if message.received > closes else "duplicate"
                what = "replayed" if answers != about else late if message.sender in voters else "foreign"
                self.named.append(Named(what, message.sender, f"{kind} about {answers[:12]}", message.head.name))
        return punctual, {voter: f"late: no {kind} within {timeout:g} s" for voter in voters if voter not in punctual}


def close_round(
    box: Mailbox, examples: RoundExamples, base: Base, key: Ed25519PrivateKey, out: Path
) -> tuple[Agreement, list[Named]]:
    """Hold the vote of a round, and publish the result at the place and in a folder.

    Waits for the deadline. The same round closed again asks nobody again who has answered; after an error voters have
    the whole time again, and their ballots count that came too late before.

    Returns:
        The agreement, and every ignored message.

    Raises:
        ConsensusError: as `agree`; the voters are told.
        InputError: another base model or organiser's key than the round's.
    """
    terms = box.terms
    if base.digest != terms.base_digest:
        raise InputError(f"the base model is {base.digest[:12]}, the round is about {terms.base_digest[:12]}")
    while box.place.now() <= terms.closes + _GRACE_S:  # the place's clock decides what is late, not this machine's
        time.sleep(_LOOK_S)
    box.look()
    submissions = sort_submissions(box)
    vote = MessageVote(box, key)
    try:
        agreement = agree(
            base, submissions.folders(terms, box.work), examples.validation, examples.shards, terms.consensus_recipe(),
            terms.context(), keys=VoterKeys(Path(), terms.keys), announce=vote.announce, hold=vote.hold,
        )  # fmt: skip
    except ConsensusError as error:
        result = {"error": str(error), "named": documents(submissions.named)}
        box.send("result", ORGANISER, {RESULT: readable_json(result)}, key, _name(vote.posted))
        raise
    named = _all_named(box, submissions, vote)
    _publish(box, agreement, submissions, vote, named, key, out)
    return agreement, named


def error_after(box: Mailbox, election: Message | None) -> Message | None:
    """The message that ended an attempt (None: one before any election) without a consensus; None if none did."""
    ended = box.first_of("result", about=_name(election))
    return ended if ended is not None and CERTIFICATE not in ended.head.content.files else None


def last_election(box: Mailbox) -> Message | None:
    """The election of the organiser's last attempt: the one that no other follows, whatever the place's clock said.

    Raises:
        InputError: an election does not say what it follows.
    """
    elections = box.of("election")
    ends = {after.result for each in elections if (after := read_after(each)) is not None}
    former = {result.head.content.about for result in box.of("result") if result.head.name in ends}
    return next((each for each in reversed(elections) if each.head.name not in former), None)


def _name(election: Message | None) -> str:
    return "" if election is None else election.head.name


def _all_named(box: Mailbox, submissions: Submissions, vote: MessageVote) -> list[Named]:
    """What was named of submissions, also of those that came while the vote was held, of ballots and confirmations."""
    return sorted({*submissions.named, *sort_submissions(box).named, *vote.named})


def _publish(
    box: Mailbox, agreement: Agreement, submissions: Submissions, vote: MessageVote, named: Sequence[Named],
    key: Ed25519PrivateKey, out: Path,
) -> None:  # fmt: skip
    assert vote.posted is not None
    result = {"named": documents(named), "consensus": agreement.certificate.result.digest}
    beside_certificate(out, box, submissions, vote.posted, result)
    certify(agreement, out)
    files = {CERTIFICATE: out / CERTIFICATE, RESULT: out / RESULT}
    files |= {f"adapter/{name}": out / "adapter" / name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)}
    box.send("result", ORGANISER, {name: file.read_bytes() for name, file in files.items()}, key, _name(vote.posted))


def beside_certificate(
    out: Path, box: Mailbox, submissions: Submissions, election: Message, result: Mapping[str, object]
) -> None:
    """Write what a certificate is verified with: round, election, the voters' files, and the ignored messages.

    A former certificate goes, as what lies beside it is no longer its own.
    """
    delete_durable(out / CERTIFICATE)
    for name, message in submissions.accepted.items():
        copy_folder(message.folder, out / "voters" / name, dirs_exist_ok=True)
        sync_tree(out / "voters" / name)
    heads = {name: message.head.model_dump(mode="json") for name, message in submissions.accepted.items()}
    write_json_atomic(out / SIGNED, heads)
    write_json_atomic(out / "round.json", box.terms.model_dump(mode="json"))
    write_json_atomic(out / "keys.json", box.terms.keys)
    write_json_atomic(out / ELECTION, json.loads((election.folder / ELECTION).read_bytes()))
    write_json_atomic(out / RESULT, result)


def _proposal_files(asked: Mapping[str, Proposal]) -> dict[str, bytes]:
    """Pack the proposals as files of one message: the common part once, and the averages."""
    first = next(iter(asked.values()))
    averages = {digest: Path(folder) for digest, folder in first["averages"].items()}
    common = {name: value for name, value in first.items() if name not in ("own", "averages")}
    document = {"common": common, "own": {voter: dict(each["own"]) for voter, each in asked.items()}}
    files = {PROPOSAL: readable_json(document)}
    for digest, folder in averages.items():
        for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
            files[f"averages/{digest}/{name}"] = (folder / name).read_bytes()
    return files
