"""The router: learns which expert a prompt is for, with shared prompts and any number of experts, and reads back."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from capibara_assets.datasets.schema import Route
from capibara_assets.evaluation.router import Router, accuracy, train_router
from capibara_assets.storage.records import table

NOUNS = ("orders", "harbours", "seeds", "lamps", "boats", "letters")
ASKED = {
    "sql": "Write a query that counts the {} of each customer, largest first.",
    "python": "Write a function that reverses a list of {} without changing it.",
    "javascript": "Await a promise that resolves with all {} in the DOM element.",
}


def route(prompt: str, *domains: str, split: str = "train") -> Route:
    return Route(
        route_id=f"r-{prompt}",
        prompt=prompt,
        domains=list(domains),
        weights=[1 / len(domains)] * len(domains),
        split=split,
        group_id=prompt,
        hard_negative=False,
        negative_of=[],
    )


def routes(*names: str, extra: tuple[Route, ...] = ()) -> pl.DataFrame:
    """Four training and two test prompts of each domain."""
    rows = [
        route(ASKED[name].format(noun), name, split="train" if i < 4 else "test")
        for name in names
        for i, noun in enumerate(NOUNS)
    ]
    return table(Route, [*rows, *extra])


@pytest.fixture(scope="module")
def router() -> Router:
    return train_router(routes(*ASKED), list(ASKED), seed=1)


def test_it_sends_new_prompts_to_their_expert(router: Router):
    assert router.experts == ("javascript", "python", "sql")
    assert accuracy(router, routes(*ASKED), "test") == (1.0, 6)
    assert router.pick(["Count the invoices of each customer", "Await the promise"]) == ["sql", "javascript"]


def test_probabilities_are_a_distribution_that_agrees_with_the_pick(router: Router):
    prompts = routes(*ASKED)["prompt"].to_list()
    found = router.probabilities(prompts)
    assert found.shape == (18, 3) and found.dtype == np.float32
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-5)
    assert [router.experts[i] for i in found.argmax(axis=1)] == router.pick(prompts)


@pytest.mark.parametrize("pair", [("python", "sql"), ("javascript", "python")])
def test_two_experts_are_told_apart_the_right_way_round(pair: tuple[str, str]):
    router = train_router(routes(*pair), list(pair), seed=1)
    assert router.coefficients.shape[0] == 2 and accuracy(router, routes(*pair), "test") == (1.0, 4)
    np.testing.assert_array_equal(router.coefficients[0], -router.coefficients[1])


def test_an_expert_that_was_not_asked_for_is_not_learnt():
    router = train_router(routes(*ASKED), ["sql", "python"], seed=1)
    assert router.experts == ("python", "sql")
    share, prompts = accuracy(router, routes(*ASKED), "test")
    assert (share, prompts) == (1.0, 4)  # the prompts that only the third expert solves do not count


def test_a_prompt_that_two_experts_solve_is_right_with_either():
    both = "Write a function that runs a query and counts the orders of each customer."
    frame = routes(*ASKED, extra=(route(both, "python", "sql"), route(both + "!", "python", "sql", split="test")))
    router = train_router(frame, list(ASKED), seed=1)
    assert accuracy(router, frame, "test") == (1.0, 7)
    chances = dict(zip(router.experts, router.probabilities([both])[0], strict=True))
    assert chances["javascript"] < 0.1 < min(chances["python"], chances["sql"])


def test_a_shared_prompt_weighs_half_for_each():
    """Two prompts that both experts solve teach what one prompt of each would: half and half, twice."""
    text = "Compare the number of rows of both tables."
    shared = (route(text, "python", "sql"), route(text + " ", "python", "sql"))
    apart = (route(text, "python"), route(text + " ", "sql"))
    one, other = (train_router(routes("python", "sql", extra=extra), ["python", "sql"], 1) for extra in (shared, apart))
    np.testing.assert_allclose(one.coefficients, other.coefficients, atol=2e-3)
    np.testing.assert_allclose(one.probabilities([text]), other.probabilities([text]), atol=2e-3)


def test_the_order_of_the_rows_does_not_matter(router: Router):
    again = train_router(routes(*ASKED).sample(fraction=1, shuffle=True, seed=3), ["sql", "javascript", "python"], 1)
    assert again.experts == router.experts
    np.testing.assert_array_equal(again.coefficients, router.coefficients)
    np.testing.assert_array_equal(again.intercepts, router.intercepts)


def test_written_twice_it_is_the_same_bytes_and_reads_back(router: Router, tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        router.write(tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["router.json", "router.safetensors"]  # nothing that runs code when it is loaded
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    back = Router.read(tmp_path / "one")
    prompts = routes(*ASKED)["prompt"].to_list()
    assert back.experts == router.experts
    np.testing.assert_array_equal(back.probabilities(prompts), router.probabilities(prompts))


def test_a_split_without_prompts_has_no_accuracy(router: Router):
    assert accuracy(router, routes(*ASKED), "validation") == (None, 0)


@pytest.mark.parametrize("experts", [["sql"], ["sql", "ml"]])
def test_a_single_expert_answers_everything(experts: list[str], tmp_path: Path):
    train_router(routes(*ASKED), experts, seed=1).write(tmp_path)
    router = Router.read(tmp_path)
    assert router.pick(["anything", ""]) == ["sql", "sql"]
    assert router.probabilities(["anything"]).tolist() == [[1.0]]
    assert accuracy(router, routes(*ASKED), "test") == (1.0, 2)


@pytest.mark.parametrize("experts", [[], ["ml"]])
def test_no_expert_with_prompts_is_refused(experts: list[str]):
    with pytest.raises(ValueError, match="training prompts of its experts"):
        train_router(routes(*ASKED), experts, seed=1)


def test_test_prompts_are_not_learnt_from(router: Router):
    held = tuple(route(f"zebra {noun} quagga", "sql", split="test") for noun in NOUNS)
    again = train_router(routes(*ASKED, extra=held), list(ASKED), seed=1)
    np.testing.assert_array_equal(again.coefficients, router.coefficients)
