"""What a failed attempt leaves in its session, in the prompts and answers of what came after it."""

from dataclasses import replace

import pytest

from capibara_assets.datasets.kinds import prompts, repair, solve
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import SESSION, SIGNATURE, TESTS, section
from capibara_assets.datasets.kinds.surroundings import MENDED as MENDED_BEFORE
from capibara_assets.datasets.placing import insufficient
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.patterns.repairs import find_repairs
from capibara_assets.executions.schema import Execution, RepairPair
from capibara_assets_tests.datasets.conftest import evidence_of, frame, pair, run

TASK = "Write `areas(radii)`, which lists the areas of circles."
ATTEMPT = """import math
def areas(radii):
    return [math.pi * r for r in radii]
def check():
    assert areas([2])[0] > 12
check()"""
MENDED = """def areas(radii):
    return [math.pi * r ** 2 for r in radii]
check()"""


def attempts() -> list[Execution]:
    said = {"task": TASK, "domains": ["python"]}
    traceback = "Cell In[1], line 6\n----> 6 check()\nCell In[1], line 5, in check()\n----> 5 assert areas([2])[0] > 12"
    failed = {"outcome": "error", "error_name": "AssertionError", "error_value": "", "traceback": traceback}
    return [run("failed", ATTEMPT, **said, **failed), run("fixed", MENDED, minute=1, **said)]


def test_a_solution_is_shown_the_imports_of_a_failed_attempt_and_no_more_of_it(recipe: DatasetRecipe) -> None:
    (made,) = solve.candidates(evidence_of(attempts()), recipe)
    assert section(made.prompt, SESSION) == "import math"


def test_a_repair_is_whole_with_what_it_needs_of_the_failing_cell(recipe: DatasetRecipe) -> None:
    failed, fixed = attempts()
    fixed = fixed.model_copy(update={"code": MENDED.removesuffix("\ncheck()")})
    (made,) = repair.candidates(evidence_of([failed, fixed], [pair(failed, fixed)]), recipe)
    assert made.answer.startswith("import math\n\ndef areas(radii):")
    assert "-import math" not in (made.diff or "")


def test_a_repair_brings_no_older_version_of_what_it_mends(recipe: DatasetRecipe) -> None:
    failed, fixed = attempts()
    (made,) = repair.candidates(evidence_of([failed, fixed], [pair(failed, fixed)]), recipe)
    assert made.answer == MENDED


LOADED = "import pandas as pd\nsleep = pd.read_csv('sleep.csv')"
SPLIT = "sleep['sys'] = sleep['bp'].str.split('/').str[0]\nsleep['high'] = sleep['sys'] > 130"
TYPED = "sleep['sys'] = sleep['bp'].str.split('/').str[0].astype(int)\nsleep['high'] = sleep['sys'] > 130"


def repaired(failing: str, fixed: str, recipe: DatasetRecipe, language: str = "python") -> ExampleCandidate:
    said = {"outcome": "error", "error_name": "TypeError", "error_value": "'>' not supported", "language": language}
    said["traceback"] = f"Cell In[2], line 2\n----> 2 {failing.split(chr(10))[1]}"
    cells = [
        run("loaded", LOADED if language == "python" else "const a = [1]", language=language),
        run("failed", failing, minute=1, **said),
        run("fixed", fixed, minute=2, language=language),
    ]
    (made,) = repair.candidates(evidence_of(cells, [pair(*cells[1:])]), recipe)
    return made


def test_a_repair_does_not_hold_the_statements_in_whose_place_its_own_stand(recipe: DatasetRecipe) -> None:
    assert repaired(SPLIT, TYPED, recipe).answer == TYPED
    other = TYPED.replace("sleep['sys'] =", "sleep['typed'] =")
    assert repaired(SPLIT, other, recipe).answer.startswith(SPLIT.split("\n")[0]), "which that column needs"


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ("sleep['high'].sum()", False),
        ("print(sleep['high'].sum())\nprint(len(sleep))\nsleep.head()", False),
        ("sleep['high'].to_csv('high.csv')\nsleep['high'] |= sleep['sys'] < 90", True),
        ("show(sleep)", True),  # of which nobody knows what it does
    ],
)
def test_a_repair_ends_without_looks_at_what_it_made(more: str, kept: bool, recipe: DatasetRecipe) -> None:
    assert repaired(SPLIT, f"{TYPED}\n{more}", recipe).answer == (f"{TYPED}\n{more}" if kept else TYPED)
    looked = f"{SPLIT}\nsleep['high'].sum()", f"{TYPED}\nsleep['high'].sum()"
    assert repaired(*looked, recipe).answer == looked[1], "the failing code shows it too"


