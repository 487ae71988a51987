"""Near-duplicate advice: pairs with an obvious answer, and the search against brute force."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capibara_assets.playbooks.near import distinct, likeness, meaning_of, near_pairs, opposed, weights_of

BASE = "Always check the exact column names with PRAGMA before you write a join over several tables"
LONG = (
    "Call show_friends page by page, wait 5 seconds before every retry that follows a refused request, keep the newest "
    "token in memory, write what came back to a local file, compare its rows with the previous answer of the server "
    "and report each missing person by name, email address, city, country and telephone number"
)


def verdict(left: str, right: str) -> str:
    one, other = meaning_of(left), meaning_of(right)
    if not near_pairs([one, other]):
        return "far"
    return "opposed" if opposed(one, other) else "set apart" if distinct(one, other) else "same"


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (BASE, BASE.upper() + "!!", "same"),
        (BASE, "Check exact column names using PRAGMA before writing joins over several tables", "same"),
        (BASE, BASE.replace("Always check", "Never check"), "opposed"),
        (BASE, BASE.replace("Always check", "Don't check"), "opposed"),
        (BASE, "Do not forget: " + BASE, "same"),
        ("Use parameters instead of string formatting", "Use string formatting instead of parameters", "opposed"),
        ("Avoid using global state in handlers", "Never use global state in handlers", "same"),
        ("Run migrations before the tests", "Run the tests before migrations", "set apart"),
        (LONG, LONG.replace("before", "after"), "set apart"),
        (LONG, LONG.replace(" 5 ", " 30 "), "set apart"),
        (LONG, LONG.replace("show_friends", "list_friends"), "set apart"),
        (LONG, LONG.replace("newest", "latest"), "same"),
        (LONG, LONG + " (see users_v2)", "same"),
        ("Set a timeout of 5 seconds", "Set a timeout of 30 seconds", "far"),
        ("Find the most followed artist", "Find the least followed artist", "far"),
        ("Validate the email before saving a form", "Validate the phone before saving a form", "far"),
        ("", "", "far"),
    ],
)
def test_obvious_pairs(left: str, right: str, expected: str) -> None:
    assert verdict(left, right) == verdict(right, left) == expected


@given(
    st.lists(
        st.lists(st.sampled_from(["cat", "dog", "fox", "hen", "cow", "pig", "ant", "bee"]), max_size=7).map(" ".join),
        max_size=12,
    ),
    st.sampled_from([0.5, 0.85]),
)
def test_near_pairs_are_those_of_brute_force(texts: list[str], threshold: float) -> None:
    meanings = [meaning_of(text) for text in texts]
    weights = weights_of(meanings)
    brute = [
        (i, j)
        for i in range(len(meanings))
        for j in range(i + 1, len(meanings))
        if likeness(meanings[i].stems, meanings[j].stems, weights) >= threshold
    ]
    assert near_pairs(meanings, threshold) == brute
