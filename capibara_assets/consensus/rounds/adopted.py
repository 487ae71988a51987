"""Reading a published `consensus_checkpoint` that came from a round of organisations: detection, and its voters."""

import re
from dataclasses import dataclass

from capibara_assets.storage.artifact import Artifact
from capibara_assets.training.voter_manifest import VoterManifest

_NAME, _DIGEST = re.compile(r"[\w.-]{1,80}"), re.compile("[0-9a-f]{64}")  # else it states nothing
ROUND, VOTERS = "round", "voters"
"""Name of the round's document, which the graph's own results have not, and of the folder of the voters' adapters."""


@dataclass(frozen=True, order=True)
class RoundVoter:
    """An accepted voter of a round.

    Attributes:
        digest: of its adapter, which the certificate confirms.
        public_key: that it signed with, registered in the round: whose voter it is.
        datasets: domain and digest of what it says it was trained on, which nobody here can check; empty: it says
            nothing.
    """

    domain: str
    name: str
    digest: str
    public_key: str
    round: str
    datasets: tuple[tuple[str, str], ...] = ()


def is_adopted(artifact: Artifact) -> bool:
    """Whether a `consensus_checkpoint` is a round's result and contains its voters' adapters."""
    return artifact.has(ROUND)


def round_voters(artifact: Artifact) -> tuple[RoundVoter, ...]:
    """The accepted voters of an adopted result, by name."""
    certificate, terms = artifact.document("certificate"), artifact.document(ROUND)
    accepted, voters = list[RoundVoter](), artifact.directory(VOTERS)
    for voter in certificate["voters"]:
        if not voter["accepted"]:
            continue
        name, manifest = voter["name"], VoterManifest.readable(voters / voter["name"])
        stated = ((str(terms["domain"]), manifest.dataset or ""), *manifest.further_datasets)
        datasets = tuple((of, it) for of, it in stated if _NAME.fullmatch(of) and _DIGEST.fullmatch(str(it)))
        key, digest = str(terms["keys"][name]), str(voter["digest"])
        accepted.append(RoundVoter(str(terms["domain"]), name, digest, key, certificate["context"][ROUND], datasets))
    return tuple(sorted(accepted))


def judged_on(artifact: Artifact) -> dict[str, str]:
    """Origin of the examples that judged an adopted result, as stated by its round."""
    return {str(key): str(value) for key, value in artifact.document(ROUND)["dataset"].items()}
