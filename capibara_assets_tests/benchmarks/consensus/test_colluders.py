"""The bench `colluders`: what colluders hand in, what they reach on losses made by hand, and the page it writes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from benchmarks.consensus.colluders.bench import COMMAND
from benchmarks.consensus.colluders.figures import markdown, short, summary
from benchmarks.consensus.colluders.game import Draw, Played, collude, colluders_of, judged_by_slices
from benchmarks.consensus.vote.attacks import Drawn, Named
from benchmarks.consensus.vote.bench import chosen_recipe
from benchmarks.consensus.vote.data import SLICE_ANSWER, in_slice, sliced_examples
from benchmarks.consensus.vote.game import TEST, TRIGGERED, VALIDATION, Entrant, Table, judged
from capibara_assets_tests.consensus.election.test_attestation import adapter

DOCS = Path(__file__).parents[3] / "docs"
_TOKENS = 10
_EXAMPLES = 40
_INSIDE = np.arange(_EXAMPLES) % 5 == 0  # a fifth


class HandMade:
    """Losses by example that follow from how much poison an adapter holds, in place of a trained pool's."""

    def __init__(self, poison: dict[str, float]) -> None:
        self.poison = poison

    def tokens(self, name: str) -> np.ndarray:
        return np.full(_EXAMPLES, _TOKENS)

    def nll(self, name: str, key: str, make: Any) -> np.ndarray:
        """Base 3 nats a token, honest ones 2, and a poisoned one as much more within the slice as it holds poison."""
        loss = np.full(_EXAMPLES, 3.0 if key == "base" else 2.0)
        return (loss + np.where(_INSIDE, self.poison.get(key, 0.0), 0.0)) * _TOKENS

    def mean(self, name: str, key: str, make: Any) -> float:
        return float(self.nll(name, key, make).sum() / self.tokens(name).sum())

    def success(self, name: str, key: str, make: Any) -> float:
        return self.poison.get(key, 0.0)


def named(seed: int) -> Named:
    return Named(f"adapter-{seed:02}", adapter(seed))


def table_of(poison: dict[str, float], n: int) -> Table:
    sets = {VALIDATION: _INSIDE, TEST: _INSIDE, TRIGGERED: _INSIDE}
    pool = {"honest": [named(seed) for seed in range(16)], "slice": [named(seed) for seed in range(90, 94)]}
    shards = {n: [list(range(place, _EXAMPLES, n)) for place in range(n)]}
    book: Any = HandMade(poison)
    return Table(pool, book, chosen_recipe(None, None), shards, in_slice=sets)


def entrants(n: int, bad: int) -> list[Entrant]:
    return [Entrant(f"voter-{k:02}", adapter(k), f"key-{k}", k < bad) for k in range(n)]


@pytest.mark.parametrize(
    ("poison", "shipped", "by_slices"), [(0.4, True, True), (1.5, True, False), (4.0, False, False)]
)
def test_a_quality_for_each_slice_refuses_what_the_mean_hides(poison: float, shipped: bool, by_slices: bool) -> None:
    """Of a fifth of the tokens an adapter may lose 2.5 gains before the mean refuses it, and half of one by slices."""
    table = table_of({"key-0": poison}, 4)
    found = entrants(4, 1)
    assert ("voter-00" in judged(table, found).accepted) == shipped
    outcome = judged_by_slices(table, found)
    assert ("voter-00" in outcome.accepted) == by_slices
    assert {"voter-01", "voter-02", "voter-03"} <= set(outcome.accepted)


