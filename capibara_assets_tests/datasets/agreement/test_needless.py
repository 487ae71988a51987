"""Repairs that change more than their failure needs, each beside one that does not."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from capibara_assets.datasets.agreement.needless import BELOW, OTHER_ERROR, UNRUN, needless, without_needless
from capibara_assets.datasets.derived import trials
from capibara_assets.datasets.derived.trials import execute
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.executions.patterns.similarity import unified_diff
from capibara_assets.executions.replay.workers import node

JOIN = '", ".join(names + [3])'
MENDED = '", ".join(map(str, names + [3]))'
ERROR = "TypeError: sequence item 2: expected str instance, int found"


def repaired(
    failing: str, fixed: str, task: str = "", language: str = "python", only_error: bool = True
) -> ExampleCandidate:
    session = 'names = ["Ann", "Bo"]' if language == "python" else 'const names = ["Ann", "Bo"];'
    asked = prompts.repair(language, task, failing, ERROR, [session], only_error=only_error)
    return ExampleCandidate("repair", language, asked, fixed, ("f", "e"), "", 0.0, 1.0, failing=failing)


@pytest.mark.parametrize(
    ("fixed", "more"),
    [
        ('", ".join(names + ["3"])', False),  # one change
        ('", ".join(map(str, names + [3]))', False),  # two, which the failure needs
        ('", ".join(map(str, names + [3]))[:4]', True),
        ('", ".join(map(str, names + [5]))', True),
        ('", ".join(map(str, names+[3]))', False),  # it shows the same
        ('", ".join(map(str, missing + [3]))', False),  # it does not run
    ],
)
def test_a_repair_changes_what_its_failure_speaks_of(fixed: str, more: bool) -> None:
    assert needless([repaired(JOIN, fixed)], execute) == [more]


def test_where_more_than_the_error_is_asked_for_all_stays() -> None:
    fixed = '", ".join(map(str, names + [3]))[:4]'
    asked, derived = repaired(JOIN, fixed, only_error=False), replace(repaired(JOIN, fixed), derived="bug:x")
    assert needless([asked, derived], execute) == [False] * 2
    assert needless([repaired(JOIN, fixed, task="The first four letters.")], execute) == [True]


@pytest.mark.parametrize(
    ("failing", "fixed", "cut"),
    [
        (JOIN, f"names = sorted(names)\n{MENDED}\nlen(names)", MENDED),
        (JOIN, f"joined = map(str, names + [3])\n{MENDED}", MENDED),
        ("json.dumps(names)", "import json\njson.dumps(names)\nnames[0]", "import json\njson.dumps(names)"),
        (JOIN, f"first = 1; {MENDED}", MENDED),
        (JOIN, '", ".join(map(str, names + [3,]))', MENDED),
        ("sorted(names, by=len, reverse=False)", "sorted(names, key=len)", "sorted(names, key=len, reverse=False)"),
        (JOIN, f"names = sorted(missing)\n{MENDED}", None),  # it does not run
        ('total = sum(names)\nprint(total, "in all")', 'total = len(names)\nprint(total, "in all")', None),
    ],
)
def test_added_statements_that_the_error_does_not_need_are_cut(failing: str, fixed: str, cut: str | None) -> None:
    one = repaired(failing, fixed)
    (found,) = without_needless([one], execute)
    assert found.answer == (cut or fixed) and (found == one) is (cut is None)
    assert cut is None or (found.proof is None and found.diff == unified_diff(failing, cut))


MISSING = "import a_library_that_nobody_has\n"


@pytest.mark.parametrize(
    ("failing", "fixed", "cut"),
    [
        ("from a_library import Old", "from a_library import New\nfrom b import C\napp = C()\napp.run()", 0),
        (f"{MISSING}f(x)", f"{MISSING}x = 1\ny = 2\nsettings.load()\nf(x)\ny", [0, 1, 3, 4]),
    ],
)
def test_where_nothing_runs_what_the_code_reads_stays(failing: str, fixed: str, cut: int | list[int]) -> None:
    lines = fixed.split("\n")
    kept = "\n".join(lines[i] for i in (cut if isinstance(cut, list) else [cut]))
    assert without_needless([repaired(failing, fixed)], execute)[0].answer == kept


ONE = JOIN.replace("3", '"3"')


@pytest.mark.parametrize(
    ("failing", "fixed", "why", "of_any"),
    [
        (JOIN, MENDED, None, None),
        ('", ".join(names)', MENDED, OTHER_ERROR, OTHER_ERROR),  # it raises nothing
        ('", ".join(missing)', MENDED, OTHER_ERROR, None),
        (f"{MISSING}{JOIN}", f"{MISSING}{ONE}", None, None),  # what it does is not known here
        (f"{MISSING}{JOIN}\nnames.pop(0)", f"{MISSING}{ONE}\nnames.pop(1)", UNRUN, UNRUN),
    ],
)
def test_failing_code_raises_its_error_with_what_is_shown(
    failing: str, fixed: str, why: str | None, of_any: str | None
) -> None:
    (found,) = without_needless([repaired(failing, fixed)], execute)
    assert found.lacking == why
    assert without_needless([repaired(failing, fixed, only_error=False)], execute)[0].lacking == of_any


def test_what_ran_is_kept_for_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    several = [repaired(JOIN, f"names = sorted(names)\nfirst = 1; {MENDED}\nlen(names)"), repaired(JOIN, MENDED)]
    kept = partial(execute, cache=tmp_path)
    found = without_needless(several, kept)
    monkeypatch.setattr(trials, "_run", None)  # nothing may run any more
    assert without_needless(several, kept) == found and found[0].answer == MENDED


def test_what_only_shows_something_below_mends_nothing() -> None:
    below = {f"{JOIN}\nlen(names)": BELOW, f"{JOIN}\nlast = names[-1]": None}
    found = without_needless([repaired(JOIN, fixed, only_error=False) for fixed in below], execute)
    assert [one.lacking for one in found] == list(below.values())


def test_the_test_of_a_prompt_fails_on_its_failing_code() -> None:
    shown = prompts.Shown(test="assert double(2) == 4")
    for body, why in (("n * 3", None), ("n * 2", OTHER_ERROR)):
        failing = f"def double(n):\n    return {body}"
        asked = prompts.repair("python", "", failing, "AssertionError", [], shown)
        one = ExampleCandidate("repair", "python", asked, "def double(n):\n    return 2 * n", ("f",), "", 0.0, 1.0)
        assert without_needless([replace(one, failing=failing)], execute)[0].lacking == why


def test_what_a_test_asks_for_is_not_cut() -> None:
    one = repaired(JOIN, f"names = sorted(names)\n{MENDED}", only_error=False)
    assert without_needless([one], execute) == [one]


@pytest.mark.skipif(node() is None, reason="Node.js is not installed")
@pytest.mark.parametrize(("last", "more"), [("20n", False), ("25n", True)])
def test_a_repair_in_javascript(last: str, more: bool) -> None:
    code = "const product = (n) => n <= 1n ? 1n : n * product(n - {});\nproduct({})"
    one = repaired(code.format("1", "20n"), code.format("1n", last), language="javascript")
    assert needless([one], execute) == [more]
