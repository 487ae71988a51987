"""The decision: every region and boundary of both arms, the paragraph that explains it, and crashed arms."""

import itertools
from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.evaluation.decision import decide
from capibara_assets.evaluation.recipe import DecisionRule
from capibara_assets.evaluation.schema import Decision, ExampleLoss, Interval
from capibara_assets.storage.records import table

# Bars that are sums of powers of two, so that a test can stand exactly on them.
BASE_BAR, PLAYBOOK_BAR = 0.125, 0.0625
RULE = DecisionRule(min_gain_over_base=BASE_BAR, min_gain_over_playbook=PLAYBOOK_BAR, resamples=1_000)

# Where the interval lies: above (low end at or over the bar), under (high end short of it), across.
VERDICTS = {
    ("above", None): "promote",
    ("across", None): "inconclusive",
    ("under", None): "reject",
    ("above", "above"): "promote",
    ("above", "across"): "inconclusive",
    ("above", "under"): "reject",
    ("across", "above"): "inconclusive",
    ("across", "across"): "inconclusive",
    ("across", "under"): "reject",
    ("under", "above"): "reject",
    ("under", "across"): "reject",
    ("under", "under"): "reject",
}
# Each region's corners: (low, high) in steps of 1/64 from the bar, "just" short of it by one float.
CORNERS = {
    "above": [(0, 0), (0, 8), (1, 8)],
    "across": [("just", 0), ("just", 8), (-8, 0), (-8, 8)],
    "under": [("just", "just"), (-8, "just"), (-8, -1)],
}


def losses(**contenders: Sequence[tuple[str, float]]) -> pl.DataFrame:
    """Contender → (group, nll) of each example, ten tokens each."""
    return table(
        ExampleLoss,
        [
            ExampleLoss(contender=name, example_id=f"e{i:03}", group_id=group, nll=nll, tokens=10)
            for name, rows in contenders.items()
            for i, (group, nll) in enumerate(rows)
        ],
    )


def single(*values: float) -> list[tuple[str, float]]:
    return [(f"g{i}", value) for i, value in enumerate(values)]


def interval(low: float, high: float, n: int = 40) -> Interval:
    return Interval(estimate=(low + high) / 2, low=low, high=high, n=n, groups=n)


def decided(over_base: Interval, over_playbook: Interval | None) -> Decision:
    """The decision over intervals given outright: what lies between them and the losses is statistics' own matter."""
    arms = {"base": single(1.0), "consensus": single(1.0)} | ({"playbook": single(1.0)} if over_playbook else {})
    answers = [over_base, *([over_playbook] if over_playbook else [])]
    with patch("capibara_assets.evaluation.decision.relative_gain", side_effect=answers):
        return decide("python", losses(**arms), RULE)


def place(corner: tuple[float | str, float | str], bar: float) -> Interval:
    low, high = (float(np.nextafter(bar, -1)) if step == "just" else bar + step / 64 for step in corner)
    return interval(low, high)


@pytest.mark.parametrize(("base", "playbook"), list(VERDICTS))
def test_every_corner_of_every_region(base: str, playbook: str | None):
    seconds = [place(corner, PLAYBOOK_BAR) for corner in CORNERS[playbook]] if playbook else [None]
    for corner, second in itertools.product(CORNERS[base], seconds):
        found = decided(place(corner, BASE_BAR), second)
        assert found.verdict == VERDICTS[base, playbook], (corner, second)


def region(bar: float) -> st.SearchStrategy[tuple[str, Interval]]:
    """A region and an interval anywhere in it."""
    below = st.floats(-1.0, float(np.nextafter(bar, -1)))
    reached = st.floats(bar, 0.99)
    ordered = {
        "above": st.tuples(reached, reached).map(sorted),
        "across": st.tuples(below, reached),
        "under": st.tuples(below, below).map(sorted),
    }
    return st.one_of(
        [st.tuples(st.just(name), ends.map(lambda pair: interval(*pair))) for name, ends in ordered.items()]
    )


@given(base=region(BASE_BAR), playbook=st.one_of(st.just((None, None)), region(PLAYBOOK_BAR)))
def test_anywhere_within_a_region(base: tuple[str, Interval], playbook: tuple[str | None, Interval | None]):
    found = decided(base[1], playbook[1])
    assert found.verdict == VERDICTS[base[0], playbook[0]]
    assert (found.gain_over_base, found.gain_over_playbook) == (base[1], playbook[1])


@given(base=region(BASE_BAR), playbook=region(PLAYBOOK_BAR), lift=st.floats(0, 1), arm=st.sampled_from([0, 1]))
def test_a_better_interval_never_makes_the_verdict_worse(
    base: tuple[str, Interval], playbook: tuple[str, Interval], lift: float, arm: int
):
    rank = {"reject": 0, "inconclusive": 1, "promote": 2}
    before = [base[1], playbook[1]]
    after = list(before)
    after[arm] = interval(before[arm].low + lift, before[arm].high + lift)
    assert rank[decided(*after).verdict] >= rank[decided(*before).verdict]


def test_losses_that_stand_exactly_on_both_bars_promote():
    sizes = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    arms = {"base": single(*120 * sizes), "playbook": single(*112 * sizes), "consensus": single(*105 * sizes)}
    found = decide("sql", losses(**arms), RULE)
    assert (found.gain_over_base.low, found.gain_over_playbook.low) == (BASE_BAR, PLAYBOOK_BAR)
    assert found.verdict == "promote"


