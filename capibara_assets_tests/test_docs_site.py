"""The site of the guides: every page has its place, every link and anchor holds, nothing is loaded from elsewhere."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from capibara_assets_tests import test_docs as guides
from capibara_assets_tests.test_public_names import APIS

ROOT = guides.ROOT
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


class SiteFile(yaml.SafeLoader):
    """mkdocs.yml names functions by tags of PyYAML's; here they are None."""


SiteFile.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def site() -> dict[str, Any]:
    return yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), SiteFile)


def places(nav: Any) -> list[str]:
    """The pages of a part of the navigation, in its order."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in places(part)]


def test_every_page_has_one_place_in_the_navigation():
    assert sorted(places(site()["nav"])) == PAGES


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("decisions/")])
def test_links_of_decisions_resolve(page: str):
    """Those of the other documents are checked in test_docs.py; decisions may name what is gone, but not link to it."""
    guides.test_links_resolve((DOCS / page, (DOCS / page).read_text("utf-8")))


def test_the_site_loads_nothing_from_elsewhere():
    declared = site()
    assert declared["theme"]["font"] is False and not declared["extra"]["generator"]
    assert not {"extra_javascript", "extra_css", "repo_url"} & set(declared)
    assert "mermaid" not in (ROOT / "mkdocs.yml").read_text(), "the theme would fetch its script"


def test_every_public_name_is_in_the_reference():
    named = re.findall(r"^::: (\S+)$", (DOCS / "reference" / "python.md").read_text(), re.MULTILINE)
    assert sorted(named) == APIS


def test_a_list_begins_after_an_empty_line():
    """GitHub shows it as a list without one, the site as a paragraph."""
    faults = []
    for page in PAGES:
        before, fenced = "", False
        for number, line in enumerate((DOCS / page).read_text("utf-8").splitlines(), 1):
            fenced ^= line.startswith("```")
            if not fenced and re.match(r"([-*]|1\.) ", line) and before and not re.match(r"[-*\s`]|\d+\.", before):
                faults.append(f"{page}:{number}")
            before = line
    assert not faults


@pytest.mark.extended
def test_the_site_is_built_strictly(tmp_path: Path):
    """With the extra `docs` alone, which neither `make setup` nor CI installs; `make docs` is the same."""
    if any(find_spec(name) is None for name in ("mkdocs", "material", "mkdocstrings", "mkdocs_click")):
        pytest.skip("the extra `docs` is not installed: `make docs` installs it")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= len(PAGES)
    foreign = re.compile(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?(?:https?:)?//", re.IGNORECASE)
    assert not [page.name for page in pages if foreign.search(page.read_text("utf-8"))]
