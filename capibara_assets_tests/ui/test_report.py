"""The report of a run in a real browser: light, dark, on paper, and on a narrow screen; one small file."""

from pathlib import Path
from typing import Any

from capibara_assets_tests.home import MadeHome
from capibara_assets_tests.ui.conftest import IN_A_BROWSER

pytestmark = IN_A_BROWSER
MOST_BYTES = 2_000_000


def background(page: Any) -> int:
    """Lightness of the page's background, 0 to 255."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return int(colour.split("(")[1].split(",")[0])


def test_the_report_in_light_dark_on_paper_and_on_a_phone(pristine_home: MadeHome, browser: Any, tmp_path: Path):
    file = pristine_home.folder / "home" / "report.html"
    assert file.stat().st_size < MOST_BYTES
    asked = list[str]()
    page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    assert background(page) > 240
    page.screenshot(path=str(tmp_path / "light.png"), full_page=True)

    # The verdicts are seen without scrolling, and what is folded is not
    for domain in ("python", "sql"):
        row = page.locator("tr", has=page.locator(".whisker")).filter(has_text=domain)
        assert row.bounding_box()["y"] < 900, domain
    assert page.locator(".whisker circle").count() == 2 and page.locator(".task").count() == 3
    assert page.locator(".flow .band").count() > 4 and page.locator(".gantt rect").count() > 15
    assert page.locator("details[open]").count() == 0 < page.locator("details").count()

    page.emulate_media(color_scheme="dark")
    assert background(page) < 60
    page.screenshot(path=str(tmp_path / "dark.png"), full_page=True)
    page.emulate_media(media="print")  # paper is white, whatever the screen prefers
    assert background(page) > 240
    page.screenshot(path=str(tmp_path / "print.png"), full_page=True)
    page.emulate_media(media="screen", color_scheme="light")
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400, "only tables and drawings scroll sideways"
    assert asked == [file.as_uri()], "it loads nothing else"
