"""*explain* examples of the debug domain: failing code and its error -> what failed with which values, and why.

The failing and the mended code ran again: what a call gives in each, the values at the failing line, and the first test
or step that comes out otherwise are facts of this case. With none of them there is no example, nor where the change is
none (names, comments, formatting).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from capibara_assets.datasets.code.decisions import decisions
from capibara_assets.datasets.code.edits import edits
from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.code.structure import structural_key
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.behaviour import call_text, listed, times
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate
from capibara_assets.datasets.kinds.explain_sql import result_table
from capibara_assets.datasets.kinds.repair import lesson, pair_quality, rewritten, sides, unified_diff
from capibara_assets.datasets.kinds.tracebacks import error_text
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.replay.traces import Trace

_MOST_EDITS, _LONGEST_EDIT, _MOST_NAMES = 3, 200, 4
_CAUSES = (
    (r"no such function: (\S+)", "SQLite has no function `{}`."),
    (r"no such column: (\S+)", "No table that the query reads has a column `{}`."),
    (r"no such table: (\S+)", "The database has no table `{}`."),
    (r"ambiguous column name: (\S+)", "`{}` is a column of more than one of the tables that the query reads."),
    (r'near "([^"]+)": syntax error', "SQLite's parser stops at `{}`, which its dialect does not allow there."),
    (r"wrong number of arguments to function (\w+)", "SQLite's function `{}` takes another number of arguments."),
    (r"misuse of aggregate:? (?:function )?(\w+)", "The aggregate `{}` stands where there are no groups yet."),
)


class _Case(NamedTuple):
    shown: str  # what the prompt says beside the error
    happened: list[str]  # before what is wrong is named
    after: list[str]  # what the mended code does


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per repair pair whose failure can be told with its values, and whose change can be named."""
    for pair in rewritten(evidence).iter_rows(named=True):
        language = pair["language"]
        _, failing, fixed, _ = sides(pair)
        changes = edits(failing, fixed, language)
        if not changes or len(changes) > _MOST_EDITS or any(len(c.before + c.after) > _LONGEST_EDIT for c in changes):
            continue
        case = _query_case(pair, evidence) or _traced_case(pair, evidence)
        if case is None:
            continue
        error = error_text(pair["error_name"], pair["error_value"], pair["traceback"], language)
        yield ExampleCandidate(
            kind="explain",
            language=language,
            prompt=prompts.diagnose(language, failing, error, case.shown),
            answer=" ".join([*case.happened, *dict.fromkeys(change.sentence() for change in changes), *case.after]),
            execution_ids=(pair["fixed_execution_id"], pair["failing_execution_id"]),
            subjects=2,
            duplicate_key=f"{structural_key(failing, language)}:{structural_key(fixed, language)}",
            difficulty=difficulty(failing, language, 1, [pair["error_name"] or ""], recipe.difficulty),
            quality=pair_quality(evidence, pair),
            diff=unified_diff(failing, fixed),
            lesson=f"{error}\n{lesson(failing, fixed)}",
        )


def _query_case(pair: Row, evidence: Evidence) -> _Case | None:
    """The cause that a database's message names, and the rows that the mended query gave."""
    for pattern, said in _CAUSES:
        if (match := re.search(pattern, pair["error_value"] or "")) is None:
            continue
        row = evidence.rows.get(pair["fixed_execution_id"])
        shown = result_table((row["result_text"] or "").strip("\n")) if row is not None else None
        if shown is None:
            return None
        after = f"The mended query gives {len(shown.rows)} row{'s' * (len(shown.rows) != 1)}"
        if shown.rows:
            first = listed([f"`{name}` {value}" for name, value in zip(shown.names, shown.rows[0], strict=True)])
            after += f", the first with {first}" if len(shown.rows) > 1 else f", with {first}"
        return _Case("", [said.format(match[1])], [f"{after}."])
    return None


