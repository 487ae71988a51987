"""The report of a run as one HTML page: verdicts, tasks, data, voters, time, lineage; details are folded."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from capibara_assets.datasets.schema import SPLITS
from capibara_assets.domains import DOMAINS, WHOLE
from capibara_assets.escaping.pages import html_page
from capibara_assets.evaluation.report import metric_of
from capibara_assets.metadata import heat_map
from capibara_assets.metadata.report_charts import (
    Bar,
    Stage,
    Stream,
    Whisker,
    clock,
    common_ends,
    flow,
    gantt,
    whisker,
)

VERDICTS = {
    "promote": ("good", "promoted"),
    "reject": ("bad", "not promoted"),
    "inconclusive": ("look", "not decided"),
}
NOT_JUDGED = ("look", "not judged")
GROUPS = ("experience", "knowledge", "datasets", "plans", "training", "consensus", "evaluation")
REASONS = 3  # reasons for leaving executions out that a domain's row names
Report = Mapping[str, Any]


def write_html(report: Report, path: Path) -> Path:
    """Write the report as one self-contained HTML page; returns its path."""
    matrix = {(e, d): loss for e, losses in report["loss_matrix"].items() for d, loss in losses.items()}
    names = [domain.value for domain in DOMAINS if domain in report["loss_matrix"]]
    steps = report.get("steps", [])
    values = {
        "report": report,
        "headline": headline(report),
        "rows": verdict_rows(report),
        "answered": answered_words(report),
        "flow": drawn_flow(report),
        "data": data_rows(report),
        "unusual": unusual_voters(report),
        "voters": [(name, voter) for name, domain in report["domains"].items() for voter in domain["voters"]],
        "gantt": gantt([_bar(step) for step in steps], GROUPS, float(report["seconds"])),
        "groups": [(f"g{number}", group) for number, group in enumerate(GROUPS) if group in _groups(steps)],
        "started": _moment(report["started"]),
        "took": clock(report["seconds"]),
        "before": before_words(report),
        "longest": [(_step_name(step), clock(step["seconds"])) for step in _longest(steps)],
        "losses": [(name, [_loss(domain, arm) for arm in ARMS]) for name, domain in report["domains"].items()],
        "matrix": heat_map(names, names, matrix) if names else "",
        "failures": report.get("failures", {}),
    }
    page = html_page("capibara_assets.cli", "report.html.jinja", values)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, "utf-8")
    return path


ARMS = ("base", "playbook", "consensus", "merged")


def headline(report: Report) -> str:
    """Summary of the run in a sentence: improved domains, others, and failures."""
    by_word: dict[str, list[str]] = {}
    for name, domain in report["domains"].items():
        by_word.setdefault(VERDICTS.get(domain["verdict"], NOT_JUDGED)[1], []).append(name)
    words = [f"{', '.join(names)}: {word}" for word, names in by_word.items()]
    if failed := len(report.get("failures", {})):
        words.append(f"{failed} step{'s' * (failed > 1)} failed")
    return "; ".join(words) or "no domain"


def verdict_rows(report: Report) -> list[dict[str, Any]]:
    """A row per domain: verdict, gain with its interval on an axis that all share, pass@1 and loss before and after."""
    gains = {name: domain["gain"] for name, domain in report["domains"].items()}
    whiskers = {name: Whisker(gain["low"], gain["estimate"], gain["high"]) for name, gain in gains.items() if gain}
    ends = common_ends(list(whiskers.values()))
    rows, before = [], report["before"]
    for name, domain in report["domains"].items():
        level, word = VERDICTS.get(domain["verdict"], NOT_JUDGED)
        drawn, gain = whiskers.get(name), gains[name]
        rows.append(
            {
                "domain": name,
                "level": level,
                "word": word,
                "why": domain["reason"],
                "whisker": whisker(drawn, ends, level) if drawn else "",
                "gain": _gain_words(gain) if gain else "not measured",
                "passed": passed_words(domain["pass_at_1"].get("pass@1", {})),
                "loss": f"{_loss(domain, 'base')} → {_loss(domain, 'consensus')}",
                "before": compared_words(domain, before["domains"].get(name)) if before else "–",
            }
        )
    return rows


def _gain_words(gain: Mapping[str, Any]) -> str:
    metric = metric_of(gain["metric"])
    what = f"points of {metric.title}" if metric.direction == "higher" else f"of the {metric.title} saved"
    sign = "" if metric.direction == "higher" else " %"
    low, high = (f"{gain[end] * 100:+.1f}" for end in ("low", "high"))
    return f"{gain['estimate'] * 100:+.1f}{sign} {what} ({low} to {high}; {gain['items']} tasks)"


def passed_words(passed: Mapping[str, float]) -> str:
    """Format pass@1 as `10 % → 25 % of 64 tasks`; a dash if nothing was graded."""
    if not passed:
        return "–"
    return f"{passed['base']:.0%} → {passed['consensus']:.0%} of {passed['items']} tasks"


def compared_words(domain: Mapping[str, Any], earlier: Mapping[str, Any] | None) -> str:
    """Changes since the previous run: verdict, gain (if the same metric decided), and loss."""
    if earlier is None:
        return "not in the run before"
    words = []
    if earlier["verdict"] != domain["verdict"]:
        words.append(f"was {VERDICTS.get(earlier['verdict'], NOT_JUDGED)[1]}")
    now, then = domain["gain"], earlier["gain"]
    if now and then and now["metric"] == then["metric"] and now["estimate"] != then["estimate"]:
        words.append(f"gain {(now['estimate'] - then['estimate']) * 100:+.1f} points")
    if domain["consensus_loss"] != earlier["consensus_loss"]:
        words.append(f"loss was {_number(earlier['consensus_loss'])}")
    if domain["examples"] != earlier["examples"]:
        words.append(f"{domain['examples'] - earlier['examples']:+,} examples")
    return ", ".join(words) or "as before"


def before_words(report: Report) -> str:
    """The previous run and its duration; empty if there was none."""
    before = report["before"]
    return (
        f"The run before was that of {_moment(before['started'])}; it took {clock(before['seconds'])}."
        if before
        else ""
    )


def _moment(written: str) -> str:
    """`2026-11-20 08:00 UTC` of an ISO time in UTC."""
    return f"{written[:16].replace('T', ' ')} UTC"


def answered_words(report: Report) -> str:
    """Number of tasks that base and consensus solved, each alone and together; empty if none was graded."""
    total = dict.fromkeys(("gained", "lost", "both", "neither"), 0)
    for domain in report["domains"].values():
        for change, count in domain["answered"].items():
            total[change] += count
    if not any(total.values()):
        return ""
    return (
        f"Of {sum(total.values())} graded tasks, the consensus alone solved {total['gained']}, the base alone "
        f"{total['lost']}, both {total['both']} and neither {total['neither']} (first answers)."
    )


def drawn_flow(report: Report) -> str:
    """Diagram from read input to each domain's executions and examples; left-out parts leave the flow."""
    read = report["read"]
    if not read:
        return ""
    others = {"duplicates": read["duplicates"], "not executions": sum(read["known"].values())}
    others = {name: count for name, count in {**others, "quarantined": read["quarantined"]}.items() if count}
    domains = {name: domain["executions"] for name, domain in report["domains"].items() if domain["executions"]}
    unused = {name: min(sum(report["domains"][name]["left_out"].values()), count) for name, count in domains.items()}
    kept, lost = sum(domains.values()) - sum(unused.values()), sum(unused.values())
    total = read["executions"] + sum(others.values())
    if (elsewhere := read["executions"] - sum(domains.values())) > 0:
        domains["other domains"] = elsewhere
    stages = [
        Stage("read from logs", {"records": total}),
        Stage("what they are", {"executions": read["executions"], **others}, frozenset(others)),
        Stage("of the domain", domains, frozenset({"other domains"})),
        Stage("used", {"in examples": kept, "left out": lost}, frozenset({"left out"})),
    ]
    streams = [Stream(0, "records", name, count) for name, count in stages[1].parts.items()]
    streams += [Stream(1, "executions", name, count) for name, count in domains.items()]
    streams += [Stream(2, name, "in examples", domains[name] - count) for name, count in unused.items()]
    streams += [Stream(2, name, "left out", count) for name, count in unused.items()]
    return flow(stages, streams)


