"""A voter's part of a round: submit an adapter, judge the others on its own shard, confirm, save the result."""

import json
import shutil
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from capibara_assets.consensus.agree import settle
from capibara_assets.consensus.certificates.certificate import verify_certificate
from capibara_assets.consensus.certificates.public_record import PublicRecord
from capibara_assets.consensus.certificates.published_election import PublishedElection, read_election
from capibara_assets.consensus.certificates.verification import differences
from capibara_assets.consensus.confirming import confirm
from capibara_assets.consensus.election.ballots import public_key
from capibara_assets.consensus.election.keys import read_private_key
from capibara_assets.consensus.election.voter import Assignment, answer, confirmation_of
from capibara_assets.consensus.electorate import attest_voters, electors_examples, make_assignments
from capibara_assets.consensus.rounds.closing import (
    CERTIFICATE,
    ELECTION,
    beside_certificate,
    error_after,
    last_election,
)
from capibara_assets.consensus.rounds.mailbox import Mailbox
from capibara_assets.consensus.rounds.messages import SUBMITTED, Kind, Message
from capibara_assets.consensus.rounds.round import Round, RoundExamples
from capibara_assets.consensus.rounds.stated import StatedResult, read_proposal, read_result
from capibara_assets.consensus.rounds.submissions import Submissions, sort_submissions
from capibara_assets.errors import InputError
from capibara_assets.modeling.base import Base
from capibara_assets.storage.commit import copy_folder
from capibara_assets.storage.foreign import require_plain
from capibara_assets.storage.jsonfiles import readable_json, write_bytes_atomic
from capibara_assets.training.voter_manifest import MANIFEST


def key_of(terms: Round, voter: str, file: Path) -> Ed25519PrivateKey:
    """The private key of a voter of this round.

    Raises:
        InputError: it cannot be used, or is not the one that is registered.
    """
    key = read_private_key(file)
    if terms.keys.get(voter) != public_key(key):
        raise InputError(f"{file.name} is not the key that round {terms.digest[:12]} has for {voter!r}: see its keys")
    return key


def submit(box: Mailbox, voter: str, key: Ed25519PrivateKey, adapter: Path) -> Message:
    """Submit an adapter, with its manifest if it has one.

    Raises:
        InputError: no adapter there, one that is too large, the deadline is over, or the place refuses it.
    """
    require_plain(adapter)
    files = {}
    for name in SUBMITTED:
        if (adapter / name).is_file():
            files[name] = adapter / name
        elif name != MANIFEST:
            raise InputError(f"{adapter / name} is missing: give the folder of a LoRA adapter in PEFT's format")
    size = sum(file.stat().st_size for file in files.values())
    if size > box.terms.max_bytes:
        raise InputError(f"{adapter} has {size:,} bytes, the round takes {box.terms.max_bytes:,}")
    if box.place.now() > box.terms.closes:  # not by this machine's clock: it may be wrong
        raise InputError(f"the deadline of the round was {box.terms.deadline}: nothing counts that comes now")
    return box.send("submission", voter, {name: file.read_bytes() for name, file in files.items()}, key)


def vote_in(
    box: Mailbox, examples: RoundExamples, base: Base, voter: str, key_file: Path, out: Path, patience: float
) -> StatedResult:
    """Vote in a round, and write the result and everything needed to verify it into a folder.

    May be started before the deadline, and again after it was stopped: what was sent is not sent again.

    Args:
        patience: seconds after the deadline, and after each answer, in which the organiser has to go on.

    Returns:
        The organiser's result: which messages were ignored.

    Raises:
        InputError: the election is not what follows from the round and from what was handed in; the organiser is
            silent, or says that there is no consensus.
    """
    terms, key = box.terms, key_of(box.terms, voter, key_file)
    if base.digest != terms.base_digest:
        raise InputError(f"the base model is {base.digest[:12]}, the round is about {terms.base_digest[:12]}")
    posted = _awaited(box, "election", max(0.0, terms.closes - box.place.now()) + patience)
    published, attempt = read_election(posted.folder / ELECTION), posted.head.name
    submissions = sort_submissions(box)
    assignment = _assignment(box, examples, base, voter, key_file, published, submissions)
    election = published.digest
    mine = box.first_of("ballots", voter, election)
    if mine is None:
        own = answer(assignment, base, key=key)
        mine = box.send("ballots", voter, {"answer.json": readable_json(own)}, key, election)
    own = json.loads((mine.folder / "answer.json").read_bytes())
    box.wait(lambda: any(box.first_of(kind, about=attempt) for kind in _NEXT), patience)
    asked = box.first_of("proposal", about=attempt)
    if asked is not None and box.first_of("confirmation", voter, asked.head.name) is None:
        _confirm(box, asked, assignment, base, own, key)
    result = _awaited(box, "result", patience, posted)
    return _kept(box, result, posted, submissions, out)


