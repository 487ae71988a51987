"""A real browser on a real `capibara ui`: the graph, a materialization that turns green, an adapter's lineage."""

from pathlib import Path
from typing import Any

import pytest

from capibara_assets_tests.ui.conftest import IN_A_BROWSER
from capibara_assets_tests.ui.hostile_history import ASSET, CHECK, ESCAPED, SHOWN, UNESCAPED, Watch

pytestmark = IN_A_BROWSER


def test_graph_materialize_and_lineage(address: str, page: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    # The graph shows every stage.
    page.goto(f"{address}/asset-groups")
    for group in ("experience", "knowledge", "datasets", "plans", "training", "consensus", "evaluation"):
        expect(page.get_by_text(group, exact=True).first).to_be_visible(timeout=60_000)
    page.screenshot(path=str(tmp_path / "graph.png"))

    # Materialize one partition by hand: its run succeeds, and the partition is green.
    page.goto(f"{address}/assets/tpu_config?view=partitions")
    expect(page.get_by_text("Missing (6)")).to_be_visible(timeout=60_000)
    page.get_by_role("button", name="Materialize").first.click()
    dialog = page.get_by_role("dialog").first
    dialog.get_by_text("Select a partition or create one").click()
    page.get_by_role("menuitem", name="sql").last.click()
    launch = dialog.get_by_role("button", name="Launch 1 run")
    expect(launch).to_be_visible(timeout=60_000)
    # The menu stays open for more choices and may lie over the button; Escape closes the dialog where it has gone
    launch.dispatch_event("click")
    expect(page.get_by_text("Materialized (1)")).to_be_visible(timeout=180_000)
    page.screenshot(path=str(tmp_path / "materialized.png"))

    # An adapter's lineage reaches the logs.
    page.goto(f"{address}/assets/trained_adapters?view=lineage&lineageScope=upstream&lineageDepth=10")
    for asset in ("trained_adapters", "moe_dataset", "e2b_patterns", "e2b_executions", "e2b_logs"):
        expect(page.get_by_text(asset, exact=True).first).to_be_visible(timeout=60_000)
    page.screenshot(path=str(tmp_path / "lineage.png"))


PICTURES = ("validation_losses", "ballots", "voter_distances", "weights")


@pytest.mark.parametrize(
    "opened", [PICTURES[:1], pytest.param(PICTURES, marks=pytest.mark.extended)], ids=["the_first", "all"]
)
def test_a_consensus_shows_its_verdicts_and_pictures(
    opened: tuple[str, ...], address: str, page: Any, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    loaded = "image => image.complete && image.naturalWidth > 0"
    page.goto(f"{address}/assets/consensus_checkpoint?view=partitions&partition=sql")
    dots = page.locator("table img[src^='data:image/svg+xml']")
    expect(dots.first).to_be_visible(timeout=60_000)
    assert dots.count() == 5 and all(dots.nth(i).evaluate(loaded) for i in range(5))  # the verdict's and each voter's
    pictures = page.get_by_text("[Show Markdown]")
    assert pictures.count() == len(PICTURES)
    for index, name in enumerate(opened):
        pictures.nth(index).click()
        dialog = page.get_by_role("dialog").last
        expect(dialog.get_by_text(name, exact=True)).to_be_visible()
        picture = dialog.locator("img")
        expect(picture).to_be_visible()
        assert picture.evaluate(loaded) and picture.bounding_box()["width"] > 500, name
        page.screenshot(path=str(tmp_path / f"{name}.png"))
        dialog.get_by_role("button", name="Close").click()
        expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize(
    ("asset", "below"),
    [
        ("evaluation", "why"),
        pytest.param("consensus_checkpoint", "verdicts", marks=pytest.mark.extended),
        pytest.param("moe_dataset", "preview", marks=pytest.mark.extended),
    ],
)
def test_an_assets_page_begins_with_the_verdict_and_ends_with_the_digest(
    asset: str, below: str, address: str, page: Any, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    page.goto(f"{address}/assets/{asset}?view=partitions&partition=sql")
    table = page.locator("table").first
    expect(table.get_by_text("verdict", exact=True).first).to_be_visible(timeout=60_000)
    # In words, beside a dot, without a click; what it is made of, and then what machines read, lies below
    expect(table.locator("tr").first.locator("img[src^='data:image/svg+xml']")).to_have_count(1, timeout=60_000)
    assert table.locator("tr").first.get_by_text("[Show Markdown]").count() == 0
    places = [
        table.get_by_text(name, exact=True).first.bounding_box()["y"]
        for name in ("verdict", "compared", below, "seconds", "inputs")
    ]
    places.append(table.get_by_text("digest", exact=True).last.bounding_box()["y"])  # a table has it, too
    assert places == sorted(places)
    page.screenshot(path=str(tmp_path / f"{asset}.png"))


def test_a_check_says_what_it_found(address: str, page: Any, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    page.goto(f"{address}/assets/example_groups?view=checks&checkDetail=no_group_dominates")
    expect(page.get_by_text("no group holds more of a domain than the recipe allows")).to_be_visible(timeout=60_000)
    page.screenshot(path=str(tmp_path / "check.png"))


OF_ESCAPED = f"{ASSET}?view=partitions&partition={ESCAPED}"


def test_hostile_text_that_is_not_escaped_asks_for_an_image(address: str, page: Any) -> None:
    """Dagster keeps scripts out, not images of other hosts: the tests below would see what our escaping keeps out."""
    watch = Watch(page, address)
    page.goto(f"{address}/assets/{ASSET}?view=partitions&partition={UNESCAPED}")
    with page.expect_request("https://evil.example/**"):
        page.get_by_text("[Show Markdown]").first.click()
    assert watch.did() == {"asked"}


@pytest.mark.parametrize(
    ("path", "opened"),
    [
        (f"assets/{OF_ESCAPED}", ("md reasons", "md card")),
        (f"assets/{ASSET}?view=checks&checkDetail={CHECK}", ()),
        pytest.param(f"assets/{OF_ESCAPED}", None, marks=pytest.mark.extended),
        pytest.param(f"assets/{ASSET}?view=events&partition={ESCAPED}", (), marks=pytest.mark.extended),
        pytest.param(f"assets/{ASSET}", (), marks=pytest.mark.extended),
    ],
    ids=["partition", "check", "all_of_a_partition", "events", "asset"],
)
def test_hostile_text_is_text(path: str, opened: tuple[str, ...] | None, address: str, page: Any) -> None:
    """It is shown, and no script runs, no other host is asked, and nothing waits for a click (20.12)."""
    watch = Watch(page, address)
    page.goto(f"{address}/{path}")
    page.get_by_text(SHOWN, exact=False).first.wait_for()
    rows = page.locator("tr", has=page.get_by_text("[Show Markdown]"))
    names = rows.evaluate_all("all => all.map(row => row.cells[0].innerText)") if opened is None else opened
    assert opened is not None or len(names) > 20
    for name in names:
        rows.filter(has=page.get_by_text(name, exact=True)).first.get_by_text("[Show Markdown]").click()
        page.get_by_role("dialog").last.get_by_role("button", name="Close").click(trial=True)
        assert watch.did() == set(), name
        page.get_by_role("dialog").last.get_by_role("button", name="Close").click()
    assert watch.did() == set()
    assert page.get_by_text("Unexpected GraphQL error").count() == 0


def test_hostile_text_in_a_runs_log_is_text(address: str, page: Any) -> None:
    watch = Watch(page, address)
    page.goto(f"{address}/assets/{OF_ESCAPED}")
    page.goto(address + page.locator("a[href^='/runs/']").first.get_attribute("href").split("?")[0])
    page.get_by_text("RUN_FAILURE").first.wait_for()
    page.get_by_text(SHOWN, exact=False).first.wait_for()
    assert watch.did() == set()
