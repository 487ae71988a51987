"""Time series of votes and mixtures, made from published artifacts in the format of training logs.

`consensus_score` runs over a domain's consensus checkpoints in the order of their publication, `expert_utilization`
over the steps in which a mixture's gates were trained; dashboards and exporters show them beside the trainings.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from capibara_assets.storage.jsonfiles import write_bytes_atomic
from capibara_assets.training.monitoring.events import EVENTS
from capibara_assets.training.monitoring.logs import Log, RunInfo
from capibara_assets.training.monitoring.views import FIGURES

if TYPE_CHECKING:
    from capibara_assets.storage.artifact import Artifact
    from capibara_assets.storage.store import ArtifactStore

Document = Mapping[str, Any]


def consensus_score(certificate: Document) -> float | None:
    """Mean quality that the electors gave the accepted voters: 1 is the best, 0 no better than the base.

    Each accepted voter counts once, by the mean over its ballots that count; None without any.
    """
    scores = [score for name, score in qualities(certificate).items() if name in accepted_voters(certificate)]
    return fmean(scores) if scores else None


def accepted_voters(certificate: Document) -> list[str]:
    """Names of the accepted voters."""
    return [voter["name"] for voter in certificate["voters"] if voter["accepted"]]


def qualities(certificate: Document) -> dict[str, float]:
    """Mean quality of each candidate over the valid ballots."""
    heard = {tally["candidate"]: {*tally["accepting"], *tally["refusing"]} for tally in certificate["tallies"]}
    given: dict[str, list[float]] = {}
    for ballot in certificate["ballots"]:
        if ballot["voter"] in heard.get(ballot["candidate"], ()):
            given.setdefault(ballot["candidate"], []).append(ballot["quality"])
    return {name: fmean(own) for name, own in sorted(given.items())}


def consensus_events(votes: Iterable["Artifact"]) -> list[dict[str, Any]]:
    """One event per `consensus_checkpoint` of a domain, in order."""
    events = []
    for number, artifact in enumerate(votes, start=1):
        certificate, losses = artifact.document("certificate"), artifact.document("losses")
        figures = {f"consensus/quality/{name}": value for name, value in qualities(certificate).items()}
        figures |= {f"consensus/loss/{name}": value for name, value in losses.items() if value is not None}
        figures["consensus/accepted_voters"] = len(accepted_voters(certificate))
        if (score := consensus_score(certificate)) is not None:
            figures["consensus_score"] = score
        events.append(_event(f"consensus/{artifact.partition}", number, artifact, figures))
    return events


def mixture_events(mixture: "Artifact") -> list[dict[str, Any]]:
    """Events of the gate training of a `moe_checkpoint`; without training, only their utilisation."""
    report = mixture.document("report")
    trained = (report.get("training") or {}).get("log") or []
    lines = trained or [{"step": 0, "utilisation": report.get("utilisation", {})}]
    events = []
    for line in lines:
        figures = {f"expert_utilization/{name}": share for name, share in line["utilisation"].items()}
        figures |= {f"gates/{name}": line[name] for name in ("loss", "balance") if name in line}
        events.append(_event(f"moe/{mixture.digest[:16]}", line["step"], mixture, figures))
    return [event for event in events if event["figures"]]


def result_logs(store: "ArtifactStore", folder: Path) -> list[Log]:
    """Write the series of a store's votes and newest mixture as logs below a folder; unchanged ones are kept."""
    by_domain: dict[str, list[Artifact]] = {}
    for artifact in store.list("consensus_checkpoint"):
        by_domain.setdefault(str(artifact.partition), []).append(artifact)
    series = {f"consensus/{domain}": consensus_events(votes) for domain, votes in by_domain.items()}
    if (mixture := store.latest("moe_checkpoint", None)) is not None:
        series[f"moe_checkpoint/{mixture.digest[:8]}"] = mixture_events(mixture)
    logs = []
    for name, events in series.items():
        if not events:
            continue
        file = folder / name / EVENTS
        text = "".join(json.dumps(event, allow_nan=False) + "\n" for event in events).encode()
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_file() or file.read_bytes() != text:
            write_bytes_atomic(file, text)
        logs.append(Log(file, RunInfo(events[0]["run"], name, 1)))
    return logs


def _event(run: str, step: int, artifact: "Artifact", figures: Mapping[str, float]) -> dict[str, Any]:
    time = datetime.fromisoformat(artifact.manifest.created).timestamp()
    return {"run": run, "attempt": 1, "step": step, "event": FIGURES, "time": time, "figures": dict(figures)}
