"""Leading comments as task statements: cut from the top of a cell, cleaned, and told apart from commented-out code."""

import ast
import re
import textwrap
from collections.abc import Iterator

from capibara_assets.executions.parsing import python_tree

_LINE = {"sql": "--", "javascript": "//", "typescript": "//", "java": "//"}
_BLOCKS = frozenset({"sql", "javascript", "typescript", "java"})
_WORD = re.compile(r"[^\W\d_]{2,}")
_NO_STATEMENT = re.compile(
    r"^\W*(!|%|((pip3?|conda|apt(-get)?|npm|yarn|brew|install)\s)|todo\b|fixme\b|noqa|type:|pylint|mypy|eslint|copyright|"
    r"licen[cs]e|coding[:=]|-\*-|https?://\S+$|(this cell is|cell \d))",
    re.IGNORECASE,
)
_CODE = re.compile(
    r"[;{}][^\S\n]*$|^[^\S\n]*(import|from|return|def|class|const|let|var|SELECT|@)\b.*[=(;]", re.MULTILINE
)
_MIN_WORDS, _MAX_CHARS = 3, 2000
# words of "this cell generates and saves Figure 3": that something is shown or kept, and under which number
_SHOWN = """figure figures fig figs plot plots chart charts graph graphs image images picture table tables section
sections chapter part listing equation appendix slide page exercise"""
_SHOWING = """plot plots plotting generate generates generating save saves saving saved show shows showing display
displays draw draws drawing produce produces create creates make makes render renders export exports write writes print
prints reproduce reproduces recreate run runs execute executes use used output outputs see"""
_AROUND = """a an the this that these it its in of for from to into as and or with on at by we our you us let lets now
here is are will be below above following next previous first last cell cells code notebook script snippet block file
files disk folder pdf png svg jpg jpeg eps book paper text article main supplementary left right panel number"""
_NAMES_NOTHING = frozenset(f"{_SHOWN} {_SHOWING} {_AROUND}".split())
_NUMBERED = frozenset(_SHOWN.split())
_FEWEST_TELLING = 2  # words on what is shown

