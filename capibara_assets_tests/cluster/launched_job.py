"""A job of Dagster for runs on the fake cluster: it waits while a file is there, and notes what reached its pod."""

import os
import time
from pathlib import Path

import dagster as dg

FOLDER, BEGAN, HOLD, ENDED = "LAUNCHED_JOB_FOLDER", "began", "hold", "ended"


@dg.op
def work() -> None:
    folder = Path(os.environ[FOLDER])
    (folder / BEGAN).touch()
    deadline = time.monotonic() + 300
    while (folder / HOLD).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    with (folder / ENDED).open("a") as file:
        file.write(f"{'HF_TOKEN' in os.environ}\n")


@dg.job
def launched_job() -> None:
    work()
