"""Model cards in the Hub's format: base model, licences and sources of the data, and the certificate.

A card depends only on the training data (no time, no path), so it is part of the content: it changes when a licence
does.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl
import yaml

from capibara_assets.datasets.schema import Example
from capibara_assets.domains import Domain
from capibara_assets.escaping.languages import (
    flat,
    markdown_code,
    markdown_list,
    markdown_table,
    markdown_text,
)
from capibara_assets.lineage.attribution import COLUMNS, NONE_STATED, Attribution, attribution
from capibara_assets.lineage.columns import columns
from capibara_assets.lineage.voters import SEEN, dataset, dataset_of
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.records import polars_schema
from capibara_assets.storage.store import ArtifactStore
from capibara_assets.training.data.order import training_part

CARD = "README.md"
_GONE = "no longer in the store: train again to count them"
_NO_EXAMPLES = pl.DataFrame(schema={name: kind for name, kind in polars_schema(Example).items() if name in COLUMNS})
_SHORT = 12
# The Hub's identifiers, by licence as people write it (lower case, without spaces and "licence").
_HUB = {
    "mit": "mit", "apache2.0": "apache-2.0", "apache-2.0": "apache-2.0", "apache2": "apache-2.0",
    "bsd-3-clause": "bsd-3-clause", "bsd3clause": "bsd-3-clause", "bsd-2-clause": "bsd-2-clause", "isc": "isc",
    "unlicense": "unlicense", "cc0-1.0": "cc0-1.0", "cc0": "cc0-1.0", "cc-by-4.0": "cc-by-4.0",
    "ccby4.0": "cc-by-4.0", "cc-by-3.0": "cc-by-3.0", "cc-by-sa-4.0": "cc-by-sa-4.0", "ccbysa4.0": "cc-by-sa-4.0",
    "cc-by-sa-3.0": "cc-by-sa-3.0", "cc-by-nc-4.0": "cc-by-nc-4.0", "cc-by-nc-sa-4.0": "cc-by-nc-sa-4.0",
    "gpl-3.0": "gpl-3.0", "gpl-2.0": "gpl-2.0", "lgpl-3.0": "lgpl-3.0", "agpl-3.0": "agpl-3.0", "mpl-2.0": "mpl-2.0",
    "odc-by": "odc-by",
}  # fmt: skip


@dataclass(frozen=True)
class CardSubject:
    """The model that a card describes."""

    title: str
    what: str
    """One sentence."""
    library: str
    base_model: str
    base_digest: str
    proof: str
    """Where the certificate is, and what it says."""
    datasets: Mapping[str, str] = field(default_factory=dict)
    """Domain -> digest of its moe_dataset."""
    tags: tuple[str, ...] = ()
    gone: frozenset[str] = frozenset()
    """Domains whose dataset is no longer in the store: nothing can be counted of it."""


def write_card(subject: CardSubject, examples: pl.DataFrame, folder: Path) -> None:
    """Write README.md into a model's folder.

    Args:
        examples: its training examples (attribution.COLUMNS of Example).
    """
    (folder / CARD).write_text(card(subject, attribution(examples)), "utf-8")


def write_voter_cards(
    folder: Path,
    trained_on: Artifact,
    shards: Mapping[str, tuple[int, int]],
    base_model: str,
    base_digest: str,
    further: Mapping[str, Mapping[Domain, Artifact]] | None = None,
) -> None:
    """Write a card for each voter below `folder`, about its part of the dataset.

    Args:
        shards: voter -> (its shard, registered voters).
        further: voter -> other domains' datasets that it was also trained on.
    """
    named = list(dict.fromkeys([*SEEN, *COLUMNS]))
    examples = columns(trained_on, "examples", named)
    domain = str(trained_on.partition)
    for name, (shard, registered) in sorted(shards.items()):
        others = (further or {}).get(name, {})
        tables = [examples, *(columns(one, "examples", named) for one in others.values())]
        subject = CardSubject(
            title=f"{domain} / {name}",
            what=f"LoRA adapter of one voter, trained on verified `{domain}` examples.",
            library="peft",
            base_model=base_model,
            base_digest=base_digest,
            datasets={domain: trained_on.digest, **{other.value: one.digest for other, one in others.items()}},
            proof=f"`certificate.json` of `consensus_checkpoint[{domain}]` names this adapter by digest and says "
            "whether the other voters accepted it.",
            tags=("lora", "capibara-assets"),
        )
        seen = pl.concat([training_part(table, shard, registered) for table in tables])
        write_card(subject, seen, folder / name)


def write_model_card(
    folder: Path, store: ArtifactStore, made_from: Mapping[Domain, Artifact], subject: CardSubject
) -> None:
    """Write the card of a model made of trained adapters, about the train splits behind them.

    Args:
        made_from: domain -> its `trained_adapters` or `consensus_checkpoint`, whose datasets count.
        subject: the model, without the datasets and tags: these follow from what it was made from.
    """
    digests = {str(domain): dataset_of(artifact) for domain, artifact in sorted(made_from.items())}
    known = {domain: dataset(store, domain, digest) for domain, digest in digests.items()}
    parts = [columns(one, "examples", [*COLUMNS, "split"]) for one in known.values() if one is not None]
    examples = pl.concat(parts).filter(split="train") if parts else _NO_EXAMPLES
    whole = replace(
        subject,
        datasets=digests,
        tags=("merge" if len(digests) > 1 else "lora", "capibara-assets"),
        gone=frozenset(domain for domain, one in known.items() if one is None),
    )
    write_card(whole, examples, folder)


def consensus_subject(domain: str, base_model: str, base_digest: str, certificate: str) -> CardSubject:
    """The card subject of a domain's consensus adapter.

    Args:
        certificate: digest of its certificate.
    """
    return CardSubject(
        title=f"{domain} / consensus",
        what=f"The LoRA adapter that the voters of `{domain}` agreed on.",
        library="peft",
        base_model=base_model,
        base_digest=base_digest,
        proof=f"`certificate.json`, digest `{certificate}`: who was accepted, who was not, why.",
    )


def merged_subject(base_model: str, base_digest: str, consensus: Mapping[Domain, Artifact]) -> CardSubject:
    """The card subject of the dense model merged from every domain's `consensus_checkpoint`."""
    digests = {str(domain): artifact.document("certificate")["digest"] for domain, artifact in consensus.items()}
    proofs = ", ".join(f"`consensus_checkpoint[{domain}]` `{digest}`" for domain, digest in sorted(digests.items()))
    return CardSubject(
        title="merged",
        what="One dense model out of every domain's consensus adapter.",
        library="transformers",
        base_model=base_model,
        base_digest=base_digest,
        proof=f"Each adapter has its own: {proofs}",
    )


