"""Answers hold what was asked for, and prompts what their tests expect."""

from capibara_assets.datasets.kinds import solve
from capibara_assets.datasets.kinds.asked import only_tested, shown_test, without_unasked
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets_tests.datasets.conftest import evidence_of, run

QUEUE = """\
LIMIT = 3

class Ring:
    def __init__(self, size=LIMIT):
        self.items = []

    def push(self, item):
        self.items.append(self._kept(item))

    def _kept(self, item):
        return item

    def clear(self):
        self.items = []

    def __len__(self):
        return len(self.items)

def spare():
    return 1

TABLE = {"ring": spare}"""
ASKED = "Write a class `Ring(size)` with push(item)."
CHECK = "def check(row):\n    found = []\n    if not row:\n        found.append('row is empty')\n    return found"


def test_what_nothing_names_is_cut() -> None:
    cut = without_unasked(QUEUE, ASKED, "ring = Ring()\nring.push(1)\nassert ring.items == [1]", "python")
    assert "spare" not in cut and "TABLE" not in cut and "clear" not in cut and "__len__" not in cut
    assert "_kept" in cut and "LIMIT" in cut and "__init__" in cut
    compile(cut, "cut", "exec")


def test_what_prompt_or_test_names_stays() -> None:
    assert "def clear" in without_unasked(QUEUE, ASKED, "Ring().clear()", "python")
    assert "def __len__" in without_unasked(QUEUE, f"{ASKED} It has a length.", "", "python")
    assert without_unasked(QUEUE, "Write something.", "", "python") == QUEUE
    assert without_unasked("x = [1]\ny = [2]", "Make `x`.", "", "python") == "x = [1]\ny = [2]"


def test_texts_that_the_test_alone_tells() -> None:
    test = "assert check({}) == ['row is empty']"
    assert only_tested(CHECK, "Check a row.", test, "python") == {"row is empty"}
    assert only_tested(CHECK, "Check a row: say 'row is empty'.", test, "python") == set()
    assert shown_test(f"{test}\nprint(check(1))", "python") == test and shown_test("check(1)", "python") == ""


def test_a_test_is_shown_where_it_alone_tells_what_is_expected(recipe: DatasetRecipe) -> None:
    task = "Write `check(row)` that lists what is wrong."
    told = run("told", f"{CHECK}\nassert check({{}}) == ['row is empty']", task=task)
    number = CHECK.replace("'row is empty'", "1")
    plain = run("plain", f"{number}\nassert check({{}}) == [1]", "s2", task=task)
    made = {one.execution_ids[0]: one.prompt for one in solve.candidates(evidence_of([told, plain]), recipe)}
    assert made["told"].endswith("It has to pass:\nassert check({}) == ['row is empty']")
    assert made["plain"] == f"Write Python code.\n{task}"
