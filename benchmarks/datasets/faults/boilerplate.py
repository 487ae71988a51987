"""`boilerplate`: explanations and tasks that say nothing of their own.

An answer of *explain* is boilerplate when each of its sentences is empty: all its content words are in the code
(identifiers cut into words, word stems compared) or say only what sort of thing stands there; or, with quoted code, names
of the code and numbers masked, it is a skeleton that many answers share while it holds no fact, i.e. no quoted
text, name or number that the prompt does not show. The statement of a *solve* task is boilerplate when nothing is left of it
but names of the answer and words that fit any task.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import snowballstemmer

from benchmarks.datasets.faults.cases import Case, is_error

_MANY = 5  # examples that share a skeleton
_FEW = 3  # words of its own, by which a sentence says something
_STOP = frozenset(
    """a an the this that these those it its is are was be been being as at by for from in into of on onto or and not no to
    with without over under up out then than so such if else when while where which who whose what how all any each both
    one two some more most other same own only just also here there again i you we they he she do does did done has have had
    can could will would shall should may might must per via using use uses used""".split()
)
_GENERIC = frozenset(
    """function method class code program script query statement snippet expression block line lines cell call calls called
    define defines defined definition return returns returned returning take takes given give gives value values parameter parameters argument
    arguments variable variables name names named type object element item build builds comprehension loop loops iterate iterates
    itself recursive recursively python javascript sql select table tables column columns row rows clause clauses operation array
    data frame dataframe list dict dictionary handle handles raise raises error exception result results output input write implement
    implements implementation following example generate generates figure show shows display displays plot run runs running execute executes
    print prints simple basic compute computes calculate calculates perform performs create creates method methods module
    import imports set sets get gets make makes new combine combines promise promises clean cleans finally
    task step section part next previous above below first second third now let see wrong right because with update insert alter
    where group order limit join case having distinct union inner left outer exists window async await asynchronous""".split()
)
_TASK_GENERIC = _GENERIC | frozenset(
    """please want need helper chapter notebook exercise answer solution question problem solve test tests pass passes assertion
    assertions cells it's following listing fig save saves saved appendix page""".split()
)
_QUOTED = re.compile(r"```.*?```|``.+?``|`[^`\n]+`|\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)", re.S)
_SENTENCE = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`\"'])|\n+")
_stemmer = snowballstemmer.stemmer("english")


def boilerplate(cases: Sequence[Case]) -> dict[str, str]:
    """Example id -> why it says nothing of its own; skeletons are counted over all cases that are given together."""
    explained = [case for case in cases if case.kind == "explain"]
    shared = Counter[str]()
    for case in explained:
        shared.update({skeleton for sentence in _sentences(case.answer) for skeleton in _skeletons(sentence, case)})
    found = {case.example_id: reason for case in explained if (reason := _empty_answer(case, shared))}
    for case in cases:
        if case.kind == "solve" and (reason := _empty_task(case)):
            found[case.example_id] = reason
    return found


def _empty_answer(case: Case, shared: Counter[str]) -> str | None:
    reasons = [_empty_sentence(sentence, case, shared) for sentence in _sentences(case.answer)]
    if reasons and all(reasons):
        return str(reasons[0])
    return None if reasons else "no words"


def _empty_sentence(sentence: str, case: Case, shared: Counter[str]) -> str | None:
    """Why a sentence says nothing; None when it does."""
    if _facts(sentence, case):
        return None
    own = _own_words(sentence, case)
    if not own:
        return f"all words stand in the code: {sentence[:100]}"
    many, skeleton = max((shared[skeleton], skeleton) for skeleton in _skeletons(sentence, case))
    if many >= _MANY:
        return f"{many} answers share {skeleton[:100]!r}"
    return None


def _facts(sentence: str, case: Case) -> bool:
    """Whether a sentence holds quoted text or a number that the prompt does not show: a value seen, a line put right."""
    shown = re.sub(r"\s+", "", case.prompt)
    for quoted in _QUOTED.findall(sentence):
        inner = re.sub(r"\s+", "", quoted.strip("`\"'"))
        if inner and inner not in shown and not _is_head(inner, shown):
            return True
    bare = _QUOTED.sub(" ", sentence)
    return any(not re.search(rf"(?<![\w.]){re.escape(n)}(?!\w)", case.prompt) for n in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", bare))


def _is_head(inner: str, shown: str) -> bool:
    """Whether quoted code is the head of a definition in another spelling: `f(a, b)` for `def f(a: int, b)`."""
    name = re.match(r"\w+", inner)
    return name is not None and bool(re.fullmatch(r"\w+\(.*\)|\.?\w+(?:\(\))?", inner)) and name.group() in shown


def _own_words(sentence: str, case: Case) -> set[str]:
    """Stems of content words that neither the code nor its names hold."""
    code = case.prompt
    known = {_stem(part) for part in _parts(code)}
    words = {_stem(word) for word in _words(_QUOTED.sub(" ", sentence)) if word not in _STOP and word not in _GENERIC}
    return words - known


def _skeletons(sentence: str, case: Case) -> set[str]:
    """A sentence with quoted code and numbers masked, and with names of the code, once all and once those in no other way words."""
    known = set(re.findall(r"\w+", case.prompt))
    masked = re.sub(r"-?\d+(?:\.\d+)?", "_", _QUOTED.sub(" _ ", sentence))
    tokens = re.findall(r"\w+|[^\w\s]", masked)
    names = {word for word in tokens if word in known and word.lower() not in _STOP and not word.istitle()}
    forms = ({w for w in names if re.search(r"_|\d|[a-z][A-Z]", w)}, names)
    said = (" ".join("_" if word in form else word.lower() for word in tokens) for form in forms)
    return {re.sub(r"_(?:[\s,.()=*:]*_)*", "_", text) for text in said}


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in _SENTENCE.split(text) if re.search(r"\w", part)]


