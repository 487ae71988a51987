"""Where the code of an answer stands."""

import pytest

from capibara_assets.evaluation.grading.code_blocks import extract_code, plain_text


@pytest.mark.parametrize(
    ("answer", "language", "code", "how"),
    [
        ("Sure:\n```python\nx = 1\n```\nand\n```python\nx = 2\n```", "python", "x = 1", "the first python block"),
        ("```sql\nSELECT 1\n```\n```py\nx = 2\n```", "python", "x = 2", "the first python block"),
        ("```\nx = 3\n```", "python", "x = 3", "the first block (of no language)"),
        ("```js\nx = 3\n```", "python", "x = 3", "the first block (js)"),
        ("~~~~javascript\nlet a = `\n```\n`;\n~~~~", "javascript", "let a = `\n```\n`;", "the first javascript block"),
        ("cut off:\n```python\ndef f():\n    return 1", "python", "def f():\n    return 1", "the first python block"),
        ("def f():\n    return 1\n", "python", "def f():\n    return 1\n", "the whole answer"),
        ("-- all\nSELECT 1;", "sql", "-- all\nSELECT 1;", "the whole answer"),
        ("const f = () => 1;", "javascript", "const f = () => 1;", "the whole answer"),
    ],
)
def test_code_is_found(answer: str, language: str, code: str, how: str) -> None:
    assert (extract_code(answer, language).code, extract_code(answer, language).how) == (code, how)


@pytest.mark.parametrize("language", ["python", "javascript", "sql"])
@pytest.mark.parametrize(
    "answer", ["", "   \n", "I am sorry, but I cannot write this code.", "Here you are: 1) first ..."]
)
def test_talk_is_no_code(answer: str, language: str) -> None:
    assert extract_code(answer, language).code is None


def test_texts_are_compared_without_fences_and_line_feeds() -> None:
    assert plain_text("```\n  a  b\n0 1 2\n```") == plain_text("\n  a  b\n0 1 2\n") == "  a  b\n0 1 2"