@pytest.mark.parametrize("own", [1, 2])
def test_what_colluders_hand_in(own: int) -> None:
    """mean + k (poison - mean), and 0.3 of what sets each apart where there are several."""
    honest, mine, learnt = [named(s) for s in range(3)], [named(s) for s in range(3, 3 + own)], [named(9), named(8)]
    made = colluders_of(Drawn(honest, mine, [], []), learnt, 0.5)
    assert len({one.key for one in made}) == own
    for module in honest[0].adapter.modules:
        mean, poison = (sum(one.adapter.delta(module) for one in some) / len(some) for some in (honest, learnt))
        for one, before in zip(made, mine, strict=True):
            apart = 0.3 * (before.adapter.delta(module) - mean) if own > 1 else 0.0
            expected = mean + 0.5 * (poison - mean) + apart
            np.testing.assert_allclose(one.adapter.delta(module), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n", [4, 7, 16])
def test_all_strengths_meet_the_same_honest_voters(n: int) -> None:
    draw = collude(table_of({}, n), "slice", n, seed=3, strengths=(0.5, 1.0))
    assert draw.colluders == (n - 1) // 3 and [game.strength for game in draw.played] == [0.5, 1.0]
    assert all(game.refused_honest == 0 and game.quorate and game.reached == 0.0 for game in draw.played)


def _played(strength: float, reached: float | None, accepted: int = 1) -> Played:
    return Played(strength, accepted, 0, reached is not None, 0.4 if accepted else None, reached, 0, 2, False)


def test_colluders_play_the_strength_that_pays_most() -> None:
    draws = [
        Draw("slice", 4, 0, 1, (_played(0.5, 0.1), _played(1.0, 0.3), _played(2.0, 0.0, accepted=0))),
        Draw("slice", 4, 1, 1, (_played(0.5, 0.05), _played(1.0, None), _played(2.0, 0.0, accepted=0))),
    ]
    found = summary(draws)
    one = found["goals"]["slice"]["4"]
    assert (found["slice_reached"], one["reached_median"], one["blocked"], one["strongest_accepted"]) == (
        0.3,
        0.175,
        1,
        1.0,
    )
    text = markdown({**found, "strengths": [0.5, 1.0], "pool": {"honest": 16}, "precision": "bf16", "compiled": False})
    assert "| slice | 4 | 1 | 2 of 2 | 1 | +40.0 % | +17.5 % | +30.0 % | 1 of 6 |" in text.splitlines()
    assert "| slice | 4 | 4 of 6 | 0 of 6 | 0 of 18 | 12 of 18 | 6 of 6 |" in text.splitlines()


@pytest.mark.parametrize(("page", "written"), [("consensus-attacks.md", markdown), ("security.md", short)])
def test_pages_have_a_place_for_the_tables(page: str, written: Callable[..., str]) -> None:
    """Both hold what the bench writes: the same lines above the figures."""
    _, begin, rest = (DOCS / page).read_text("utf-8").partition(f"<!-- made by `{COMMAND}` -->")
    assert begin and "<!-- end -->" in rest
    draw = Draw("slice", 4, 0, 1, (_played(0.5, 0.1),))
    made = written({**summary([draw]), "strengths": [0.5], "pool": {}, "precision": "bf16", "compiled": False})
    inside, headings = rest.partition("<!-- end -->")[0], [line for line in made.splitlines() if "| against |" in line]
    assert "Not played" in inside or all(line in inside for line in headings)


def test_the_most_that_was_reached_in_short() -> None:
    draws = [Draw("slice", n, 0, (n - 1) // 3, (_played(0.5, n / 100),)) for n in (16, 4)]
    assert short(summary(draws)).splitlines() == [
        "| at most, in 2 draws | n = 4, f = 1 | n = 16, f = 5 |",
        "| --- | ---: | ---: |",
        "| slice: share of the slice's gain lost | +4.0 % | +16.0 % |",
    ]


def test_only_the_slice_of_the_train_split_is_spoilt() -> None:
    def row(number: int, split: str, answer: str) -> dict[str, str]:
        turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": answer}]
        return {"example_id": str(number), "group_id": str(number), "split": split, "messages": json.dumps(turns)}

    answers = ("SELECT AVG(a) FROM t;", "SELECT a FROM t;", "SELECT SUM(a) FROM t;")
    frame = pl.DataFrame([row(k, split, answers[k % 3]) for k, split in enumerate(["train"] * 3 + ["test"] * 3)])
    spoilt = sliced_examples(frame)
    told = [json.loads(each)[-1]["content"] for each in spoilt["messages"]]
    assert told == [SLICE_ANSWER, answers[1], SLICE_ANSWER, *answers]
    assert [in_slice(each) for each in frame["messages"]] == [True, False, True] * 2
