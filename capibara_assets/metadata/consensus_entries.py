"""Pages of the consensus assets: certificate, merged model, mixture of experts."""

from statistics import fmean
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
from capibara_assets.metadata.page import AssetPage, KeyFigure, Level, PageVerdict
from capibara_assets.metadata.tables import document, matrix, plot

if TYPE_CHECKING:
    from capibara_assets.consensus.agree import Agreement


def consensus_page(agreement: "Agreement") -> AssetPage:
    """Page of `consensus_checkpoint`: its certificate in words, tables and charts."""
    certificate = agreement.documents()["certificate"]
    return certificate_page(certificate, agreement.losses, agreement.distances)


def certificate_page(
    certificate: dict[str, Any], losses: dict[str, float], distances: dict[str, Any] | None = None
) -> AssetPage:
    """A certificate in words, tables and charts; `distances` are those between the voters that took part."""
    from capibara_assets.consensus.series import consensus_score  # what it imports for logs would slow every load

    names = [voter["name"] for voter in certificate["voters"]]
    score = consensus_score(certificate)
    return AssetPage(
        certificate_verdict(certificate),
        KeyFigure("loss", certificate["result"]["loss"], "less"),
        pictures={
            "validation_losses": plot(losses_chart(certificate, losses)),
            "ballots": plot(ballot_matrix(certificate)),
            "voter_distances": plot(distance_map(certificate, distances)),
            "weights": plot(weights_chart(certificate)),
        },
        contents={
            **({"consensus_score": score} if score is not None else {}),
            "verdicts": dg.MetadataValue.md(verdict_table(certificate)),
            "signatures": signature_words(certificate),
            "qualities": matrix(names, names, mean_qualities(certificate), corner="voter \\ candidate"),
        },
        records={"certificate": document(certificate, LONG_PARTS, "see certificate.json of the artifact")},
    )


def certificate_verdict(certificate: dict[str, Any]) -> PageVerdict:
    """Verdict of a consensus: bad if no better than the base; a warning if a voter was rejected or silent."""
    result, unusual = certificate["result"], [v["name"] for v in certificate["voters"] if not v["accepted"]]
    silent = sorted({*(certificate.get("absent") or ()), *(certificate.get("unconfirmed") or ())} - {*unusual})
    words = [outcome_words(certificate)]
    words += [f"rejected: {', '.join(unusual)}"] * bool(unusual)
    words += [f"absent or without a confirmation: {', '.join(silent)}"] * bool(silent)
    level: Level = "bad" if not result["loss"] < result["base_loss"] else "look" if unusual or silent else "good"
    return PageVerdict(level, "; ".join(words))


def merge_page(report: dict[str, Any]) -> AssetPage:
    """Page of `merged_checkpoint`: losses per domain, and interference between experts."""
    experts, disturbed, arms = sorted(report["weights"]), report["interference"], report["losses"]
    losses = {(d, arm): arms[arm][d] for d in experts for arm in ("base", "merged")}
    changes = {(d, e): disturbed[d][e] for d in experts for e in experts}
    base, merged = (fmean(arms[arm][d] for d in experts) for arm in ("base", "merged"))
    worse = [domain for domain in experts if not arms["merged"][domain] < arms["base"][domain]]
    words = f"mean loss {merged:.4f} over {len(experts)} domains, base {base:.4f}"
    if worse:
        words += f"; not better than the base: {', '.join(worse)}"
    return AssetPage(
        PageVerdict("bad" if not merged < base else "look" if worse else "good", words),
        KeyFigure("mean_loss", merged, "less"),
        pictures={
            "interference_plot": plot(
                heat_map(experts, experts, changes, "change of loss (column) by an expert (row)", around_zero=True)
            )
        },
        contents={
            "losses": matrix(experts, ("base", "merged"), losses, corner="domain"),
            "interference": matrix(experts, experts, changes, corner="expert \\ change of the domain's loss"),
            "experts": dg.MetadataValue.json(experts),
        },
        records={"report": dg.MetadataValue.json(report)},
    )


def mixture_page(report: dict[str, Any]) -> AssetPage:
    """Page of `moe_checkpoint`: losses per domain, training of the gates, utilisation, and dead experts."""
    if not report.get("made", True):
        why = PageVerdict("look", f"no mixture was made: {report['why']}")
        return AssetPage(why, records={"report": dg.MetadataValue.json(report)})
    experts, trained = report["experts"], report["training"]
    losses = {(d, arm): loss for d, row in report.get("losses", {}).items() for arm, loss in row.items()}
    means = report.get("mean_losses", {})
    losses |= {("mean", arm): loss for arm, loss in means.items()}
    dead = [*report["dead"], *(f"{name} in layers {layers}" for name, layers in report["dead_in"].items())]
    pictures = {"utilisation": plot(bar_chart(report["utilisation"], "share of routed tokens"))}
    gates: dict[str, dg.MetadataValue] = {}
    if trained:
        shares = {d: [(line["step"], line["utilisation"][d]) for line in trained["log"]] for d in experts}
        gates = {"gates": dg.MetadataValue.json({name: trained[name] for name in ("steps", "kept", "mean_loss")})}
        pictures["gates_plot"] = plot(line_chart(shares, "step", "share of routed tokens"))
    mixed = means.get(f"moe_top{report['top_k']}")
    return AssetPage(
        _mixture_verdict(report),
        None if mixed is None else KeyFigure("mean_loss", mixed, "less"),
        pictures,
        contents={
            "losses": matrix([*experts, "mean"], list(means), losses, corner="domain"),
            "dead_experts": dg.MetadataValue.text(", ".join(dead) or "none"),
            # Numbers of their own: Dagster draws them over the materializations
            **{f"expert_utilization {name}": float(share) for name, share in report["utilisation"].items()},
            "experts": dg.MetadataValue.json(experts),
            **gates,
        },
        records={"report": dg.MetadataValue.json(report)},
    )


def _mixture_verdict(report: dict[str, Any]) -> PageVerdict:
    from capibara_assets.consensus.mixture.moe import mixture_problems, unused_experts

    if problems := mixture_problems(report, report["experts"]):
        return PageVerdict("bad", "; ".join(problems))
    if unused := unused_experts(report):
        return PageVerdict("look", "; ".join(unused))
    return PageVerdict("good", f"{len(report['experts'])} experts, all of them receive tokens")