def test_a_repair_keeps_a_look_where_the_failing_code_ended_with_one(recipe: DatasetRecipe) -> None:
    failing, fixed = (
        f"{code}\n{look}" for code, look in ((SPLIT, "sleep.nlargest(5)"), (TYPED, "sleep.nlargest(5).round(3)"))
    )
    assert repaired(failing, fixed, recipe).answer == fixed


def test_a_repair_makes_nothing_for_what_nothing_asks_for(recipe: DatasetRecipe) -> None:
    more = "import json\nanswer = {'most': sleep['high'].max()}\nprint(answer)"
    assert repaired(SPLIT, f"{TYPED}\n{more}", recipe).answer == TYPED
    failing = f"{SPLIT}\nmost = sleep['high'].max()"
    assert repaired(failing, f"{TYPED}\nmost = sleep['high'].sum()", recipe).answer.endswith(
        "most = sleep['high'].sum()"
    )


def test_a_repair_in_javascript_ends_without_looks(recipe: DatasetRecipe) -> None:
    codes = [f"const b = a.map(x => x{more});\nlet n = b.length;" for more in ("()", "")]
    assert repaired(codes[0], f"{codes[1]}\nconsole.log(n, b);\nb", recipe, "javascript").answer == codes[1]


SERVER = (
    "from tiny import Client, Server\nserver = Server()\n@server.post('/pens')\ndef add(body):\n    return len(body())"
)
ASKED = "client = Client(server)\nclient.post('/pens', {'ink': 3})"


def called(recipe: DatasetRecipe, *cells: Execution) -> ExampleCandidate:
    """The repair whose failing code is the call ASKED; the last cell mends it."""
    error = {"outcome": "error", "error_name": "TypeError", "error_value": "'dict' object is not callable"}
    failed = run(
        "failed", ASKED, minute=1, **error, traceback="Cell In[2], line 2\n----> 2 client.post('/pens', {'ink': 3})"
    )
    (made,) = repair.candidates(evidence_of([run("made", SERVER), failed, *cells], [pair(failed, cells[-1])]), recipe)
    return made


def test_a_repair_is_shown_what_its_failing_code_called(recipe: DatasetRecipe) -> None:
    mended = SERVER.partition("\n")[2].replace("body()", "body")
    made = called(recipe, run("fixed", f"{mended}\n{ASKED}", minute=2))
    assert section(made.prompt, SESSION) == SERVER and insufficient(made) is None
    unknown = replace(made, prompt=made.prompt.replace("server = Server()", "pass"))
    assert "server" in (insufficient(unknown) or ""), "nothing tells what failed"
    unbound = unknown.prompt.replace(
        "TypeError: 'dict' object is not callable", "NameError: name 'server' is not defined"
    )
    assert insufficient(replace(unknown, prompt=unbound)) is None, "that is what is to be mended"


def test_a_session_of_javascript_declares_each_name_once(recipe: DatasetRecipe) -> None:
    made = called(recipe, run("fixed", f"{SERVER}\n{ASKED}", minute=2))
    prompt = prompts.repair(
        "javascript", "", "area(2)", "Error: no", ["const area = (r) => 3 * r;", "{}area = (r) => 4 * r;"]
    )
    told = {
        how: insufficient(replace(made, language="javascript", answer="area(2)", prompt=prompt.replace("{}", how)))
        for how in ("const ", "")
    }
    assert "area" in (told["const "] or "") and told[""] is None


def test_a_call_after_what_mended_it_is_no_repair(recipe: DatasetRecipe) -> None:
    mended = run("mended", SERVER.partition("\n")[2].replace("body()", "body"), minute=2)
    again = run("fixed", f"{ASKED}.code", minute=3)
    assert called(recipe, mended, again).lacking == MENDED_BEFORE
    assert called(recipe, run("other", "n = 1", minute=2), again).lacking is None


