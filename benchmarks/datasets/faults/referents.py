"""What a task leaves in its author's head: what it points at, what its answer names, and the steps it does not ask for.

Read word by word: a word that points ("it", "these", "the other one") needs something named before it in the text, or
quoted after it. Of an answer that no assertion judges, places (paths, addresses, ids of a hub) have to stand in the
prompt, and below a short task no comment may announce another step.
"""

import io
import re
import tokenize
from collections.abc import Iterator, Sequence

from benchmarks.datasets.faults.cases import Case
from benchmarks.datasets.faults.words import STOP, words

_TOKEN = re.compile(r"\w[\w'’-]*|[^\w\s]|\n")
_ALONE = words(
    "ok okay yes no yep great good thanks thank perfect nice cool continue proceed retry sure right actually"
)
_JOINS = words("and but also or then")
_SINGLE, _SEVERAL = words("it its this that"), words("them they their theirs these those")
_ENDS = (
    "again",
    "instead",
    "too",
    "as well",
    "as before",
    "like before",
    "the same",
    "that too",
    "the rest",
    "like this",
)
_BACKWARD = re.compile(
    r"\b(?:the other|another|the remaining) ones?\b|\bthe (?:previous|earlier|last|above) "
    r"(?:query|question|result|answer|step|code|script|plot|chart|function|error|attempt|command|message|test)\b|"
    r"\bfrom (?:before|above|earlier)\b|\byou (?:just )?(?:wrote|made|gave|suggested|created|found|used|said)\b"
)
_EXPLETIVE = words("is was if whether does can will should when makes because that")
_ABOUT = words(
    """is was has should must will can may returns return takes does needs works who which whose with in of for to where
    from"""
)
_DO = words(
    """write create make do use run add get show print find give tell plot save load sort compute calculate try fix
    explain convert remove apply define build set put take repeat change update check return count list please now
    just so can could would you me let next it"""
)
_COLLECTIVE = words(
    "list array string set tuple table data people children men women group pair sequence matrix each all"
)
_MANY_WORDS = 60
_PLACE = re.compile(  # an address, a file in a folder, or an id of a hub
    r"^(?:https?://\S+|\.{0,2}/?(?:[\w.-]+/)+[\w.-]*\w\.\w{2,5}|"
    r"(?!(?:application|text|image|audio|video|multipart|font|model)/)[A-Za-z][\w.-]+/[\w.-]*[\d-][\w.-]*)$"
)
_STEP = re.compile(r"^#+\s*([A-Za-z].*)$")
_BRIEF = 12
_STEPS = words("load create define build train initialize init import download upload query delete connect register")


def untold(case: Case) -> str | None:
    """What a task points at or needs without telling it; None where there is nothing."""
    statement = next((section.text for section in case.sections if not section.title), "").partition("\n")[2].strip()
    if not statement or case.kind == "repair":
        return None
    if (word := dangling(statement)) is not None:
        return f"{word!r} refers to what the prompt does not hold"
    if case.language != "python" or re.search(r"\b(?:assert|raise)\b", f"{case.test or ''}\n{case.prompt}"):
        return None
    for place in _places(case.code):
        if place.lower() not in case.prompt.lower():
            return f"a place that nothing names: {place}"
    return _other_step(statement, case.code)


def dangling(statement: str) -> str | None:
    """The first word that points at nothing in a text; None where all is named."""
    text = statement.lower()
    tokens: list[str] = _TOKEN.findall(text)
    plain = [token for token in tokens if token[0].isalnum()]
    if not plain or len(plain) > _MANY_WORDS:
        return None
    after = tokens[tokens.index(plain[0]) + 1 :][:1]
    if plain[0] in _JOINS or (plain[0] in _ALONE and (not after or not after[0][0].isalnum() or len(plain) < 4)):
        return plain[0]
    if text.startswith(("what about", "how about", "go ahead", "do it", "do that")):
        return " ".join(plain[:2])
    if (found := _BACKWARD.search(text)) is not None and not re.search(r"\b(?:one|two|both)\b", text[: found.start()]):
        return found.group()
    ending = " ".join(plain)
    if len(plain) <= _BRIEF and (last := next((e for e in _ENDS if ending.endswith(f" {e}")), None)) is not None:
        return last
    return _pointing(tokens)


def _pointing(tokens: Sequence[str]) -> str | None:
    named: list[str] = []
    for at, token in enumerate(tokens):
        before, after = (tokens[at - 1] if at else ""), (tokens[at + 1] if at + 1 < len(tokens) else "")
        quoted = any(not t[0].isalpha() and t not in (".", ",", "?", "!", "'") for t in tokens[at + 1 :])
        if token in _SINGLE and not (named or quoted or before in _EXPLETIVE or after in _ABOUT):
            if token != "that" or not after[:1].isalpha():
                return token
        elif token in _SEVERAL and not (quoted or after in _ABOUT or len(named) > 1 or any(map(_is_many, named))):
            return token
        if token[0].isalnum() and token not in STOP | _DO | _SINGLE | _SEVERAL:
            named.append(token)
    return None


def _is_many(word: str) -> bool:
    return word in _COLLECTIVE or (word.endswith("s") and len(word) > 3)


def _places(code: str) -> Iterator[str]:
    """Paths, addresses and ids in the texts of Python code."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.STRING and _PLACE.match(text := token.string.lstrip("rRbBuUfF").strip("'\"")):
                yield text
    except (tokenize.TokenError, SyntaxError):
        return


def _other_step(statement: str, code: str) -> str | None:
    """A step that a comment below other code announces and a short task says no word of."""
    said = {word[:4] for word in re.findall(r"[a-z]{3,}", statement.lower()) if word not in STOP}
    if len(statement.split()) > _BRIEF:
        return None
    begun = False
    for line in code.splitlines():
        step = _STEP.match(line)
        if step is not None and begun:
            told = [word for word in re.findall(r"[a-z]{3,}", step[1].lower()) if word not in STOP]
            if told and told[0] in _STEPS and not said & {word[:4] for word in told[1:]}:
                return f"nothing asks for {step[1][:50]!r}"
        begun |= bool(line.strip()) and step is None and not line.startswith(("import ", "from "))
    return None