@pytest.mark.parametrize(("share", "verdict"), [(0.5, "promote"), (0.95, "reject"), (1.5, "reject")])
def test_losses_clearly_on_one_side(share: float, verdict: str):
    random = np.random.default_rng(1)
    reference = random.uniform(5, 50, 60)
    candidate = reference * random.normal(share, 0.02, 60)
    assert decide("ml", losses(base=single(*reference), consensus=single(*candidate)), RULE).verdict == verdict


def test_a_better_mean_on_few_examples_is_no_promotion():
    """The point estimate clears the bar twice over, the interval does not: never a silent pass."""
    found = decide("api", losses(base=single(10, 10, 10, 10), consensus=single(2, 10, 6, 11)), RULE)
    assert found.gain_over_base.estimate > 2 * RULE.min_gain_over_base and found.verdict == "inconclusive"


def test_examples_of_one_group_count_once():
    rows = [(f"g{i % 3}", 10.0) for i in range(30)]
    better = [(group, 5.0 if group != "g0" else 10.5) for group, _ in rows]
    found = decide("debug", losses(base=rows, consensus=better), RULE)
    assert (found.gain_over_base.n, found.gain_over_base.groups) == (30, 3)
    assert found.verdict == "inconclusive"
    spread = decide("debug", losses(base=single(*[10.0] * 30), consensus=single(*(nll for _, nll in better))), RULE)
    assert spread.verdict == "promote"


def test_a_few_groups_make_no_interval():
    """However good: a bootstrap over three groups has no width to speak of."""
    enough, few = ([(f"g{i % count}", 10.0) for i in range(30)] for count in (RULE.min_groups, RULE.min_groups - 1))
    verdicts = []
    for rows in (enough, few):
        better = [(group, 2.0) for group, _ in rows]
        found = decide("ml", losses(base=rows, consensus=better), RULE)
        verdicts.append(found.verdict)
    assert verdicts == ["promote", "inconclusive"]
    assert "5 groups of test examples make no interval (6 needed)" in found.reason


def test_the_paragraph_says_what_was_compared_by_how_much_and_why():
    found = decided(interval(0.15, 0.25), interval(0.0, 0.0625 + 0.125))
    assert found.reason.startswith("In python, against the base model ")
    for part in (
        "falls by 20.0%",
        "95% interval 15.0% to 25.0%",
        "n = 40 examples in 40 groups",
        "needed: 12%",
        "against the base model with the playbook in context",
        "needed: 6%",
        "inconclusive, needs about",
        "more examples",
    ):
        assert part in found.reason, found.reason


def test_without_a_graduated_bullet_there_is_no_playbook_arm():
    found = decided(interval(0.2, 0.3), None)
    assert found.gain_over_playbook is None
    assert "no bullet graduated" in found.reason and found.reason.endswith("promote.")


@pytest.mark.parametrize(
    ("low", "high", "n", "needed"),
    [
        (0.125 - 0.0625, 0.125 + 0.1875, 20, 60),  # half 1/8, distance 1/16: twice the precision, four times the items
        (0.125 - 0.25, 0.125 + 0.3125, 16, 1280),  # half 9/32, distance 1/32: 81-fold
        (0.125 - 0.25, 0.125 + 0.25, 10, 990),  # on the bar no number suffices: capped at a hundredfold
    ],
)
def test_how_many_more_examples(low: float, high: float, n: int, needed: int):
    assert f"needs about {needed} more examples" in decided(interval(low, high, n), None).reason


def test_a_degenerate_interval_just_short_of_the_bar_is_explained():
    """All groups alike: the resampled ratio and the ratio of sums may differ in the last bit."""
    short = float(np.nextafter(BASE_BAR, 0))
    found = decided(Interval(estimate=BASE_BAR, low=short, high=short, n=9, groups=9), None)
    assert found.verdict == "reject"


@pytest.mark.parametrize("missing", ["consensus", "base"])
def test_a_crashed_arm_is_an_error_not_a_verdict(missing: str):
    arms = {name: single(4.0, 5.0) for name in ("base", "consensus") if name != missing}
    with pytest.raises(ValueError, match="same items"):
        decide("python", losses(**arms), RULE)


def test_an_arm_on_other_examples_is_an_error():
    whole, part = single(4.0, 5.0, 6.0), single(4.0, 5.0)
    with pytest.raises(ValueError, match=r"consensus \(2 examples\) and base \(3\)"):
        decide("python", losses(base=whole, consensus=part), RULE)
    with pytest.raises(ValueError, match="playbook"):
        decide("python", losses(base=whole, consensus=whole, playbook=part), RULE)


def test_an_arm_that_scored_other_tokens_is_an_error():
    frame = losses(base=single(4.0, 5.0), consensus=single(3.0, 4.0))
    longer = frame.with_columns(tokens=pl.when(pl.col("contender") == "base").then(11).otherwise(pl.col("tokens")))
    with pytest.raises(ValueError, match="same items"):
        decide("python", longer, RULE)


def test_a_loss_that_is_not_finite_is_no_verdict():
    with pytest.raises(ValueError, match="not finite"):
        decide("python", losses(base=single(4.0, 5.0), consensus=single(3.0, float("nan"))), RULE)


def test_other_contenders_have_no_say():
    arms = {"base": single(8.0, 9.0), "consensus": single(4.0, 4.5)}
    plain = decide("python", losses(**arms), RULE)
    others = {"voter-0": single(1.0, 1.0), "expert:sql": single(99.0, 99.0), "merged": single(2.0, 3.0)}
    assert decide("python", losses(**arms, **others), RULE) == plain
