"""Export of the served models: collects adapters, merged model, router and model card from the store."""

import json
import re
from pathlib import Path
from typing import Any

import polars as pl

from capibara_assets.datasets.schema import Example
from capibara_assets.errors import InputError
from capibara_assets.evaluation.serving.export import ExportParts, servable_adapter, vllm_commands, write_export
from capibara_assets.evaluation.serving.model_card import CardFacts, ServedDomain, card
from capibara_assets.evaluation.serving.promotion import served
from capibara_assets.evaluation.serving.promotion_log import PromotionLog
from capibara_assets.evaluation.serving.quantised_exports import Kind, exporter
from capibara_assets.lineage.attribution import COLUMNS, NONE_STATED, attribution
from capibara_assets.lineage.card import base_name, hub_licences
from capibara_assets.lineage.columns import columns
from capibara_assets.lineage.voters import dataset, dataset_of
from capibara_assets.modeling.files import base_digest
from capibara_assets.storage.artifact import Artifact
from capibara_assets.storage.records import table
from capibara_assets.storage.store import ArtifactStore

_LICENCE = re.compile(r"^license:\s*(\S.*?)\s*$", re.MULTILINE)
NOT_STATED = "not stated in its folder"


def export(
    store: ArtifactStore, base_location: str, base_path: Path, target: Path, quantise: tuple[Kind, ...], texts: int
) -> dict[str, Any]:
    """Write the currently served models to a folder; returns the document promoted.json.

    Args:
        base_location: base model as named in the deployment.
        quantise: quantised variants of the merged model to add.
        texts: number of training examples to calibrate them on; 0: round to nearest.

    Raises:
        InputError: nothing is promoted, an adapter of another base model, or as `write_export`.
    """
    head, latest = PromotionLog(store).head(), store.latest("promoted_model", None)
    # promotions from before the history existed are in the artifact alone
    promotion = head.promotion if head else latest.document("promotion") if latest else None
    if promotion is None or not any(served(promotion).values()):
        raise InputError("nothing is promoted, so there is nothing to export: see `capibara promote --history`")
    slots = served(promotion)
    digest = base_digest(base_path)
    experts = {
        domain: store.open("consensus_checkpoint", domain, it)
        for domain, it in slots.items()
        if domain not in ("merged", "router") and it is not None
    }
    for domain, artifact in experts.items():
        made_on = artifact.manifest.inputs.get("settings", {}).get("base_model", digest)
        if made_on != digest:
            raise InputError(
                f"the adapter of {domain} was made on base model {made_on[:12]}, this deployment's is {digest[:12]}: "
                "set CAPIBARA_BASE_MODEL to the one it was trained on"
            )
    merged = None if slots["merged"] is None else store.open("merged_checkpoint", None, slots["merged"])
    router = None if slots["router"] is None else store.open("expert_router", None, slots["router"])
    parts = ExportParts(
        promotion=promotion,
        number=head.number if head else 0,
        base_name=base_name(base_location, base_path),
        base_digest=digest,
        adapters={domain: (one.digest, one.directory("adapter")) for domain, one in experts.items()},
        merged=None if merged is None else (merged.digest, merged.directory("model")),
        router=None if router is None else (router.digest, router.directory("router")),
    )
    writers: dict[str, Any] = {kind: exporter(kind, _texts(store, experts, texts)) for kind in quantise}
    return write_export(parts, target, card(_facts(store, parts, experts, router, base_path, quantise)), writers)


def _facts(
    store: ArtifactStore,
    parts: ExportParts,
    experts: dict[str, Artifact],
    router: Artifact | None,
    base_path: Path,
    quantise: tuple[Kind, ...],
) -> CardFacts:
    owed = attribution(_examples(store, experts, [*COLUMNS, "split"]))
    elsewhere = sorted(domain for domain, artifact in experts.items() if not dataset_of(artifact))
    base_licence = _base_licence(base_path)
    known = [*owed.licences, *([] if base_licence == NOT_STATED else [base_licence])]
    decisions = {domain: _decision(store, domain, one.digest) for domain, one in experts.items()}
    stated = parts.promotion["domains"]
    promoted = store.latest("promoted_model", None)
    routing = promoted.document("routing") if promoted and promoted.has("routing") else {}
    ranks = {domain: servable_adapter(folder).rank for domain, (_, folder) in parts.adapters.items()}
    return CardFacts(
        title=f"{parts.base_name} with experts for {', '.join(sorted(experts)) or 'no domain'}",
        base_name=parts.base_name,
        base_digest=parts.base_digest,
        base_licence=base_licence,
        licence=hub_licences([*known, NONE_STATED] if elsewhere else known),
        licences=owed.licences,
        credits=owed.credits,
        examples=owed.examples,
        domains=[
            ServedDomain(
                domain,
                experts[domain].digest if domain in experts else None,
                stated.get(domain, {}).get("reason", ""),
                decisions.get(domain, {}),
            )
            for domain in sorted({*stated, *experts})
        ],
        merged=parts.merged and parts.merged[0],
        router=router.document("report") if router is not None else {},
        routing=routing if router is not None else {},
        commands=vllm_commands(ranks, parts.base_name, parts.merged is not None, quantise),
        quantised=quantise,
        elsewhere=elsewhere,
    )


def _examples(store: ArtifactStore, experts: dict[str, Artifact], names: list[str]) -> pl.DataFrame:
    """Columns of the training splits behind the adapters; a round's result names no dataset of this store.

    Raises:
        InputError: one is no longer in the store, so that its licences and credits would lack on the card.
    """
    named = {domain: digest for domain, artifact in experts.items() if (digest := dataset_of(artifact))}
    datasets = {domain: dataset(store, domain, digest) for domain, digest in named.items()}
    if gone := [f"moe_dataset[{domain}] {named[domain]}" for domain, one in datasets.items() if one is None]:
        raise InputError(
            f"datasets behind the adapters are no longer in the store, and their licences are not known: "
            f"{', '.join(gone)}; `capibara run` trains anew, or put them back into its folder artifacts from a backup"
        )
    parts = [columns(one, "examples", names).filter(split="train") for one in datasets.values() if one]
    return pl.concat(parts) if parts else table(Example, []).select(names)


def _decision(store: ArtifactStore, domain: str, checkpoint: str) -> dict[str, Any]:
    """The latest decision about a checkpoint; empty if the store has none."""
    source = f"consensus_checkpoint|{domain}"
    about = [
        artifact
        for artifact in store.list("evaluation")
        if artifact.partition == domain and artifact.manifest.inputs.get("upstream", {}).get(source) == checkpoint
    ]
    return dict(about[-1].document("decision")) if about else {}


def _texts(store: ArtifactStore, experts: dict[str, Artifact], count: int) -> list[str]:
    """Training examples as plain text: the first by id, equally many per domain."""
    if not count:
        return []
    rows = _examples(store, experts, ["example_id", "domain", "messages", "split"]).sort("example_id")
    if rows.is_empty():
        raise InputError("the data behind the adapters are not in this store, to calibrate on: use --calibrate 0")
    each = -(-count // max(len(experts), 1))
    chosen = rows.group_by("domain", maintain_order=True).head(each).sort("domain", "example_id").head(count)
    return ["\n".join(message["content"] for message in json.loads(text)) for text in chosen["messages"]]


def _base_licence(folder: Path) -> str:
    """The licence in the front matter of the base model's card."""
    readme = folder / "README.md"
    match = _LICENCE.search(readme.read_text("utf-8")) if readme.is_file() else None
    return match[1] if match else NOT_STATED
