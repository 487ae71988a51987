"""Metadata of the consensus assets: certificate, merged model, mixture of experts."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from capibara_assets.metadata.charts import bar_chart, heat_map, line_chart
from capibara_assets.metadata.consensus_charts import (
    LONG_PARTS,
    ballot_matrix,
    distance_map,
    losses_chart,
    mean_qualities,
    outcome_words,
    signature_words,
    verdict_table,
    weights_chart,
)
from capibara_assets.metadata.tables import document, matrix, plot

if TYPE_CHECKING:
    from capibara_assets.consensus.agree import Agreement


def consensus_entries(agreement: "Agreement") -> dict[str, dg.MetadataValue | int | float | str]:
    """Metadata of `consensus_checkpoint`: its certificate in words, tables and charts."""
    certificate = agreement.documents()["certificate"]
    return certificate_entries(certificate, agreement.losses, agreement.distances)


def certificate_entries(
    certificate: dict[str, Any], losses: dict[str, float], distances: dict[str, Any] | None = None
) -> dict[str, dg.MetadataValue | int | float | str]:
    """A certificate in words, tables and charts; `distances` are those between the voters that took part."""
    from capibara_assets.consensus.series import consensus_score  # what it imports for logs would slow every load

    names = [voter["name"] for voter in certificate["voters"]]
    score = consensus_score(certificate)
    return {
        **({"consensus_score": score} if score is not None else {}),
        "outcome": outcome_words(certificate),
        "verdicts": dg.MetadataValue.md(verdict_table(certificate)),
        "signatures": signature_words(certificate),
        "ballots": plot(ballot_matrix(certificate)),
        "qualities": matrix(names, names, mean_qualities(certificate), corner="voter \\ candidate"),
        "voter_distances": plot(distance_map(certificate, distances)),
        "weights": plot(weights_chart(certificate)),
        "validation_losses": plot(losses_chart(certificate, losses)),
        "certificate": document(certificate, LONG_PARTS, "see certificate.json of the artifact"),
    }


def merge_entries(report: dict[str, Any]) -> dict[str, dg.MetadataValue]:
    """Metadata of `merged_checkpoint`: losses per domain, and interference between experts."""
    experts, disturbed = sorted(report["weights"]), report["interference"]
    losses = {(d, arm): report["losses"][arm][d] for d in experts for arm in ("base", "merged")}
    changes = {(d, e): disturbed[d][e] for d in experts for e in experts}
    return {
        "experts": dg.MetadataValue.json(experts),
        "losses": matrix(experts, ("base", "merged"), losses, corner="domain"),
        "interference": matrix(experts, experts, changes, corner="expert \\ change of the domain's loss"),
        "interference_plot": plot(
            heat_map(experts, experts, changes, "change of loss (column) by an expert (row)", around_zero=True)
        ),
        "report": dg.MetadataValue.json(report),
    }


def mixture_entries(report: dict[str, Any]) -> dict[str, dg.MetadataValue | float]:
    """Metadata of `moe_checkpoint`: losses per domain, training of the gates, utilisation, and dead experts."""
    if not report.get("made", True):
        return {"report": dg.MetadataValue.json(report)}
    experts, trained = report["experts"], report["training"]
    losses = {(d, arm): loss for d, row in report["losses"].items() for arm, loss in row.items()}
    losses |= {("mean", arm): loss for arm, loss in report["mean_losses"].items()}
    dead = [*report["dead"], *(f"{name} in layers {layers}" for name, layers in report["dead_in"].items())]
    shown: dict[str, dg.MetadataValue | float] = {
        # Numbers of their own: Dagster draws them over the materializations
        **{f"expert_utilization {name}": float(share) for name, share in report["utilisation"].items()},
        "experts": dg.MetadataValue.json(experts),
        "losses": matrix([*experts, "mean"], list(report["mean_losses"]), losses, corner="domain"),
        "dead_experts": dg.MetadataValue.text(", ".join(dead) or "none"),
        "utilisation": plot(bar_chart(report["utilisation"], "share of routed tokens")),
        "report": dg.MetadataValue.json(report),
    }
    if trained:
        shares = {d: [(line["step"], line["utilisation"][d]) for line in trained["log"]] for d in experts}
        shown["gates"] = dg.MetadataValue.json({name: trained[name] for name in ("steps", "kept", "mean_loss")})
        shown["gates_plot"] = plot(line_chart(shares, "step", "share of routed tokens"))
    return shown