def test_a_repair_ends_with_what_takes_the_place_of_the_failed_end(recipe: DatasetRecipe) -> None:
    failing = "stock = Sorted(['a', 'c', 'd'])\nstock.append('f')"
    fixed = f"{failing.replace('append', 'add')}\nstock.at('c'), stock[-1]"
    assert repaired(failing, fixed, recipe).answer == failing.replace("append", "add")


def test_a_repair_is_shown_the_test_that_failed_where_a_later_one_holds_more(recipe: DatasetRecipe) -> None:
    test = "assert areas([1])[0] > 3\nassert areas([2])[0] > 12"
    traceback = "Cell In[2], line 2\n----> 2 assert areas([2])[0] > 12"
    cells = [
        run("made", ATTEMPT.partition("def check")[0]),
        run(
            "failed", test, minute=1, outcome="error", error_name="AssertionError", error_value="", traceback=traceback
        ),
        run("fixed", MENDED.partition("\ncheck")[0], minute=2),
        run("passed", f"{test}\nassert areas([]) == []", minute=3),
    ]
    pairs = find_repairs(evidence_of(cells).executions)
    assert pairs["fixed_code"].to_list() == [f"{cells[2].code}\n\n{cells[3].code}"]
    (made,) = repair.candidates(
        evidence_of(cells, [RepairPair.model_validate(row) for row in pairs.to_dicts()]), recipe
    )
    assert section(made.prompt, TESTS) == test and "areas([])" not in made.prompt + made.answer
    assert made.answer == cells[2].code and set(made.execution_ids) >= {"failed", "fixed", "passed"}


FIRST = "Write `shout(text)`, which returns a text in capitals."
SHOUT = "def shout(text):\n    words = text.split()\n    return ' '.join(word.upper() for word in words)"
LOUDER = SHOUT.replace("for word in words)", "for word in words) + '!'")


def changed(now: str, before: str = FIRST, older: str = SHOUT) -> list[Execution]:
    return [run("e0", older, task=before), run("e1", LOUDER, minute=1, task=now)]


def made_of(cells: list[Execution], recipe: DatasetRecipe) -> ExampleCandidate:
    return next(one for one in solve.candidates(evidence_of(cells), recipe) if one.execution_ids[0] == "e1")


def test_a_request_to_change_a_function_shows_it(recipe: DatasetRecipe) -> None:
    made = made_of(changed("shout() should end with an exclamation mark"), recipe)
    assert section(made.prompt, SESSION) == SHOUT
    assert made.execution_ids == ("e1", "e0")


def test_an_attempt_at_the_same_request_is_not_shown(recipe: DatasetRecipe) -> None:
    assert section(made_of(changed(FIRST), recipe).prompt, SESSION) == ""


def test_another_function_of_the_same_name_is_not_shown(recipe: DatasetRecipe) -> None:
    other = "def shout(x, y):\n    for i in range(3):\n        print(x, y, i)"
    assert section(made_of(changed("shout(text) in capitals", older=other), recipe).prompt, SESSION) == ""


def test_what_is_to_be_mended_has_to_be_in_the_prompt(recipe: DatasetRecipe) -> None:
    cells = [run("e1", LOUDER, task="The shouting is wrong when a text ends, fix it.")]
    assert made_of(cells, recipe).lacking == solve.UNSEEN
    quoted = run("e1", LOUDER, task=f"This is wrong at the end, fix it:\n{SHOUT}")
    assert made_of([quoted], recipe).lacking is None


def test_a_name_that_prose_holds_by_chance_is_stated(recipe: DatasetRecipe) -> None:
    made = made_of([run("e1", LOUDER, task="I want to shout a text, louder than before")], recipe)
    assert section(made.prompt, SIGNATURE) == "def shout(text)"
    named = made_of([run("e1", LOUDER, task="Write a function shout that takes a text, with a mark")], recipe)
    assert section(named.prompt, SIGNATURE) == ""


def test_a_test_that_reads_what_only_the_answer_names_is_shown(recipe: DatasetRecipe) -> None:
    code = "LEVELS = (1, 3, 9)\n\ndef level(at):\n    return LEVELS[at] if at < len(LEVELS) else 0\n\n"
    code += "assert level(1) == LEVELS[1]"
    made = made_of([run("e1", code, task="level(at) gives one, three and nine, and else nothing")], recipe)
    assert "LEVELS[1]" in section(made.prompt, TESTS)


