"""One request to stop is one request, however often it is sent at once; a later one is in a hurry."""

import os
import signal
import time

import pytest

from capibara_assets.training.supervisor import signals
from capibara_assets.training.supervisor.signals import StopSignal


def test_the_first_counts_and_a_later_one_is_in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = StopSignal()
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):  # as `timeout` does: the process, then its group
        asked.note(number)
    assert asked.number == signal.SIGTERM and not asked.hurry
    late = time.monotonic() + 2
    monkeypatch.setattr(signals.time, "monotonic", lambda: late)
    asked.note(signal.SIGINT)
    assert asked.number == signal.SIGTERM and asked.hurry


def test_it_listens_to_real_signals() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    asked = StopSignal()
    try:
        asked.listen()
        os.kill(os.getpid(), signal.SIGINT)
        assert asked.number == signal.SIGINT
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
