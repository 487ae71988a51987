"""`python -m capibara_assets.training --request FILE`: train the voters of one request.

Started by Dagster Pipes, by Kubernetes, or by hand.

Exit codes: 0 published, 1 too few voters, 2 bad input, 130/143 stopped by SIGINT/SIGTERM with resume points written.
A second signal ends it at once; the resume points written before stay valid.
"""

import argparse
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from dagster_pipes import DAGSTER_PIPES_CONTEXT_ENV_VAR, open_dagster_pipes

from capibara_assets.errors import InputError
from capibara_assets.escaping.terminal import print_plainly
from capibara_assets.processes.background import JOB_LOG
from capibara_assets.processes.progress import is_quiet
from capibara_assets.training.exporters.live import EXPORT_THREAD
from capibara_assets.training.request import read_request
from capibara_assets.training.standalone.output_folder import publish_outputs
from capibara_assets.training.supervisor.reporting import Publish, reporting
from capibara_assets.training.supervisor.run import (
    TooFewVoters,
    TrainingInterrupted,
    assemble_domain,
    train_domain,
    train_voters,
)
from capibara_assets.training.supervisor.signals import StopSignal

Say = Callable[[str], None]


def main(arguments: list[str] | None = None) -> int:
    """Train the voters of one request; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m capibara_assets.training", description="Train a domain's voters")
    parser.add_argument("--request", type=Path, required=True, help="JSON file of a TrainingRequest")
    parser.add_argument("--voter", action="append", help="Train only this voter, and assemble nothing; repeatable")
    parser.add_argument("--assemble", action="store_true", help="Train nothing: publish the voters that have finished")
    given = parser.parse_args(arguments)
    stop_signal = StopSignal()
    stop_signal.listen()
    with _log() as (info, error, publish):
        try:
            request = read_request(given.request)
            if given.assemble:
                outcome = assemble_domain(request)
            else:
                with reporting(request, info, publish) as report:
                    stop, hurry = lambda: stop_signal.number, lambda: stop_signal.hurry
                    if given.voter:
                        train_voters(request, given.voter, report, stop, hurry)
                        return 0
                    outcome = train_domain(request, report, stop, hurry)
            if request.output is not None:
                publish_outputs(request, outcome)
        except InputError as problem:
            error(str(problem))
            return 2
        except TooFewVoters as problem:
            error(str(problem))
            return 1
        except TrainingInterrupted as stopped:
            error(str(stopped))
            return 128 + stopped.signal
        where, finished = request.output or outcome.out, len(outcome.finished)
        info(f"{request.domain}: {finished} voters in {outcome.summary['seconds']:.1f} s -> {where}")
        return 0


@contextlib.contextmanager
def _log() -> Iterator[tuple[Say, Say, Publish | None]]:
    """Context with the functions that log a line, log an error, and publish a message (None: not supported).

    They write to the run's event log when Dagster started this process, else to stdout and stderr; and in both cases to
    the file that JOB_LOG names, which `capibara jobs logs` reads.
    """
    with contextlib.ExitStack() as stack:
        job_log = os.environ.get(JOB_LOG)
        file = stack.enter_context(Path(job_log).open("a", encoding="utf-8", buffering=1)) if job_log else None

        def also(say: Say) -> Say:
            if file is None:
                return say

            def both(line: str) -> None:
                say(line)
                file.write(line + "\n")

            return both

        if DAGSTER_PIPES_CONTEXT_ENV_VAR in os.environ:
            context = stack.enter_context(open_dagster_pipes())
            yield also(context.log.info), also(context.log.error), context.report_custom_message
        else:
            yield (
                also(lambda line: None if is_quiet() else print(line, flush=True)),
                also(lambda line: print(line, file=sys.stderr, flush=True)),
                None,
            )


def leave(code: int) -> None:
    """Exit with this code, also when the thread of an exporter hangs and would keep the process alive."""
    sys.stdout.flush()
    sys.stderr.flush()
    if any(thread.name.startswith(EXPORT_THREAD) and thread.is_alive() for thread in threading.enumerate()):
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    print_plainly()
    leave(main())