#: A question for who reads code, not for who writes it.
_ON_OUTPUT = re.compile(
    r"[\W\d]*what(?:['’]s| is| will be)? (?:the )?(?:output|result)"
    r"(?: of (?:this|the) (?:code|program|snippet|following)\b[^?\n]*)?\?\Z"
    r"|[\W\d]*what (?:does|will|would|is|gets?)\b[^?\n]{0,40}"
    r"\b(?:print|log|output|happen)(?:s|ed|ged|ted)?\b[^?\n]{0,20}\?\Z",
    re.IGNORECASE,
)
#: What an agent notes on its own attempt.
_ON_ATTEMPT = re.compile(
    r"\W*(?:(?:fix(?:ed|es|ing)?|retry|try again|(?:second|third|2nd|3rd|next|another|new) (?:try|attempt|version))\b"
    r"(?:\W+\w+){0,4}|(?:attempt|try|version|v) ?\d+)\W*",
    re.IGNORECASE,
)
#: What an agent notes on code that it replaced.
_ON_BEFORE = re.compile(
    r"\W*(?:(?:was|were)[^\w\s]|(?:was|were|used to|previously|formerly|no longer|instead of|changed from)\s"
    r"|(?:old|before):|(?:fix(?:ed|es)?|bug(?:fix)?)\b)",
    re.IGNORECASE,
)
# of a comment or heading: an item of a list, a definition of a name, words that point at text which is not there
_REMARK = re.compile(
    r"^\W*\(?(\d+|[a-z])[.)]\s|^\W*[\w.\[\]]{1,20}\s*[:=]\s|[:,(]$|"
    r"\b(earlier|previous|previously|above|below|chapter|this (section|cell|notebook|book|directory))\b|"
    r"\b(incorrect|wrong|deprecated)\b|\b(import|load|install|set ?up)\b.*\b(librar|packag|modul|dependenc|import)",
    re.IGNORECASE,
)
_LABEL = re.compile(r"^\W*(?:q|query|question|task|problem|exercise|goal)\s*#?\d*\s*[:.)-]\s*", re.IGNORECASE)
_DOES = """access add aggregate append apply assign build calculate call cast center check clean clip collect combine
compare compile compute concatenate configure connect construct convert copy count create decode define
delete derive detect determine display divide download draw drop embed encode ensure enumerate estimate
evaluate examine execute extract fetch fill filter find fit flatten format generate get give group handle
help hold implement import impute initialize insert invert iterate join keep label limit list load locate
log look make map mark mask match measure merge modify move multiply normalize obtain open order parse pass
perform pick plot predict prepare print process query raise rank read recode reduce remove rename reorder
replace represent reshape resize retrieve return reverse round run sample save scale score search select
send serialize set show simulate skip sort split stack standardize store subtract sum summarize swap test
tokenize track train transform translate tune turn update upload use validate verify visualize wrap write"""
_VERBS = frozenset(_DOES.split())
_FINITE = """is are was were has have does did works gives needs keeps drops goes raises fails expects wants means
yields ignores assumes"""
_SAYS_OF = frozenset(_FINITE.split())  # what a sentence says of its subject
# of a comment above a query: what only a remark says; whether it says something of somebody
_ASIDE = re.compile(r"\([^()]*\)")
_REMARKS = re.compile(
    r"^\W*(?:an?|that|this|it|its|these|those|they|there|so|but|still|now|also|and|or|not|no|only|same|try)\b|^[^\w\"'(]"
    r"|[!:;]\s|[-=]>|[^\w\s.,'\"%/<>=-]$|^\W*\w+ (?:uses|wants|keeps|drops|goes|takes|means|expects|counts|ignores)\b"
    r"|\b(?:joins?|window|partition|frame|null|unions?|alias\w*|sub-?quer\w+|conditions?|division|divides?|cast|cte|bare"
    r"|numeric|columns?|defaults?|syntax|sqlite|postgres\w*|mysql|errors? (?:in|at|on)|fix\w*|instead|needs?|must"
    r"|should|gave|gives?|got|gets|clash\w*|correlate\w*|trick|again|because|gold|expected|predicted|wrong\w*|correct\w*|works?|fails?|failed|returns?"
    r"|test data|sample (?:data|rows?)|schema|demo|example|index(?:es)?|views?|triggers?|insert\w*|create\w*)\b",
    re.IGNORECASE,
)
_STATES = re.compile(r"\b(?:is|are|was|were|has|have|does|do|did)\b", re.IGNORECASE)
_RELATES = re.compile(
    r"\b(?:who|that|which|whose|where|when|while|if|days?|than|for whom)\b"
    r"|^\W*(?:who|whom|whose|which|what|where|when|how (?:many|much|long|often))\b",
    re.IGNORECASE,
)
_ASKS = re.compile(r"\W*(?:\w+\W+){0,4}?(?:who|whom|whose|which|what|where|when|how|is|are|do|does|did)\b", re.I)
_FOUND_OUT = re.compile(
    r"\W*\w+ing\b[^.?!]*\b(?:only|not|never|needs?|use|is|are|gives?|drops?|loses?|\w+s the)\b", re.IGNORECASE
)
_ROWS = re.compile(r"\s*(?:select|with)\b", re.IGNORECASE)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# what a query says by its clauses
_OF_CLAUSES = """per each every any all both one who whose whom which what where when how many much have had has than
then more most less least over under above below between within before after not never none only without with but also
too included including counting highest lowest longest shortest largest smallest biggest best worst longer shorter
higher lower larger smaller average avg mean median total sum number count share percent percentage rate ratio maximum
minimum running moving distinct different descending ascending sorted ordered ranked earn earns earned does did been"""
_CLAUSES = frozenset(_OF_CLAUSES.split())
_LEAST_SAID = 1 / 3  # of its other words stand in the query
_STEM = 4  # letters by which forms of a word are known
_BEFORE = "to only let us we can please now first then next finally function code a an that which method"
_BEFORE_VERBS = frozenset(_BEFORE.split())
_NAME = re.compile(r"[A-Za-z_$][\w$]*")


def leading_comment(code: str, language: str) -> tuple[str | None, str]:
    """(the comment at the top of the code, the code below it); (None, code) where there is none."""
    stripped = code.lstrip()
    if language in _BLOCKS and stripped.startswith("/*") and (end := stripped.find("*/")) > 0:
        return clean_block(stripped[2:end]), stripped[end + 2 :].lstrip("\n")
    mark = _LINE.get(language, "#")
    lines = code.split("\n")
    start = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
    end = start
    while end < len(lines) and lines[end].lstrip().startswith(mark):
        end += 1
    if end == start:
        return None, code
    return clean_lines(lines[start:end], mark), "\n".join(lines[end:])


def clean_lines(lines: list[str], mark: str) -> str:
    """The text of line comments without comment marks and decoration."""
    return "\n".join(line.strip().lstrip(mark[0] + "!").strip() for line in lines).strip()


def clean_block(inner: str) -> str:
    """The text between `/*` and `*/` without the asterisks at the start of its lines."""
    lines = [
        re.sub(r"^\s*\*(?:\s?\*)*\s?", "", line) if line.strip().startswith("*") else line for line in inner.split("\n")
    ]
    return textwrap.dedent("\n".join([lines[0].strip(), *lines[1:]])).strip()


