"""Grade answers by running them in sandboxes, in parallel; an interrupted grading resumes from its journal.

Before the answers to an item, the item's reference runs. If the reference does not pass here (a package is missing, the
database is gone, the output differs), the item is `ungraded` for every contender, with the reason. The process of an
answer only reports values and output; it never judges (see `assertions.py`), and the grader runs outside its sandbox.
Where network, files, processes or their number cannot be isolated, nothing runs: `refused`.

Known limits: the kernel is shared, so code that exploits what `seccomp.py` leaves of it escapes; Python answers run in
forks of one process whose memory they cannot read, but which they can end (it is restarted, and the answer runs once
more alone); and an answer that finds out which value is asked for may report any value, as any wrong answer may.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from pydantic import Field

from capibara_assets.datasets.assertions.assertions_python import names_given
from capibara_assets.datasets.code.javascript_source import parse as parse_javascript
from capibara_assets.datasets.code.python_source import parse as parse_python
from capibara_assets.errors import InputError
from capibara_assets.evaluation.grading.journal import GradeJournal
from capibara_assets.evaluation.grading.plan import CLAIMABLE, GradingPlan, ItemCalibration, Verdict
from capibara_assets.evaluation.items.items import Item
from capibara_assets.executions.replay.e2b import sandbox_place
from capibara_assets.executions.replay.pool import PoolSettings, RerunPolicy, run_sessions
from capibara_assets.executions.replay.replay import environment
from capibara_assets.executions.replay.workers import Ran, Session, SessionLimits, node
from capibara_assets.executions.sandbox.cgroup import groups_are_here
from capibara_assets.executions.sandbox.isolation import ASPECTS, Isolation
from capibara_assets.storage.digests import canonical_json, sha256_bytes
from capibara_assets.storage.records import Record

#: Part of the keys of kept verdicts; raise it when verdicts may come out differently.
FORMAT = 6
MEMORY_MIB = 1024
_UNCERTAIN = frozenset({"wall", "lost", "garbled"})
_PATIENCE = 1.0, 2.0
_NO_NEED = "nothing ran"
_CHECKED = re.compile(r"^check\((\w+)\)\s*\Z", re.MULTILINE)
_NO_NODE = "no Node.js here to run its language"
_NUMBER = "number of processes"
_FENCE = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[ \t]*(?P<name>[\w+-]*)[^\n]*\n(?P<code>.*?)(?:^[ \t]*(?P=fence)[ \t]*$|\Z)",
    re.M | re.S,
)
_LANGUAGE_TAGS = {
    "python": frozenset({"python", "py", "python3", "ipython", "pycon"}),
    "javascript": frozenset({"javascript", "js", "node", "nodejs", "mjs", "cjs"}),
    "sql": frozenset({"sql", "sqlite", "sqlite3"}),
}
_SQL_START = re.compile(
    r"^\s*+(?:--[^\n]*\n\s*|/\*.*?\*/\s*)*+(select|with|insert|update|delete|create|alter|drop|values|explain|pragma)\b",
    re.I | re.S,
)


@dataclass(frozen=True)
class ExtractedCode:
    """The code of an answer and where in the answer it was; `code` is None where there is none."""

    code: str | None
    how: str


class AnswerLike(Protocol):
    """What is graded: one answer of a contender to an item, by its fields."""

    @property
    def contender(self) -> str: ...
    @property
    def item_id(self) -> str: ...
    @property
    def sample(self) -> int: ...
    @property
    def text(self) -> str: ...


class Grade(Record):
    """The verdict on one answer of a contender to an item."""

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


@dataclass(frozen=True)
class SandboxSettings:
    """How answers are run.

    Attributes:
        workers: answers that run at a time.
        memory_mib: memory of one answer in MiB, all its processes together.
        isolation: how sandboxes are started; None: as `sandbox_place` chooses.
        allow_weak_isolation: run answers even where this machine cannot isolate them; the verdicts say so.
        patient: an answer that ran past its wall clock while the machine was busy runs again, alone.
    """

    workers: int
    memory_mib: int = MEMORY_MIB
    isolation: Isolation | None = None
    allow_weak_isolation: bool = False
    patient: bool = True


def grade(
    items: Sequence[Item], answers: Sequence[AnswerLike], sandbox: SandboxSettings, journal: Path | None = None
) -> list[Grade]:
    """Grade answers, in their order. Equal answers to equal checks run once.

    Args:
        journal: file (`.jsonl`) to which each verdict is appended, and from which an interrupted grading resumes;
            verdicts of other gradings in it are used as well, where everything they depend on is the same.

    Raises:
        InputError: an answer to an item that is not given, two items of one id, or a setting below one.
        IsolationError: sandboxes do not start.
    """
    if sandbox.workers < 1 or sandbox.memory_mib < 1:
        raise InputError(
            f"grading needs workers and memory_mib above zero; got {sandbox.workers}, {sandbox.memory_mib}"
        )
    by_id = {item.item_id: item for item in items}
    if len(by_id) != len(items):
        raise InputError("two items have the same item_id: an answer could not be told to which it belongs")
    unknown = sorted({answer.item_id for answer in answers} - set(by_id))
    if unknown:
        raise InputError(f"answers to items that are not given: {', '.join(unknown[:5])}")
    wanted = {_request(by_id[answer.item_id], answer.text): None for answer in answers}
    runs = [request for request in wanted if request.extracted is not None and request.extracted.code is not None]
    verdicts: dict[_Request, tuple[Verdict, str]] = {}
    ran_in = _NO_NEED
    if runs:
        isolation = sandbox.isolation or sandbox_place()
        missing = _missing(isolation)
        ran_in = isolation_text(isolation, missing)
        if missing and not sandbox.allow_weak_isolation:
            reason = f"this machine cannot isolate {', '.join(missing)}; install bubblewrap or allow user namespaces"
            verdicts = dict.fromkeys(runs, ("refused", reason))
        else:
            with_journal = GradeJournal(journal) if journal is not None else None
            verdicts = _Grader(sandbox, isolation, with_journal, ran_in).run(runs)
    return [_grade(answer, _request(by_id[answer.item_id], answer.text), verdicts, ran_in) for answer in answers]


def isolation_text(isolation: Isolation, missing: Sequence[str] = ()) -> str:
    """One line that names the sandbox and what it isolates."""
    kept = [aspect for aspect in (*ASPECTS, _NUMBER) if aspect not in _missing(isolation)]
    text = f"{isolation.kind}: {', '.join(kept) if kept else 'nothing'} isolated"
    text += ", memory in a control group" if groups_are_here() else ", memory of each process limited"
    text += ", system calls filtered" if isolation.system_calls else ", system calls not filtered"
    return f"{text}; weak, allowed by name: {', '.join(missing)} not isolated" if missing else text


def _missing(isolation: Isolation) -> list[str]:
    lacking = [str(aspect) for aspect in ASPECTS if aspect not in isolation.aspects]
    bounded = any("number of processes is limited" in clause for clause in isolation.isolated)
    return lacking if bounded else [*lacking, _NUMBER]


@dataclass(frozen=True)
class _Request:
    """One answer to one check; equal requests run once."""

    item: Item = field(compare=False)
    check: str  # digest of all that the item adds to the verdict
    text: str  # of an answer that is not run; of one that is, its code
    extracted: ExtractedCode | None = field(compare=False, default=None)


def _request(item: Item, answer: str) -> _Request:
    digest = item_digest(item)
    if item.check.kind in ("exact", "text") or item.language == "text":
        return _Request(item, digest, answer)
    code = extract_code(answer, item.language)
    if item.kind == "benchmark" and item.language == "python":
        code = _completed(item, answer, code)
    return _Request(item, digest, code.code if code.code is not None else f"\0{answer}", code)


def _completed(item: Item, answer: str, extracted: ExtractedCode) -> ExtractedCode:
    """Put the prompt's function head before a bare body, which is how base models continue a function."""
    asked = _CHECKED.search(item.check.tests)
    if asked is None or (extracted.code is not None and asked[1] in names_given(extracted.code)):
        return extracted
    head = item.prompt[-1]["content"].partition("\n\n")[2]
    for body in (extracted.code or "", answer):
        whole = f"{head.rstrip()}\n{body}"
        if parses(whole, "python") and asked[1] in names_given(whole):
            return ExtractedCode(whole, "the prompt's function with the answer as its body")
    return extracted


