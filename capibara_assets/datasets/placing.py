"""Placement of candidates in groups and splits, or the reason why they cannot be used."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from capibara_assets.datasets.agreement.special_cases import unmended
from capibara_assets.datasets.agreement.votes import CONTRADICTED, HARDCODED, UNSURE, Doubt
from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.duplicates.clusters import Cluster
from capibara_assets.datasets.groups import BRIDGE, COMMON
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import ERROR, section
from capibara_assets.datasets.kinds.sufficiency import (
    why_insufficient,
    why_redeclared,
    why_unfounded,
    why_unpredictable,
)
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.datasets.schema import CODE_KINDS, Kind, Split
from capibara_assets.datasets.verification import Judgement
from capibara_assets.datasets.worth.worth import unworthy
from capibara_assets.domains import Domain
from capibara_assets.executions.replay.replay import ReplayVerdict
from capibara_assets.executions.secrets.prefilter import may_hold_secrets
from capibara_assets.executions.secrets.rules import find_secrets
from capibara_assets.storage.digests import canonical_json, sha256_bytes

UNKNOWN_GROUP = "not in example_groups: materialize it again"
STRADDLES = "its executions are in more than one split"
TOO_LONG = "prompt or answer longer than the recipe allows"
SECRET = "what its execution shows looks like a secret"
TESTS_ITSELF = "its answer would hold a test of its own result"
INSUFFICIENT = "its prompt does not suffice"
FITTED = "its answer is fitted to its test"
REFUTED = "attempts at its task were judged, and its answer did not solve it"
MENDED_LATER = "its author mended it later"
FAILED_LATER = "a later check of its session that needs what it defines did not hold"

_RETURN = re.compile(r"\breturn\b([^\n]*)")
_LITERAL_LAST = re.compile(
    r"(?:^|[?:]|\belse)[\s(]*(?:-?\d[\w.]*|[tT]rue|[fF]alse|None|null|'[^']*'|\"[^\"]*\")\)?;?\s*\}?\s*$"
)
_FEW_LINES = 2
_SENSELESS = 0.5  # share of other inputs on which other solutions contradict code whose output is not asked for


@dataclass(frozen=True)
class Placed:
    """A candidate that may become an example, with its split and verification so far."""

    candidate: ExampleCandidate
    example_id: str
    group_id: str
    split: Split
    cluster: tuple[Cluster, ...] = ()
    verdict: ReplayVerdict | Judgement | None = None

    @property
    def subject(self) -> str:
        """The execution that the answer comes from."""
        return self.candidate.execution_ids[0]

    @property
    def weight(self) -> float:
        return round(1 + math.log(len(self.cluster)), 6)


def placed_of(
    candidates: Sequence[ExampleCandidate],
    domain: Domain,
    group_of: Mapping[str, tuple[str, Split, str | None]],
    recipe: DatasetRecipe,
    doubts: Mapping[str, Doubt] = MappingProxyType({}),
    unsolved: Mapping[str, str] = MappingProxyType({}),
) -> tuple[dict[str, Placed], dict[str, str], Counter[tuple[Kind, str]]]:
    """Usable candidates by example id; the first reason per unusable execution; counts of all reasons.

    Args:
        group_of: execution id -> group, split, and why it may not be used.
        doubts: execution id -> why its answer is not right in general.
        unsolved: execution id -> why its code is no answer.
    """
    by_id: dict[str, Placed] = {}
    reasons: dict[str, str] = {}
    count = Counter[tuple[Kind, str]]()
    for candidate, secret in zip(candidates, _hold_secrets(candidates), strict=True):
        why = SECRET if secret else insufficient(candidate) or unsound(candidate, doubts) or unmended(candidate)
        why = why or why_refuted(candidate, unsolved) or unworthy(candidate, recipe.fewest_steps)
        placed = why or place(domain, candidate, group_of, recipe)
        if isinstance(placed, Placed):
            by_id[placed.example_id] = placed
        else:
            reasons.setdefault(candidate.execution_ids[0], placed)
            count[candidate.kind, placed.partition(": names")[0]] += 1
    return by_id, reasons, count


def unsound(candidate: ExampleCandidate, doubts: Mapping[str, Doubt]) -> str | None:
    """Why the code of an answer is considered fitted to its test.

    A slip in it can be mended whatever it is for, and the mend of a failed assertion gives the right values: of these
    only stubs are left out, which hold what their cases expect, or are contradicted on most inputs and give nothing but
    literals. What fitted code prints can be told, but it is code that nobody should write or learn to read. Code that
    another solution contradicts is no answer, nor what an injected bug or a diagnosis ends with; a person's mend of it
    may be right all the same, and so is what it prints.
    """
    answers, diagnosis = candidate.kind in CODE_KINDS, candidate.kind == "explain" and candidate.diff is not None
    raised = [doubts[unit] for unit in candidate.execution_ids[: 1 if answers else None] if unit in doubts]
    worst = max(raised, key=lambda one: (one.reason not in UNSURE, one.share), default=None)
    if worst is None or (candidate.kind == "explain" and not diagnosis):
        return None
    if worst.reason in UNSURE:
        derived = diagnosis or (candidate.kind == "repair" and candidate.derived)
        left = candidate.kind in ("solve", "apply") or (derived and worst.reason == CONTRADICTED)
        return f"{FITTED}: {worst.reason}" if left else None
    written = not _is_slip(candidate)
    stub = _is_stub(candidate.answer if answers else candidate.prompt)
    if written or worst.reason == HARDCODED or (stub and worst.share > _SENSELESS):
        return f"{FITTED}: {worst.reason}"
    return None


def why_refuted(candidate: ExampleCandidate, unsolved: Mapping[str, str]) -> str | None:
    """Why an answer is, or ends with, code that is no answer; explaining such code is allowed."""
    mends = candidate.kind in CODE_KINDS or candidate.diff is not None
    return unsolved.get(candidate.execution_ids[0]) if mends else None


def _is_slip(candidate: ExampleCandidate) -> bool:
    """Whether a repair changes a line or two, and no wrong value: what it mends was written by another."""
    if "AssertionError" in section(candidate.prompt, ERROR):
        return False
    added = [line for line in (candidate.diff or "").split("\n")[2:] if line.startswith("+")]
    return candidate.kind == "repair" and len(added) <= _FEW_LINES


def _is_stub(text: str) -> bool:
    """Whether all that the code in a text returns are literals."""
    returned = _RETURN.findall(text)
    return bool(returned) and all(_LITERAL_LAST.search(value) for value in returned)


def _hold_secrets(candidates: Sequence[ExampleCandidate]) -> Iterator[bool]:
    """Whether a candidate appears to contain a secret; logs are redacted, but executions produce new values."""
    texts = ["\n".join([c.prompt, c.answer, c.proof or "", c.diff or "", c.test or ""]) for c in candidates]
    for text, suspect in zip(texts, may_hold_secrets(texts), strict=True):
        yield suspect and bool(find_secrets(text))


def place(
    domain: Domain,
    candidate: ExampleCandidate,
    group_of: Mapping[str, tuple[str, Split, str | None]],
    recipe: DatasetRecipe,
) -> Placed | str:
    """Place a candidate in its group and split, or return the reason why it cannot be used."""
    if candidate.kind in CODE_KINDS and dissect(candidate.answer, candidate.language).test:
        return TESTS_ITSELF
    if len(candidate.prompt) > recipe.max_prompt_chars or len(candidate.answer) > recipe.max_answer_chars:
        return TOO_LONG
    if any(unit not in group_of for unit in candidate.execution_ids):
        return UNKNOWN_GROUP
    if candidate.anywhere:
        usable = tuple(unit for unit in candidate.execution_ids if group_of[unit][2] is None)
        candidate = replace(candidate, execution_ids=usable, subjects=len(usable))
    places = [group_of[unit] for unit in candidate.execution_ids]
    subjects = places[: candidate.subjects]
    for _, _, reason in subjects:
        if reason is not None:
            return reason
    # quoted context may be common code, but never of another split
    splits = {split for _, split, _ in places}
    if not subjects:
        return COMMON
    if len(splits) > 1 or any(reason == BRIDGE for _, _, reason in places):
        return STRADDLES
    group, split, _ = min(subjects)
    identity = [domain, candidate.kind, candidate.prompt, candidate.answer, *candidate.execution_ids]
    return Placed(candidate, sha256_bytes(canonical_json(identity))[:32], group, split)


def insufficient(candidate: ExampleCandidate) -> str | None:
    """Why a prompt lacks what its answer needs; explanations are checked against the prompt alone."""
    if candidate.kind == "explain":
        return None
    why = candidate.lacking or why_redeclared(candidate.language, candidate.prompt)
    if why is None and candidate.kind == "predict":
        why = why_unpredictable(candidate.language, candidate.prompt)
    elif why is None:
        why = why_insufficient(candidate.language, candidate.prompt, candidate.answer)
    if why is None and candidate.kind == "repair":
        why = why_unfounded(candidate.language, candidate.prompt)
    return f"{INSUFFICIENT}: {why}" if why else None


def messages_of(candidate: ExampleCandidate) -> str:
    """The chat messages of a candidate, as JSON."""
    turns = [{"role": "user", "content": candidate.prompt}, {"role": "assistant", "content": candidate.answer}]
    return json.dumps(turns, ensure_ascii=False)
