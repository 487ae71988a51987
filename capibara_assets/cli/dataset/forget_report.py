"""The report of `capibara forget`: what was deleted and rewritten, what remains, and what is made again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from capibara_assets.executions.formats.agents.places import in_file

_MOST_SHOWN = 40  # ids and lines of logs, in the report for people


@dataclass(frozen=True)
class ForgetReport:
    """Items that `capibara forget` deleted and rewrote, or with `dry_run` would."""

    dry_run: bool
    tenant: str | None
    """The one that is forgotten, with records that arrive later."""
    forgotten: tuple[str, ...]
    forgotten_before: tuple[str, ...]
    sources: tuple[dict[str, Any], ...]
    """The user's lines, unchanged: {execution_id, file, line}."""
    quarantined: int
    domains: tuple[str, ...]
    removed: tuple[str, ...]
    """Artifacts: `asset[partition] digest`."""
    checkpoints: tuple[str, ...]
    """Those trained on removed datasets, and those no remaining result names: `model@version id`."""
    ledgers: tuple[str, ...]
    work: tuple[str, ...]
    history: dict[str, int]
    """Database -> values rewritten."""
    logs: tuple[str, ...]
    saw_it: tuple[dict[str, Any], ...]
    """Voters whose adapters trained on it: {domain, voter, digest, artifact, dataset, part, current}."""
    stale: tuple[str, ...]
    """Current results that the next run makes again: `asset[partition] digest`."""
    left: tuple[str, ...]
    """Where a trace remains, and why."""
    failures: dict[str, str]
    unread: tuple[dict[str, Any], ...] = ()
    """What may have held it and cannot be read: {asset, partition, digest, why, of: what names it}."""


def as_text(report: ForgetReport) -> str:
    """The report as text for the terminal."""
    would = "would be " if report.dry_run else ""
    lines = []
    if report.tenant is not None:
        lines.append(f"tenant {report.tenant} {would}forgotten, with the records of it that arrive later")
    if report.forgotten:
        lines.append(f"{would}forgotten: {_ids(report.forgotten)}")
    if report.forgotten_before:
        lines.append(f"forgotten before: {_ids(report.forgotten_before)}")
    parts = (
        (f"{would}removed from the store", report.removed),
        (f"checkpoints {would}deleted", report.checkpoints),
        ("ledgers that would be purged" if report.dry_run else f"ledger generations {would}deleted", report.ledgers),
        (f"work and caches {would}deleted", report.work),
        (f"values {would}rewritten in Dagster's history", [f"{n} in {where}" for where, n in report.history.items()]),
        (f"logs and pages {would}rewritten", report.logs),
    )
    for title, items in parts:
        if items:
            lines += [f"{title}: {len(items)}", *(f"  {item}" for item in items)]
    if report.quarantined:
        lines.append(f"quarantined lines that hold it, {would}dropped: {report.quarantined}")
    seen = sorted({f"{one['domain']}/{one['voter']} {one['digest'][:12]} ({one['part']})" for one in report.saw_it})
    found = len(seen) or ("none found, see NOT CHECKED" if report.unread else "none")
    lines += [f"adapters that saw it: {found}", *(f"  {one}" for one in seen)]
    lines += [f"stale, made again by `capibara run`: {len(report.stale) or 'nothing'}"]
    lines += [f"  {one}" for one in report.stale]
    if report.sources:
        lines.append("your files still hold it; delete or edit it there yourself (it will not be read again):")
        lines += _places_of(report.sources)
    if not (report.dry_run or report.left or report.unread):
        lines.append("searched once more, wherever it may have been: nothing of it is left")
    lines += [f"NOT GONE: {one}" for one in report.left]
    if report.left and not report.dry_run:
        lines.append("delete what is named there yourself, and run this once more")
    lines += _not_checked(report.unread)
    lines += [f"FAILED when made again without it: {name}: {message}" for name, message in report.failures.items()]
    return "\n".join(lines)


def _not_checked(unread: Sequence[dict[str, Any]]) -> list[str]:
    from capibara_assets.storage.manifest import title_of

    lines = []
    for one in unread:
        what = title_of(one["asset"], one["partition"])
        lines.append(f"NOT CHECKED: {what} {one['digest']} ({one['why']}): whether it held a record is not known")
        if one["of"]:
            lines.append(f"made from it, and kept, unless it stands above: {len(one['of'])}")
            lines += [f"  {name}" for name in one["of"][:_MOST_SHOWN]]
            more = len(one["of"]) - _MOST_SHOWN
            lines += [f"  and {more} more (--json names them)"] if more > 0 else []
    if unread:
        lines.append(
            "put it back into the store's folder artifacts from a backup, and run this once more; without a backup "
            "`capibara run` makes anew what counts now, and what else was made from it is yours to delete"
        )
    return lines


def _ids(names: Sequence[str]) -> str:
    more = len(names) - _MOST_SHOWN
    return ", ".join(names[:_MOST_SHOWN]) + (f" and {more} more (--json names them)" if more > 0 else "")


def _places_of(sources: Sequence[dict[str, Any]]) -> list[str]:
    if len(sources) <= _MOST_SHOWN:
        return [f"  {in_file(**one)}  {one['execution_id']}" for one in sources]
    by_file: dict[str, list[int]] = {}
    for one in sources:
        by_file.setdefault(one["file"], []).append(one["line"])
    return [
        f"  {file}  {len(lines)} records, in lines {min(lines)} to {max(lines)} (--json names each)"
        for file, lines in sorted(by_file.items())
    ]
