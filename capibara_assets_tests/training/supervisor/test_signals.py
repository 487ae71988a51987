"""One request to stop is one request, however often it is sent at once; a later one is in a hurry."""

import os
import signal
import time

import pytest

from capibara_assets.training.supervisor import signals
from capibara_assets.training.supervisor.signals import StopSignal


def test_the_first_counts_and_a_later_one_is_in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_signal = StopSignal()
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):  # as `timeout` does: the process, then its group
        stop_signal.note(number)
    assert stop_signal.number == signal.SIGTERM and not stop_signal.hurry
    late = time.monotonic() + 2
    monkeypatch.setattr(signals.time, "monotonic", lambda: late)
    stop_signal.note(signal.SIGINT)
    assert stop_signal.number == signal.SIGTERM and stop_signal.hurry


def test_it_listens_to_real_signals() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    stop_signal = StopSignal()
    try:
        stop_signal.listen()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop_signal.number == signal.SIGINT
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
