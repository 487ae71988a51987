"""Which outputs may become answers."""

import pytest

from capibara_assets.datasets.kinds.predict import is_derivable


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(random.random())", "0.5"),
        ("time.time()", "1.7"),
        ("import torch\ntorch.manual_seed(1)\ntorch.rand(2)", "tensor"),
        ("object()", "<object object at 0x7f2a10>"),
        ("print(set(words))", "{'a', 'b'}"),
        ("model.fit(x, y)\nmodel.score(x, y)", "0.93"),
        ("from sklearn.datasets import load_iris", "150"),
        ("new Date().getFullYear()", "2026"),
        ("Math.random()", "0.3"),
        ("SELECT DATE('now')", "2026-10-01"),
        ("!ls", "x"),
        ("f()", "took 3.2 ms"),
        ("plt.plot(x)", "<Figure size 640x480 with 1 Axes>"),
    ],
)
def test_not_derivable(code: str, output: str) -> None:
    assert not is_derivable([code], output)


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("sorted({'b', 'a'})", "['a', 'b']"),
        ("print({'a': 1})", "{'a': 1}"),
        ("conn = sqlite3.connect(':memory:')", "3"),
        ("[3, 1].sort()", "[ 1, 3 ]"),
        ("SELECT COUNT(*) FROM a", "3"),
        ("def train_times(input, version): return input + version\ntrain_times(1, 2)", "3"),
        ("pd.read_csv(io.StringIO('a,b\\n1,2'))['a'].sum()", "1"),
    ],
)
def test_derivable(code: str, output: str) -> None:
    assert is_derivable([code], output)
