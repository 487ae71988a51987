"""The certificate of a published agreement, checked with whatever of its inputs is still in the store."""

from collections.abc import Mapping

from capibara_assets.consensus.certificates.certificate import Verification, parse_certificate, verify_certificate
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.removal import removed
from capibara_assets.storage.store import ArtifactStore, MissingArtifact


def verify_published(store: ArtifactStore, consensus: Artifact, keys: Mapping[str, str] | None = None) -> Verification:
    """Checks a `consensus_checkpoint`: its certificate, its adapter, and its voters where they are still there.

    `keys` are public keys that are known from elsewhere. Inputs that were removed because a record was forgotten are
    named in `forgotten`.

    Raises:
        IntegrityError: the artifact is not what was published.
    """
    certificate = parse_certificate(consensus.document("certificate"))
    try:
        adapters = store.open("trained_adapters", consensus.partition, certificate.context["trained_adapters"])
    except (MissingArtifact, KeyError):
        voters = None
    else:
        folder = adapters.directory("voters")
        voters = {voter.name: folder / voter.name for voter in certificate.voters}
    return verify_certificate(
        certificate,
        voters,
        result=consensus.directory("adapter"),
        forgotten={gone.digest for gone in removed(store)},
        keys=keys,
    )
