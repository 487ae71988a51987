"""Detection of requests that depend on earlier dialogue, such as "now do it for the other one"."""

import re
from collections.abc import Sequence

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.executions.formats.notebook_tasks import FROM_MARKDOWN

REFERS_BACK = "its task refers to what was said before, which the log does not hold"

_OPENING = re.compile(
    r"\W*(?:(?:and|but|also|or|then|same|likewise|ditto)\b|(?:what|how) about\b|"
    r"(?:please )?(?:continue|go (?:on|ahead)|proceed|retry|try again|do (?:it|that|so))\b|"
    r"(?:ok(?:ay)?|yes|yep|no|nope|great|good|thanks?|thank you|perfect|nice|cool|next|actually|wait|sorry|so|right|"
    r"sure|hm+)\s*(?:[,.!:;-]|$)|(?:use|try|with) [\w.-]+\W*$|\S+ (?:[-=]>|→) \S+\W*$)",
    re.IGNORECASE,
)
_BACK = re.compile(
    r"\b(?:once more|yet again)\b|\b(?:again|instead|(?:as|like|than|from) (?:before|previously|above|earlier))\s*"
    r"(?:[.!?,]|$)|\b(?:do|did|does|want|need|apply|repeat) (?:exactly )?the same\b(?! (?:number|length|order|value))|"
    r"\bthe (?:previous|earlier|above|last|former) (?:query|question|result|output|answer|step|code|script|plot|chart|"
    r"graph|figure|function|error|version|attempt|command|message|request|test)s?\b|"
    r"\byou (?:just |already |have |had )*(?:wrote|made|said|gave|did|suggested|created|mentioned|found|generated|"
    r"written|given|done|produced|used)\b|\bwe (?:just|already|had|previously|discussed|talked)\b",
    re.IGNORECASE,
)
_FAILS = (
    r"(?:(?:(?:does|did|do|is|was|are|were|has|have|ca|wo)n['’]?t|not|never|cannot) (?:yet )?(?:been )?"
    r"(?:work|pass|run|compil|help|fix|right|correct|enough|there)\w*|fail(?:s|ed|ing)?\b(?! to\b)|"
    r"crash(?:es|ed|ing)?\b|break(?:s|ing)\b|broken\b|wrong\b|incorrect\b|"
    r"(?:gives|throws|raises|returns|says|shows|produces) (?:\w+ ){0,3}(?:error|exception)s?\b)"
)
_ATTEMPT = (
    r"(?:it|this|that|(?:the|your|my) (?:\w+ )?(?:code|tests?|script|program|query|function|output|results?|answer|"
    r"build|fix))(?:['’]s)?\b(?: (?:still|again|now|is|are|was|just|also|only)\b)*"
)
_REPORT = re.compile(  # how the last attempt fared
    rf"\W*(?:{_ATTEMPT}|still|again)\W+{_FAILS}|"
    rf"\W*(?:{_FAILS}|still(?:\W*$|\W+(?:the|an?|no|same|getting|seeing)\b)|it works? (?:\w+ ){{1,5}}but\b)|"
    r"\W*(?:i|we)(?: am|['’]m| are|['’]re)? (?:still |now |also )?(?:get|got|see|have|hit)(?:ting|ing)?\b[^.\n]{0,40}\b"
    r"(?:error|exception|traceback|failure|result|output)s?\b",
    re.IGNORECASE,
)
_MEND = re.compile(  # of code that stands beside it
    r"\W*(?:(?:please|now|can you|could you|try to) )*(?:fix|correct|debug|resolve|solve)"
    r"(?: (?:the|this|that|these|those|all|my))* (?:errors?|bugs?|issues?|problems?|failures?|code|(?:failing )?tests?)"
    r"\W*(?:please|now)?\W*$",
    re.IGNORECASE,
)
_ADDED = re.compile(r"\b(?:as well|too|the rest)\s*[.!?]?\s*$", re.IGNORECASE)
_OTHERS = re.compile(r"\b(?:the other|another|the remaining) ones?\b|\bthe (?:others|latter|former)\b(?! of\b)", re.I)
_SEVERAL = re.compile(r"\b(?:one|two|three|both|pairs?|either|several|each|every|all|list|numbers|items|some)\b", re.I)
_PLURAL = re.compile(
    r"\b(?:they|them|theirs?|these)\b|\bthose\b"
    r"(?! (?:who|whom|whose|that|which|with|in|of|for|having|from|not|where|at|on|are)\b)",
    re.IGNORECASE,
)
_MANY = re.compile(  # several things, or a thing of many parts
    r"\b(?!(?:this|is|was|has|does|its|us|as|plus|minus|class|across|less|unless|thus|axis|yes)\b)\w{2,}s\b|\band\b|\d|"
    r"\b(?:(?:two|both|each|every|all)(?! of\b)|three|four|five|list|array|string|set|tuple|table|data\w*|people|"
    r"children|m[ae]n|wom[ae]n|group|pair|sequence|dict\w*|matrix|queue|stack|collection|frame|everyone|someone|"
    r"anyone|team|staff|who|any)\b",
    re.IGNORECASE,
)
_IT = re.compile(
    r"(?<!is )(?<!was )(?<!if )(?<!whether )(?<!does )(?<!can )(?<!will )(?<!should )(?<!that )(?<!when )(?<!makes )"
    r"(?<!because )\b(?:it|its)\b(?!['’]s\b)"
    r"(?! (?:is|was|has|had|should|must|will|can|may|might|would|returns?|takes?|does|needs?|works?|to)\b)|"
    r"\b(?:do|like|for|of|with|about|use|using|from|on|fix|run) that\b(?=\s*(?:[.!?,]|$))|\bthat one\b",
    re.IGNORECASE,
)
_THIS = re.compile(
    r"\bth(?:is|e same)\b(?! (?:year|month|week|day|time|number|length|size|order|type|value|way)\b)", re.IGNORECASE
)
_QUOTES = re.compile(r"[:\n`=\[\]{}()\"]|\d")  # what is meant may stand in the text itself
_ON_ERRORS = re.compile(
    r"\b(error|exception|invalid|fail|handl|catch|robust|safe|ignor|skip|malformed|missing|rais(e|ing)|throw|reject)"
    r"|\w\w(error|exception)\b",
    re.IGNORECASE,
)
_WRONG = re.compile(
    r"\b(?:fix|debug|repair|mend) (?:it|this|that|my|our|them)\b|[,.;:] *(?:please )?fix\W*$|"
    r"\bthere(?: is|['’]s) a bug\b|\b(?:the|a|my) bug in\b|\bfind the (?:bug|error|mistake)|"
    r"\b(?:is|are|comes? out|gives?|gave|got|get) (?:a )?wrong\b",
    re.IGNORECASE,
)
_CODE = re.compile(  # lines of code below a request, which "this" and "it" then mean
    r"```|^[ \t]*(?:(?:async )?def \w+\(|class \w+[(:{]|(?:async )?function\b|(?:const|let|var) \w+ ?=|"
    r"import \w|from \w[\w.]* import )|^ {2,}\S.*\n {2,}\S",
    re.MULTILINE,
)
_AS_CODE = re.compile(
    r"(?<![\w$])([A-Za-z_$][\w$]*)(?=\()|[`'\"]([A-Za-z_$][\w$]*)[`'\"]"
    r"|\b(\w{0,80}[a-z0-9][A-Z]\w*|\w{0,80}_\w+|\w{0,80}[A-Za-z]\d\w*)|"
    r"\b(?:called|named|function|method|class|def)[ :]+([A-Za-z_$][\w$]*)|\b([A-Z]{2,}\w*)"
)
_CONTENT = re.compile(r"[^\W\d_]{3,}")
_OF_ANY = """the and for with from into that this these those what which who how why when where does did are was were
has have can could should would will shall may might must please let you your our not all any each both its their them
they about just now then also some more use using make get show give tell want need function code program script write
create find"""
_EMPTY = frozenset(_OF_ANY.split())
_BRIEF, _LONG = 5, 40  # words of content: of a short task, and of one that tells its circumstances


