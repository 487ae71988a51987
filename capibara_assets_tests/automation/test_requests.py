"""When content asks for a run: new, waiting, failed, lost, as it was before; never forgotten, never twice at once."""

import pytest

from capibara_assets.automation.requests import RETRY_SECONDS, LastRequest, RunState, decide

SEEN = LastRequest("f" * 24, 3, 1, 1000)


def test_the_cursor_form_is_small_and_exact() -> None:
    assert LastRequest.read(str(SEEN)) == SEEN and len(str(SEEN)) < 50
    assert LastRequest.read("a" * 24) == LastRequest("a" * 24, 1, 1, 0, done=True)


def test_every_request_has_a_key_of_its_own_also_when_content_returns() -> None:
    keys, asked, now = [], None, 0.0
    for fingerprint in ("one", "two", "one", "two", "one"):
        decision = decide(asked, fingerprint, RunState.SUCCEEDED, now=now, patience=60)
        assert decision.request and decision.asked is not None
        asked = decision.asked
        keys.append(asked.key("e2b_logs"))
        now += 100
    assert len(set(keys)) == 5


def test_what_was_read_is_not_asked_for_again() -> None:
    first = decide(SEEN, SEEN.fingerprint, RunState.SUCCEEDED, now=1e9, patience=60)
    assert not first.request and first.asked is not None and first.asked.done
    again = decide(first.asked, SEEN.fingerprint, RunState.UNKNOWN, now=2e9, patience=60)
    assert not again.request and again.asked == first.asked


def test_a_queued_run_will_see_what_comes_before_it_starts() -> None:
    assert not decide(SEEN, "new", RunState.QUEUED, now=1e9, patience=60).request


def test_one_run_at_a_time_but_a_dead_one_does_not_block_for_ever() -> None:
    assert not decide(SEEN, "new", RunState.GOING, now=1059, patience=60).request
    late = decide(SEEN, "new", RunState.GOING, now=1061, patience=60)
    assert late.request and late.asked is not None and late.asked.serial == 4
    assert decide(SEEN, SEEN.fingerprint, RunState.GOING, now=1061, patience=60).request


def test_a_clock_that_is_set_back_begins_the_wait_anew() -> None:
    later = LastRequest(SEEN.fingerprint, 3, 1, 1000 + 86_400)
    held = decide(later, later.fingerprint, RunState.FAILED, now=1000, patience=60)
    assert not held.request and held.asked is not None and held.asked.at == 1000
    assert decide(held.asked, later.fingerprint, RunState.FAILED, now=1000 + RETRY_SECONDS, patience=60).request
    assert decide(held.asked, "new", RunState.GOING, now=1061, patience=60).request


@pytest.mark.parametrize("fate", [RunState.FAILED, RunState.UNKNOWN])
def test_a_failed_or_lost_run_is_asked_for_again_later_each_time(fate: RunState) -> None:
    asked, now, waits = SEEN, 1000.0, []
    for _ in range(12):
        start = now
        while not (decision := decide(asked, asked.fingerprint, fate, now=now, patience=60)).request:
            assert str(fate) in decision.reason
            now += 10
        assert decision.asked is not None and decision.asked.serial == asked.serial + 1
        asked = decision.asked
        waits.append(now - start)
    assert waits[:3] == [RETRY_SECONDS, 2 * RETRY_SECONDS, 4 * RETRY_SECONDS] and waits[-1] == 3600
    # new content does not wait for the pause
    assert decide(asked, "new", fate, now=now, patience=60).request
