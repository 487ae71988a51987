"""What a person looks for in a day, in a real browser: a failing check, a backfill, a tick, faulty config, curves."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from capibara_assets_tests.served import free_port
from capibara_assets_tests.training.exporters.test_exporters import ABSENT, write_log
from capibara_assets_tests.ui.conftest import FAILING, IN_A_BROWSER, REASON

pytestmark = [*IN_A_BROWSER, pytest.mark.extended]
ENDS_MS = 600_000  # six runs, each a process that imports for seconds


def test_a_failing_check_says_what_failed_and_what_to_do(address: str, page: Any, tmp_path: Path) -> None:
    page.goto(f"{address}/assets/routing_dataset?view=checks&checkDetail=routes_valid")
    page.get_by_text("in more than one split, such as").first.wait_for()
    assert page.get_by_text("What to do: materialize moe_dataset of all domains").first.is_visible()
    page.screenshot(path=str(tmp_path / "failing_check.png"))


def test_a_sensor_tick_says_what_it_found(address: str, page: Any, tmp_path: Path) -> None:
    page.goto(f"{address}/locations/capibara_assets/sensors/new_experience")
    page.get_by_role("button", name="Preview tick result").first.click()
    dialog = page.get_by_role("dialog").last
    dialog.get_by_role("button", name="Continue").click()
    page.get_by_text("2 run requests", exact=True).first.wait_for()
    page.get_by_text("Computed cursor value").first.wait_for()
    page.screenshot(path=str(tmp_path / "sensor_tick.png"))


def test_the_launchpad_names_what_is_wrong_in_the_config(address: str, page: Any, tmp_path: Path) -> None:
    page.goto(f"{address}/locations/capibara_assets/jobs/read_experience/playground/setup?config=ops:%0A  nothing: 1")
    page.get_by_text("Errors", exact=False).first.wait_for()
    page.get_by_text("nothing", exact=False).last.wait_for()
    page.screenshot(path=str(tmp_path / "launchpad.png"))


def test_a_backfill_of_six_domains_ends_though_one_fails(address: str, page: Any, tmp_path: Path) -> None:
    """What fails is `ml` alone (`conftest.py`); the others are made, and the error in its run ends with the reason."""
    page.goto(f"{address}/assets/consolidated_playbook?view=partitions")
    page.get_by_role("button", name="Materialize").first.click()
    dialog = page.get_by_role("dialog").first
    dialog.get_by_role("button", name="All").first.click()
    dialog.get_by_role("button", name="Launch backfill").click()
    page.get_by_text("Created backfill").first.wait_for()
    page.goto(f"{address}/assets/consolidated_playbook?view=partitions")
    page.get_by_text("Materialized (5)").wait_for(timeout=ENDS_MS)
    page.get_by_text("Failed (1)").wait_for(timeout=ENDS_MS)
    page.screenshot(path=str(tmp_path / "backfill_partitions.png"))

    page.goto(f"{address}/runs?view=backfills")
    page.get_by_text("6 partitions", exact=False).first.wait_for()
    page.get_by_text("Failure", exact=True).first.wait_for()
    page.screenshot(path=str(tmp_path / "backfill.png"))

    page.goto(f"{address}/assets/consolidated_playbook?view=partitions&partition={FAILING}")
    page.goto(address + page.locator("a[href^='/runs/']").first.get_attribute("href").split("?")[0])
    page.get_by_text("STEP_FAILURE").first.wait_for()
    page.get_by_text(REASON, exact=False).first.wait_for()
    page.screenshot(path=str(tmp_path / "backfill_reason.png"))


def a_training(voter: int) -> list[dict[str, Any]]:
    """The log of one voter with each figure that trainings state."""
    events: list[dict[str, Any]] = [{"event": "started", "step": 0, "steps": 60}]
    for step in range(1, 61):
        loss = 3 - step / 40 + voter / 10
        figures = {"loss": loss, "learning_rate": 1e-4 * (1 - step / 60), "gradient_norm": 1 / step}
        figures |= {"tokens_per_s": 900.0 + 20 * voter + step % 5, "memory_mib": 800.0 + voter}
        events.append({"event": "step", "step": step, "of": 60, **figures})
        if step % 20 == 0:
            events.append({"event": "validation", "step": step, "of": 60, "validation_loss": loss + 0.2})
    return [{"run": f"r{voter}", "attempt": 1, "time": 1.7e9 + one["step"], **one} for one in events]


def test_the_dashboard_opens_with_six_figures_and_the_consensus(page: Any, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason=ABSENT.format("tensorboard"))
    for voter in range(4):
        write_log(tmp_path / "logs" / "sql" / f"voter-{voter}", a_training(voter))
    vote = {"run": "consensus", "attempt": 1, "event": "figures", "time": 1.7e9}
    votes = [{**vote, "step": step, "figures": {"consensus_score": 0.5 + step / 10}} for step in (1, 2, 3)]
    write_log(tmp_path / "logs" / "consensus" / "sql", votes)
    port = free_port()
    command = [sys.executable, "-m", "capibara_assets.cli", "dashboard", "--port", str(port), "--refresh", "2"]
    with (tmp_path / "said").open("w") as said:
        process = subprocess.Popen(
            [*command, str(tmp_path / "logs")],
            env=os.environ | {"TMPDIR": str(tmp_path)},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until_it_answers(f"http://127.0.0.1:{port}", process, tmp_path / "said")
        page.goto(f"http://127.0.0.1:{port}/")
        curves = ("loss (nats per token)", "perplexity", "gradient norm", "learning rate", "tokens per second")
        for text in (*curves, "memory (MiB)", "voter-3"):
            page.get_by_text(text, exact=True).locator("visible=true").first.wait_for()
        assert page.evaluate("JSON.parse(localStorage.getItem('_tb_global_settings')).autoReload") is True
        page.screenshot(path=str(tmp_path / "tensorboard.png"))
        page.get_by_text("consensus score", exact=False).locator("visible=true").first.scroll_into_view_if_needed()
        page.screenshot(path=str(tmp_path / "consensus_score.png"))
    finally:
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(timeout=300) == 0


def wait_until_it_answers(url: str, process: "subprocess.Popen[bytes]", said: Path) -> None:
    deadline = time.monotonic() + 180
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).read()
            return
        except OSError:
            assert time.monotonic() < deadline and process.poll() is None, said.read_text()
            time.sleep(0.2)