CASES = """import unittest

class Shouts(unittest.TestCase):
    def test_two(self):
        self.assertEqual(shout('a b'), 'A B')"""


def test_tests_of_the_same_request_are_not_its_answer(recipe: DatasetRecipe) -> None:
    def answers(task: str) -> list[str]:
        cells = [run("e0", SHOUT, task=task), run("e1", CASES, minute=1, task=task)]
        return [one.execution_ids[0] for one in solve.candidates(evidence_of(cells), recipe)]

    assert answers(FIRST) == ["e0"]
    assert answers("Write unit tests of shout(text)") == ["e1"]


def test_a_mend_is_also_judged_by_the_tests_of_its_successors(recipe: DatasetRecipe) -> None:
    failed, fixed = attempts()
    more = "assert areas([]) == []\nassert areas([-1])[0] > 3"

    def test_of(task: str) -> str:
        later = run("later", f"{MENDED.replace('r ** 2', 'abs(r) * r')}\n{more}", minute=2, task=task)
        (made,) = repair.candidates(evidence_of([failed, fixed, later], [pair(failed, fixed)]), recipe)
        return made.test or ""

    assert more in test_of(TASK)
    assert more not in test_of("And now for negative radii")


def test_an_answer_whose_rest_stands_in_another_attempt_is_left_out(recipe: DatasetRecipe) -> None:
    pot = "class Pot:\n    def fill(self, more):\n        self.held = more + self.held"
    patch = "def empty(self):\n    held, self.held = self.held, 0\n    return held\n\nPot.empty = empty"
    cells = [run("e0", pot, task="A class Pot with fill and empty"), run("e1", patch, minute=1)]
    for task, lacking in (("A class Pot with fill and empty", solve.PART), ("Now Pot.empty() as well", None)):
        both = [cells[0], cells[1].model_copy(update={"task": task})]
        assert made_of(both, recipe).lacking == lacking


def test_of_a_failed_attempt_nothing_is_shown_that_was_bound_again(recipe: DatasetRecipe) -> None:
    failed, fixed = attempts()
    again = fixed.model_copy(update={"code": MENDED.removesuffix("\ncheck()")})
    use = run("e1", "print(sum(areas([1, 2])))", minute=2, task="Print the sum of areas([1, 2])", domains=["python"])
    made = made_of([failed, again, use], recipe)
    assert section(made.prompt, SESSION).split("\n")[0] == "import math"
    assert section(made.prompt, SESSION).count("def areas") == 1


def test_a_part_is_known_by_a_name_that_is_meant(recipe: DatasetRecipe) -> None:
    helper = run("e0", "def words(text):\n    return text.lower().split()", task="Count the words of a text")
    count = run("e1", "def count(text):\n    return {w: len(w) for w in words(text)}", minute=1)
    count = count.model_copy(update={"task": "Count the words of a text"})
    assert made_of([helper, count], recipe).lacking is None


def test_a_repair_that_a_later_test_asked_for_shows_code_and_test_apart(recipe: DatasetRecipe) -> None:
    wrong, test = "function least(xs) {\n  return Math.max(...xs);\n}", "const r = least([4, 2]), s = 'ab'[r].trim();"
    right = wrong.replace("max", "min")
    traceback = (
        f"Cell[2]:1\n{test.replace('const', 'var')}\n                    ^\n\nTypeError: no\n    at Cell[2]:1:21"
    )
    failed = {"outcome": "error", "error_name": "TypeError", "error_value": "no", "traceback": traceback}
    cells = [("made", wrong, {}), ("tested", test, failed), ("mended", right, {}), ("passed", test, {})]
    rows = [run(name, code, minute=i, language="javascript", **more) for i, (name, code, more) in enumerate(cells)]
    pairs = [RepairPair(**pair) for pair in find_repairs(frame(rows)).to_dicts()]
    (one,) = repair.candidates(evidence_of(rows, pairs), recipe)
    assert (one.failing, one.answer) == (wrong, right)
    assert f"Code:\n{wrong}\n\n" in one.prompt and "var r" not in one.prompt and test in one.prompt
    assert sorted(one.execution_ids) == ["made", "mended", "passed", "tested"]
