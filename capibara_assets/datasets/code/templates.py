"""Keys of code that ignore names and literal values."""

import keyword
import re
from functools import lru_cache
from itertools import pairwise

from sqlglot.tokens import Tokenizer

from capibara_assets.datasets.code.structure import tokens
from capibara_assets.executions.parsing import JAVASCRIPT
from capibara_assets.storage.digests import sha256_bytes

_IN_JAVASCRIPT = """async await break case catch class const continue default delete do else export extends false
finally for from function if import in instanceof let new null of return static super switch this throw true try typeof
undefined var void while yield"""
_JAVASCRIPT = frozenset(_IN_JAVASCRIPT.split())
_LITERAL, _NAME = "\x01", "\x02"
_LISTED = re.compile(rf"(?<![{_NAME}\w]\x00)[\[({{]\x00(?:{_LITERAL}\x00(?:[,:]\x00)?)+[\])}}]")
_SEVERAL = re.compile(rf"{_LITERAL}(?:\x00,\x00{_LITERAL})+")
_WORD = re.compile(r"[^\W\d]|\$")
_TURNS = 4  # as deep as values are nested


@lru_cache(maxsize=8192)
def template_key(code: str, language: str) -> str:
    """SHA-256 of code with its own names numbered, every literal alike, and lists of them like a single one.

    Names of calls are kept where the code does not define them, methods always.
    """
    listed = tokens(code, language)
    defined = {name for before, name in pairwise(listed) if before in ("def", "class", "function")}
    kept = _keywords(language)
    order: dict[str, int] = {}
    out = []
    for before, token, after in zip(["", *listed], listed, [*listed[1:], ""], strict=False):
        called = after == "(" and (before == "." or token not in defined)
        if token[0].isdigit() or token.lstrip("rbfuRBFU")[:1] in ("'", '"', "`"):
            out.append(_LITERAL)
        elif called or not _WORD.match(token) or (token.upper() if language == "sql" else token) in kept:
            out.append(token)
        else:
            out.append(f"{_NAME}{order.setdefault(token, len(order))}")
    form = "\x00".join(out)
    for _ in range(_TURNS):
        form = _SEVERAL.sub(_LITERAL, _LISTED.sub(_LITERAL, form))
    return sha256_bytes(f"{language}\n{form}".encode("utf-8", "replace"))


def _keywords(language: str) -> frozenset[str]:
    if language == "sql":
        return frozenset(Tokenizer.KEYWORDS)
    return _JAVASCRIPT if language in JAVASCRIPT else frozenset(keyword.kwlist)
