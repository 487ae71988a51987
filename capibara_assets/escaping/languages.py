"""Text escaped for Markdown, XML and spreadsheets; characters that nobody sees are written as their codes."""

import html
import re
from collections.abc import Collection, Iterable, Sequence
from urllib.parse import quote

# Control characters but tab and line feed; invisible and direction-changing ones; what no UTF-8 or XML can hold
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff"
    "\ud800-\udfff\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)
_BREAKS = {ord(sign): f"\\u{ord(sign):04x}" for sign in "\t\n"}
_PUNCTUATION = re.compile(r"([\\`*_\[\]|~&$])")
# What begins a heading, list, quotation, rule or table's rule at the start of a line: a backslash makes it text
_BLOCK = re.compile(r"\d{1,9}(?=[.)](\s|$))|(?=#{1,6}(\s|$)|>|[+-](\s|$)|[=:-]+$)")
# GitHub's Markdown makes links of these wherever they stand, escaped or not; but in code
_LINKED = re.compile(r"(?i)://|www\.|mailto:|xmpp:|@[\w-]+\.")
# Blanks and what nobody sees before a sign do not keep a spreadsheet from computing
_FORMULA = re.compile("[\t\r\n]|[\\s\x00-\x1f\x7f\u200b-\u200f\ufeff]*[=+@＝＋－＠-]")


def visible(words: str) -> str:
    """Text in which each control, invisible or direction-changing character is its code as in JSON: `\\u202e`."""
    return _HIDDEN.sub(lambda found: "".join(map("\\u{:04x}".format, _units(found.group()))), words)


def one_line(words: str) -> str:
    """Visible text in which tabs and ends of lines are codes, too: it makes no cell and no line of its own."""
    return visible(words).translate(_BREAKS)


def flat(words: str) -> str:
    """Visible text on one line, blanks collapsed."""
    return " ".join(visible(words).split())


class Markdown(str):
    """Our own Markdown with foreign parts already escaped: `markdown_text` does not escape it again."""

    __slots__ = ()


def markdown_text(words: str) -> Markdown:
    """Text on one line for a place in Markdown: in a paragraph, a list's item, or a table's cell."""
    if isinstance(words, Markdown):
        return words
    escaped = " ".join(
        markdown_code(word) if _LINKED.search(word) else _PUNCTUATION.sub(r"\\\1", word).replace("<", "&lt;")
        for word in flat(words).split()
    )
    return Markdown(_BLOCK.sub(r"\g<0>\\", escaped, count=1) if _BLOCK.match(escaped) else escaped)


def markdown_code(words: str) -> Markdown:
    """Text on one line as code in Markdown, also in a table's cell, whose bars need a backslash there."""
    words = flat(words) or " "
    fence = "`" * (_longest_run(words) + 1)
    # A table reads `\\|` as a backslash and the end of the cell: the backslashes before a bar are doubled
    words = re.sub(r"(\\*)\|", r"\1\1\\|", words)
    blank = " " if words[0] in "` " or words[-1] in "` " else ""
    return Markdown(f"{fence}{blank}{words}{blank}{fence}")


def markdown_block(words: str, language: str = "") -> Markdown:
    """Lines of text as a fenced block of Markdown, whose fence is longer than any in the text."""
    fence = "`" * max(3, _longest_run(words) + 1)
    return Markdown(f"{fence}{language}\n{visible(words)}\n{fence}")


def markdown_link(words: str, url: str) -> Markdown:
    """A link in Markdown to a page of the web or of the same server; other addresses stay text."""
    if not re.match(r"https?://|/(?!/)", url):
        return markdown_text(words)
    return Markdown(f"[{markdown_text(words)}]({quote(url, safe='/:?=&%#,;@+~')})")


def markdown_list(lines: Iterable[str]) -> Markdown:
    """A list in Markdown, an item per line of text."""
    return Markdown("\n".join(f"- {markdown_text(line)}" for line in lines))


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> Markdown:
    """A table in Markdown; columns whose index is in `right` are right-aligned."""
    rule = [Markdown("---:" if column in right else "---") for column in range(len(head))]
    return Markdown("\n".join(f"| {' | '.join(map(markdown_text, cells))} |" for cells in (head, rule, *rows)))


def markup(words: str) -> str:
    """Text escaped for HTML, XML and SVG, in elements and in quoted attributes."""
    return html.escape(visible(words))


def slack_text(words: str) -> str:
    """Text on one line for a message in Slack: it mentions nobody and links nowhere."""
    return flat(words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def spreadsheet(words: str) -> str:
    """Text for a cell of CSV; what a spreadsheet would take for a formula has an apostrophe before it."""
    return f"'{words}" if _FORMULA.match(words) else words


def _longest_run(words: str) -> int:
    return max(map(len, re.findall("`+", words)), default=0)


def _units(character: str) -> list[int]:
    """The UTF-16 code units of a character."""
    data = character.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[place : place + 2]) for place in range(0, len(data), 2)]
