"""Domains of bullets: authored sentences with an obvious answer."""

import pytest

from capibara_assets.playbooks.rows import domains_of
from capibara_assets.playbooks.similarity import components


@pytest.mark.parametrize(
    ("section", "content", "expected"),
    [
        ("", "Write a pytest for every function", ["python"]),
        ("SQL RULES", "Count first", ["sql"]),
        ("", "Check column names before you join two tables", ["sql"]),
        ("", "Use console.log to see what a promise resolves to", ["javascript"]),
        ("TROUBLESHOOTING AND PITFALLS:", "Read it again", ["debug"]),
        ("", "Hold out a validation set: training loss alone hides overfitting", ["ml"]),
        ("", "Follow pagination until the endpoint returns no more pages", ["api"]),
        ("", "Be brief and friendly", ["general"]),
    ],
)
def test_obvious_bullets(section: str, content: str, expected: list[str]) -> None:
    assert domains_of(section, [], content) == expected


def test_several_domains_best_first() -> None:
    both = domains_of("", ["sqlite"], "Call the API, then store the response in SQL")
    assert both[0] == "sql" and "api" in both


def test_components() -> None:
    assert components(6, [(4, 2), (0, 4), (5, 1)]) == [[0, 2, 4], [1, 5], [3]]
