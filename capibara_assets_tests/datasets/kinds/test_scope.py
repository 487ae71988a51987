"""What a comment or heading above code asks for, and what its author added."""

import pytest

from capibara_assets.datasets.kinds import solve
from capibara_assets.datasets.kinds.referents import REFERS_BACK
from capibara_assets.datasets.kinds.scope import (
    BEYOND,
    CHOSEN,
    INSIDE,
    LIMITS,
    MEMBERS,
    TOO_LITTLE,
    unasked,
    why_beyond,
    why_beyond_by_names,
    why_chosen,
    why_inside,
    why_limits,
    why_members,
    within_task,
)
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.formats.notebook_tasks import FROM_MARKDOWN
from capibara_assets_tests.datasets.conftest import evidence_of, run

CHOP = "logs = [trunk.chop(2) for trunk in trunks if trunk.is_dry()]"


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("Chop the dry trunks", f"{CHOP}\nlogs[:2]"),
        ("Chop the dry trunks", f"{CHOP}\nprint(len(logs))"),
        ("Weigh trunks", "scale = Scale(unit)\nscale.weigh(trunks)"),
        ("Fit a forest", "model = RandomForest()\nmodel.fit(rows)"),
        ("Plot TF-IDF", "def tfidf(word, text):\n    return text.count(word)"),
        ("", "not python ("),
    ],
)
def test_results_of_which_the_task_speaks(task: str, answer: str) -> None:
    assert unasked(task, answer) == []


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("Choose a saw", "saw = pick(saws)\nstove = heater.ignite(wood, tool=saw)"),
        ("Make an array of trunks", "trunks = np.array(trunks)\n\ndef burn(n):\n    return oven.burn(trunks[:n])"),
        ("Open the shed", "shed.open()\nserver.restart()"),
    ],
)
def test_results_of_which_the_task_says_no_word(task: str, answer: str) -> None:
    assert len(unasked(task, answer)) == 1
    assert why_beyond(task, answer, task, 1) == BEYOND


def test_a_cell_ends_where_the_comment_of_another_step_begins() -> None:
    burn = "# Compute the heat\nheat = oven.burn(logs)"
    assert within_task("Chop the dry trunks", f"{CHOP}\n\n{burn}") == CHOP
    whole = f"{CHOP}\n{burn}"  # no paragraph of its own
    assert within_task("Chop the dry trunks", whole) == whole
    remark = f"{CHOP}\n\n# wet ones stay\nlogs.sort()"
    assert within_task("Chop the dry trunks", remark) == remark
    late = f"{CHOP}\n\n# Collect in rows\nstack = rows_of(logs)"
    assert within_task("Make a stack", late) == late


SOLD = "SELECT region, SUM(price) AS total FROM sales GROUP BY region;"
BEST = "SELECT name FROM buyers ORDER BY spent DESC LIMIT 5;"
DRY = "const dry = (trunks) => trunks.filter((t) => t.dry);\nfunction chop(t) {\n  return dry(t).length;\n}"


def test_so_do_cells_of_other_languages() -> None:
    assert within_task("Total price per region", f"{SOLD}\n-- List the best buyers\n{BEST}", "sql") == SOLD
    assert (
        within_task("Total price per region", f"{SOLD}\n-- by price\n{BEST}", "sql") == f"{SOLD}\n-- by price\n{BEST}"
    )
    burn = "// Compute the heat\nconst heat = burn(chop([]));"
    assert within_task("Chop the dry trunks", f"{DRY}\n\n{burn}", "javascript") == DRY
    inside = DRY.replace("\n  return", "\n\n// Count the dry ones\n  return")
    assert within_task("Chop the dry trunks", inside, "javascript") == inside


@pytest.mark.parametrize(
    ("language", "task", "answer", "why"),
    [
        ("sql", "Total price per region", f"{SOLD}\n{BEST}", BEYOND),
        ("sql", "Total price per region, and the best buyers", f"{SOLD}\n{BEST}", None),
        ("sql", "Total price", "CREATE TABLE sales(price);\nINSERT INTO sales VALUES (1);\n" + SOLD, None),
        ("javascript", "Chop the dry trunks", DRY, None),
        ("javascript", "Chop the dry trunks", f"{DRY}\nfunction burn(oven) {{ return oven.heat; }}", BEYOND),
    ],
)
def test_queries_and_definitions_beyond_the_comment(language: str, task: str, answer: str, why: str | None) -> None:
    assert why_beyond_by_names(task, answer, language) == why


@pytest.mark.parametrize(
    "answer",
    [
        "trunks = load('forest/oak-12')\nlogs = [t.chop() for t in trunks]",
        "logs = saw(trunks, width=37, blade='fine')",
        "logs = [t for t in trunks if t['grade'] == 'prime']",
        "trunks = 37",
    ],
)
def test_what_only_the_author_knew(answer: str) -> None:
    assert why_beyond("Split the trunks into logs", answer, "Split the trunks into logs", -1) == CHOSEN


