"""Cutting a cell into statement, signature, code and tests: pieces of what was recorded, nothing else."""

import textwrap

import pytest

from capibara_assets.datasets.anatomy.dissect import dissect
from capibara_assets.datasets.code.comments import is_statement

PYTHON = textwrap.dedent('''\
    from math import prod

    def product(values):
        """Multiply the numbers of a list.
        >>> product([2, 3])
        6
        """
        return prod(values)

    def check(candidate):
        assert candidate([2, 3]) == 6
        assert candidate([]) == 1

    check(product)''')

JAVASCRIPT = textwrap.dedent("""\
    /**
     * * Adds two numbers together.
     *
     * > add(1, 2)
     * 3
     */
    function add(a, b) {
      return a + b;
    }

    const testAdd = () => {
      console.assert(add(1, 2) === 3)
    }
    testAdd()""")


def test_python_docstring_signature_body_and_tests() -> None:
    found = dissect(PYTHON, "python")
    assert found.statement == "Multiply the numbers of a list.\n>>> product([2, 3])\n6"
    assert found.documented
    assert found.signature == "def product(values)"
    assert found.body == "from math import prod\n\ndef product(values):\n    return prod(values)"
    assert found.tests == ("assert product([2, 3]) == 6", "assert product([]) == 1")


def test_the_body_and_its_tests_run() -> None:
    found = dissect(PYTHON, "python")
    exec(compile("\n".join([found.body, *found.tests]), "cell", "exec"), {})


def test_javascript_comment_signature_body_and_tests() -> None:
    found = dissect(JAVASCRIPT, "javascript")
    assert found.statement == "Adds two numbers together.\n\n> add(1, 2)\n3"
    assert found.signature == "function add(a, b)"
    assert found.body == "function add(a, b) {\n  return a + b;\n}"
    assert found.tests == ("console.assert(add(1, 2) === 3)",)


def test_sql_leading_comment() -> None:
    found = dissect("-- How many authors are there?\nSELECT COUNT(*) FROM author;", "sql")
    assert (found.statement, found.body) == ("How many authors are there?", "SELECT COUNT(*) FROM author;")


def test_notebook_comment_after_imports() -> None:
    found = dissect("import pandas as pd\n\n# drop rows with missing values\ndf = df.dropna()\ndf", "python")
    assert found.statement == "drop rows with missing values"
    assert found.body == "import pandas as pd\n\ndf = df.dropna()\ndf"
    assert not found.documented


def test_magics_do_not_hinder() -> None:
    found = dissect("%matplotlib inline\n!pip install x\n# plot the loss curve\nplt.plot(loss)", "python")
    assert "plt.plot(loss)" in found.body


def test_definitions_leave_the_demonstration_away() -> None:
    found = dissect(
        "def double(n):\n    return 2 * n\n\nrows = [1, 2]\nfor row in rows:\n    print(double(row))", "python"
    )
    assert found.definitions == "def double(n):\n    return 2 * n"
    assert found.body.endswith("print(double(row))")
    function = "function twice(n) { return 2 * n; }"
    checked = "const assert = require('assert');\nconst one = () => 1;\nassert(twice(one()) === 2);"
    assert dissect(f"{function}\n{checked}", "javascript").definitions == function


def test_code_that_uses_what_comes_after_is_not_a_demonstration() -> None:
    script = "function area(r) { return PI * r; }\nconst PI = 3.14;\narea(2);"
    assert "const PI" in dissect(script, "javascript").definitions


def test_a_cell_that_only_asserts_is_a_test() -> None:
    found = dissect("assert total([1]) == 1", "python")
    assert (found.body, found.tests) == ("", ("assert total([1]) == 1",))


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_what_is_nested_too_deeply_is_not_cut(language: str) -> None:
    chain = "a = b" + ".c(1)" * 3000
    assert dissect(f"{chain}\na", language).body == f"{chain}\na"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "two words",
        "pip install transformers now",
        "!pip install x y",
        "x = compute(a, b)",
        "df = df.dropna(axis=0);",
        "fix off by one",
        "Fixed: the last one, too",
        "What's the output?",
        "42. What does this print?",
    ],
)
def test_no_statement(text: str) -> None:
    assert not is_statement(text)


@pytest.mark.parametrize(
    "text",
    [
        "The code below draws and exports Fig. 7b.",
        "Section 4.2: Figure 11 of the paper",
        "Reproduces table 3 and saves it as a PDF file",
        "Let's now plot the figure",
    ],
)
def test_that_a_figure_is_made_is_no_statement(text: str) -> None:
    assert not is_statement(text)


@pytest.mark.parametrize(
    "text",
    [
        "remove rows that contain missing values",
        "Step 2: find unique tokens (words)",
        "Plot sales per month as a bar chart",
        "Figure 2: residuals against fitted values",
        "Save the three longest words",
    ],
)
def test_statement(text: str) -> None:
    assert is_statement(text)


def test_a_signature_of_several_lines_is_one_with_its_default_texts_as_they_were() -> None:
    code = (
        'const pad = (text,\n  gap = "  ") => {\n  return text.split(gap);\n}\nconsole.assert(pad("a  b").length === 2)'
    )
    assert dissect(code, "javascript").signature == 'const pad = (text, gap = "  ") =>'
    braces = "function wait(f, { ms = 5 } = {}, on = () => 1) {\n  return f(ms, on());\n}"
    assert dissect(braces, "javascript").signature == "function wait(f, { ms = 5 } = {}, on = () => 1)"


def test_a_comment_above_what_the_test_of_a_cell_loads_is_that_of_the_cell() -> None:
    asked = "latest(fn): only the result of the last call is given, older ones give undefined"
    loads, made = "const assert = require('node:assert/strict');", "function latest(fn) {\n  return fn;\n}"
    for language, head in (("javascript", f"// {asked}\n{loads}"), ("javascript", f"{loads}\n// {asked}")):
        found = dissect(f"{head}\n{made}\nassert.equal(latest(3), 3);", language)
        assert (found.statement, found.definitions) == (asked, made)
        assert "older ones" not in found.test and "assert.equal(latest(3), 3)" in found.test