def item_digest(item: Item) -> str:
    """SHA-256 of what an item's verdicts depend on, besides the answer."""
    return sha256_bytes(canonical_json([item.language, item.kind == "benchmark", item.reference, asdict(item.check)]))


def _grade(
    answer: AnswerLike, request: _Request, verdicts: Mapping[_Request, tuple[Verdict, str]], ran_in: str
) -> Grade:
    check = request.item.check
    verdict: Verdict
    if request in verdicts:
        verdict, detail = verdicts[request]
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
    """Runs references, then answers, and records both in the journal."""

    sandbox: SandboxSettings
    isolation: Isolation
    journal: GradeJournal | None
    ran_in: str

    def run(self, requests: Sequence[_Request]) -> dict[_Request, tuple[Verdict, str]]:
        """The verdict of each request whose answer holds code."""
        items = {request.check: request.item for request in requests}
        calibrations = self._calibrate(items)
        plans = {digest: GradingPlan(item, calibrations[digest]) for digest, item in items.items()}
        verdicts: dict[_Request, tuple[Verdict, str]] = {}
        waiting: dict[str, _Request] = {}
        for request in requests:
            why_not = plans[request.check].calibration.why_not
            if why_not is not None:
                verdicts[request] = "ungraded", why_not
                continue
            key = self._key("verdict", request.item, [request.check, request.text])
            kept = self.journal.verdict(key) if self.journal else None
            if kept is not None:
                verdicts[request] = kept
            else:
                waiting[key] = request

        def finished(key: str, ran: Ran) -> None:
            request = waiting[key]
            verdicts[request] = plans[request.check].judge(ran)
            if self.journal:
                self.journal.add_verdict(key, verdicts[request])

        sessions = {key: (plans[r.check].session(r.text), r.item.check.timeout_s) for key, r in waiting.items()}
        self._sessions(sessions, finished)
        return verdicts

    def _calibrate(self, items: Mapping[str, Item]) -> dict[str, ItemCalibration]:
        """How each item is graded, by a run of its reference."""
        calibrations: dict[str, ItemCalibration] = {}
        open_plans: dict[str, GradingPlan] = {}
        for digest, item in items.items():
            kept = self.journal.calibration(self._key("item", item, [digest])) if self.journal else None
            if kept is not None:
                calibrations[digest] = kept
            else:
                plan = GradingPlan(item, ItemCalibration())
                start = self._before_reference(plan)
                if start is None:
                    open_plans[digest] = plan
                else:
                    calibrations[digest] = start
        while open_plans:
            tried = dict(open_plans)

            def finished(digest: str, ran: Ran, tried: Mapping[str, GradingPlan] = tried) -> None:
                said = tried[digest].calibrated(ran)
                if isinstance(said, GradingPlan):
                    open_plans[digest] = said
                    return
                calibrations[digest] = said
                del open_plans[digest]
                if self.journal:
                    self.journal.add_calibration(self._key("item", items[digest], [digest]), said)

            references = {digest: self._reference(plan.item) for digest, plan in tried.items()}
            sessions = {
                digest: (plan.session(references[digest], trusted=True), plan.item.check.timeout_s)
                for digest, plan in tried.items()
            }
            self._sessions(sessions, finished)
        return calibrations

    def _before_reference(self, plan: GradingPlan) -> ItemCalibration | None:
        """The calibration of an item that needs no run of its reference; None: the reference has to run."""
        if plan.item.language == "javascript" and node() is None:
            return ItemCalibration(why_not=_NO_NODE)
        if why_not := plan.why_not_at_all():
            return ItemCalibration(why_not=why_not)
        if plan.item.reference.strip():
            return None
        if plan.observed.code != plan.observed.trusted:
            return ItemCalibration(why_not="it has no reference, and its assertions compare with what has to be run")
        return ItemCalibration(why_not=CLAIMABLE if plan.is_claimable({}) else None)

    def _reference(self, item: Item) -> str:
        extracted = extract_code(item.reference, item.language)
        return extracted.code if extracted.code is not None else item.reference

    def _sessions(self, sessions: Mapping[str, tuple[Session, float]], finished: "_Finished") -> None:
        uncertain = _UNCERTAIN if self.sandbox.patient else _UNCERTAIN - {"wall"}
        for timeout_s in sorted({timeout_s for _, timeout_s in sessions.values()}):
            keys = [key for key, (_, limit) in sessions.items() if limit == timeout_s]
            settings = PoolSettings(
                self.isolation,
                SessionLimits(timeout_s, self.sandbox.memory_mib),
                times=1,
                processes=self.sandbox.workers,
                rerun=RerunPolicy(uncertain, _PATIENCE, quiet_is_certain=True),
                apart=frozenset({"javascript"}),  # a context of V8 is no boundary: what ran there is never asked again
            )
            run_sessions(
                [sessions[key][0] for key in keys],
                settings,
                lambda index, ran, keys=keys: finished(keys[index], ran),  # type: ignore[misc]
            )

    def _key(self, what: str, item: Item, parts: list[str]) -> str:
        ran_in = [self.ran_in, self.isolation.filter_digest]
        place = [FORMAT, what, environment(item.language), *ran_in, self.sandbox.memory_mib]
        return sha256_bytes(canonical_json([*place, *parts]))