@pytest.mark.parametrize(
    "answer",
    [
        "logs = [saw(t, 37) for t in trunks]\nprint('sawn logs of this year', len(logs))",
        "if not trunks:\n    raise ValueError('no trunks were found here')\nlogs = [saw(t) for t in trunks]",
    ],
)
def test_one_number_and_what_readers_see_may_be_chosen(answer: str) -> None:
    assert why_chosen(answer, "Split the trunks") is None


def test_the_answer_of_a_comment_ends_with_its_step(recipe: DatasetRecipe) -> None:
    cell = run("cell", f"# Find the dry trunks\n{CHOP}\n\n# Compute the heat\nheat = oven.burn(logs)")
    (made,) = solve.candidates(evidence_of([cell]), recipe)
    assert made.answer == CHOP


def test_headings_and_comments_are_held_to_it(recipe: DatasetRecipe) -> None:
    heading = {"task": "Split the trunks into logs", "flags": [FROM_MARKDOWN]}
    cells = [
        run("whole", "logs = [saw(t, 2) for t in trunks if t.dry]", "s1", **heading),
        run("more", "logs = [saw(t) for t in trunks]\noven = Oven(size)\noven.heat(grade)", "s2", **heading),
        run("known", "trunks = fetch('mill/oak-7')\nlogs = [saw(t) for t in trunks]", "s3", **heading),
        run("little", "trunks.split()", "s4", **heading),
        run("pointing", "# split these again\nlogs = [saw(t, 2) for t in trunks if t.dry]", "s5"),
        run("query", "db.execute('SELECT kind FROM trunks WHERE dry = 1').fetchall()", "s7", **heading),
        run("asked", "trunks = fetch('mill/oak-7')\noven = Oven([saw(t) for t in trunks])", "s6", task="Saw trunks."),
    ]
    strict = recipe.model_copy(update={"fewest_steps": 3})
    lacking = {one.execution_ids[0]: one.lacking for one in solve.candidates(evidence_of(cells), strict)}
    whys = {
        "whole": None,
        "more": BEYOND,
        "known": CHOSEN,
        "little": TOO_LITTLE,
        "pointing": REFERS_BACK,
        "query": None,
        "asked": None,
    }
    assert lacking == whys


ORDERED = "def order(jobs):\n    return [job.name for job in sorted(jobs, key=lambda job: job.priority)]"


@pytest.mark.parametrize(
    ("answer", "prompt", "why"),
    [
        (ORDERED, "Write Python code.\nNames by priority.\n\nSignature:\ndef order(jobs)", MEMBERS),
        (ORDERED, "Write Python code.\nThe `name` of each job by its `priority`.\n\nSignature:\ndef order(jobs)", None),
        (ORDERED, "Write Python code.\nNames by priority.\n\nSession so far:\n@dataclass\nclass Job:\n"
         "    priority: int\n    name: str", None),
        (ORDERED, "Write Python code.\nNames.\n\nIt has to pass:\n"
         "assert order([Job(priority=1, name='a')]) == ['a']", None),
        ("def f(days):\n    return [day.year for day in days]", "Write Python code.\nThe years.", None),
        ("def f(text):\n    return text.strip().upper", "Write Python code.\nThe method.", None),
        ("import shelf\n\ndef f(box):\n    return box.lid", "Write Python code.\nThe top of a box.", None),
        ("class Box:\n    def __init__(self, lid):\n        self.lid = lid\n\ndef f(boxes):\n"
         "    return [box.lid for box in boxes]", "Write Python code.\nBoxes and their tops.", None),
    ],
)  # fmt: skip
def test_members_of_what_is_handed_over_are_told(answer: str, prompt: str, why: str | None) -> None:
    assert why_members(answer, prompt) == why


@pytest.mark.parametrize(
    ("task", "signature", "why"),
    [
        ("the parts are texts: h * 60 + m glues them", "const minutes = (t) =>", INSIDE),
        ("minutes since midnight, h * 60 + m", "const minutes = (h, m) =>", None),
        ("Return h * 60 + m of a time", "const minutes = (t) =>", None),
        ("minutes since midnight", "const minutes = (t) =>", None),
    ],
)
def test_a_remark_that_reckons_with_names_of_the_inside(task: str, signature: str, why: str | None) -> None:
    answer = 'const minutes = (t) => t.split(":").map(Number).reduce((h, m) => h * 60 + m);'
    assert why_inside(task, answer, signature) == why


@pytest.mark.parametrize(
    ("answer", "told", "why"),
    [
        ("def f(d):\n    return 1 <= len(d) <= 40", "Problems of a user. f({'age': 7})", LIMITS),
        ("def f(d):\n    return len(d) <= 40", "Names have at most 40 letters.", None),
        ("def f(n):\n    return n % 12 == 0 or n > 255", "Write f.", None),  # which anybody may write
        ("def f(n):\n    return n * 40", "Write f.", None),
        ("not python (", "Write f.", None),
    ],
)
def test_numbers_that_only_the_author_compares_with(answer: str, told: str, why: str | None) -> None:
    assert why_limits(answer, told) == why
