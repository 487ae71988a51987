"""Domains by content: rules one by one, and the real sessions against their labels."""

from pathlib import Path

import pytest

from benchmarks.experience.measure import (
    FAMILIES,
    ClassifierScores,
    classifier_scores,
    read_source_domains,
)
from capibara_assets.domains import Domain
from capibara_assets.executions.ingest.ingest import Ingest
from capibara_assets.executions.labels.classify import classify_session
from capibara_assets_tests.executions.conftest import labels_of, recorded


@pytest.fixture(scope="module")
def scores(shared_data: Path, real: Ingest) -> ClassifierScores:
    domains = read_source_domains(shared_data / "experience" / "sources.json")
    return classifier_scores(real.executions, labels_of(real, shared_data), domains, FAMILIES)


def test_real_sessions_are_classified(scores: ClassifierScores) -> None:
    print(f"macro F1 {scores.macro_f1:.4f}, by family {scores.accuracy_by_source}, abstained {scores.abstained}")
    assert scores.macro_f1 >= 0.95
    assert scores.worst_source_accuracy >= 0.80
    assert scores.mean_source_accuracy >= 0.92


def first(code: str, language: str = "python") -> Domain | None:
    (label,) = classify_session([recorded(code, language=language)])
    return label.domains[0] if label.domains else None


@pytest.mark.parametrize(
    ("code", "domain"),
    [
        ("import numpy as np\nfrom sklearn.svm import SVC\nSVC().fit(np.eye(2), [0, 1])", Domain.ML),
        ("import torch.nn.functional as F\nloss.backward()\noptimizer.step()", Domain.ML),
        ("from webob import Request, Response", Domain.API),
        ("from webargs.flaskparser import use_args", Domain.API),
        ("import requests\nr = requests.get('https://example.com/x')\nr.raise_for_status()", Domain.API),
        ("from flask import Flask\napp = Flask(__name__)\n@app.route('/')\ndef home(): return ''", Domain.API),
        ("response = client.post('/items/', json={})\nassert response.status_code == 201", Domain.API),
        ("import sqlite3\nc = sqlite3.connect(':memory:')\nc.execute('SELECT a FROM b').fetchall()", Domain.SQL),
        ("pd.read_sql_query('SELECT a FROM b WHERE c > 1', conn)", Domain.SQL),
        ("def add(a, b):\n    return a + b\nassert add(1, 2) == 3", Domain.PYTHON),
        ("from itertools import groupby\nprint([k for k, _ in groupby('aab')])", Domain.PYTHON),
        ("import math\nprint(math.gcd(12, 18), math.sqrt(2), math.factorial(5))", Domain.PYTHON),
        (
            "import numpy as np\nfor a in range(9):\n    print(np.gcd(a, 6), np.lcm(a, 6), np.prod([a, 2]))",
            Domain.PYTHON,
        ),
        ("from scipy import gcd\nprint(gcd(4, 6))\nprint(gcd(9, 6))", Domain.PYTHON),
        ("from scipy.special import comb, factorial\nprint(comb(5, 2) + factorial(3))", Domain.PYTHON),
        ("df = {'a': 1}\ndf['b'] = 2\nfor key in df:\n    print(key, df[key], df.items())", Domain.PYTHON),
        ("class Suit:\n    def fit(self): return 1\nprint(Suit().fit(), Suit().fit(), Suit().fit())", Domain.PYTHON),
        ("import pandas as pd\ndf = pd.read_csv('a.csv')\ndf.groupby('x')['y'].mean()", Domain.ML),
        ("import numpy as np\nq, r = np.linalg.qr(np.random.randn(9, 4))\nprint(np.linalg.norm(r))", Domain.ML),
        ("import json\njson.loads('{}').get('/x')\nprint('select one from these')", Domain.PYTHON),
    ],
)
def test_python_by_content(code: str, domain: Domain) -> None:
    assert first(code) == domain


@pytest.mark.parametrize(
    ("language", "domain"),
    [
        ("sql", Domain.SQL),
        ("javascript", Domain.JAVASCRIPT),
        ("typescript", Domain.JAVASCRIPT),
        ("bash", None),
        ("cobol", None),
    ],
)
def test_other_languages_decide_by_themselves(language: str, domain: Domain | None) -> None:
    assert first("select 1", language) == domain


@pytest.mark.parametrize("code", ["!pip install torch", "%matplotlib inline", "# torch", "%%bash\nimport torch", ""])
def test_noise_has_no_domain(code: str) -> None:
    (label,) = classify_session([recorded(code)])
    assert (label.domains, label.evidence) == ((), "noise: no statement")


def test_a_cell_without_imports_follows_its_session() -> None:
    cells = [
        "import pandas as pd\nfrom sklearn.linear_model import Lasso",
        "model = Lasso().fit(X_train, y_train)",
        "print('done')",
    ]
    labels = classify_session([recorded(code) for code in cells])
    assert [label.domains for label in labels] == [(Domain.ML,)] * 3
    assert all(0 < label.confidence <= 1 and label.evidence.startswith("session: import sklearn") for label in labels)


def test_a_cell_may_carry_a_second_domain() -> None:
    training = "import torch\nfrom sklearn.svm import SVC\nmodel = SVC().fit(X_train, y_train)"
    cells = [
        training,
        training + "\nmodel.predict(X_test)",
        "import sqlite3\nsqlite3.connect('a.db').execute('SELECT x FROM y')",
    ]
    labels = classify_session([recorded(code) for code in cells])
    assert labels[2].domains == (Domain.ML, Domain.SQL)


def test_broken_code_is_told_by_its_imports() -> None:
    assert first("import torch\nfrom sklearn import svm\nfor x in") == Domain.ML


def test_the_order_of_cells_does_not_matter() -> None:
    cells = ["import torch", "import sqlite3", "x = 1", "import requests\nrequests.get('https://a.b/c')"]
    forward = classify_session([recorded(code) for code in cells])
    assert forward == classify_session([recorded(code) for code in cells[::-1]])[::-1]