def _assignment(
    box: Mailbox, examples: RoundExamples, base: Base, voter: str, key_file: Path, published: PublishedElection,
    submissions: Submissions,
) -> Assignment:  # fmt: skip
    """What the voter judges, by its own reading of the place; the organiser's has to be the same."""
    terms = box.terms
    if voter not in submissions.accepted:
        why = next((one.why for one in submissions.named if one.sender == voter), "nothing came")
        raise InputError(f"{voter} has no adapter in this round, and no vote: {why}")
    recipe = terms.consensus_recipe()
    attested = attest_voters(base, submissions.folders(terms, box.work), recipe)
    _, parts = electors_examples(attested, examples.validation, examples.shards, recipe)
    election, expected = settle(attested, base, recipe, terms.context(), parts, terms.keys)
    stated = {**published.model_dump(mode="json"), "digest": ""}
    right = {**expected.model_dump(mode="json"), "digest": ""}
    right["election"]["software"] = stated["election"].get("software")  # the organiser's, which may be another
    if off := list(differences(right, stated)):
        raise InputError(f"the organiser's election is not what was handed in for this round: {'; '.join(off[:5])}")
    if voter not in attested.electors:
        raise InputError(f"{voter} has no vote: {attested.verdicts[voter].reason or 'its adapter was handed in twice'}")
    assignments = {each.voter: each for each in make_assignments(attested, election, parts, confirm=confirm)}
    made = vars(assignments[voter])
    return Assignment(**{**made, "election": published.digest, "key_file": key_file, "registered": terms.keys[voter]})


_NEXT: tuple[Kind, ...] = ("proposal", "result")


def _confirm(
    box: Mailbox, asked: Message, assignment: Assignment, base: Base, answered: dict[str, Any], key: Ed25519PrivateKey
) -> None:
    """Confirm what the organiser proposes, or say why not; who is not asked says nothing."""
    stated = read_proposal(asked)
    own = stated.own.get(assignment.voter)
    if own is None:
        return
    folder = asked.folder / "averages"
    averages = {each.name: str(each) for each in sorted(folder.iterdir())} if folder.is_dir() else {}
    proposal = {**stated.common, "averages": averages, "own": own}
    said = confirmation_of(assignment, base, answered, proposal, key)
    box.send("confirmation", assignment.voter, {"confirmation.json": readable_json(said)}, key, asked.head.name)


def _kept(box: Mailbox, message: Message, posted: Message, submissions: Submissions, out: Path) -> StatedResult:
    """Copy the result, and what it is verified with, into a folder, once it holds.

    Raises:
        InputError: the certificate is not of this election and these keys, or does not follow from the adapters.
    """
    result = read_result(message)
    election = PublicRecord.read(posted.folder / ELECTION, None, None)
    voters = submissions.folders(box.terms, box.work)
    verification = verify_certificate(message.folder / CERTIFICATE, voters, keys=box.terms.keys, record=election)
    if not {"result", "published adapter", "published election"} <= set(verification.recomputed) or not verification.ok:
        why = "; ".join(verification.problems[:5]) or "its adapter is missing"
        raise InputError(f"the organiser's result does not hold, and is not kept: {why}")
    beside_certificate(out, box, submissions, posted, result.model_dump(mode="json", exclude_none=True))
    copy_folder(message.folder, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns(CERTIFICATE))
    write_bytes_atomic(out / CERTIFICATE, (message.folder / CERTIFICATE).read_bytes())
    return result


def _awaited(box: Mailbox, kind: Kind, seconds: float, election: Message | None = None) -> Message:
    """Wait for the organiser's message of a kind in one attempt: the last election, or an election's result.

    Raises:
        InputError: it does not come, the attempt has ended without a consensus, or another one has begun.
    """

    def answered() -> Message | None:
        return last_election(box) if election is None else box.first_of(kind, about=election.head.name)

    def ended() -> Message | None:
        return error_after(box, election or last_election(box))

    def overtaken() -> bool:
        return election is not None and last_election(box) != election

    box.wait(lambda: bool(answered() or ended() or overtaken()), seconds)
    if (failed := ended()) is not None:
        why = read_result(failed).error or "its result has no certificate"
        raise InputError(f"the round ended without a consensus: {why}. Where the organiser closes it again, vote again")
    if (message := answered()) is not None:
        return message
    if overtaken():
        raise InputError(f"the organiser at {box.place.root} has begun again to close the round: vote again")
    raise InputError(f"no {kind} of the organiser at {box.place.root}: ask whoever closes the round, and vote again")
