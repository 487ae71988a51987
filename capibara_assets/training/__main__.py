"""`python -m capibara_assets.training --request FILE`: the process that Dagster Pipes, Kubernetes or a person starts.

Exit codes: 0 published, 1 too few voters, 2 bad input, 130/143 stopped by SIGINT/SIGTERM with resume points written.
"""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dagster_pipes import DAGSTER_PIPES_CONTEXT_ENV_VAR, open_dagster_pipes

from capibara_assets.errors import InputError
from capibara_assets.training.progress import progress_lines
from capibara_assets.training.request import read_request
from capibara_assets.training.run import TooFewVoters, TrainingInterrupted, train_domain

Say = Callable[[str], None]


def main(arguments: list[str] | None = None) -> int:
    """Run one request; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m capibara_assets.training", description="Train a domain's voters")
    parser.add_argument("--request", type=Path, required=True, help="JSON file of a TrainingRequest")
    file = parser.parse_args(arguments).request
    asked: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _frame: asked.append(received))
    with _log() as (info, error):
        try:
            request = read_request(file)
            lines = progress_lines(request.recipe.report_every)

            def report(event: dict[str, Any]) -> None:
                if line := lines(event):
                    info(line)

            outcome = train_domain(request, report, stop=lambda: asked[0] if asked else None)
        except InputError as problem:
            error(str(problem))
            return 2
        except TooFewVoters as problem:
            error(str(problem))
            return 1
        except TrainingInterrupted as stopped:
            error(str(stopped))
            return 128 + stopped.signal
        info(f"{request.domain}: {len(outcome.finished)} voters in {outcome.summary['seconds']:.1f} s -> {outcome.out}")
        return 0


@contextlib.contextmanager
def _log() -> Iterator[tuple[Say, Say]]:
    """Where lines go: to the run's event log when Dagster started this process, else to stdout and stderr."""
    if DAGSTER_PIPES_CONTEXT_ENV_VAR in os.environ:
        with open_dagster_pipes() as context:
            yield context.log.info, context.log.error
    else:
        yield lambda line: print(line, flush=True), lambda line: print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
