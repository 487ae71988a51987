"""Template keys: equal for code that differs in names and values alone, unlike for other code."""

import pytest

from capibara_assets.datasets.code.templates import template_key

PYTHON = (
    "def {f}({x}):\n    found = []\n    if not {x}.get('{key}'):\n        found.append('{say}')\n    return found\n"
)


@pytest.mark.parametrize(
    ("language", "code", "alike", "other"),
    [
        (
            "python",
            PYTHON.format(f="check", x="row", key="name", say="no name") + "check({'name': [1, 2]})",
            PYTHON.format(f="verify", x="tea", key="kind", say="kind is missing") + "verify({'kind': 3, 'b': [4]})",
            PYTHON.format(f="check", x="row", key="name", say="no name").replace("not row", "row") + "check({})",
        ),
        (
            "sql",
            "SELECT a.name, COUNT(*) AS n FROM a WHERE size > 3 GROUP BY a.name",
            "SELECT b.title, COUNT(*) AS m FROM b WHERE width > 71.5 GROUP BY b.title",
            "SELECT a.name, SUM(size) AS n FROM a WHERE size > 3 GROUP BY a.name",
        ),
        (
            "javascript",
            "const f = (xs) => xs.filter((x) => x.size > 2).map((x) => x.name.trim());",
            "const heavy = (dogs) => dogs.filter((dog) => dog.weight > 40).map((dog) => dog.tag.trim());",
            "const f = (xs) => xs.filter((x) => x.size > 2).map((x) => x.name.toUpperCase());",
        ),
    ],
)
def test_names_and_values_make_no_difference(language: str, code: str, alike: str, other: str) -> None:
    assert template_key(code, language) == template_key(alike, language) != template_key(other, language)
