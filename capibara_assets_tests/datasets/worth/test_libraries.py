"""Libraries that an answer uses: named by its prompt, customary, or nothing tells them."""

import pytest

from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.worth.libraries import UNNAMED, unnamed_library
from capibara_assets_tests.datasets.worth.test_worth import candidate, unworthy

APP = """\
from flask import Flask
app = Flask(__name__)


@app.get("/crates")
def crates():
    return [{"id": i} for i in range(3) if i != 1]"""
SHOWN = 'assert app.test_client().get("/crates").json[1]["id"] == 2'


@pytest.mark.parametrize(
    ("task", "answer", "why"),
    [
        ("Serve the crates.", APP, UNNAMED),
        ("Serve the crates with Flask.", APP, None),
        ("Count the red pixels of an image.", "from PIL import Image\nprint(Image.open(p))", None),
        ("Count the red pixels of a file.", "from PIL import Image\nprint(Image.open(p))", UNNAMED),
        ("Fit a line.", "import numpy as np\nfrom sklearn.linear_model import Ridge", None),
        ("Serve it with FastAPI.", "from pydantic import BaseModel\nimport fastapi", None),
        ("Check it.", "import pydantic.fields", UNNAMED),
        ("Read it.", "from .models import Crate\nimport json.decoder", None),
        ("Read it.", "import (", None),
    ],
)
def test_a_library_is_named_or_customary(task: str, answer: str, why: str | None) -> None:
    assert unnamed_library(candidate("solve", answer, prompts.solve("python", task, "", [], []))) == why


def test_a_test_or_session_names_it_too() -> None:
    untold = prompts.solve("python", "Serve the crates below /crates.", "", [SHOWN], [])
    assert unworthy(candidate("solve", APP, untold, test=SHOWN)) == UNNAMED
    told = prompts.solve("python", "Serve the crates below /crates.", "", [SHOWN], ["import flask"])
    assert unworthy(candidate("solve", APP, told, test=SHOWN)) is None
