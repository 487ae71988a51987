"""The router: learns which expert a prompt is for, with shared prompts and any number of experts, and reads back."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from capibara_assets.datasets.schema import Route
from capibara_assets.deployment.declarations import shipped_recipe
from capibara_assets.errors import InputError
from capibara_assets.evaluation.routing.embedding import embedder
from capibara_assets.evaluation.routing.recipe import RouterRecipe
from capibara_assets.evaluation.routing.router import Router, accuracy, train_router
from capibara_assets.modeling.base import load_base
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


@pytest.mark.filterwarnings("error")
def test_a_fit_that_the_recipe_bounds_says_nothing_of_it():
    assert train_router(routes("sql", "python"), list(ASKED), 1, RouterRecipe(max_iterations=1)).experts == (
        "python",
        "sql",
    )


@pytest.mark.parametrize("experts", [[], ["ml"]])
def test_no_expert_with_prompts_is_refused(experts: list[str]):
    with pytest.raises(ValueError, match="training prompts of its experts"):
        train_router(routes(*ASKED), experts, seed=1)


def test_test_prompts_are_not_learnt_from(router: Router):
    held = tuple(route(f"zebra {noun} quagga", "sql", split="test") for noun in NOUNS)
    again = train_router(routes(*ASKED, extra=held), list(ASKED), seed=1)
    np.testing.assert_array_equal(again.coefficients, router.coefficients)


MANY = tuple(f"{noun} {number}" for number in range(12) for noun in NOUNS)


def calibrating(*names: str, extra: tuple[Route, ...] = ()) -> pl.DataFrame:
    """Enough validation prompts to calibrate on."""
    rows = [
        route(ASKED[name].format(noun), name, split=("train", "validation", "test")[i % 3])
        for name in names
        for i, noun in enumerate(MANY)
    ]
    return table(Route, [*rows, *extra])


@pytest.fixture(scope="module")
def calibrated() -> Router:
    return train_router(calibrating(*ASKED), list(ASKED), seed=1)


def test_what_it_is_unlike_goes_to_the_base(calibrated: Router):
    known = [ASKED["sql"].format("tables"), ASKED["javascript"].format("clocks")]
    assert calibrated.route([*known, "Wie wird das Wetter in Lissabon?", ""]) == ["sql", "javascript", None, None]
    assert calibrated.pick(["Wie wird das Wetter in Lissabon?"])[0] in calibrated.experts  # a pick is always one
    never = train_router(calibrating(*ASKED), list(ASKED), 1, RouterRecipe(unlike=None, abstain_cost=None))
    assert None not in never.route(["Wie wird das Wetter in Lissabon?", ""])


def test_prompts_that_nobody_solves_teach_it_to_abstain():
    strange = tuple(route(f"Fold the paper crane number {i}.", "ml", split="validation") for i in range(60))
    recipe = RouterRecipe(unlike=None)
    frame = calibrating(*ASKED, extra=strange)
    router = train_router(frame, list(ASKED), 1, recipe)
    assert router.route(["Fold the paper crane number 99."]) == [None]
    assert router.route([ASKED["sql"].format("tables")]) == ["sql"]
    assert router.confident(["Fold the paper crane number 99."])[1][0] < 0.2


def test_too_few_validation_prompts_leave_it_uncalibrated(router: Router, calibrated: Router):
    assert router.confidence is None and router.abstain_below is None and router.temperature == 1.0
    assert calibrated.confidence is not None and calibrated.temperature != 1.0


def test_a_calibrated_router_reads_back_and_routes_alike(calibrated: Router, tmp_path: Path):
    calibrated.write(tmp_path)
    back = Router.read(tmp_path)
    prompts = [*calibrating(*ASKED)["prompt"].to_list()[:30], "anything else"]
    assert back.route(prompts) == calibrated.route(prompts) and back.load == calibrated.load
    np.testing.assert_array_equal(back.confident(prompts)[1], calibrated.confident(prompts)[1])


def test_a_prompt_is_answered_alike_alone_and_among_others(calibrated: Router):
    prompts = calibrating(*ASKED)["prompt"].to_list()[:20]
    alone = np.concatenate([calibrated.probabilities([prompt]) for prompt in prompts])
    np.testing.assert_array_equal(calibrated.probabilities(prompts), alone)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": None}, "is of version 1, this reads version 2: materialize expert_router again"),
        ({"byte_ngrams": [1]}, "fit other n-grams or experts"),
        ({"experts": ["sql"]}, "fit other n-grams or experts"),
        ({"temperature": None}, "damaged router"),
    ],
)
def test_another_file_is_refused_with_the_remedy(change: dict[str, Any], message: str, router: Router, tmp_path: Path):
    router.write(tmp_path)
    file = tmp_path / "router.json"
    changed = {**json.loads(file.read_text()), **change}
    file.write_text(json.dumps({key: value for key, value in changed.items() if key != "schema_version" or value}))
    with pytest.raises(InputError, match=message):
        Router.read(tmp_path)


def test_no_router_is_said_to_be_none(tmp_path: Path):
    with pytest.raises(InputError, match="is not a router"):
        Router.read(tmp_path)


def test_an_embedding_router_needs_its_model(tmp_path: Path):
    def embed(prompts: Sequence[str]) -> NDArray[np.float32]:
        return np.array(
            [[prompt.count(word) for word in ("query", "function", "promise")] for prompt in prompts], np.float32
        )

    recipe = RouterRecipe(kind="embedding")
    router = train_router(calibrating(*ASKED), list(ASKED), 1, recipe, embed, "digest")
    prompts = ["a query", "one function", "promise"]
    assert router.pick(prompts) == ["sql", "python", "javascript"] == router.route(prompts)
    router.write(tmp_path)
    assert Router.read(tmp_path, embed).pick(prompts) == router.pick(prompts)
    with pytest.raises(InputError, match="hidden states of the base model digest"):
        Router.read(tmp_path).pick(prompts)
    with pytest.raises(ValueError, match="needs the base model's embedding"):
        train_router(calibrating(*ASKED), list(ASKED), 1, recipe)


def test_the_base_models_states_make_features(nano: Path):
    base = load_base(nano)
    embed = embedder(base, 32)
    prompts = ["select name from orders", "def reverse(items): return items[::-1]", "", "x"]
    found = embed(prompts)
    assert found.shape == (4, 256) and found.dtype == np.float32 and np.isfinite(found).all()
    np.testing.assert_allclose(found[1], embed(prompts[1:2])[0], atol=1e-4)  # not what it is read beside


def test_the_shipped_recipe_is_the_default():
    assert shipped_recipe("router", RouterRecipe) == RouterRecipe()
