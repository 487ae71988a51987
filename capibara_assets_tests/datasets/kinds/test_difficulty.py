"""Difficulty: between 0 and 1, and higher for what is harder."""

from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.recipe import DifficultyWeights

WEIGHTS = DifficultyWeights.model_validate({})
EASY = "def f(x):\n    return x"
HARD = "def f(x):\n" + "\n".join(f"    if x > {i} and x % {i + 2}:\n        x += {i}" for i in range(20))


@given(
    st.text(),
    st.sampled_from(["python", "sql", "javascript", "r"]),
    st.integers(0, 99),
    st.lists(st.text(), max_size=3),
)
def test_bounds(code: str, language: str, failures: int, errors: list[str]) -> None:
    assert 0 <= difficulty(code, language, failures, errors, WEIGHTS) <= 1


def test_each_ingredient_makes_it_harder() -> None:
    base = difficulty(EASY, "python", 0, [], WEIGHTS)
    assert difficulty(HARD, "python", 0, [], WEIGHTS) > base
    assert difficulty(EASY, "python", 1, [], WEIGHTS) > base
    assert difficulty(EASY, "python", 3, [], WEIGHTS) > difficulty(EASY, "python", 1, [], WEIGHTS)
    name, wrong = (difficulty(EASY, "python", 1, [e], WEIGHTS) for e in ("NameError", "AssertionError"))
    assert base < name < wrong


def test_known_value() -> None:
    # 16 tokens, no decision, one failure by an unknown error: 0.3 * 1/2 + 0.2 * 0.6 + 0.2 * log2(2)/6
    code = " ".join(f"a{i}" for i in range(16))
    assert difficulty(code, "python", 1, ["Strange"], WEIGHTS) == round(0.15 + 0.12 + 0.2 / 6, 6)
