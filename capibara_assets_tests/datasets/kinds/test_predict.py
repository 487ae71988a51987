"""Which outputs may become answers."""

import pytest

from capibara_assets.datasets.derived.trials import End, Ends, Trial, execute
from capibara_assets.datasets.executing import NOT_AS_SHOWN, as_shown
from capibara_assets.datasets.kinds import predict, prompts
from capibara_assets.datasets.kinds.predict import is_derivable
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets_tests.datasets.conftest import evidence_of, run


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(random.random())", "0.5"),
        ("time.time()", "1.7"),
        ("import torch\ntorch.manual_seed(1)\ntorch.rand(2)", "tensor"),
        ("object()", "<object object at 0x7f2a10>"),
        ("print(set(words))", "{'a', 'b'}"),
        ("set(map(tuple, rows))", "{(4, 5), (3, 2)}"),
        ("{tuple(set(row)) for row in rows}", "{((4, 5), (3, 2)), ((4, 6), (2, 2))}"),
        ("model.fit(x, y)\nmodel.score(x, y)", "0.93"),
        ("from sklearn.datasets import load_iris", "150"),
        ("new Date().getFullYear()", "2026"),
        ("Math.random()", "0.3"),
        ("SELECT IF(1 > 2, 3, 4)", "OperationalError: no such function: IF"),
        ("SELECT DATE('now')", "2026-10-01"),
        ("!ls", "x"),
        ("f()", "took 3.2 ms"),
        ("plt.plot(x)", "<Figure size 640x480 with 1 Axes>"),
        (
            "Model(a='x')",
            "1 validation error\n    For further information visit https://errors.pydantic.dev/2.14/v/int_type",
        ),
        ("res = sp.optimize.root(f, x0=[0, 0])\nres.success", "True"),
        ("print(fsolve(f, 1)[0] > 0)", "True"),
        ("s.value_counts(bins=4)", "(0.996, 1.75]  1"),
        ("pd.cut(s, 3)", "(0.997, 2.0]"),
        ("print(uuid.UUID(text).int)", "196715645372043918093146413212342120967"),
        ("print(inspect.getsource(f))", "def f(): pass"),
        ("x = [1, 2]\ntype(x)", "list"),
        ("x is y, type(x.pop)", "(False, builtin_function_or_method)"),
        ("people / area", "Ohio     91.287603\nUtah     228.05134"),
        ("route(app, {'path': 1})", "AttributeError: 'dict' object has no attribute 'lower'"),
    ],
)
def test_not_derivable(code: str, output: str) -> None:
    assert not is_derivable([code], output)


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("sorted({'b', 'a'})", "['a', 'b']"),
        ("print({'a': 1})", "{'a': 1}"),
        ("{(3, 2)}", "{(3, 2)}"),
        ("{(3, 2): 1, (4, 5): 2}", "{(3, 2): 1, (4, 5): 2}"),
        ("conn = sqlite3.connect(':memory:')", "3"),
        ("s.value_counts()", "3.0  2"),
        ("pd.cut(s, edges)", "(0, 2]"),
        ("[3, 1].sort()", "[ 1, 3 ]"),
        ("SELECT COUNT(*) FROM a", "3"),
        ("SELECT IFF(1 > 2, 3, 4)", "OperationalError: no such function: IFF"),
        ("print(1234567890123 + 0)", "1234567890123"),
        ("print(type(x))", "<class 'list'>"),
        ("type(x).__name__", "'list'"),
        ("people / area", "Ohio     91.287603\nUtah     228.500000"),
        ("print(91.2876, 228.0513)", "91.2876 228.0513"),
        ("{'a': 1}.lower()", "AttributeError: 'dict' object has no attribute 'lower'"),
        ("def train_times(input, version): return input + version\ntrain_times(1, 2)", "3"),
        ("pd.read_csv(io.StringIO('a,b\\n1,2'))['a'].sum()", "1"),
    ],
)
def test_derivable(code: str, output: str) -> None:
    assert is_derivable([code], output)


