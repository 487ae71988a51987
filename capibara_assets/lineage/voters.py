"""The data that each voter of a published training saw: its part of the train groups, and its validation shard."""

import re
from dataclasses import dataclass, field

import polars as pl

from capibara_assets.domains import Domain
from capibara_assets.errors import InputError
from capibara_assets.lineage.ancestors import upstream_key
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.store import ArtifactStore
from capibara_assets.training.data.order import training_part, validation_shard
from capibara_assets.training.voter_manifest import MANIFEST, VoterManifest

_MANIFEST = re.compile(r"voters/([^/]+)/manifest\.json")
SEEN = ["example_id", "group_id", "split", "execution_ids"]


@dataclass(frozen=True, order=True)
class Voter:
    """One voter's adapter in a published `trained_adapters`."""

    domain: str
    name: str
    digest: str
    """SHA-256 of its weights."""
    artifact: str
    dataset: str
    """Digest of the `moe_dataset` it was trained on."""
    shard: int = field(compare=False)
    of: int = field(compare=False)
    """Number of registered voters, and so of the parts that groups are divided into."""
    seed: int = field(compare=False)
    voter_seed: int = field(compare=False)
    base: str = field(compare=False)
    further: tuple[tuple[str, str], ...] = field(compare=False, default=())
    """Domain and digest of other domains' datasets that its strategy also trained on."""

    @property
    def datasets(self) -> tuple[tuple[str, str], ...]:
        """Domain and digest of all its training datasets, its own first."""
        return ((self.domain, self.dataset), *self.further)

    def trained(self, examples: pl.DataFrame) -> pl.DataFrame:
        """Rows of a dataset's train split in its part (rows that did not fit may have been left out)."""
        return training_part(examples, self.shard, self.of)

    def validated(self, examples: pl.DataFrame) -> pl.DataFrame:
        """Rows of its own domain's validation split in its shard; none where the split is empty."""
        try:
            return validation_shard(examples, self.shard, self.of)
        except InputError:
            return examples.clear()


def voters_of(artifact: Artifact) -> list[Voter]:
    """The voters of a `trained_adapters`, by name. Raises IntegrityError (damaged)."""
    names = [match.group(1) for match in map(_MANIFEST.fullmatch, artifact.manifest.files) if match]
    registered = len(names) + len(artifact.document("summary").get("missing", {}))
    voters = []
    for name in sorted(names):
        manifest = VoterManifest(artifact.document(f"voters/{name}/{MANIFEST}".removesuffix(".json")))
        stated = manifest.stated
        voters.append(
            Voter(
                domain=str(artifact.partition),
                name=name,
                digest=stated["digest"],
                artifact=artifact.digest,
                dataset=dataset_of(artifact),
                shard=stated["shard"],
                of=registered,
                seed=stated["seed"],
                voter_seed=stated["voter_seed"],
                base=stated["base_digest"],
                further=manifest.further_datasets,
            )
        )
    return voters


def dataset_of(artifact: Artifact) -> str:
    """Digest of the `moe_dataset` that an artifact of a domain was made from."""
    upstream: dict[str, str] = artifact.manifest.inputs.get("upstream", {})
    return upstream.get(upstream_key("moe_dataset", artifact.partition), "")


def dataset(store: ArtifactStore, domain: str, digest: str) -> Artifact | None:
    """A domain's dataset by digest; None where it is no longer in the store."""
    return store.find("moe_dataset", Domain(domain), digest) if digest else None
