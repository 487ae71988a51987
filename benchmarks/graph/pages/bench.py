"""Seconds until each page of Dagster's UI can be used, in a real browser on a history of thousands of runs."""

import shutil
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import click
import yaml

from benchmarks.graph.pages.history import bring, lengthen
from benchmarks.output import print_result

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from capibara_assets_tests.home import MadeHome

HISTORIES = ("sqlite", "postgres")
_IDLE = "() => new Promise(done => requestIdleCallback(() => done(performance.now() / 1000)))"
_SHOWN_MS = 60_000


@dataclass(frozen=True)
class Shown:
    """A page, and what is on it once it has answered.

    Attributes:
        path: below the UI's address; `{run}` is the id of a run with a materialization.
        text: of the element that has to be visible.
    """

    path: str
    text: str


PAGES = {
    "timeline": Shown("overview/activity/timeline", "Timeline"),
    "runs": Shown("runs", "capibara/run: cli"),
    "run": Shown("runs/{run}", "STEP_SUCCESS"),
    "catalog": Shown("assets", "consensus_checkpoint"),
    "graph": Shown("asset-groups", "consensus"),
    "lineage": Shown("assets/evaluation?view=lineage&lineageScope=upstream&lineageDepth=10", "e2b_logs"),
    "partitions": Shown("assets/consensus_checkpoint?view=partitions&partition=sql", "verdict"),
    "events": Shown("assets/consensus_checkpoint?view=events", "verdict"),
    "checks": Shown(
        "assets/example_groups?view=checks&checkDetail=no_group_dominates", "No group of related executions"
    ),
    "backfills": Shown("runs?view=backfills", "Backfills"),
    "automation": Shown("automation", "new_experience"),
}


@click.command("pages")
@click.option("--runs", default=5000, show_default=True, type=click.IntRange(min=1), help="Runs of the history.")
@click.option("--days", default=30.0, show_default=True, help="Days that they are spread over.")
@click.option("--visits", default=3, show_default=True, type=click.IntRange(min=1), help="Of each page; the median.")
@click.option("--history", "histories", type=click.Choice(HISTORIES), multiple=True, default=HISTORIES)
@click.option("--screenshots", type=click.Path(path_type=Path, file_okay=False), help="Folder for a picture of each.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line.")
def pages(
    runs: int, days: float, visits: int, histories: tuple[str, ...], screenshots: Path | None, as_json: bool
) -> None:
    """Seconds to interactive of each page of Dagster's UI on a history of 5,000 runs, on SQLite and PostgreSQL.

    From the visit to the moment at which what the page is for is shown and the browser is idle. The browser keeps the
    scripts, as a user's does; a page of every kind was seen once before. The runs are copies of those of a small graph.
    """
    from capibara_assets_tests.home import made_home
    from capibara_assets_tests.ui.process import answering_ui

    figures: dict[str, Any] = {"runs": runs, "days": days, "visits": visits}
    with tempfile.TemporaryDirectory() as folder:
        made = made_home(Path(folder) / "made")
        for history in histories:
            copied = made.copy(Path(folder) / history)
            pictures = screenshots / history if screenshots else None
            with (
                long_history(copied, history, runs, days) as variables,
                answering_ui(copied, copied.folder / "ui.log", **variables) as address,
            ):
                seconds = visited(address, _a_run(copied), visits, pictures)
            slowest = max(seconds, key=seconds.__getitem__)
            figures[history] = {"slowest": slowest, "slowest_s": seconds[slowest], "pages_s": seconds}
            shutil.rmtree(copied.folder)
    print_result(figures, as_json)


@contextmanager
def long_history(made: "MadeHome", history: str, runs: int, days: float) -> Iterator[dict[str, str]]:
    """Give a home this many runs, in PostgreSQL where asked; the variables of a deployment on it."""
    from capibara_assets.cli.graph.instance import open_instance
    from capibara_assets_tests.cluster.postgres import postgres, program

    with ExitStack() as stack:
        variables = dict(made.environment)
        stack.enter_context(patch.dict("os.environ", variables))
        instance = stack.enter_context(open_instance(made.deployment))
        if history == "postgres":
            if program("initdb") is None:
                raise click.ClickException("PostgreSQL is not installed: apt install postgresql")
            variables |= stack.enter_context(postgres())
            stack.enter_context(patch.dict("os.environ", variables))
            file = made.folder / "with-postgres.yaml"
            file.write_text(yaml.safe_dump({"storage": {"history": "postgres"}}))
            variables["CAPIBARA_DEPLOYMENT"] = str(file)
            (made.deployment.home / "dagster" / "dagster.yaml").unlink()  # made anew, with the server
            served_by = stack.enter_context(open_instance(replace(made.deployment, history="postgres")))
            bring(instance, served_by)
            instance = served_by
        lengthen(instance, runs, days)
        yield variables


def _a_run(made: "MadeHome") -> str:
    """The id of the newest of the runs that the home was made by."""
    shards = (made.deployment.home / "dagster" / "history" / "runs").glob("*-*.db")
    return max(shards, key=lambda path: path.stat().st_mtime).stem


def visited(address: str, run: str, visits: int, pictures: Path | None) -> dict[str, float]:
    """Page -> median seconds to interactive."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        raise click.ClickException("no chromium on PATH: install your system's package")
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]) as browser,
    ):
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        seconds: dict[str, list[float]] = {name: [] for name in PAGES}
        for turn in range(visits + 1):
            for name, shown in PAGES.items():
                took = _visit(page, name, f"{address}/{shown.path.format(run=run)}", shown.text)
                if turn:
                    seconds[name].append(took)
                elif pictures:
                    page.screenshot(path=str(pictures / f"{name}.png"))
    return {name: round(statistics.median(each), 2) for name, each in seconds.items()}


def _visit(page: "Page", name: str, url: str, text: str) -> float:
    """Seconds since the browser began to load the page."""
    from playwright.sync_api import TimeoutError as NotShown

    page.goto(url, wait_until="commit")
    try:
        page.get_by_text(text).locator("visible=true").first.wait_for(timeout=_SHOWN_MS)
    except NotShown as error:
        said = page.inner_text("body")[:2000]
        raise click.ClickException(
            f"the page {name} shows no {text!r} after {_SHOWN_MS / 1000:g} s, but: {said}"
        ) from error
    return float(page.evaluate(_IDLE))
