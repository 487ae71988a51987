"""*repair* examples of edits, from sessions that are written here as agents' logs record them."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from capibara_assets.datasets.edited.places import AMBIGUOUS, LONG, OVERLAPS, UNTOLD
from capibara_assets.datasets.edited.repairs import MANY, MARKED, NO_EDIT, OTHERS, UNKNOWN_END, candidates
from capibara_assets.datasets.edited.soundness import (
    DROPPED,
    FITTED,
    NAMES,
    NO_CODE,
    NOT_SHOWN,
    OUTSIDE,
    REDACTED,
    REMARKS,
    SCRATCH,
    SILENT,
    TEST_CHANGED,
    UNRELATED,
    UNTOLD_TEXT,
)
from capibara_assets.datasets.kinds.evidence import ExampleCandidate
from capibara_assets.datasets.kinds.prompts import COMMAND, FILES, OUTPUT, section
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.patterns.repairs import find_mended
from capibara_assets.executions.schema import HIDDEN_EXIT, Execution
from capibara_assets_tests.datasets.conftest import evidence_of, frame, run

FAILED = """tests/test_cart.py:3: in test_total
    assert total([2, 3]) == 5
E   TypeError: bad operand
src/cart.py:2: TypeError
1 failed"""
EDIT = "/home/ada/shop/src/cart.py\n-    return sum(str(p) for p in prices)\n+    return sum(p for p in prices)"


def shell(name: str, code: str, minute: int, failed: bool = False, **values: object) -> Execution:
    told = {"outcome": "error", "error_name": "CommandExitException"} if failed else {}
    return run(name, code, language="bash", minute=minute, **{**told, **values})


def edit(name: str, code: str, minute: int) -> Execution:
    return run(name, code, language="patch", minute=minute, outcome="unknown", domains=[])


def session(*between: Execution, command: str = "pytest -q", output: str = FAILED, **passed: object) -> list[Execution]:
    first = shell("failed", command, 1, failed=True, stdout=output)
    return [first, *between, shell("passed", command, 50, **{"stdout": "1 passed", **passed})]


@pytest.fixture
def made(recipe: DatasetRecipe):
    def make(executions: list[Execution]) -> list[ExampleCandidate]:
        commands = frame(executions)
        mended = find_mended(commands, "python")
        return list(candidates(replace(evidence_of([]), mended=mended, commands=commands), recipe))

    return make


def test_a_command_that_failed_and_the_edit_that_mended_it_are_an_example(made) -> None:
    (one,) = made(session(edit("e", EDIT, 2), command="cd /home/ada/shop && pytest -q"))
    assert (one.kind, one.language, one.lacking) == ("repair", "patch", None)
    assert section(one.prompt, COMMAND) == "pytest -q"
    assert section(one.prompt, OUTPUT) == FAILED
    assert section(one.prompt, FILES) == "src/cart.py:\n    return sum(str(p) for p in prices)"
    assert one.answer == (
        "src/cart.py\n<<<<<<< SEARCH\n    return sum(str(p) for p in prices)\n=======\n"
        "    return sum(p for p in prices)\n>>>>>>> REPLACE"
    )
    assert (one.execution_ids, one.subjects) == (("e", "passed", "failed"), 1)
    assert "/home/ada" not in one.prompt + one.answer


def test_the_folder_of_the_machine_is_cut_from_the_output(made) -> None:
    said = "RUN /home/ada/shop\n/home/ada/shop/src/cart.py:2: TypeError\n    at /home/ada/shop/src/index.py:3"
    (one,) = made(session(edit("e", EDIT.replace("/home/ada/shop/", ""), 2), output=said))
    assert section(one.prompt, OUTPUT) == "RUN .\nsrc/cart.py:2: TypeError\n    at src/index.py:3"


def test_a_file_at_the_root_of_the_disk_leaves_the_output_as_it_is(made) -> None:
    (one,) = made(session(edit("e", EDIT.replace("/home/ada/shop/", "/"), 2), output="/src/cart.py:2: TypeError in /a"))
    assert section(one.prompt, OUTPUT) == "/src/cart.py:2: TypeError in /a"


def test_a_pass_in_another_folder_is_of_another_command(made) -> None:
    runs = session(edit("e", EDIT, 2), command="cd packages/a && npm test")
    assert len(made(runs)) == 1
    other = runs[-1].model_copy(update={"code": "cd packages/b && npm test"})
    assert made([*runs[:-1], other]) == []


@pytest.mark.parametrize("said", ["=== 1 failed, 3 passed in 0.1s ===", "no tests ran in 0.01s", "collected 0 items"])
def test_an_exit_code_of_0_is_no_pass_where_the_output_says_otherwise(made, said: str) -> None:
    (one,) = made(session(edit("e", EDIT, 2), stdout=said))
    assert one.lacking == UNKNOWN_END


def test_a_command_that_writes_itself_shows_no_mend_by_the_edit(made) -> None:
    (one,) = made(session(edit("e", EDIT, 2), command="git stash && pytest -q"))
    assert one.lacking == OTHERS


def test_names_of_users_and_signs_of_control_are_cut(made) -> None:
    said = "0%\r50%\r100%\n\x07/home/katharina/shop/src/cart.py:2: TypeError\nby katharina@host in /home/katharina/x.py"
    (one,) = made(session(edit("e", EDIT.replace("ada", "katharina"), 2), output=said))
    assert "katharina" not in f"{one.prompt}{one.answer}{one.proof}"
    assert section(one.prompt, OUTPUT) == "100%\nshop/src/cart.py:2: TypeError\nby user@host in x.py"
    assert one.answer.startswith("shop/src/cart.py\n")


def test_an_indentation_that_was_the_error_is_a_mend(made) -> None:
    change = "/r/src/cart.py\n-def total():\n-return 1 + tax\n+def total():\n+    return 1 + tax"
    (one,) = made(
        session(edit("e", change, 2), output="  File src/cart.py, line 2\nIndentationError: expected an indented block")
    )
    assert one.lacking is None


def test_what_an_edit_replaced_stands_once_in_the_file_that_was_shown(made) -> None:
    whole = "/r/src/cart.py\na = 1\nx = total\nb = 1\nx = total\n"
    (one,) = made([edit("w", whole, 0), *session(edit("e", "/r/src/cart.py\n-x = total\n+x = None", 2))])
    assert one.lacking == AMBIGUOUS


def test_a_session_of_thousands_of_failures_takes_seconds(made) -> None:
    runs = [shell(f"f{n}", f"pytest -q t{n}.py", n, failed=True, stdout=FAILED) for n in range(1500)]
    runs += [edit(f"e{n}", EDIT, 1500 + n) for n in range(100)]
    runs += [shell(f"p{n}", f"pytest -q t{n}.py", 2000 + n) for n in range(1500)]
    started = time.process_time()
    assert len(made(runs)) < 200
    assert time.process_time() - started < 20


def test_hostile_lines_of_code_are_read_in_linear_time(made) -> None:
    started = time.process_time()
    for text in (" " * 2000, "a " * 1000, "(" * 2000, "a=" * 1000, "x: " * 700):
        made(session(edit("e", f"/r/src/cart.py\n-total = 1\n+total {text} = None", 2)))
    assert time.process_time() - started < 10


def test_a_windows_path_loses_its_drive_and_its_user(made) -> None:
    change = EDIT.replace("/home/ada/shop/src/cart.py", "c:\\Users\\Ada Low\\shop\\src\\cart.py")
    (one,) = made(session(edit("e", change, 2), command='cd "c:\\Users\\Ada Low\\shop" && pytest -q'))
    assert one.answer.startswith("src/cart.py\n") and "Ada" not in one.prompt


def test_a_pass_that_nothing_tells_does_not_count_if_the_command_failed_once_more(made) -> None:
    raised = 'Traceback (most recent call last):\n  File "src/cart.py", line 2, in total\nTypeError: bad operand'
    runs = session(edit("e", EDIT, 2), command="python run.py", output=raised, outcome="unknown", stdout="5")
    (one,) = made(runs)
    assert one.lacking is None
    assert made([*runs, shell("again", "python run.py", 60, failed=True, stdout=raised)]) == []
    (one,) = made([row.model_copy(update={"code": row.code.replace("run.py", "reproduce.py")}) for row in runs])
    assert one.lacking == UNKNOWN_END


def test_the_blocks_turn_the_shown_file_into_the_mended_one(made) -> None:
    whole = (
        "/r/src/cart.py\n" + "\n".join(f"line_{n} = {n}" for n in range(40)) + "\ntotal = sum(str(p) for p in prices)\n"
    )
    change = "/r/src/cart.py\n-total = sum(str(p) for p in prices)\n+total = sum(p for p in prices)"
    (one,) = made([edit("w", whole, 0), *session(edit("e", change, 2))])
    shown = section(one.prompt, FILES)
    assert "line_39 = 39" in shown and "line_1 = 1" not in shown
    old, new = re.findall(r"SEARCH\n(.*?)=======\n(.*?)>>>>>>>", one.answer, re.DOTALL)[0]
    assert shown.count(old.strip()) == 1 and new == "total = sum(p for p in prices)\n"


def test_several_edits_of_one_place_are_one_and_what_was_undone_is_none(made) -> None:
    again = EDIT.replace(
        "-    return sum(str(p) for p in prices)\n+    return sum(p for p in prices)",
        "-    return sum(p for p in prices)\n+    return sum(prices)",
    )
    (one,) = made(session(edit("e", EDIT, 2), edit("f", again, 3)))
    assert "SEARCH\n    return sum(str(p) for p in prices)\n=======\n    return sum(prices)\n" in one.answer
    back = "\n".join(
        [EDIT.split("\n")[0], *(("-" if line[0] == "+" else "+") + line[1:] for line in reversed(EDIT.split("\n")[1:]))]
    )
    (none,) = made(session(edit("e", EDIT, 2), edit("f", back, 3)))
    assert none.lacking == NO_EDIT


def test_of_several_failures_the_last_is_the_example(made) -> None:
    wrong = "/home/ada/shop/src/cart.py\n-prices = 1\n+prices = 2"
    found = made(
        session(edit("e", wrong, 2), shell("again", "pytest -q", 3, failed=True, stdout=FAILED), edit("f", EDIT, 4))
    )
    assert [one.execution_ids for one in found] == [("f", "passed", "again")]


def test_what_a_pipe_hides_is_told_by_the_output(made) -> None:
    hidden = {"outcome": "unknown", "flags": [HIDDEN_EXIT]}
    runs = [
        shell(
            "failed",
            "pytest -q 2>&1 | tail -20",
            1,
            stdout="src/cart.py:2: TypeError\n=== 1 failed in 0.1s ===",
            **hidden,
        ),
        edit("e", EDIT, 2),
        shell("passed", "pytest -q 2>&1 | tail -5", 3, stdout="=== 1 passed in 0.1s ===", **hidden),
    ]
    (one,) = made(runs)
    assert one.lacking is None
    runs[-1] = shell("passed", "pytest -q 2>&1 | tail -5", 3, stdout="see the report", **hidden)
    (one,) = made(runs)
    assert one.lacking == UNKNOWN_END


OTHER = "/r/src/cart.py\n-a_place = {n}\n+a_place = cart_{n}"


@pytest.mark.parametrize(
    ("between", "values", "why"),
    [
        ([edit("e", "/r/src/cart.py\n+x = total", 2)], {}, UNTOLD),
        ([edit("e", "/r/src/cart.py\nedit 1:1\nx\nend_of_edit", 2)], {}, UNTOLD),
        ([edit("e", EDIT, 2), shell("g", "python generate.py", 3)], {}, OTHERS),
        ([edit("e", EDIT, 2), shell("g", "sed -i s/a/b/ src/cart.py", 3)], {}, OTHERS),
        ([edit(f"e{n}", f"/r/src/cart.py\n-place_{n} = 1\n+place_{n} = None", n + 2) for n in range(4)], {}, MANY),
        ([edit("e", "/r/README.md\n-one total\n+two totals", 2)], {}, NO_EDIT),
        ([edit("e", "/r/notes.log\n-one total\n+two totals", 2)], {"output": f"{FAILED}\nsee notes.log"}, NO_CODE),
        ([edit("e", "/r/src/cart.py\n-x = total  # a\n+x = total  # b", 2)], {}, REMARKS),
        ([edit("e", f"{EDIT}  # type: ignore", 2)], {}, SILENT),
        ([edit("e", "/r/tests/test_cart.py\n-    assert total == 5\n+    assert total == 6", 2)], {}, TEST_CHANGED),
        ([edit("e", "/r/src/cart.py\n-total = 1\n-=======\n+total = None\n+=======", 2)], {}, MARKED),
        ([edit("e", f"{EDIT}{' ' * 3000}", 2)], {}, LONG),
        ([edit("e", f"{EDIT}\n+    total: any", 2)], {}, SILENT),
        ([edit("e", "/r/src/cart.py\n-total(x)\n+try:\n+    total(x)\n+except TypeError:\n+    pass", 2)], {}, SILENT),
        ([edit("e", "/r/pyproject.toml\n-total = 90\n+total = 40", 2)], {}, SILENT),
        (
            [edit("e", EDIT, 2), edit("t", "/r/tests/test_cart.py\n-    assert total == 5\n+    assert total == 3", 3)],
            {},
            TEST_CHANGED,
        ),
        ([edit("e", "/r/src/cart.py\n-    return total(x)\n+    return 5", 2)], {}, FITTED),
        ([edit("e", "/usr/lib/python3/site-packages/cart.py\n-total(x)\n+total(None)", 2)], {}, OUTSIDE),
        ([edit("e", f"/r/src/cart.py\n-{'x' * 250_000}\n+y", 2)], {}, LONG),
        ([edit("e", "/r/src/repro_cart.py\n-total(prices)\n+total(None)", 2)], {}, SCRATCH),
        ([edit("e", EDIT, 2)], {"output": f"{FAILED}\nkey <SECRET:1>"}, REDACTED),
        ([edit("e", EDIT, 2)], {"output": "x" * 1500 + f"\n{FAILED}\nFound 9 errors"}, NOT_SHOWN),
        ([edit("e", "/r/src/cart.py\n-import decimal\n-total = 1\n+total = None", 2)], {}, UNRELATED),
        ([edit("e", "/r/src/cart.js\n-const fs = require('fs')\n-total = 1\n+total = null", 2)], {}, UNRELATED),
        ([edit("e", "/r/src/cart.py\n-total(prices)\n-print(total)\n+", 2)], {}, DROPPED),
        ([edit("e", "/r/src/other.py\n-alpha = beta\n+alpha = None", 2)], {}, UNRELATED),
        ([edit("e", EDIT.replace("+    return sum(p", "+    return helper(p"), 2)], {}, f"{NAMES}: helper"),
        ([edit("e", EDIT.replace("+    return sum(p for", "+    return sum('abcdef' for"), 2)], {}, UNTOLD_TEXT),
        ([edit("e", EDIT, 2)], {"outcome": "unknown", "stdout": "see there"}, UNKNOWN_END),
    ],
)
def test_what_is_not_known_or_teaches_nothing_is_left_out_with_its_reason(made, between, values, why: str) -> None:
    (one,) = made(session(*between, **values))
    assert one.lacking == why


def test_notes_that_an_agent_keeps_beside_its_edits_do_not_matter(made) -> None:
    (one,) = made(session(edit("n", "/r/PROGRESS.md\n# all that was done", 2), edit("e", EDIT, 3)))
    assert (one.lacking, one.execution_ids) == (None, ("e", "passed", "failed"))


def test_edits_that_overlap_are_left_out(made) -> None:
    one = "/r/src/cart.py\n-first_line = 1\n+first_line = total\n+second_line = 2"
    two = "/r/src/cart.py\n-second_line = 2\n-third_line = 3\n+third_line = total"
    (found,) = made(session(edit("e", one, 2), edit("f", two, 3)))
    assert found.lacking == OVERLAPS


def test_a_command_that_passed_without_an_edit_gives_nothing(made) -> None:
    assert made(session(shell("g", "ls", 2))) == []


def test_a_file_that_was_written_anew_gives_the_parts_that_differ(made) -> None:
    lines = [f"value_{n} = {n}" for n in range(30)]
    old = "\n".join([*lines, "total = sum(str(p) for p in prices)"]) + "\n"
    (one,) = made(
        [
            edit("w", f"/r/src/cart.py\n{old}", 0),
            *session(edit("v", f"/r/src/cart.py\n{old.replace('str(p)', 'p')}", 2)),
        ]
    )
    assert one.lacking is None and "value_29" in one.answer and "value_3 =" not in one.answer


def test_a_log_of_claude_code_becomes_an_example_of_python_and_of_debug(tmp_path: Path) -> None:
    from benchmarks.datasets.stages import ASSETS, Place, materialize_all

    log = tmp_path / "logs" / "session.jsonl"
    log.parent.mkdir()
    log.write_text("".join(json.dumps(line) + "\n" for line in _claude_session()), "utf-8")
    place = Place(log.parent, tmp_path / "store", reexecute=False)
    materialize_all(place, stages=ASSETS[: ASSETS.index("moe_dataset") + 1])
    for domain in ("python", "debug"):
        artifact = place.open().latest("moe_dataset", domain)
        assert artifact is not None
        (row,) = artifact.frame("examples").filter(language="patch").to_dicts()
        assert (row["kind"], row["verified"]) == ("repair", "recorded") and "project" in row["not_replayed"]
        assert "<<<<<<< SEARCH" in row["messages"]


def _claude_session() -> list[dict[str, object]]:
    base = {"sessionId": "0b4f5c1e-1111-4222-8333-444455556666", "version": "2.0.1", "cwd": "/home/ada/shop"}
    turns: list[dict[str, object]] = []

    def say(kind: str, content: object, **more: object) -> None:
        number = len(turns)
        turns.append(
            {
                **base,
                "type": kind,
                "uuid": f"u{number}",
                "timestamp": f"2026-10-01T10:00:{number:02d}.000Z",
                "message": {"role": kind, "content": content},
                **more,
            }
        )

    def use(name: str, call: str, answer: str, failed: bool = False, **given: str) -> None:
        say("assistant", [{"type": "tool_use", "id": call, "name": name, "input": given}])
        result = {"type": "tool_result", "tool_use_id": call, "content": answer, "is_error": failed}
        told = f"Error: {answer}" if failed else {"stdout": answer, "stderr": "", "interrupted": False}
        say("user", [result], toolUseResult=told)

    say("user", "Make the total of a cart work for whole numbers and keep the tests green.")
    use("Bash", "t1", f"Exit code 1\n{FAILED}", failed=True, command="pytest -q")
    use(
        "Edit",
        "t2",
        "updated",
        file_path="/home/ada/shop/src/cart.py",
        old_string="    return sum(str(p) for p in prices)",
        new_string="    return sum(p for p in prices)",
    )
    use("Bash", "t3", "1 passed in 0.01s", command="pytest -q")
    return turns