@pytest.mark.parametrize(
    ("comment", "shown"),
    [("# Expected 12", False), ("# it gives 12, as it should", False), ("# of 120 and 3.12", True), ("# a sum", True)],
)
def test_a_comment_that_tells_the_output_is_not_shown(recipe: DatasetRecipe, comment: str, shown: bool) -> None:
    code = f"words = ['# 12', 'bb']\n\nprint(6 + 2 * 3)  {comment}"
    (made,) = predict.candidates(evidence_of([run("e", code, stdout="12\n")]), recipe)
    assert (comment in made.prompt) is shown
    assert "words = ['# 12', 'bb']\n\nprint(6 + 2 * 3)" in made.prompt


def test_what_an_assertion_changed_is_not_asked_for(recipe: DatasetRecipe) -> None:
    code = "seen = []\ndef keep(x):\n    seen.append(x)\n    return x\nassert keep(4) == 4\nlen(seen)"
    rows = [
        run("changed", code, result_text="1"),
        run("plain", code.replace("len(seen)", "keep(7)"), "s2", result_text="7"),
    ]
    evidence = evidence_of(rows)

    def shown_alone(trials: list[Trial], purpose: str) -> list[Ends]:
        ends = []
        for trial in trials:
            names: dict[str, object] = {}
            head, _, last = trial.variants[0][-1].rpartition("\n")
            exec(head, names)
            ends.append((End(0, str(eval(last, names))),))
        return ends

    made = as_shown(predict.candidates(evidence, recipe), evidence, shown_alone)  # type: ignore[arg-type]
    assert {one.execution_ids[0]: one.lacking for one in made} == {"changed": NOT_AS_SHOWN, "plain": None}


JOIN = "const join = (xs) => xs.map((x) => x * 2).join('-');\n"


@pytest.mark.parametrize(
    ("language", "code", "told"),
    [
        ("javascript", JOIN + "console.log(join([4, 6]));\nrequire('assert').strictEqual(join([4, 6]), '8-12');", True),
        ("javascript", JOIN + "const got = join([4, 6]);\nif (got !== '8-12') throw new Error(got);\ngot", True),
        (
            "javascript",
            JOIN + "const got = join([4, 6]);\nif (got) console.log(got);\nelse throw new Error('8-12');",
            False,
        ),
        ("python", "got = '-'.join(map(str, [8, 12]))\nif got != '8-12':\n    raise ValueError(got)\nprint(got)", True),
        ("python", "got = '-'.join(map(str, [8, 12]))\nif got == '9-12':\n    raise ValueError(got)\nprint(got)", True),
    ],
)
def test_a_check_that_may_tell_the_output_is_not_shown(
    recipe: DatasetRecipe, language: str, code: str, told: bool
) -> None:
    evidence = evidence_of([run("e", code, language=language, stdout="8-12\n")])
    (made,) = as_shown(predict.candidates(evidence, recipe), evidence, execute)
    assert ("raise" in made.prompt or "throw" in made.prompt or "assert" in made.prompt) is not told
    assert made.lacking is None


def test_a_check_that_is_all_there_is_to_show_gives_nothing(recipe: DatasetRecipe) -> None:
    code = JOIN + "const got = join([4, 6]);\nif (got !== '8-12') throw new Error(got);"
    evidence = evidence_of([run("e", code, language="javascript", result_text="undefined")])
    assert [one.lacking for one in as_shown(predict.candidates(evidence, recipe), evidence, execute)] == [NOT_AS_SHOWN]


@pytest.mark.parametrize(
    ("language", "code", "told"),
    [
        ("javascript", "async function main() {\n  return 1;\n}\nmain()", True),
        ("javascript", "const main = async () => 1;\nmain(2, 3);", True),
        ("javascript", "(async () => {\n  console.log(1);\n})();", True),
        ("javascript", "Promise.all([f(1)])", True),
        ("javascript", "async function main() {}\nawait main()", False),
        ("javascript", "function main() {}\nmain()", False),
        ("python", "async def main(): pass\nmain()", False),
    ],
)
def test_a_promise_at_the_end_is_said_to_be_awaited(language: str, code: str, told: bool) -> None:
    """Node prints nothing of it, its prompt a promise, and a recorder what it becomes."""
    asked = prompts.predict(language, code, [])
    assert ("the promise at its end is awaited" in asked.partition("\n\n")[0]) is told
    assert prompts.section(asked, prompts.CODE) == code
