"""Mutation testing of answers: an answer whose test also passes with a part of it broken was not judged by that test.

Of the solutions that people read, half of those whose test let a broken part pass were wrong beside their cases, and
one in five of the others. The mutations are the injected bugs of `derived/` that take a part away or read another;
those that move a bound or change a constant often leave a program the same, and tell nothing.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from capibara_assets.datasets.derived import javascript_bugs, python_bugs
from capibara_assets.datasets.derived.edits import drawn
from capibara_assets.datasets.derived.solved import solution_spans
from capibara_assets.datasets.derived.trials import Ends, Execute, Trial, below_session, counted
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import SESSION, section
from capibara_assets.executions.parsing import JAVASCRIPT

UNPINNED = "its test also passes with a part of its answer broken"

_MOST = 4  # mutants of one answer
_KINDS = dict.fromkeys(
    (
        "missing_argument",
        "missing_guard",
        "missing_return",
        "missing_statement",
        "misspelt_name",
        "negation",
        "operator",
        "status",
        "wrong_indent",
        "wrong_method",
        "wrong_variable",
    ),
    1.0,
)
#: What fails later than the text ends: its failure would not be seen.
_LATER = re.compile(r"\b(?:await|async|Promise|setTimeout|setInterval|setImmediate|nextTick)\b|\.then\(")
_REQUIRED = re.compile(r'require\("([\w:/]+)"\)')
#: Runs each text in a function of its own; lists a checksum of what each showed, null for one that failed.
_RUNNER = """
function __run(text) {
  const shown = [];
  const told = (value) => (typeof value === 'string' ? value : JSON.stringify(value) ?? String(value));
  const quiet = new Proxy({}, { get: (_, name) => (...values) => {
    if (name !== 'assert') shown.push(values.map(told).join(' '));
    else if (!values[0]) throw new Error('Assertion failed');
  } });
  __turns = 0;
  try { new Function('console', text)(quiet); } catch { return null; }
  const all = shown.join('\\n');
  return `${all.length}:${[...all].reduce((sum, sign) => (sum * 31 + sign.codePointAt(0)) | 0, 0)}`;
}
console.log(JSON.stringify(%s.map(__run)));
"""


def unpinned(candidates: Sequence[ExampleCandidate], execute: Execute) -> list[bool]:
    """Whether the hidden test of each candidate passes, and passes alike, with a part of its answer broken.

    Args:
        execute: runs trials. What does not pass as it is tells nothing.
    """
    trials = [_trial(one) for one in candidates]
    ends = iter(execute([trial for trial in trials if trial is not None], purpose="mutants"))
    return [trial is not None and _survives(trial, next(ends)) for trial in trials]


def _trial(one: ExampleCandidate) -> Trial | None:
    if not one.test or one.kind not in ("solve", "apply") or one.language not in ("python", *JAVASCRIPT):
        return None
    python = one.language == "python"
    spans, _ = solution_spans(one.answer, one.language)
    edits = drawn((python_bugs if python else javascript_bugs).bugs(one.answer, spans), _KINDS, one.answer, _MOST)
    texts = [f"{code}\n\n{one.test}" for code in (one.answer, *(edit.applied(one.answer) for edit in edits))]
    session = section(one.prompt, SESSION)
    if not edits:
        return None
    if python:
        return below_session("python", session, texts)
    if _LATER.search(texts[0]):
        return None
    quoted = [_REQUIRED.sub(r"require('\1')", counted(text)) for text in texts]  # as the worker knows what it may lend
    return Trial("javascript", ((session, _RUNNER % json.dumps(quoted)),))


def _survives(trial: Trial, ends: Ends) -> bool:
    passed: list[Any] = [end.shown if end is not None and end.ok else None for end in ends]
    if trial.language != "python":
        passed = _listed(passed[0] or "")
    return passed[0] is not None and passed[0] in passed[1:]


def _listed(shown: str) -> list[Any]:
    """What the runner printed last: code that reaches the console itself may have printed anything."""
    try:
        listed = json.loads(shown.rpartition("\n")[2])
    except (ValueError, RecursionError):
        return [None]
    return listed if isinstance(listed, list) and listed else [None]
