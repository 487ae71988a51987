"""Grades answers by running them: isolated, in parallel, each answer once, and again only from where a run was killed.

Before an answer to an item is run, the item's own reference runs: what its recorded answer does not pass here (a
package is missing, the database is gone, the output is not the same again) is `ungraded` for everybody, and the reason
says so. An answer's process shows values and output; it never judges (see `assertions.py`), and the grader stands
outside of its sandbox. Where the network, files, processes or their number cannot be kept from it, nothing runs:
`refused`.

What is left: the kernel is shared, so code that exploits it gets out; answers in Python run in forks of one process
whose memory they cannot look at, but which they can end (it is started anew, and the answer is run once more alone);
and an answer that finds out what is asked of it may say any value, as any wrong answer may.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from pydantic import Field

from capibara_assets.errors import InputError
from capibara_assets.evaluation.grading.assertions_python import names_given
from capibara_assets.evaluation.grading.code_blocks import Extracted, extracted, parses, plain_text
from capibara_assets.evaluation.grading.journal import GradeJournal
from capibara_assets.evaluation.grading.plan import CLAIMABLE, Calibration, Plan, Verdict
from capibara_assets.evaluation.items.items import Item
from capibara_assets.executions.replay.pool import PoolSettings, RerunPolicy, run_sessions
from capibara_assets.executions.replay.replay import environment
from capibara_assets.executions.replay.workers import Ran, Session, SessionLimits, node
from capibara_assets.executions.sandbox.cgroup import groups_are_here
from capibara_assets.executions.sandbox.isolation import ASPECTS, Isolation, best_isolation
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.records import Record

#: Part of the keys of kept verdicts; raise it when verdicts may come out differently.
FORMAT = 1
MEMORY_MIB = 1024
_UNCERTAIN = frozenset({"wall", "lost", "garbled"})
_PATIENCE = 1.0, 2.0
_NO_NEED = "nothing ran"
_CHECKED = re.compile(r"^check\((\w+)\)\s*\Z", re.MULTILINE)
_NO_NODE = "no Node.js here to run its language"


class AnswerLike(Protocol):
    """What is graded: one answer of a contender to an item."""

    @property
    def contender(self) -> str: ...
    @property
    def item_id(self) -> str: ...
    @property
    def sample(self) -> int: ...
    @property
    def text(self) -> str: ...


class Grade(Record):
    """The verdict on one answer."""

    schema_name: ClassVar[str] = "Grade"
    schema_version: ClassVar[int] = 1
    key: ClassVar[tuple[str, ...]] = ("contender", "item_id", "sample")

    contender: str = Field(description="Who answered")
    item_id: str = Field(description="Item that was answered")
    sample: int = Field(description="Number of the answer, from 0", ge=0)
    verdict: Verdict = Field(
        description="passed; failed (an assertion, or another output); error; timeout; refused (not isolated); ungraded"
    )
    detail: str = Field(description="Why, and where the code of the answer stood")
    isolation: str = Field(description="What the run was kept from, and how")


def grade(
    items: Sequence[Item],
    answers: Sequence[AnswerLike],
    *,
    workers: int,
    journal: Path | None = None,
    allow_weak_isolation: bool = False,
    isolation: Isolation | None = None,
    memory_mib: int = MEMORY_MIB,
    patient: bool = True,
) -> list[Grade]:
    """The grade of each answer, in their order. Equal answers to equal checks run once.

    Args:
        workers: how many answers run at a time.
        journal: file (`.jsonl`) to which each verdict is added as it is found, and from which a grading that was killed
            goes on; verdicts of other gradings in it are used as well, where all that they depend on is the same.
        allow_weak_isolation: run answers even where this machine cannot isolate them; the verdicts say so.
        isolation: how they are started (default: the strongest that works here).
        memory_mib: most memory of one answer, all its processes together.
        patient: what ran past its wall clock while the machine was busy runs again, alone.

    Raises:
        InputError: an answer to an item that is not given, two items of one id, or parameters that make no sense.
        IsolationError: sandboxes do not start.
    """
    if workers < 1 or memory_mib < 1:
        raise InputError(f"grading needs workers and memory_mib above zero; got {workers}, {memory_mib}")
    by_id = {item.item_id: item for item in items}
    if len(by_id) != len(items):
        raise InputError("two items have the same item_id: an answer could not be told to which it belongs")
    unknown = sorted({answer.item_id for answer in answers} - set(by_id))
    if unknown:
        raise InputError(f"answers to items that are not given: {', '.join(unknown[:5])}")
    wanted = {_request(by_id[answer.item_id], answer.text): None for answer in answers}
    runs = [request for request in wanted if request.extracted is not None and request.extracted.code is not None]
    found: dict[_Request, tuple[Verdict, str]] = {}
    ran_in = _NO_NEED
    if runs:
        isolation = isolation or best_isolation()
        missing = _missing(isolation)
        ran_in = isolation_text(isolation, missing)
        if missing and not allow_weak_isolation:
            reason = f"this machine cannot isolate {', '.join(missing)}; install bubblewrap or allow user namespaces"
            found = dict.fromkeys(runs, ("refused", reason))
        else:
            with_journal = GradeJournal(journal) if journal is not None else None
            grader = _Grader(isolation, workers, memory_mib, with_journal, ran_in, patient)
            try:
                found = grader.run(runs)
            finally:
                grader.close()
    return [_grade(answer, _request(by_id[answer.item_id], answer.text), found, ran_in) for answer in answers]


def isolation_text(isolation: Isolation, missing: Sequence[str] = ()) -> str:
    """One short line: how runs are started here and what that keeps from them."""
    kept = [aspect for aspect in (*ASPECTS, _NUMBER) if aspect not in _missing(isolation)]
    text = f"{isolation.kind}: {', '.join(kept) if kept else 'nothing'} isolated"
    text += ", memory in a control group" if groups_are_here() else ", memory of each process limited"
    return f"{text}; weak, allowed by name: {', '.join(missing)} not isolated" if missing else text


_NUMBER = "number of processes"


def _missing(isolation: Isolation) -> list[str]:
    lacking = [str(aspect) for aspect in ASPECTS if aspect not in isolation.aspects]
    bounded = any("number of processes is limited" in clause for clause in isolation.isolated)
    return lacking if bounded else [*lacking, _NUMBER]


@dataclass(frozen=True)
class _Request:
    """One answer to one check; equal ones run once."""

    item: Item = field(compare=False)
    check: str  # digest of all that the item adds to the verdict
    text: str  # of an answer that is not run; of one that is, its code
    extracted: Extracted | None = field(compare=False, default=None)


def _request(item: Item, answer: str) -> _Request:
    digest = item_digest(item)
    if item.check.kind in ("exact", "text") or item.language == "text":
        return _Request(item, digest, answer)
    found = extracted(answer, item.language)
    if item.kind == "benchmark" and item.language == "python":
        found = _completed(item, answer, found)
    return _Request(item, digest, found.code if found.code is not None else f"\0{answer}", found)


def _completed(item: Item, answer: str, found: Extracted) -> Extracted:
    """A body without its head, which is how base models go on with a function, gets the head that the prompt gave."""
    asked = _CHECKED.search(item.check.tests)
    if asked is None or (found.code is not None and asked[1] in names_given(found.code)):
        return found
    head = item.prompt[-1]["content"].partition("\n\n")[2]
    for body in (found.code or "", answer):
        whole = f"{head.rstrip()}\n{body}"
        if parses(whole, "python") and asked[1] in names_given(whole):
            return Extracted(whole, "the prompt's function with the answer as its body")
    return found


def item_digest(item: Item) -> str:
    """SHA-256 of what an item's verdicts depend on, besides the answer."""
    return sha256_bytes(canonical_json([item.language, item.kind == "benchmark", item.reference, asdict(item.check)]))


