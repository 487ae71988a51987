"""What is asserted of all places of a module together."""

from collections.abc import Iterator

import pytest

from capibara_assets.executions.secrets.prefilter import may_hold_secrets
from capibara_assets_tests.executions.secrets.places import HELD

_CLEAN = ["x = 1"] * 128  # with these there are enough texts for the automaton


@pytest.fixture(scope="module", autouse=True)
def _all_are_suspected() -> Iterator[None]:
    """The prefilter suspects each text in which a test of the module found a value."""
    HELD.clear()
    yield
    suspected = may_hold_secrets([*HELD, *_CLEAN])
    assert [text for text, held in zip(HELD, suspected, strict=False) if not held] == []
