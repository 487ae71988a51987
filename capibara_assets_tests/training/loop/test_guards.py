"""Losses and left-out steps that say something is wrong."""

from typing import Any

import pytest

from capibara_assets.training.loop.guards import discontinuity, too_many_left_out
from capibara_assets.training.recipe import ContinuityChoice, GuardChoice, SpikeChoice

WATCH = ContinuityChoice(steps=4, window=8, sigmas=4.0, relative=0.2)


def curve(*losses: float, first: int = 1) -> list[dict[str, Any]]:
    return [{"step": first + number, "loss": loss} for number, loss in enumerate(losses)]


def test_a_jump_is_more_than_sigmas_and_more_than_a_fifth() -> None:
    before = curve(2.0, 2.1, 1.9, 2.0, 2.0, 2.1)
    assert discontinuity(before + curve(2.3, first=7), 6, WATCH) is None  # four sigmas, no fifth
    jump = discontinuity(before + curve(2.6, first=7), 6, WATCH)
    assert jump == {"before": pytest.approx(12.1 / 6), "since": 2.6, "steps": 1, "resumed_at": 6}
    wild = curve(1.0, 3.0, 1.0, 3.0)
    assert discontinuity(wild + curve(4.0, first=5), 4, WATCH) is None  # half as much again, but two sigmas
    assert discontinuity(wild + curve(4.5, 4.5, 4.5, 4.5, first=5), 4, WATCH) is not None  # not by chance


def test_only_the_first_steps_are_watched_and_only_after_a_resume() -> None:
    before, high = curve(2.0, 2.0), curve(*[9.0] * 5, first=3)
    assert discontinuity(before + high[:4], 2, WATCH) is not None
    assert discontinuity(before + high, 2, WATCH) is None  # past the fourth step
    assert discontinuity(before + high[:1], None, WATCH) is None
    assert discontinuity(before + high[:1], 2, None) is None
    assert discontinuity(before[:1] + high[:1], 2, WATCH) is None  # nothing to compare with


def skipped(*steps: int, loss_scale: bool = False) -> list[dict[str, Any]]:
    return [{"step": step, "examples": [], **({"loss_scale": True} if loss_scale else {})} for step in steps]


def test_how_many_steps_may_go_wrong() -> None:
    guards = GuardChoice(max_skipped_steps=2, spike=SpikeChoice(max_rollbacks=1))
    assert not too_many_left_out(skipped(1, 5), skipped(7), guards)
    assert too_many_left_out(skipped(1, 5, 6), [], guards)
    assert too_many_left_out([], skipped(7, 8), guards)
    # A loss scale that looks for its size overflows now and then; not for ever.
    assert not too_many_left_out(skipped(*range(1, 24), *range(100, 140, 2), loss_scale=True), [], guards)
    assert too_many_left_out(skipped(*range(1, 25), loss_scale=True), [], guards)
