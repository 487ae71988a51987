"""How the answers to one item are run, and which verdict a run gives."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from capibara_assets.datasets.assertions.assertions import (
    Observed,
    Reports,
    claims_suffice,
    first_failing,
    reports_in,
    unreported,
)
from capibara_assets.datasets.assertions.outside import observed
from capibara_assets.datasets.assertions.plain_values import NotPlain, Plain, decoded
from capibara_assets.evaluation.grading.sql_rows import SqlRun
from capibara_assets.evaluation.items.items import Item
from capibara_assets.executions.replay.verdicts import output_of, stream_text
from capibara_assets.executions.replay.workers import Ran, Session

Verdict = Literal["passed", "failed", "error", "timeout", "refused", "ungraded"]
#: How answer and tests stand to each other: two cells, or one (the recorded output is that of both); or two cells whose
#: output does not count, where the recorded one is that of neither (a display before tests of a later cell).
Layout = Literal["apart", "joined", "unseen"]

_ENDS: dict[str, tuple[Verdict, str]] = {
    "cpu": ("timeout", "used up its CPU seconds"),
    "wall": ("timeout", "ran past its wall clock, also alone"),
    "stuck": ("timeout", "waits for something that never comes"),
    "memory": ("error", "used up its memory"),
    "exit": ("error", "ended its process"),
    "signal": ("error", "ended its process by a signal"),
    "lost": ("error", "its sandbox ended with it"),
    "garbled": ("error", "wrote over what its sandbox says"),
}
_SHOWN = 200  # characters of a detail
CLAIMABLE = "its tests ask for truths alone: a program that says yes to all would pass"
_SHOWN_BY_REFERENCE, _SQL_OF_REFERENCE = "shown", "sql"
_COLUMNS = re.compile(r"\s{2,}")
_ORDERED = re.compile(r"\border\s+by\b(?![^()]*\))", re.IGNORECASE)


@dataclass(frozen=True)
class ItemCalibration:
    """How an item is graded, learned from a run of its reference.

    Attributes:
        layout: how its tests run.
        whole: assertions whose operands do not leave their process: of these only the truth is asked for.
        known: place -> report (JSON) of the values that assertions compare with.
        why_not: why no answer to this item can be graded here; None when it can.
    """

    layout: Layout = "apart"
    whole: tuple[int, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)
    why_not: str | None = None


@dataclass(frozen=True)
class GradingPlan:
    """The plan for grading one item: its tests split into reports and assertions, and its calibration so far."""

    item: Item
    calibration: ItemCalibration

    @cached_property
    def observed(self) -> Observed:
        """The item's tests with their assertions replaced by reports."""
        check, language = self.item.check, self.item.language
        if language == "sql" or not check.tests.strip():
            return Observed(check.tests, check.tests, ())
        return observed(check.tests, language, (self.item.reference, check.before), self.calibration.whole)

    @cached_property
    def known(self) -> Reports:
        """Values of the trusted run."""
        return {p: decoded(text) for p, text in self.calibration.known.items() if p[0].isdigit()}

    def session(self, code: str, trusted: bool = False) -> Session:
        """The cells that run an answer (`trusted`: the reference)."""
        tests = self.observed.trusted if trusted else self.observed.code
        cells = [self.item.check.before] if self.item.check.before.strip() else []
        if not tests.strip():
            cells.append(code)
        elif self.calibration.layout == "joined":
            cells.append(f"{code}\n\n{tests}")
        else:
            cells += [code, tests]
        return Session(self.item.language, tuple(cells))

    def why_not_at_all(self) -> str | None:
        """Why its tests can give no verdict at all; None: they can."""
        if self.observed.why_not:
            return self.observed.why_not
        if self.item.check.kind == "assertions" and not self.observed.assertions:
            return "its tests assert nothing"
        return None

    def calibrated(self, ran: Ran) -> "GradingPlan | ItemCalibration":
        """The calibration after a run of the reference, or the plan to try next."""
        tried = self.calibration
        if why_not := self.why_not_at_all():
            return replace(tried, why_not=why_not)
        verdict, detail = self._end(ran)
        reports: Reports = {}
        if verdict is None:
            try:
                reports, rest = reports_in(stream_text(ran.answer.get("stdout", "")))
            except NotPlain as error:
                return replace(tried, why_not=f"its reference cannot be graded: {error}")
            whole = unreported(reports)
            if whole - set(tried.whole):
                if self.item.language != "python":
                    return replace(tried, why_not="its tests compare what does not leave its process")
                return GradingPlan(self.item, replace(tried, whole=tuple(sorted(whole | set(tried.whole)))))
            verdict, detail = self._judged(ran, reports, reports, rest)
        if verdict != "passed":
            if tried.layout == "apart" and self.item.check.tests.strip() and self.item.check.kind == "output":
                return GradingPlan(self.item, ItemCalibration("joined"))
            if tried.layout == "joined" and self.observed.assertions:
                return GradingPlan(self.item, ItemCalibration("unseen"))
            return replace(tried, why_not=f"its own recorded answer does not pass here: {detail}")
        if self.is_claimable(reports):
            return replace(tried, why_not=CLAIMABLE)
        known = {
            place: text for place, text in _texts(stream_text(ran.answer.get("stdout", ""))).items() if "k" in place
        }
        if self._shows and not self.item.check.expected:
            shown = self._shown(ran, rest)
            if not _rows(shown):
                return replace(tried, why_not="its own recorded answer shows no rows on a database made for it")
            known[_SHOWN_BY_REFERENCE] = shown
        if (sql := self._sql(ran)) is not None:
            known[_SQL_OF_REFERENCE] = sql.to_json()
        return replace(tried, known=known)

    def is_claimable(self, known: Reports) -> bool:
        """Whether a program that reports True for everything would pass the tests."""
        return not self._shows and claims_suffice(self.observed.assertions, known)

    @property
    def _shows(self) -> bool:
        """Whether an answer has to show something."""
        return self.item.check.kind == "output" and self.calibration.layout != "unseen"

    def judge(self, ran: Ran) -> tuple[Verdict, str]:
        """The verdict on a run of an answer, and why."""
        verdict, detail = self._end(ran)
        if verdict is not None and verdict != "error":
            return verdict, detail
        try:
            reports, rest = reports_in(stream_text(ran.answer.get("stdout", ""))) if ran.ended == "done" else ({}, "")
        except NotPlain as error:
            return "failed", f"reported {error}"
        if verdict is None:
            return self._judged(ran, reports, self.known, rest)
        return verdict, detail

    def _end(self, ran: Ran) -> tuple[Verdict | None, str]:
        """The verdict of a run that did not come to its end; None when it did."""
        if ran.ended != "done":
            return _ENDS[ran.ended]
        error = ran.answer["error"]
        if error is None:
            return None, ""
        said = " ".join(f"{error['name']}: {error['value']}".split())
        if error["name"] == "AssertionError":
            return "failed", _short(f"an assertion of its own: {said}")
        return "error", _short(said)

    def _judged(self, ran: Ran, given: Reports, known: Mapping[str, Plain], rest: str) -> tuple[Verdict, str]:
        failing = first_failing(self.observed.assertions, given, known)
        if failing is not None:
            return "failed", _short(failing)
        if output_of(self.item.language, ran.answer | {"stdout": rest})[2] != "ok":
            return "failed", "an assertion of its own was not true"
        expected = self.item.check.expected or self.calibration.known.get(_SHOWN_BY_REFERENCE)
        by_reference, sql = self.calibration.known.get(_SQL_OF_REFERENCE), self._sql(ran)
        if by_reference is not None and sql is not None:
            return self._judged_sql(sql, SqlRun.from_json(by_reference))
        if not self._shows or expected is None:
            return "passed", ""
        if not self._same(self._shown(ran, rest), expected):
            recorded = bool(self.item.check.expected)
            return "failed", f"another output than {'was recorded' if recorded else 'the recorded answer gives'}"
        return "passed", ""

    def _sql(self, ran: Ran) -> SqlRun | None:
        """What a run of SQL gave, and changed of the tables that were there before the answer; None: of no SQL."""
        return SqlRun.of(ran.answer, 1 if self.item.check.before.strip() else 0)

    def _judged_sql(self, given: SqlRun, wanted: SqlRun) -> tuple[Verdict, str]:
        if more := given.changed - wanted.changed:
            return "failed", _short(f"changes what it is not asked to change: {', '.join(sorted(more))}")
        if self._shows and not given.gives(wanted, bool(_ORDERED.search(self.item.reference))):
            recorded = bool(self.item.check.expected)
            return "failed", f"another output than {'was recorded' if recorded else 'the recorded answer gives'}"
        return "passed", ""

    def _shown(self, ran: Ran, stdout: str) -> str:
        """What a run showed, as recorded outputs are written."""
        written, result, _, _ = output_of(self.item.language, ran.answer | {"stdout": stdout})
        return "\n".join(part for part in (written, result) if part.strip())

    def _same(self, shown: str, expected: str) -> bool:
        if shown.strip("\n").rstrip() == expected.strip("\n").rstrip():
            return True
        if self.item.language != "sql":
            return False
        rows, wanted = _rows(shown), _rows(expected)
        if not _ORDERED.search(self.item.reference):
            rows, wanted = sorted(rows), sorted(wanted)
        return rows == wanted and _header(shown) == _header(expected)


def _texts(stdout: str) -> dict[str, str]:
    """place -> report as it was written."""
    return dict(re.findall("\x1e([0-9]+[gk][0-9]+) ([^\x1e\x1f]*)\x1f", stdout))


def _rows(table: str) -> list[list[str]]:
    """Cells of a result's rows, without their number and the columns' names (which are no part of what is asked)."""
    return [_COLUMNS.split(line.strip())[1:] for line in table.strip("\n").split("\n")[1:]]


def _header(table: str) -> int:
    """How many columns a result has."""
    return len(_COLUMNS.split(table.strip("\n").split("\n")[0].strip()))


def _short(text: str) -> str:
    clean = text.encode("utf-8", "replace").decode()
    return clean if len(clean) <= _SHOWN else clean[: _SHOWN - 3] + "..."
