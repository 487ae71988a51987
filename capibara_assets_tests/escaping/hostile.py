"""What an author of a log or a playbook may write to act where it is shown, and readers that say whether it did."""

import re
from html.parser import HTMLParser

from markdown_it import MarkdownIt

HOST = "evil.example"
HOSTILE = {
    "script": f"<script src=https://{HOST}/x.js></script><script>alert(1)</script>",
    "handler": "<img src=x onerror=alert(1)>",
    "attribute": '" onmouseover="alert(1)" x=\'',
    "single quote": "' onfocus='alert(1)' autofocus='",
    "closes elements": "</script></style></title></pre></details></svg><svg onload=alert(1)>",
    "comment": "<!-- --><meta http-equiv=refresh content='0;url=https://evil.example'>",
    "image": f"![x](https://{HOST}/p.png)",
    "link": "[here](javascript:alert(1))",
    "autolink": f"<https://{HOST}/a> https://{HOST}/b",
    "fence": f"x\n```\n![x](https://{HOST}/p.png)\n````\n<b>",
    "ticks": f"`` ` ``` ![x](https://{HOST}/p.png)",
    "heading": "# Heading\n\n> quote\n\n- item\n\n1. one",
    "table": "a | b\n|---|---|\n| ![x](https://evil.example/t.png) | y |",
    "emphasis": "**bold** __bold__ ~~gone~~ *a*",
    "template": "{{ 7 * 7 }}{% for x in ().__class__.__mro__ %}{{ x }}{% endfor %}{# #}",
    "shell": "$(touch owned) `touch owned` ; touch owned && touch owned | sh",
    "clears": "\x1b[2J\x1b[1;1Hall tests passed\x1b[8m",
    "title and link": f"\x1b]0;owned\x07\x1b]8;;https://{HOST}\x1b\\here\x1b]8;;\x1b\\",
    "overwrites": "failed\rpassed\b\b\b\x7f",
    "C1": "\x9b2J\x9d0;owned\x9c\x85",
    "direction": "\u202efdp.exe\u202c \u2066a\u2069",
    "formula": f'=HYPERLINK("https://{HOST}","here")',
    "formula +": "+1+cmd|' /C calc'!A0",
    "formula @": "@SUM(1+1)*cmd|' /C calc'!A0",
    "formula after tab": "\t=1+1",
    "formula after CR": "\r=1+1",
    "formula after blanks": " \u3000=1+1",
}
# On which a terminal acts, or by which text reads otherwise than it is
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_LINKED = re.compile(r"(?i)https?://|www\.|\w@\w+\.\w")
_INERT = {"text", "code_inline", "softbreak"}


class ReadMarkdown:
    """Markdown as Dagster's UI and the Hub read it.

    Attributes:
        structure: kinds of its elements in order, but text and code.
        addresses: where links and images lead.
        links_of_text: what GitHub's extension would make links of.
        text: the words shown.
    """

    def __init__(self, source: str) -> None:
        tokens = _MARKDOWN.parse(source)
        spans = [span for token in tokens for span in (token.children or [token])]
        self.structure = [span.type for span in spans if span.type not in _INERT and span.type != "inline"]
        self.addresses = [str(span.attrs.get(name)) for span in spans for name in ("src", "href") if name in span.attrs]
        self.links_of_text = [span.content for span in spans if span.type == "text" and _LINKED.search(span.content)]
        self.text = " ".join("".join(span.content or " " for span in spans if not span.children).split())


class ReadHtml(HTMLParser):
    """Elements, event handlers, addresses and words of a page, as a browser reads them."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[str] = []
        self.handlers: list[str] = []
        self.addresses: list[str] = []
        self.words = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]

    def handle_data(self, data: str) -> None:
        self.words += data
