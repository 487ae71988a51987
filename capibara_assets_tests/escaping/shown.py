"""What the pipeline's own functions show of one text, put into every place that may be foreign."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import polars as pl

from capibara_assets.cli.dataset.audit import page as audit_page
from capibara_assets.cli.graph.report_page import write_html
from capibara_assets.cli.training.compare_epochs import _page as epochs_page
from capibara_assets.domains import Domain
from capibara_assets.evaluation.report import Comparison, ReportSource, ShownAnswer, WorstExample
from capibara_assets.evaluation.serving.model_card import ServedDomain
from capibara_assets.evaluation.serving.model_card import card as served_card
from capibara_assets.launching.live import progress_table
from capibara_assets.lineage.attribution import Attribution
from capibara_assets.lineage.card import CardSubject, card
from capibara_assets.metadata.charts import bar_chart, heat_map, line_chart
from capibara_assets.metadata.consensus_entries import certificate_page
from capibara_assets.metadata.dataset_entries import dataset_page
from capibara_assets.metadata.evaluation_entries import evaluation_asset_page
from capibara_assets.metadata.evaluation_page import page as evaluation_page
from capibara_assets.metadata.plan_charts import figures_table, reasons_table
from capibara_assets.metadata.tables import counts, matrix, preview
from capibara_assets.metadata.training_entries import decision_entries, slice_entries
from capibara_assets_tests.cli.graph.test_report import RECORD
from capibara_assets_tests.evaluation.serving.test_model_card import FACTS, GAIN
from capibara_assets_tests.metadata.test_consensus_charts import certificate, losses
from capibara_assets_tests.metadata.test_evaluation_charts import LOSS, interval, report
from capibara_assets_tests.metadata.test_training_entries import STEP

WORD = "word"


def metadata(text: str) -> dict[str, str]:
    """Markdown that Dagster or the Hub renders, by place."""
    shown: dict[str, Any] = {
        "counts": counts({text: 3, "b": 1}),
        "matrix": matrix([text, "b"], [text, "c"], {(text, text): 1.0}, corner="a"),
        "progress": progress_table([{"voter": text, "state": text}, {"voter": "b", "state": "training"}]),
        "reasons": reasons_table({text: text, "b": [text]}, {text: text, "c": text}),
        "figures": figures_table([(text, text, text)]),
        **_entries("dataset", dataset_page(cast(Any, _dataset(text))).entries()),
        **_entries("evaluation", evaluation_asset_page(_evaluated(text), text, 5).entries()),
        **_entries("certificate", _certificate(text)),
        **_entries("decided", decision_entries({"planned": {"decisions": [dict.fromkeys(_DECISION, text)]}})),
        **_entries("slice", slice_entries({text: STEP | {"device": text, "peak_note": text}})),
        "card": _body(card(_subject(text), _owed(text))),
        "served": _body(_served(text)),
    }
    return {place: getattr(one, "md_str", one) or "" for place, one in shown.items()}


def table_of(text: str) -> dg.TableMetadataValue:
    """A table that Dagster shows."""
    return preview(pl.DataFrame({"code": [text], "list": [[text]], "known": [text]}), ["code", "list", "known"])


def table_cells(text: str) -> list[Any]:
    """Cells of tables that Dagster shows as text."""
    return [cell for record in table_of(text).records for cell in record.data.values()]


def pages(text: str, folder: Path) -> dict[str, str]:
    """HTML pages that the commands write, by name."""
    row = dict.fromkeys(("executions", "quarantined", "examples"), 1) | {"seconds": 1.0, "verdict": text}
    row |= dict.fromkeys(("base_loss", "playbook_loss", "consensus_loss", "merged_loss"), 1.0) | {"pass_at_1": {}}
    row |= {"voters": [{"name": text, "accepted": False, "reason": text}], "reason": text, "answered": {}}
    row |= {"left_out": {text: 1}, "splits": {text: 1}, "gain": GAINED | {"metric": text}}
    run = RECORD | {"experience": text, "profile": text, "quarantined": 1, "failures": {text: text}}
    run |= {"not_read": {"said": text}}
    run |= {"domains": {text: row}, "loss_matrix": {"python": {"python": 1.0}}, "checkpoints": {text: text}}
    run |= {"promotion": {text: {"verdict": text, "reason": text}}, "read": READ, "before": BEFORE | {"started": text}}
    answers = {name: {"verdict": text, "text": text} for name in ("base", "consensus")}
    run |= {"examples": [{"domain": text, "change": "gained", "prompt": text, "answers": answers}]}
    run |= {"steps": [{"asset": text, "partition": text, "group": text, "start": 0.0, "seconds": 61.5}]}
    example = dict.fromkeys(("example_id", "kind", "language", "source", "split", "verified", "derived"), text)
    spoken = [{"role": text, "content": f"{text}\n```python\n{text}\n```"}, {"role": "assistant", "content": text}]
    sample = SimpleNamespace(row=example | {"test": text, "proof": text, "messages": json.dumps(spoken)}, why=text)
    verdict = SimpleNamespace(example_id=text, domain=Domain.PYTHON, verdict="drop", reason=text)
    rows = cast(Any, [{"kind": text, "source": text, "examples": 3, "judged": 0.5}])
    epoch = SimpleNamespace(name=text, step=1, train_loss=1.0, loss=interval(1.0), over_kept=None, p_value=None)
    compared = SimpleNamespace(rows=(epoch,), keep=text, verdict=text, examples=1, groups=1)
    return {
        "report": write_html(run, folder / "report.html").read_text("utf-8"),
        "audit": audit_page(
            {Domain.PYTHON: rows}, cast(Any, {Domain.PYTHON: [sample]}), cast(Any, [verdict]), {Domain.PYTHON: [text]}
        ),
        "evaluation": evaluation_page(_evaluated(text)),
        "epochs": epochs_page(text, cast(Any, {text: (compared, {text: {text: text}})})),
    }


def drawings(text: str) -> dict[str, str]:
    """SVG charts, by kind."""
    return {
        "bars": bar_chart({text: 1.0, "b": 2.0}, text),
        "lines": line_chart({text: [(0, 1.0), (1, 2.0)]}, text, text),
        "heat": heat_map([text], [text], {(text, text): 1.0}, text),
    }


READ = {"executions": 3, "duplicates": 1, "quarantined": 1, "known": {"chat": 1}}
GAINED = {"estimate": 0.1, "low": 0.0, "high": 0.2, "items": 3}
BEFORE: dict[str, Any] = {"seconds": 1.0, "domains": {}}
_DECISION = ("name", "value", "by", "reason")


def _entries(name: str, entries: Any) -> dict[str, Any]:
    return {f"{name}: {key}": one for key, one in entries.items() if isinstance(one, dg.MarkdownMetadataValue)}


def _body(card_with_front_matter: str) -> str:
    return card_with_front_matter.split("\n---\n", 1)[1]


def _dataset(text: str) -> SimpleNamespace:
    examples = pl.DataFrame(
        {"split": [text], "kind": [text], "difficulty": [0.5], "quality": [0.5], "messages": [text]}
    )
    row = {"kind": text, "source": text, "examples": 3, "judged": 0.5}
    figures: dict[str, Any] = {name: {} for name in ("audit", "verified", "duplicates", "advice", "poison")} | {
        "contaminated": {"examples": 0}
    }
    figures |= cast(Any, {"quality_report": [row, row], "missing": [text, text]})
    left_out = pl.DataFrame({"reason": [text]})
    return SimpleNamespace(examples=examples, statistics=figures, left_out=left_out, reexecution={})


def _evaluated(text: str) -> Any:
    difference = interval(0.2).model_copy(update={"p_value": 0.5, "detectable": 0.1})
    answers = (ShownAnswer(text, 1.0, text, text, text),)
    return report(
        title=text, verdict=text, paragraph=text, judged=text, notes=[text, text], settings={text: text},
        figures={"base": {LOSS: interval(2.0)}, text: {LOSS: interval(1.0)}},
        comparisons=[Comparison(LOSS, text, "base", difference, 0.5)], curves={text: [(0, 1.0), (1, 2.0)]},
        sources=[ReportSource(text, "3f2c", "/assets/a", text), ReportSource(text, text, "", text)],
        worst=[WorstExample(text, text, text, text, text, text, answers)],
    )  # fmt: skip


def _certificate(text: str) -> Any:
    document = certificate(4, outvoted=(1,))
    for part in (*document["voters"], *document["ballots"], *document["tallies"]):
        part |= {key: text for key in ("name", "voter", "candidate") if part.get(key) == "voter-0"}
    document["voters"][1]["reason"] = text
    document["evidence"]["order"] = [text if name == "voter-0" else name for name in document["evidence"]["order"]]
    return certificate_page(document, losses(document)).entries()


def _subject(text: str) -> CardSubject:
    return CardSubject(text, "What it is.", "peft", text, text, "The proof.", {text: text}, (text,))


def _owed(text: str) -> Attribution:
    return Attribution(1, 1, 1, {text: 1}, {text: 1}, {text: 1}, {(text, "CC-BY-4.0"): 1}, {text: 1})


def _served(text: str) -> str:
    domains = [ServedDomain("python", "p" * 64, text, {"verdict": text, "gain": GAIN})]
    return served_card(
        replace(
            FACTS, title=text, base_name=text, base_licence=text, licences={text: 1}, credits=[text], domains=domains,
            router=FACTS.router | {"experts": [text]}, commands={"experts": text}, merged="a" * 64, quantised=[text],
        )
    )  # fmt: skip