def _grade(answer: AnswerLike, request: _Request, found: Mapping[_Request, tuple[Verdict, str]], ran_in: str) -> Grade:
    check = request.item.check
    verdict: Verdict
    if request in found:
        verdict, detail = found[request]
        where = request.extracted.how if request.extracted else ""
        detail = f"{detail} [{where}]" if detail else f"[{where}]"
    elif request.extracted is not None:
        verdict, detail, ran_in = "error", f"no code: {request.extracted.how}", _NO_NEED
    elif check.kind == "exact":
        same = plain_text(answer.text) == plain_text(check.expected)
        verdict, detail, ran_in = ("passed" if same else "failed"), ("" if same else "another text"), _NO_NEED
    else:
        verdict, detail, ran_in = "ungraded", "nothing was asserted or shown that could be checked", _NO_NEED
    return Grade(
        contender=answer.contender,
        item_id=answer.item_id,
        sample=answer.sample,
        verdict=verdict,
        detail=detail,
        isolation=ran_in,
    )


@dataclass
class _Grader:
    """Runs references, then answers, and keeps what it finds."""

    isolation: Isolation
    workers: int
    memory_mib: int
    journal: GradeJournal | None
    ran_in: str
    patient: bool

    def run(self, requests: Sequence[_Request]) -> dict[_Request, tuple[Verdict, str]]:
        """The verdict of each request whose answer holds code."""
        items = {request.check: request.item for request in requests}
        calibrations = self._calibrate(items)
        plans = {digest: Plan(item, calibrations[digest]) for digest, item in items.items()}
        found: dict[_Request, tuple[Verdict, str]] = {}
        waiting: dict[str, _Request] = {}
        for request in requests:
            why_not = plans[request.check].calibration.why_not
            if why_not is not None:
                found[request] = "ungraded", why_not
                continue
            key = self._key("verdict", request.item, [request.check, request.text])
            kept = self.journal.verdict(key) if self.journal else None
            if kept is not None:
                found[request] = kept
            else:
                waiting[key] = request

        def finished(key: str, ran: Ran) -> None:
            request = waiting[key]
            found[request] = plans[request.check].judge(ran)
            if self.journal:
                self.journal.add_verdict(key, found[request])

        sessions = {key: (plans[r.check].session(r.text), r.item.check.timeout_s) for key, r in waiting.items()}
        self._sessions(sessions, finished)
        return found

    def close(self) -> None:
        if self.journal:
            self.journal.close()

    def _calibrate(self, items: Mapping[str, Item]) -> dict[str, Calibration]:
        """How each item is graded, from a run of its reference."""
        found: dict[str, Calibration] = {}
        open_plans: dict[str, Plan] = {}
        for digest, item in items.items():
            kept = self.journal.calibration(self._key("item", item, [digest])) if self.journal else None
            if kept is not None:
                found[digest] = kept
            else:
                plan = Plan(item, Calibration())
                start = self._before_reference(plan)
                if start is None:
                    open_plans[digest] = plan
                else:
                    found[digest] = start
        while open_plans:
            tried = dict(open_plans)

            def finished(digest: str, ran: Ran, tried: Mapping[str, Plan] = tried) -> None:
                said = tried[digest].calibrated(ran)
                if isinstance(said, Plan):
                    open_plans[digest] = said
                    return
                found[digest] = said
                del open_plans[digest]
                if self.journal:
                    self.journal.add_calibration(self._key("item", items[digest], [digest]), said)

            references = {digest: self._reference(plan.item) for digest, plan in tried.items()}
            sessions = {
                digest: (plan.session(references[digest], trusted=True), plan.item.check.timeout_s)
                for digest, plan in tried.items()
            }
            self._sessions(sessions, finished)
        return found

    def _before_reference(self, plan: Plan) -> Calibration | None:
        """What can be said of an item without running its reference; None when that has to run."""
        if plan.item.language == "javascript" and node() is None:
            return Calibration(why_not=_NO_NODE)
        if why_not := plan.why_not_at_all():
            return Calibration(why_not=why_not)
        if plan.item.reference.strip():
            return None
        if plan.observed.code != plan.observed.trusted:
            return Calibration(why_not="it has no reference, and its assertions compare with what has to be run")
        return Calibration(why_not=CLAIMABLE if plan.is_claimable({}) else None)

    def _reference(self, item: Item) -> str:
        found = extracted(item.reference, item.language)
        return found.code if found.code is not None else item.reference

    def _sessions(self, sessions: Mapping[str, tuple[Session, float]], finished: "_Finished") -> None:
        uncertain = _UNCERTAIN if self.patient else _UNCERTAIN - {"wall"}
        for timeout_s in sorted({timeout_s for _, timeout_s in sessions.values()}):
            keys = [key for key, (_, limit) in sessions.items() if limit == timeout_s]
            settings = PoolSettings(
                self.isolation,
                SessionLimits(timeout_s, self.memory_mib),
                times=1,
                processes=self.workers,
                rerun=RerunPolicy(uncertain, _PATIENCE, quiet_is_certain=True),
                apart=frozenset({"javascript"}),  # a context of V8 is no boundary: what ran there is never asked again
            )
            run_sessions(
                [sessions[key][0] for key in keys],
                settings,
                lambda index, ran, keys=keys: finished(keys[index], ran),  # type: ignore[misc]
            )

    def _key(self, what: str, item: Item, parts: list[str]) -> str:
        place = [FORMAT, what, environment(item.language), self.ran_in, self.memory_mib]
        return sha256_bytes(canonical_json([*place, *parts]))


class _Finished(Protocol):
    def __call__(self, key: str, ran: Ran, /) -> None: ...


def counts(grades: Iterable[Grade]) -> dict[str, int]:
    """How many grades there are of each verdict."""
    found: dict[str, int] = {}
    for each in grades:
        found[each.verdict] = found.get(each.verdict, 0) + 1
    return dict(sorted(found.items()))
