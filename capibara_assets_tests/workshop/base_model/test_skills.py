"""Conversations that train skills: what they claim of code is so, and answers are whole programs."""

import ast
import re
from collections import defaultdict
from itertools import islice
from random import Random

import pytest

from workshop.base_model.corpus import Document, corpus_of
from workshop.base_model.skills import Skills, _ended, _Endless, _result, functions, renamed, with_skills
from workshop.base_model.tokenizer import TURN_END

LIBRARY = Document(
    "python",
    "example",
    '''
class Queue:
    def take(self, items, default=None):
        """Take one."""

        first = items[0] if items else default
        for other in items[1:]:
            self.put(other)
        return first

def greet(name):
    text = "hello " + name
    return text.title()
''',
)


@pytest.fixture(scope="module")
def conversations() -> dict[str, list[tuple[str, str]]]:
    """(request, answer) by kind."""
    found = defaultdict(list)
    for document in islice(Skills(functions([LIBRARY]), "seed").documents(), 300):
        request, answer = re.findall(rf"<\|(?:user|assistant)\|>\n(.*?){re.escape(TURN_END)}", document.text, re.DOTALL)
        found[document.source.removeprefix("generated-")].append((request, answer))
    return found


def test_functions_come_without_docstring_and_outer_indentation() -> None:
    take, greet = sorted(functions([LIBRARY]), key=lambda code: "greet" in code)
    assert take.startswith("def take(self, items, default=None):\n    first = ") and "Take one" not in take
    assert greet == 'def greet(name):\n    text = "hello " + name\n    return text.title()'


def test_other_names_leave_the_same_program() -> None:
    codes = functions([LIBRARY])
    for seed in range(20):
        for code in codes:
            other = renamed(code, Random(seed))
            shapes = [[type(node) for node in ast.walk(ast.parse(each))] for each in (code, other)]
            assert shapes[0] == shapes[1]


def test_all_kinds_are_drawn_and_the_same_each_time(conversations: dict[str, list[tuple[str, str]]]) -> None:
    assert len(conversations) == 12 and min(map(len, conversations.values())) > 5
    again = islice(Skills(functions([LIBRARY]), "seed").documents(), 300)
    assert sum(len(kept) for kept in conversations.values()) == len({document.text for document in again})


def test_what_is_repeated_stands_in_the_request_and_what_is_mended_does_not(
    conversations: dict[str, list[tuple[str, str]]],
) -> None:
    assert all(answer in request for request, answer in conversations["repeated"])
    for kind in ("mended_library", "mended_task", "mended_sql"):
        # As whole lines: a name that is misspelt by a letter at its end begins as the right one.
        assert not any(f"\n{answer}\n" in f"\n{request}\n" for request, answer in conversations[kind]), kind


def test_requests_tell_the_truth_of_wrong_code(conversations: dict[str, list[tuple[str, str]]]) -> None:
    told = [
        (request, answer)
        for request, answer in conversations["mended_task"]
        if "It gives" in request and "\n\ndef " in request and "\n\nassert " in request
    ]
    assert len(told) > 5
    for request, answer in told:
        code, test, gives = request.split("\n\ndef ")[1].rsplit("\n\n", 2)
        wrong: dict[str, object] = {}
        right: dict[str, object] = {}
        exec(f"def {code}", wrong)
        exec(answer, right)
        call = test.removeprefix("assert ").rsplit(" == ", 1)[0]
        assert f"It gives {eval(call, wrong)!r}." == gives
        exec(test, right)


def test_wrong_code_that_never_ends_is_left() -> None:
    with pytest.raises(_Endless):
        _result("def f(xs):\n    for x in xs:\n        xs.append(x)", "f([1])")
    powers = "def f(xs):\n    total = 9\n    for x in xs:\n        total **= x\n    return total"
    with pytest.raises(_Endless):
        _result(powers, "f([9, 9, 9, 9, 9, 9, 9, 9])")
    assert _result("def f(xs):\n    return sum(xs)", "f([1, 2])") == 3


def test_an_error_names_the_line_that_raised_it() -> None:
    wrong = "def f(xs):\n    total = 0\n    for x in xs:\n        total += y\n    return total"
    assert _ended(wrong, "f([1])") == "total += y\nNameError: name 'y' is not defined"
    assert _ended(wrong, "f([])") == "It gives 0."
    assert _ended(wrong, "g([])") == "NameError: name 'g' is not defined"


def test_a_corpus_with_skills_lends_only_what_is_trained_on() -> None:
    modules = [
        Document("python", "example", f"def kept_{n}(a, b):\n    c = a + {n}\n    return c * b\n") for n in range(300)
    ]
    corpus = corpus_of(modules, 0, {})
    whole = with_skills(corpus, 100_000, 0)
    assert whole.languages == ("python", "javascript", "sql", "chat", "skills")
    assert {d.text for d in corpus.training} <= {d.text for d in whole.training}
    assert {d.text for d in corpus.held_out} <= {d.text for d in whole.held_out} and corpus.held_out
    lent = "".join(document.text for document in whole.training if document.language == "skills")
    numbers = [re.findall(r"kept_(\d+)", document.text)[0] for document in corpus.held_out]
    assert len(lent) > 90_000 and not any(f"kept_{number}(" in lent for number in numbers)
    assert sum(source.bytes for source in whole.sources if source.language == "skills") >= 100_000
