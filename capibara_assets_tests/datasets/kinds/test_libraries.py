"""Libraries that an answer uses: named by its prompt, customary, or added to what is asked."""

import pytest

from capibara_assets.datasets.kinds import prompts, solve
from capibara_assets.datasets.kinds.libraries import unnamed_libraries
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets_tests.datasets.conftest import evidence_of, run

APP = """\
from flask import Flask
app = Flask(__name__)


@app.get("/crates")
def crates():
    return [{"id": i} for i in range(3) if i != 1]"""


@pytest.mark.parametrize(
    ("task", "answer", "unnamed"),
    [
        ("Serve the crates.", APP, ["flask"]),
        ("Serve the crates with Flask.", APP, []),
        ("Count the red pixels of an image.", "from PIL import Image\nprint(Image.open(p))", []),
        ("Count the red pixels of a file.", "from PIL import Image\nprint(Image.open(p))", ["PIL"]),
        ("Fit a line.", "import numpy as np\nfrom sklearn.linear_model import Ridge", []),
        ("Serve it with FastAPI.", "from pydantic import BaseModel\nimport fastapi", []),
        ("Check it.", "import webargs.fields, pydantic.fields", ["pydantic", "webargs"]),
        ("Read it.", "from .models import Crate\nimport json.decoder", []),
        ("Read it.", "import (", []),
    ],
)
def test_a_library_is_named_or_customary(task: str, answer: str, unnamed: list[str]) -> None:
    assert unnamed_libraries(answer, prompts.solve("python", task, "", [], []), "python") == unnamed
    assert unnamed_libraries(answer, "", "javascript") == []


@pytest.mark.parametrize(
    ("task", "query", "unnamed"),
    [
        ("Count the trips of a month.", "SELECT COUNT(*) FROM trips WHERE strftime('%m', day) = '05'", ["SQLite"]),
        ("Count them in SQLite.", "SELECT COUNT(*) FROM trips WHERE strftime('%m', day) = '05'", []),
        ("How old are they?", "SELECT CAST(JulianDay('now') - julianday(day) AS INTEGER) FROM trips", ["SQLite"]),
        ("Recent trips.", "SELECT * FROM trips WHERE day >= DATE('now', '-3 months')", ["SQLite"]),
        ("Trips of a month.", "SELECT * FROM trips WHERE day < date(start, '+1 month')", ["SQLite"]),
        # DuckDB's, MySQL's and everybody's
        ("Count the trips of a month.", "SELECT COUNT(*) FROM trips WHERE strftime(day, '%m') = '05'", []),
        ("Recent trips.", "SELECT * FROM trips WHERE day >= DATE_SUB(CURDATE(), INTERVAL 3 MONTH)", []),
        ("Trips of a day.", "SELECT * FROM trips WHERE date(day) = '2024-05-01'", []),
    ],
)
def test_a_query_says_that_it_is_for_sqlite(task: str, query: str, unnamed: list[str]) -> None:
    assert unnamed_libraries(query, prompts.solve("sql", task, "", [], []), "sql") == unnamed


def test_the_prompt_says_what_is_to_be_used_where_nothing_does(recipe: DatasetRecipe) -> None:
    test = "\nassert app.test_client().get('/crates').json[1]['id'] == 2"
    told = run("told", f"{APP}{test}", task="Serve the numbers of crates below /crates with Flask.")
    untold = run("untold", f"{APP}{test}", "s2", task="Serve the numbers of crates below /crates.")
    made = {one.execution_ids[0]: one.prompt for one in solve.candidates(evidence_of([told, untold]), recipe)}
    assert made["told"].startswith("Write Python code.\nServe the numbers")
    assert made["untold"].startswith("Write Python code with flask.\nServe the numbers")
