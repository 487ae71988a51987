"""`boilerplate`: explanations and tasks that say nothing of their own.

An answer of *explain* is boilerplate when each of its sentences is empty: all its content words are in the code (its
identifiers cut into words, stems compared) or say only what sort of thing stands there; or, with quoted code, names of
the code and numbers masked, it is a skeleton that many answers share. A sentence is not empty where it holds a fact,
i.e. quoted text or a number that the prompt does not show, or where it relates two things more than the head of the
definition names. The statement of a *solve* task is boilerplate when nothing is left of it but words that fit any task.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import snowballstemmer

from benchmarks.datasets.faults.cases import Case, is_error
from benchmarks.datasets.faults.words import JOINING, OF_ANY_TASK, SORTS, STOP

_MANY = 5  # examples that share a skeleton
_SEVERAL = 3  # answers that hold a sentence word for word
_SENTENCE_WORDS = 8  # a sentence that relates things, and those that the head of a definition does not name
_RELATED = 2
_NUMBERS = 2  # of a problem that is put in figures
_QUOTED = re.compile(r"```.*?```|``.+?``|`[^`\n]+`|\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)", re.S)
_SENTENCE = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`\"'])|\n+")
_stemmer = snowballstemmer.stemmer("english")


@dataclass(frozen=True)
class _Read:
    """What a prompt shows: its words, the stems of the words in its names, and those of heads of definitions."""

    prompt: str
    squeezed: str
    words: frozenset[str]
    stems: frozenset[str]
    heads: frozenset[str]


def boilerplate(cases: Sequence[Case]) -> dict[str, str]:
    """Example id -> why it says nothing of its own; skeletons are counted over all cases that are given together."""
    explained = [(case, _read(case.prompt), _sentences(case.answer)) for case in cases if case.kind == "explain"]
    shared = Counter[str]()
    verbatim = Counter[str]()
    for _, read, sentences in explained:
        shared.update({skeleton for sentence in sentences for skeleton in _skeletons(sentence, read)})
        verbatim.update(set(sentences))
    found = {}
    for case, read, sentences in explained:
        reasons = [_empty_sentence(sentence, read, shared, verbatim) for sentence in sentences]
        if not reasons:
            found[case.example_id] = "no words"
        elif all(reasons):
            found[case.example_id] = "; ".join(dict.fromkeys(reason for reason in reasons if reason))
    return found | {case.example_id: why for case in cases if case.kind == "solve" and (why := _empty_task(case))}


def _read(prompt: str) -> _Read:
    heads = " ".join(re.findall(r"(?:\bdef|\bclass|\bfunction\*?|\bconst|\blet)\s+(\w+[^\n{:]*)", prompt))
    return _Read(
        prompt,
        re.sub(r"[^\S\n]+", "", prompt),
        frozenset(re.findall(r"\w+", prompt)),
        frozenset(map(_stem, _parts(prompt))),
        frozenset(map(_stem, _parts(heads))),
    )


def _empty_sentence(sentence: str, read: _Read, shared: Counter[str], verbatim: Counter[str]) -> str | None:
    """Why a sentence says nothing; None when it does. What several answers hold word for word is no fact of any."""
    words = _words(_QUOTED.sub(" ", sentence))
    if (verbatim[sentence] < _SEVERAL or len(words) < _SENTENCE_WORDS) and _facts(sentence, read):
        return None
    stems = {_stem(word) for word in words if word not in STOP and word not in SORTS}
    # a relation of things that the head does not name is said, even where the body's names are its words
    joined = len(words) >= _SENTENCE_WORDS and len(JOINING.intersection(words)) >= _RELATED
    related = bool(read.heads) and joined and len(stems - read.heads) >= _RELATED
    if stems <= read.stems and not related:
        return f"all words stand in the code: {sentence[:100]}"
    many, skeleton = max((shared[skeleton], skeleton) for skeleton in _skeletons(sentence, read))
    return f"{many} answers share {skeleton[:100]!r}" if many >= _MANY else None


def _facts(sentence: str, read: _Read) -> bool:
    """Whether a sentence holds quoted text or a number that the prompt does not show: a value, a line put right."""
    for quoted in _QUOTED.findall(sentence):
        inner = quoted.strip("`\"'").strip()
        stands = re.search(re.escape(re.sub(r"\s+", "", inner)) + r"(?!\w)", read.squeezed)
        if inner and not stands and not _is_name(inner, read):
            return True
    numbers = re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", _QUOTED.sub(" ", sentence))
    return any(not re.search(rf"(?<![\w.]){re.escape(number)}(?!\w)", read.prompt) for number in numbers)


def _is_name(inner: str, read: _Read) -> bool:
    """Whether quoted text only names what stands there: `.merge()`, or the head of a definition in another spelling."""
    found = re.fullmatch(r"\.?([\w.]+)(?:\(.*\))?(?:\s*->.*)?", inner)
    if found is None:
        return False
    name = found.group(1).split(".")[-1]
    bare = inner.removesuffix("()").lstrip(".") == found.group(1)
    return name in read.words and (
        bare or bool(re.search(rf"\b(?:def|class|function\*?|const|let)\s+{re.escape(name)}\b", read.prompt))
    )


def _skeletons(sentence: str, read: _Read) -> set[str]:
    """A sentence with quoted code and numbers masked, and names of the code: once all, once those that are no words."""
    masked = re.sub(r"-?\d+(?:\.\d+)?", "_", _QUOTED.sub(" _ ", sentence))
    tokens = re.findall(r"\w+|[^\w\s]", masked)
    names = {word for word in tokens if word in read.words and word.lower() not in STOP and not word.istitle()}
    forms = ({w for w in names if re.search(r"_|\d|[a-z][A-Z]", w)}, names)
    said = (" ".join("_" if word in form else word.lower() for word in tokens) for form in forms)
    return {re.sub(r"_(?:[\s,.()=*:]*_)*", "_", text) for text in said}


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in _SENTENCE.split(text) if re.search(r"\w", part)]


def _empty_task(case: Case) -> str | None:
    """Why a task says nothing: no words but those of any task, no test, and no signature whose name tells."""
    if re.search(r"\bassert|^\s*>{1,3} \S|\bexpect\(", case.prompt, re.M):
        return None
    if len(re.findall(r"\d+", case.prompt)) >= _NUMBERS and re.search(r"[=$?]", case.prompt):
        return None  # a problem in figures
    session = re.compile(r"\b(?:session|context|so far|earlier|before|schema|tables?|advice|playbook|files?)\b", re.I)
    stated = [s for s in case.sections if not session.search(s.title) and not is_error(s) and s.title != "```"]
    lines = [line for s in stated for line in (s.title, *s.text.splitlines()) if not _is_signature(line)]
    names = {_stem(part) for part in _parts(case.code)} if len(lines) > 12 else set[str]()
    words = [w for line in lines for w in _words(line)]
    own = {_stem(word) for word in words if word not in STOP and word not in OF_ANY_TASK} - names
    if own:
        return None
    said = " ".join(line for line in lines if line.strip())
    named = {
        _stem(p)
        for s in stated
        for line in s.text.splitlines()
        if _is_signature(line)
        for p in _parts(line.split("(")[0])
    }
    if len(named - {_stem(w) for w in OF_ANY_TASK | {"def", "async", "const", "f", "main"}}) >= 2:
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