def _empty_task(case: Case) -> str | None:
    """A task of which nothing remains without names of the answer and words of any task, and without a test or lists."""
    if re.search(r"\bassert|^\s*>{1,3} \S|\bexpect\(", case.prompt, re.M):
        return None
    session = re.compile(r"\b(?:session|context|so far|earlier|before|schema|tables?|advice|playbook|files?)\b", re.I)
    stated = [s for s in case.sections if not session.search(s.title) and not is_error(s) and s.title != "```"]
    lines = [line for s in stated for line in (s.title, *s.text.splitlines()) if not _is_signature(line)]
    names = {_stem(part) for part in _parts(case.code)} if len(lines) > 12 else set[str]()
    words = [w for line in lines for w in _words(line)]
    own = {_stem(word) for word in words if word not in _STOP and word not in _TASK_GENERIC} - names
    if own:
        return None
    said = " ".join(line for line in lines if line.strip())
    named = {_stem(p) for s in stated for line in s.text.splitlines() if _is_signature(line) for p in _parts(line.split("(")[0])}
    if len(named - {_stem(w) for w in _TASK_GENERIC | {"def", "async", "const", "f", "main"}}) >= 2:
        return None  # a signature whose name tells
    return f"the task tells nothing: {said[:100]}"


def _is_signature(line: str) -> bool:
    return bool(re.match(r"\s*(?:async )?(?:def|class|function\*?|const|let|export)\s+\w+", line))


def _words(text: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[^\W\d_]{2,}(?:'\w+)?", text)]


def _parts(code: str) -> Iterable[str]:
    """Words of identifiers: `firstName`, `first_name` and `FIRST_NAME` are first and name."""
    for word in re.findall(r"[^\W\d_]+", code):
        yield word.lower()
        for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", word):
            yield part.lower()


@lru_cache(maxsize=65536)
def _stem(word: str) -> str:
    return str(_stemmer.stemWord(word))