def refers_back(text: str) -> bool:
    """Whether a request refers to something unnamed: a pronoun, comparison or opening without its referent."""
    stated = text.strip()
    if len(_telling(stated)) > _LONG or holds_code(stated):
        return False
    if leans_on_dialogue(stated) or _MEND.match(stated):
        return True
    many = _PLURAL.search(stated)
    if many and not _MANY.search(stated[: many.start()]) and _points_out(stated, many, 1):
        return True
    single = (_IT.search(stated), _THIS.search(stated))
    return any(pronoun is not None and _points_out(stated, pronoun, 0) for pronoun in single)


def holds_code(text: str) -> bool:
    """Whether a request quotes the code that it is about."""
    return _CODE.search(text) is not None


def asks_to_mend(text: str) -> bool:
    """Whether a request is about something that exists and is wrong."""
    return _WRONG.search(text) is not None


def speaks_of_errors(text: str) -> bool:
    """Whether a task speaks of errors, so that to catch or skip them may be what it asks for."""
    return _ON_ERRORS.search(text) is not None


def names_as_code(task: str) -> set[str]:
    """The words of a task that can only be meant as names: `total` of "`total(cart)`", not of "the total is wrong"."""
    return {next(filter(None, found)) for found in _AS_CODE.findall(task)}


def leans_on_dialogue(text: str) -> bool:
    """Whether a request continues, compares with or answers another one that code cannot replace."""
    stated = text.strip()
    size = len(_telling(stated))
    if size > _LONG or holds_code(stated):
        return False
    if (
        _OPENING.match(stated)
        or _REPORT.match(stated)
        or _BACK.search(stated)
        or (size <= _BRIEF and _ADDED.search(stated))
    ):
        return True
    other = _OTHERS.search(stated)
    return other is not None and not _SEVERAL.search(stated[: other.start()])


def _points_out(text: str, word: re.Match[str], most: int) -> bool:
    """Whether no more than so many things are named before a word that points, and nothing is quoted after it."""
    return _named(text[: word.start()]) <= most and not _QUOTES.search(text[word.end() :].rstrip(" .?!"))


def _telling(text: str) -> list[str]:
    return [word for word in map(str.lower, _CONTENT.findall(text)) if word not in _EMPTY]


def _named(before: str) -> int:
    """How many things a text may have named: its words of content, without the verb that it begins with."""
    words, telling = [word.lower() for word in _CONTENT.findall(before)], _telling(before)
    return len(telling) - (bool(telling) and telling[0] == words[0])


def with_earlier(session: Sequence[Row], row: Row, most: int) -> str | None:
    """The request with the earlier ones it refers to; None if the log does not hold them.

    Args:
        session: executions in order of time.
        most: characters.
    """
    asked: list[str] = [row["task"].strip()]
    if not refers_back(asked[0]):
        return asked[0]
    position = next(i for i, one in enumerate(session) if one["execution_id"] == row["execution_id"])
    for one in reversed(session[:position]):
        task = (one["task"] or "").strip()
        if not task or task in asked or FROM_MARKDOWN in one["flags"]:
            continue
        asked.append(task)
        if not refers_back(task):
            *earlier, now = reversed(asked)
            told = "\n".join([*(f"Asked before: {each}" for each in earlier), f"Asked now: {now}"])
            return told if len(told) <= most else None
    return None