def _traced_case(pair: Row, evidence: Evidence) -> _Case | None:
    """What failed, with the values that both runs agree on; None: nothing beyond the error's name is known."""
    failing, fixed = (evidence.traces.get(pair[f"{side}_execution_id"]) for side in ("failing", "fixed"))
    if failing is None or fixed is None:
        return None
    found = _differing(failing, fixed)
    if found is None:
        return _at_line(pair, failing)
    text, before, after = found
    right = _outcome(after)
    other = _otherwise(pair, before, after)
    if before["raised"]:
        name, message = before["raised"]
        where = _place(pair, failing)
        said = f"`{text}` raises `{name}`" + (f" (`{message}`)" if message else "") + where + "."
        return _Case(f"It is called as `{text}`.", [said, *other], [f"Then `{text}` {right}."])
    return _Case(
        f"`{text}` should {_outcome(after, 'return')}.",
        [f"`{text}` {_outcome(before)}.", *other],
        [f"Then it {right}."],
    )


def _differing(failing: Trace, fixed: Trace) -> tuple[str, Mapping[str, Any], Mapping[str, Any]] | None:
    """The first call that comes out otherwise in the mended code: its text, and both calls."""
    later = {text: call for call in fixed["calls"] if (text := call_text(call)) is not None}
    for before in failing["calls"]:
        after = later.get(call_text(before) or "")
        if after is None or after["raised"] or not (after["result"] or after["changed"]):
            continue
        known = before["raised"] or before["result"] or before["changed"]
        if known and (before["result"], before["raised"], before["changed"]) != (
            after["result"],
            None,
            after["changed"],
        ):
            return call_text(before) or "", before, after
    return None


def _outcome(call: Mapping[str, Any], verb: str = "returns") -> str:
    changed = [f"`{name}` as `{value}`" for name, value in call["changed"].items() if name]
    if call["result"] is None or (changed and call["result"] in ("None", "undefined")):
        leave = "leave" if verb == "return" else "leaves"
        return f"{leave} {listed(changed)}" if changed else f"{verb} another value"
    return f"{verb} `{call['result']}`"


def _otherwise(pair: Row, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The first test or step of the call that comes out otherwise in the mended code."""
    if before["inner"] or before["raised"] or before["cut"] or after["cut"]:
        return []
    places = [decisions(pair[f"{side}_code"], pair["language"]) for side in ("failing", "fixed")]
    noted = []
    for listed_places, call in zip(places, (before, after), strict=True):
        values = {at: f"is `{value}`" for at, (n, value) in call["steps"].items() if n == 1 and value is not None}
        for at, (yes, no) in call["tests"].items():
            turns = at in listed_places and listed_places[at].sort in ("for", "while")
            values[at] = f"runs {times(yes)}" if turns else f"is {'true' if yes else 'false'}" if yes + no == 1 else ""
        found = [(listed_places[at], value) for at, value in values.items() if at in listed_places and value]
        texts = [(place.sort, place.text) for place, _ in found]
        noted.append({(p.sort, p.text): (p, value) for p, value in found if texts.count((p.sort, p.text)) == 1})
    for key, (place, value) in sorted(noted[0].items(), key=lambda each: each[1][0].line):
        if key in noted[1] and (other := noted[1][key][1]) != value:
            loop = {"for": "the loop over ", "while": "the loop while "}.get(place.sort, "")
            what = f"{loop}`{place.text}`"
            return [f"In it {what} {value}, in the mended code it {other}."]
    return []


def _place(pair: Row, failing: Trace) -> str:
    """The line that raised, and the values that it read."""
    error = failing.get("error")
    if error is None or error["line"] is None or error.get("file") != f"<cell {failing['number']}>":
        return ""
    lines = pair["failing_code"].split("\n")
    line = lines[error["line"] - 1].strip() if 0 < error["line"] <= len(lines) else ""
    values = [f"`{name}` is `{value}`" for name, value in list(error["names"].items())[:_MOST_NAMES]]
    return (f" at `{line}`" if line else "") + (f", where {listed(values)}" if line and values else "")


def _at_line(pair: Row, failing: Trace) -> _Case | None:
    """An exception of which the values at its line are known, outside of any call that can be shown."""
    error = failing.get("error")
    if error is None or not error["names"] or error["name"] in ("AssertionError", "SyntaxError", "NameError"):
        return None
    where = _place(pair, failing)
    return _Case("", [f"It raises `{error['name']}` (`{error['value']}`){where}."], []) if where else None
