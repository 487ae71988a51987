"""The task of a notebook cell, from the markdown right above it."""

import re
from collections.abc import Sequence
from typing import NamedTuple

FROM_MARKDOWN = "task_from_markdown"  # flag: the task is the heading or introduction that stands above the cell
_LONGEST = 1000  # characters; of longer text only the heading, or the paragraph that introduces the cell, is kept
_HEADING = re.compile(r"^ {0,3}(?P<marks>#{1,6})[ \t]+(?P<text>.*)$")
_CLOSING = re.compile(r"(?<![ \t])[ \t]+#+\Z")
_NUMBER = re.compile(r"^(?:\d+(?:\.\d+)*[.):]?|[IVXivx]+[.)]|[A-Za-z][.)])\s+")
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)|<img\b[^>]*>|<!--.*?-->", re.DOTALL)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_LINK = re.compile(r"\[([^\]]{0,2000})\]\([^)]{0,2000}\)")


class _Heading(NamedTuple):
    level: int
    text: str
    line: int


def task_above(markdown: Sequence[str], titled: bool) -> str | None:
    """The task that the markdown cells between the code cell before and this one state; None when they state none.

    It is the last heading with the text below it, or, where no heading stands there, the last paragraph if it ends
    with a colon (it introduces the code). The first heading of a page, when it is of level one, is the page's title:
    it and what follows it speak of the whole page.

    Args:
        markdown: sources of those cells, as on the page.
        titled: whether the page had a heading before them.
    """
    lines = "\n\n".join(markdown).split("\n")
    headings = _headings(lines)
    heading = headings[-1] if headings else None
    if heading is not None and heading.level == 1 and not titled and len(headings) == 1:
        return None
    body = [_plain(part) for part in "\n".join(lines[heading.line + 1 if heading else 0 :]).split("\n\n")]
    body = [part for part in body if part]
    introduction = body[-1] if body and body[-1].endswith(":") else ""
    if heading is None:
        return introduction if len(introduction) <= _LONGEST and introduction else None
    title = _NUMBER.sub("", _plain(heading.text))
    whole = "\n".join([title, *body]).strip()
    return (whole if len(whole) <= _LONGEST else "\n".join(filter(None, [title, introduction]))[:_LONGEST]) or None


def has_heading(source: str) -> bool:
    """Whether a markdown cell holds a heading."""
    return bool(_headings(source.split("\n")))


def _headings(lines: Sequence[str]) -> list[_Heading]:
    """Headings outside fenced code."""
    headings, fence = [], ""
    for number, line in enumerate(lines):
        mark = line.strip()[:3]
        if mark in ("```", "~~~"):
            fence = "" if fence == mark else fence or mark
        elif not fence and (match := _HEADING.match(line)) and (text := _CLOSING.sub("", match["text"].rstrip(" \t"))):
            headings.append(_Heading(len(match["marks"]), text, number))
    return headings


def _plain(text: str) -> str:
    """Markdown without images, tags and the addresses of links."""
    return _LINK.sub(r"\1", _TAG.sub("", _IMAGE.sub("", text))).strip()
