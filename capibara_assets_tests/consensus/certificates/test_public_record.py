"""An election that is published before its vote, and a certificate that has to be that one's, and its only one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from capibara_assets.cli.checkpoint.consensus import WITH_RESERVATIONS, consensus
from capibara_assets.consensus.agree import Agreement, agree
from capibara_assets.consensus.certificates.certificate import Verification, certify, verify_certificate
from capibara_assets.consensus.certificates.certificate_log import append_certificate, read_log
from capibara_assets.consensus.certificates.model import Certificate
from capibara_assets.consensus.certificates.public_record import PublicRecord, StoreRecord
from capibara_assets.consensus.certificates.published_election import PublishedElection, examples_digests
from capibara_assets.consensus.election.ballots import election_id, new_key, public_key
from capibara_assets.consensus.election.keys import VoterKeys
from capibara_assets.consensus.election.polling import Poll
from capibara_assets.consensus.recipe import ConsensusRecipe
from capibara_assets.errors import InputError, IntegrityError
from capibara_assets.modeling.adapters import LoraAdapter
from capibara_assets.modeling.base import Base
from capibara_assets.storage.store import ArtifactStore
from capibara_assets_tests.consensus.certificates.conftest import registered, voted_again
from capibara_assets_tests.consensus.conftest import Tokens
from capibara_assets_tests.consensus.in_process import hold_here

VERSION_1 = Path(__file__).parent / "certificate_1.json"
Voted = tuple[Agreement, PublishedElection, Path]


@pytest.fixture(scope="module")
def voted(
    tiny: Base,
    honest: dict[str, LoraAdapter],
    validation: list[Tokens],
    shards: dict[str, list[int]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Voted:
    """An agreement of registered voters, its election as it was announced, and a store in which it lies."""
    folder = tmp_path_factory.mktemp("voted")
    voters = registered(folder, honest)
    record = StoreRecord(ArtifactStore(folder / "store"))
    announced: list[PublishedElection] = []

    def announce(election: PublishedElection) -> None:
        announced.append(election)
        record.announce(election)

    def hold(*arguments: Any) -> Poll:
        assert (folder / "store" / "elections" / f"{announced[0].digest}.json").is_file(), "before the first ballot"
        return hold_here(*arguments)

    agreement = agree(
        tiny, voters, validation, shards, ConsensusRecipe(),
        {"domain": "python", "moe_dataset": "d" * 64}, keys=VoterKeys.of(folder / "keys"), announce=announce, hold=hold,
    )  # fmt: skip
    record.enter(agreement.certificate)
    certify(agreement, folder)
    return agreement, announced[0], folder


def verified(certificate: Certificate, election: PublishedElection) -> Verification:
    return verify_certificate(certificate, record=PublicRecord(election))


def test_what_was_published_is_what_the_ballots_name(voted: Voted) -> None:
    agreement, election, folder = voted
    certificate = agreement.certificate
    assert {ballot.election for ballot in certificate.ballots} == {election.digest} == {election_id(election.election)}
    assert (election.n, election.f, set(election.examples)) == (4, 1, set(election.election["voters"]))
    assert election.keys == {voter.name: voter.public_key for voter in certificate.voters}
    file = folder / "store" / "elections" / f"{election.digest}.json"
    found = verify_certificate(
        certificate, record=PublicRecord.read(file, folder / "store" / "certificates.jsonl", None)
    )
    assert found.problems == () and {"published election", "log"} <= set(found.recomputed)
    without = verify_certificate(certificate)
    assert without.ok and sum("(--election)" in one or "(--log)" in one for one in without.unproven) == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (lambda c: {"thresholds": c.thresholds.model_copy(update={"quality": 0.4})}, "quality is 0.5, not 0.4"),
        (lambda c: {"context": {**c.context, "moe_dataset": "e" * 64}}, "context.moe_dataset is"),
        (lambda c: {"context": {**c.context, "registry": "e" * 64}}, "context.registry is"),
        (lambda c: {"context": {**c.context, "examples": "e" * 64}}, "context.examples is"),
        (lambda c: {"base_digest": "e" * 64}, "base_digest is"),
        (lambda c: {"software": {**c.software, "torch": "9"}}, "software.torch is"),
        (lambda c: {"voters": (*c.voters[:3], c.voters[3].model_copy(update={"name": "voter-9"}))}, "voter-9 is"),
        (lambda c: {}, "registered before the vote is another"),
    ],
)  # fmt: skip
def test_a_certificate_of_another_election_is_refused(
    changes: Callable[[Certificate], dict[str, Any]], words: str, voted: Voted
) -> None:
    agreement, election, _ = voted
    certificate = agreement.certificate
    made_up = changes(certificate)
    if "voters" in made_up:  # ballots of the one that was exchanged go, too
        made_up["ballots"] = tuple(b for b in certificate.ballots if "voter-3" not in (b.voter, b.candidate))
        made_up["confirmations"] = certificate.confirmations[:3]
    forged = voted_again(certificate, **made_up)
    if made_up and "voters" not in made_up:
        assert verify_certificate(forged).ok, "sound in itself"
    problems = verified(forged, election).problems
    assert any(words in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (lambda d: d["election"]["thresholds"].update(quality=0.4), "not what its digest states"),
        (lambda d: d.update(digest="0" * 64), "the certificate is of election"),
        (lambda d: d.update(f=0), "published were 4 and 0"),
        (lambda d: d["examples"].update({"voter-0": ["0" * 64]}), "list of examples is not"),
        (lambda d: d["keys"].update({"voter-0": public_key(new_key())}), "keys are not those"),
        (lambda d: d.update(keys={}), "keys are not those"),
        (lambda d: d["election"].update(context=7), "list of examples is not"),
    ],
)
def test_a_published_election_that_somebody_edited(
    changes: Callable[[dict[str, Any]], Any], words: str, voted: Voted
) -> None:
    document = voted[1].model_dump(mode="json")
    changes(document)
    problems = verified(voted[0].certificate, PublishedElection.model_validate(document)).problems
    assert any(words in problem for problem in problems), problems


def test_one_liar_about_examples_spoils_no_certificate_more_than_f_do(voted: Voted) -> None:
    agreement, election, _ = voted
    context = agreement.certificate.context

    def other(*voters: str) -> tuple[Certificate, PublishedElection]:
        examples = {**election.examples, **{voter: ["0" * 64] for voter in voters}}
        certificate = voted_again(agreement.certificate, context={**context, "examples": examples_digests(examples)})
        subject = {**election.election, "context": dict(certificate.context)}
        published = election.model_copy(
            update={
                "examples": examples, "election": subject, "digest": certificate.election,
                "keys": {},
            }
        )  # fmt: skip
        return certificate, published

    def strays(*voters: str) -> tuple[list[str], list[str]]:
        found = verified(*other(*voters))
        return (
            [one for one in found.problems if "other examples" in one],
            [one for one in found.reservations if "published examples" in one],
        )

    assert strays() == ([], [])
    assert strays("voter-2") == ([], ["that voter-2 judged on the published examples: ballots name others"])
    assert strays("voter-1", "voter-2")[0] == [
        "voter-1, voter-2 judged on other examples than were published, 1 may lie"
    ]


def test_announcing_again_changes_nothing_and_another_under_its_digest_is_refused(voted: Voted, tmp_path: Path) -> None:
    record = StoreRecord(ArtifactStore(tmp_path))
    record.announce(voted[1])
    record.announce(voted[1])
    file = tmp_path / "elections" / f"{voted[1].digest}.json"
    file.write_text(file.read_text().replace('"n": 4', '"n": 5'))
    with pytest.raises(IntegrityError, match="is not the election of this digest"):
        record.announce(voted[1])


def _verify(folder: Path, *options: str | Path) -> tuple[int, str]:
    command = ["verify", str(folder / "certificate.json"), *map(str, options)]
    found = CliRunner().invoke(consensus, command)
    if isinstance(found.exception, InputError):
        return 2, str(found.exception)
    return found.exit_code, found.output


def test_the_log_tells_whether_a_certificate_is_the_only_one(voted: Voted, tmp_path: Path) -> None:
    agreement, election, folder = voted
    certificate = agreement.certificate
    log = tmp_path / "log.jsonl"
    append_certificate(log, "a" * 64, "b" * 64)
    first = read_log(log).head
    assert "does not stand in it" in _verify(folder, "--log", log)[1]
    append_certificate(log, certificate.election, certificate.digest)
    append_certificate(log, "c" * 64, "d" * 64)
    good, head = log.read_bytes(), read_log(log).head
    elections = folder / "store" / "elections" / f"{election.digest}.json"
    keys = folder / "keys" / "registry.json"
    code, said = _verify(
        folder, "--log", log, "--log-head", str(first).upper(), "--election", elections, "--keys", keys
    )
    assert code == WITH_RESERVATIONS and "(--log" not in said and "whose keys" not in said, said
    assert str(head) in _verify(folder, "--log", log)[1], "to be kept and compared"
    lines = good.splitlines()
    for changed, words in (
        (lines[:1], "does not stand in it"),
        ([lines[0], lines[2]], "line 2 does not follow"),
        ([lines[1], lines[0], lines[2]], "line 1 does not follow"),
        (lines[:2], f"the line {str(head)[:12]} that was in it is not"),
    ):
        log.write_bytes(b"\n".join(changed) + b"\n")
        code, said = _verify(folder, "--log", log, "--log-head", str(head))
        assert code == 1 and words in said, said
    log.unlink()
    append_certificate(log, certificate.election, certificate.digest)
    append_certificate(log, certificate.election, "e" * 64)
    code, said = _verify(folder, "--log", log)
    assert code == WITH_RESERVATIONS and "only certificate: the log has eeeeeeeeeeee, too" in said