class _Finished(Protocol):
    def __call__(self, key: str, ran: Ran, /) -> None: ...


def counts(grades: Iterable[Grade]) -> dict[str, int]:
    """How many grades there are of each verdict."""
    by_verdict: dict[str, int] = {}
    for each in grades:
        by_verdict[each.verdict] = by_verdict.get(each.verdict, 0) + 1
    return dict(sorted(by_verdict.items()))


def extract_code(answer: str, language: str) -> ExtractedCode:
    """The code in an answer: the first fenced block of its language, else the first one, else all that parses."""
    blocks = [(match["name"].lower(), match["code"].rstrip("\n")) for match in _FENCE.finditer(answer)]
    for name, code in blocks:
        if name in _LANGUAGE_TAGS[language]:
            return ExtractedCode(code, f"the first {language} block")
    if blocks:
        name, code = blocks[0]
        return ExtractedCode(code, f"the first block ({name or 'of no language'})")
    if answer.strip() and parses(answer, language):
        return ExtractedCode(answer, "the whole answer")
    return ExtractedCode(None, f"no fenced block, and the whole is no {language}")


def parses(code: str, language: str) -> bool:
    """Whether a text parses as code of the language (SQL: whether it begins with a keyword of SQL)."""
    if language == "python":
        return parse_python(code) is not None
    if language == "javascript":
        return not parse_javascript(code).has_error
    return bool(_SQL_START.match(code))


def plain_text(answer: str) -> str:
    """An answer that is not code: the content of its first fenced block, else all of it, without line feeds around."""
    match = _FENCE.search(answer)
    return (match["code"] if match else answer).strip("\n").rstrip()
