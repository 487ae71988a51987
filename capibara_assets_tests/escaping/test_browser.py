"""A real browser on the pages that commands write, full of hostile text: no script runs, nothing is asked for."""

import re
from pathlib import Path

import pytest

from capibara_assets_tests.escaping.hostile import HOST, HOSTILE
from capibara_assets_tests.escaping.shown import pages
from capibara_assets_tests.ui.conftest import CHROMIUM, FLAGS

pytestmark = [
    pytest.mark.ui,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium on PATH: install your system's package to run the browser test"
    ),
]


def test_no_page_runs_or_asks_for_anything(tmp_path: Path) -> None:
    from playwright.sync_api import Page, Route, sync_playwright

    text = " ".join([*HOSTILE.values(), "<script>owned = 1</script>", "<img src=x onerror='owned = 1'>"])
    control = f"<script>owned = 1; alert(1)</script><img src=https://{HOST}/p.png>"
    written = {"unescaped": control, **pages(text, tmp_path)}
    asked: list[str] = []
    dialogs: list[str] = []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.abort()

    def said(page: Page) -> set[str]:
        """What a page did that it should not: asked another host, opened a dialog, or ran a script."""
        did = {"asked"} if any(HOST in url for url in asked) else set()
        did |= {"dialog"} if dialogs else set()
        return did | ({"ran"} if page.evaluate("window.owned") else set())

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        page.route(re.compile("^(?!file:)"), refuse)
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        for name, source in written.items():
            asked.clear(), dialogs.clear()
            file = tmp_path / f"{name}.html"
            file.write_text(source, "utf-8", errors="replace")
            page.goto(file.as_uri())
            if name == "unescaped":  # what is looked for can be seen
                assert said(page) == {"asked", "dialog", "ran"}
                continue
            page.mouse.move(200, 200)
            assert said(page) == set() and not asked, name
            assert "<script>owned = 1</script>" in page.inner_text("body"), name
        browser.close()