def is_statement(text: str) -> bool:
    """Whether a comment or docstring describes the code in words: three or more, and no code or directive.

    One that says no more than that a figure, table or section is made, shown or saved describes nothing.
    """
    if not text or len(text) > _MAX_CHARS or len(_WORD.findall(text)) < _MIN_WORDS or _NO_STATEMENT.match(text):
        return False
    if _ON_OUTPUT.match(text.strip()) or _ON_ATTEMPT.fullmatch(text.strip()):
        return False
    if _CODE.search(text.split("\n", 1)[0]) or _only_shows(text):
        return False
    return python_tree(text) is None  # words that parse are commented-out code


def _only_shows(text: str) -> bool:
    words = [word.lower() for word in _WORD.findall(text)]
    telling = [word for word in words if word not in _NAMES_NOTHING]
    return len(telling) < _FEWEST_TELLING and not _NUMBERED.isdisjoint(words)


def without_note(code: str, language: str) -> str:
    """Code without a leading comment on the attempt itself, such as `# fixed`."""
    comment, rest = leading_comment(code, language)
    return rest if comment is not None and _ON_ATTEMPT.fullmatch(comment.strip()) and rest.strip() else code


def without_history(code: str, language: str) -> str:
    """Code without comments on what stood there before (`# was >=`): who reads the code alone has not seen that."""
    mark = _LINE.get(language, "#")
    kept: list[str] = []
    for line in code.split("\n"):
        at = _comment_at(line, mark)
        if at is None or _ON_BEFORE.match(line[at:].lstrip(mark[0])) is None:
            kept.append(line)
        elif line[:at].strip():
            kept.append(line[:at].rstrip())
    bare = "\n".join(kept)
    if language == "python" and bare != code and _shape(bare) != _shape(code):
        return code  # a line of a text
    return bare


def _shape(code: str) -> str | None:
    tree = python_tree(code)
    return None if tree is None else ast.dump(tree)


def _comment_at(line: str, mark: str) -> int | None:
    """Where a line's comment begins; None where it has none, or a text may hold the mark."""
    at = line.find(mark)
    closed = at >= 0 and all(line[:at].count(quote) % 2 == 0 for quote in "'\"`")
    return at if closed and (at == 0 or line[at - 1].isspace()) else None


def unlabelled(text: str) -> str:
    """A request without a label before it, such as `Question 3:`."""
    return _LABEL.sub("", text, count=1)


def without_asides(text: str) -> str:
    """A text without what it says in parentheses."""
    return _ASIDE.sub(" ", text)


def is_task(text: str) -> bool:
    """Whether a comment or heading is a self-contained request."""
    text = unlabelled(text)
    if _REMARK.search(text):
        return False
    words = [word.lower() for word in _NAME.findall(text)]
    while words and words[0] in _BEFORE_VERBS:
        words.pop(0)
    if "?" not in text and len(words) > 1 and words[1] in _SAYS_OF:  # `apply works down the columns`: `apply` is a name
        return False
    return "?" in text or any(form in _VERBS for word in words[:1] for form in _base_forms(word))


def asks_for(text: str, code: str, language: str) -> bool:
    """Whether a comment or heading is a request for the code below it."""
    if language != "sql":
        return is_task(text)
    # what its author asks himself, or found out: `subtracting texts subtracts the years; use julianday`
    on_queries = is_remark(text) and (_FOUND_OUT.match(text) or ("?" in text and not _ASKS.match(text)))
    return (is_task(text) and not on_queries) or asks_for_rows(text, code)


def asks_for_rows(text: str, query: str) -> bool:
    """Whether a comment asks for the rows of the query below it, such as `revenue per product, highest first`.

    People ask a database in noun phrases, and note in sentences what they found out about a query; the names, texts and
    aggregates of a query hold the words of the first kind.
    """
    told = unlabelled(text).strip()
    if "\n" in told or _ROWS.match(query) is None or is_remark(told):
        return False
    words, held = _stems(told), _stems(query)
    return bool(words & held) and len(words & held) >= _LEAST_SAID * len(words)


def is_remark(text: str) -> bool:
    """Whether a comment above a query says something of queries, or of what somebody found."""
    told = without_asides(text).strip()
    states = _STATES.search(told)
    return _REMARKS.search(told) is not None or (states is not None and not _RELATES.search(told[: states.start()]))


def _stems(text: str) -> set[str]:
    """The first letters of the words of a text or query that name something."""
    words = {word.lower() for word in _PARTS.findall(text)}
    return {word[:_STEM] for word in words - _NAMES_NOTHING - _CLAUSES if len(word) >= _STEM - 1}


def _base_forms(word: str) -> Iterator[str]:
    """What a verb may be a form of: `splitting` of `split`, `encoding` of `encode`, `reads` of `read`."""
    yield word
    if word.endswith("s"):
        yield word[:-1]
    if word.endswith("ing"):
        yield from (word[:-3], word[:-3] + "e", word[:-4])