def data_rows(report: Report) -> list[dict[str, Any]]:
    """A row per domain: executions, examples by split, and the commonest reasons for leaving executions out."""
    rows = []
    for name, domain in report["domains"].items():
        reasons = sorted(domain["left_out"].items(), key=lambda one: (-one[1], one[0]))
        rows.append(
            {
                "domain": name,
                "executions": f"{domain['executions']:,}",
                "quarantined": f"{domain['quarantined']:,}",
                "examples": f"{domain['examples']:,}",
                "splits": ", ".join(
                    f"{domain['splits'][split]:,} {split}" for split in SPLITS if split in domain["splits"]
                ),
                "reasons": [f"{count:,} {reason}" for reason, count in reasons[:REASONS]],
                "further": sum(count for _, count in reasons[REASONS:]),
            }
        )
    return rows


def unusual_voters(report: Report) -> list[tuple[str, str, str]]:
    """Domain, voter and reason of each voter that was not accepted."""
    return [
        (name, voter["name"], voter["reason"])
        for name, domain in report["domains"].items()
        for voter in domain["voters"]
        if not voter["accepted"]
    ]


def _loss(domain: Mapping[str, Any], arm: str) -> str:
    return _number(domain[f"{arm}_loss"])


def _number(value: float | None) -> str:
    return "–" if value is None or not math.isfinite(value) else f"{value:.3f}"


def _bar(step: Mapping[str, Any]) -> Bar:
    row = "all" if step["partition"] == WHOLE else step["partition"]
    return Bar(row, step["asset"], step["group"], step["start"], step["seconds"])


def _step_name(step: Mapping[str, Any]) -> str:
    return step["asset"] + ("" if step["partition"] == WHOLE else f"[{step['partition']}]")


def _longest(steps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(steps, key=lambda step: -step["seconds"])[:8]


def _groups(steps: Sequence[Mapping[str, Any]]) -> set[str]:
    return {step["group"] for step in steps}
