"""Hostile strings × places where the pipeline shows text: each looks as with a harmless word, and runs nothing."""

import html
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

import pytest

from capibara_assets.escaping.languages import visible
from capibara_assets.escaping.pages import POLICY
from capibara_assets_tests.escaping.hostile import ACTING, HOSTILE, ReadHtml, ReadMarkdown
from capibara_assets_tests.escaping.shown import WORD, drawings, metadata, pages, table_cells

CODE = "words\n```\ncode\n```\n"  # the audit shows what is fenced as code
each = pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)


@cache
def harmless() -> dict[str, ReadMarkdown]:
    return {place: ReadMarkdown(source) for place, source in metadata(WORD).items()}


@each
def test_markdown_of_metadata_and_cards(text: str) -> None:
    shown = metadata(text)
    assert shown.keys() == harmless().keys()
    for place, source in shown.items():
        read = ReadMarkdown(source)
        assert read.structure == harmless()[place].structure, place
        outward = [url for url in read.addresses if not url.startswith(("data:image/svg+xml;base64,", "/assets/a"))]
        assert not outward and not read.links_of_text and not ACTING.search(source), place


@each
def test_tables_of_metadata(text: str) -> None:
    assert not any(ACTING.search(str(cell)) for cell in table_cells(text))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ReadHtml]:
    return {name: ReadHtml(source) for name, source in pages(CODE, tmp_path_factory.mktemp("plain")).items()}


@each
def test_pages(text: str, plain: dict[str, ReadHtml], tmp_path: Path) -> None:
    for name, source in pages(text, tmp_path).items():
        read = ReadHtml(source)
        assert set(read.elements) <= set(plain[name].elements) and not read.handlers, name
        assert len(read.addresses) == len(plain[name].addresses) and "script" not in read.elements, name
        assert all(url.startswith(("/assets/a", "#")) for url in read.addresses), name
        assert html.escape(POLICY) in source.replace("&#39;", "&#x27;"), name
        assert not ACTING.search(source) and visible(text).strip() in read.words, name


def tags(source: str) -> list[str]:
    return [element.tag for element in ElementTree.fromstring(source).iter()]


@each
def test_drawings(text: str) -> None:
    harmless = drawings(WORD)
    for name, source in drawings(text).items():
        assert tags(source) == tags(harmless[name]), name
        assert not ACTING.search(source), name


def test_every_template_of_a_page_has_the_policy() -> None:
    root = Path(__file__).parents[2] / "capibara_assets"
    templates = sorted(root.rglob("*.html.jinja"))
    assert len(templates) >= 4
    for file in templates:
        assert 'http-equiv="Content-Security-Policy" content="{{ policy }}"' in file.read_text("utf-8"), file.name
