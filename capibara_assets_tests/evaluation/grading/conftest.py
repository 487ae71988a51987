"""Sandboxes that the gradings of a test module share."""

from collections.abc import Iterator
from contextvars import Context, copy_context

import pytest

from capibara_assets.evaluation.grading import grade as grading
from capibara_assets.executions.replay.workers import kept_workers
from capibara_assets.executions.sandbox.isolation import Isolation, best_isolation


@pytest.fixture(scope="module")
def isolated() -> Isolation:
    found = best_isolation()
    if grading._missing(found):
        pytest.skip(f"this machine does not isolate: {found.statement}")
    return found


@pytest.fixture(scope="module")
def kept(isolated: Isolation) -> Iterator[Context]:
    """A context in which gradings share their sandboxes: starting one takes longer than running an answer."""
    context, keeping = copy_context(), kept_workers()
    context.run(keeping.__enter__)
    yield context
    context.run(keeping.__exit__, None, None, None)
