"""The Markdown of which a page was made that folds calls and outputs (`<details>`), as ccexport's previews are.

Headings, fences and bold words become what they were; what is folded stands in tags in both.
"""

import html
import re

FOLDED = "<summary>Tool Result</summary>"  # stands in every such page
_PAGE = re.compile(r"\s*<(?:!doctype html|html)\b", re.IGNORECASE)
_BODY = re.compile(r"<body\b[^<>]*>", re.IGNORECASE)
_OPENS, _CLOSES = re.compile(r'<pre><code(?: class="language-([\w+-]*)[^"<>]*")?>'), "</code></pre>"
_HEADING = re.compile(r"^<h([1-6])>", re.MULTILINE)
_SIGNS = {"strong": "**", "code": "`"}
_TAG = re.compile(r"</?(?!details>|summary>)([a-zA-Z]\w*)[^<>]*>")
_TICKS = re.compile(r"`+")


def page_markdown(page: str) -> str | None:
    """The Markdown of a page, as far as it shows calls and words; None: the text is no such page."""
    if FOLDED not in page or not _PAGE.match(page):
        return None
    body = _BODY.search(page)
    found, at = list[str](), body.end() if body else 0
    while (opened := _OPENS.search(page, at)) and (end := page.find(_CLOSES, opened.end())) >= 0:
        text = html.unescape(_TAG.sub("", page[opened.end() : end])).removesuffix("\n")
        fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
        found += [_words(page[at : opened.start()]), f"{fence}{opened[1] or ''}\n{text}\n{fence}"]
        at = end + len(_CLOSES)
    return "".join([*found, _words(page[at:])])


def _words(marked: str) -> str:
    headed = _HEADING.sub(lambda tag: "#" * int(tag[1]) + " ", marked).replace("<hr />", "---")
    return html.unescape(_TAG.sub(lambda tag: _SIGNS.get(tag[1], ""), headed))
