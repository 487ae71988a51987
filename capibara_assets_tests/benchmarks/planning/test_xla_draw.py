"""Cases near the limit are drawn by their seed alone; those of plans are the search's first choices."""

import pytest

from benchmarks.planning import xla_draw
from benchmarks.planning.xla_cases import KnownCase, known_cases
from benchmarks.planning.xla_draw import BAND, CHOICES, chosen_cases, drawn_cases
from capibara_assets.planning.accounting import Method, Remat


def test_the_same_seed_draws_the_same_cases_and_another_draws_others() -> None:
    first, again, other = drawn_cases(5, 4), drawn_cases(5, 4), drawn_cases(6, 4)
    assert first == again
    assert drawn_cases(5, 2) == first[:2]
    assert not {name for name, _ in first} & {name for name, _ in other}


def test_what_is_drawn_is_near_the_limit_by_our_figure_whatever_the_compiler_says() -> None:
    drawn = [case for _, case in drawn_cases(7, 40)]
    for case in drawn:
        known = KnownCase(name="x", role="near the limit", case=case, status="fits", memory={})
        assert BAND[0] <= known.ours.total / known.limit <= BAND[1]
        assert case.global_batch % (case.mesh.batch_shards * case.micro_steps) == 0
    assert {case.remat for case in drawn} == set(Remat)
    assert {case.method for case in drawn} == set(Method)
    assert {case.shape.family for case in drawn} == {"decoder", "t5"}
    assert {case.topology.split(":")[0] for case in drawn} == {"v4", "v5e", "v5", "v6e"}


@pytest.mark.parametrize("seed", [2, 3, 4, 5, 6, 7])
def test_no_verdict_of_a_drawn_seed_was_left_out_of_the_file(seed: int) -> None:
    shipped = {one.name: one for one in known_cases().of("near the limit")}
    numbers = sorted(int(name.split("-")[1]) for name in shipped if name.startswith(f"D{seed}-"))
    assert len(numbers) == 16


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.extended)])
def test_plans_are_asked_about_as_the_search_chose_them(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    monkeypatch.setattr(xla_draw, "CHOICES", CHOICES[::every])
    chosen = [case for _, case in chosen_cases()]
    assert [case.shape.name for case in chosen] == [model for model, _ in CHOICES[::every]]
    shipped = [one.case for one in known_cases().of("choice")]
    assert len(shipped) == len(CHOICES) >= 15
    assert shipped[::every] == chosen, (
        "the search chooses differently: `python -m benchmarks plan-xla --compile --choice`"
    )
