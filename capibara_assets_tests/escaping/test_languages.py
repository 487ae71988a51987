"""Each language shows hostile text as the text that it is: nothing acts, and a reader sees all of it."""

import csv
import io
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.escaping.languages import (
    Markdown,
    flat,
    markdown_block,
    markdown_code,
    markdown_link,
    markdown_list,
    markdown_table,
    markdown_text,
    markup,
    spreadsheet,
    visible,
)
from capibara_assets_tests.escaping.hostile import ACTING, HOSTILE, ReadHtml, ReadMarkdown

PLACES: dict[str, Callable[[str], str]] = {
    "paragraph": markdown_text,
    "code": markdown_code,
    "item": lambda text: markdown_list([text, text]),
    "cell": lambda text: markdown_table((text, "b"), [(text, "x"), ("y", text)]),
    "code in a cell": lambda text: markdown_table(("a", "b"), [(markdown_code(text), "x")]),
    "link": lambda text: markdown_link(text, "/assets/a"),
}
each = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)


@each
@pytest.mark.parametrize("place", PLACES)
def test_markdown_keeps_its_structure_and_the_words(place: str, text: str) -> None:
    shown, harmless = ReadMarkdown(PLACES[place](text)), ReadMarkdown(PLACES[place]("word"))
    assert shown.structure == harmless.structure
    assert shown.addresses == harmless.addresses and not shown.links_of_text
    assert "".join(flat(text).split()) in "".join(shown.text.split()) or "code" in place


@given(st.text(alphabet=st.sampled_from("ab1 \n\t`|\\*_[]()<>!&;#+-=:~.@/$w\x1b\u202e"), max_size=24))
def test_any_text_keeps_the_structure(text: str) -> None:
    for place in PLACES.values():
        if flat(text):
            assert ReadMarkdown(place(text)).structure == ReadMarkdown(place("word")).structure


@given(st.text(alphabet="a`~\n| ", max_size=40))
def test_nothing_ends_a_block(text: str) -> None:
    source = markdown_block(text, "sh")
    assert ReadMarkdown(source + "\nafter").structure == ["fence", "paragraph_open", "paragraph_close"]


def test_our_own_markdown_stays_and_other_addresses_are_no_links() -> None:
    assert markdown_table(("a",), [(Markdown("**b**"),)]).splitlines()[-1] == "| **b** |"
    for url in ("javascript:alert(1)", "//evil.example", "data:text/html,x", ""):
        assert not ReadMarkdown(markdown_link("a", url)).addresses
    escaped = ReadMarkdown(markdown_link("a", "/assets/x?partition=) ![y](https://evil.example/p.png)"))
    assert len(escaped.addresses) == 1 and "image" not in escaped.structure


@each
def test_markup_has_no_elements_in_text_and_attributes(text: str) -> None:
    read = ReadHtml(f"<p title=\"{markup(text)}\" class='{markup(text)}'>{markup(text)}</p>")
    assert read.elements == ["p"] and not read.handlers and read.words == visible(text)


@each
def test_no_terminal_acts_on_visible_text(text: str) -> None:
    assert not ACTING.search(visible(text)) and visible(visible(text)) == visible(text)
    assert text.isprintable() <= (visible(text) == text)


@given(st.text())
def test_codes_are_those_of_json(text: str) -> None:
    hidden = json.dumps(text, ensure_ascii=False)
    assert json.loads(visible(hidden)) == text  # a document that is shown stays the same document


@each
def test_a_spreadsheet_computes_nothing(text: str) -> None:
    file = io.StringIO(newline="")
    csv.writer(file).writerow([spreadsheet(text), "1"])
    ((cell, _),) = csv.reader(io.StringIO(file.getvalue(), newline=""))
    assert cell.lstrip()[:1] not in tuple("=+-@") and cell[:1] not in ("\t", "\r") and cell.endswith(text)