def base_name(location: str, path: Path) -> str:
    """The name of a base model on a card: its id on the Hub, else the name of its folder."""
    return path.name if Path(location).expanduser().exists() else location.partition("@")[0]


def card(subject: CardSubject, owed: Attribution) -> str:
    """Write a card: YAML front matter, then sections for readers."""
    front = {
        "base_model": subject.base_model,
        "library_name": subject.library,
        "license": hub_licences(list(owed.licences)),
        "language": ["code"],
        "datasets": [f"moe_dataset-{domain}-{digest[:_SHORT]}" for domain, digest in sorted(subject.datasets.items())],
        "tags": sorted({*subject.tags, *owed.languages, *owed.domains}),
    }
    if front["license"] == "other":
        front["license_name"] = flat(", ".join(sorted(set(owed.licences))))
    sections = [
        f"# {markdown_text(subject.title)}\n\n{subject.what}",
        f"## Base model\n\n{markdown_code(subject.base_model)}, digest {markdown_code(subject.base_digest)}. "
        "Its own licence applies to it.",
        "## Data\n\n"
        + markdown_table(
            ("domain", "dataset digest", "examples"),
            [
                (d, markdown_code(digest), _GONE if d in subject.gone else str(owed.domains.get(d, 0)))
                for d, digest in sorted(subject.datasets.items())
            ],
        )
        + f"\n\n{owed.examples} examples of {owed.executions} executions and {owed.bullets} playbook bullets. "
        "Each example names its executions, files and lines: `capibara lineage example ID`.",
        "## Licences of the data\n\n"
        + markdown_table(("licence", "examples"), [(name, str(n)) for name, n in owed.licences.items()])
        + "\n\nCounted by example; an example of several executions counts for each of their licences. "
        f"`{NONE_STATED}`: the recorder was not told.",
        "## Sources\n\n"
        + markdown_table(
            ("source", "licence", "examples"), [(s, licence, str(n)) for (s, licence), n in owed.sources.items()]
        ),
    ]
    if owed.credits:
        sections.append(f"## Attribution\n\nAs their licences ask:\n\n{markdown_list(owed.credits)}")
    sections.append(f"## Certificate\n\n{subject.proof}")
    head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True, width=10_000)
    return f"---\n{head}---\n\n" + "\n\n".join(sections) + "\n"


def hub_licences(stated: Sequence[str]) -> str | list[str]:
    """The Hub's licence identifiers: several as a list, `other` without an identifier, `unknown` if none is stated."""
    known = sorted({name for name in stated if name != NONE_STATED})
    if not known:
        return "unknown"
    ids = [_HUB.get(re.sub(r"[\s_]+|licen[cs]e", "", name.lower())) for name in known]
    identified = sorted({name for name in ids if name is not None})
    if None in ids or NONE_STATED in stated:
        return "other"
    return identified[0] if len(identified) == 1 else identified
