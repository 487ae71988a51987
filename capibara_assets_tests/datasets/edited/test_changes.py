import time

import pytest

from capibara_assets.datasets.edited.changes import Change, changes

A = "a = 1\n"
B = "a = 2\n"


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        ("x.py\n-a = 1\n+a = 2", [Change("x.py", A, B)]),
        ("x.py\n-a\n+b\n-c\n+d\n+e", [Change("x.py", "a\n", "b\n"), Change("x.py", "c\n", "d\ne\n")]),
        ("x.py\n-\n-a\n+\n+b", [Change("x.py", "\na\n", "\nb\n")]),
        (
            "x.py\n*** Update File: src/x.py\n@@ def f():\n     b = 0\n-    a = 1\n+    a = 2\n*** End Patch",
            [Change("src/x.py", "    b = 0\n    a = 1\n", "    b = 0\n    a = 2\n")],
        ),
        (
            "\n*** Begin Patch\n*** Add File: n.py\n+a = 1\n*** Update File: x.py\n@@\n-b\n+c\n@@\n-d\n+e\n"
            "*** End Patch",
            [Change("n.py", None, A), Change("x.py", "b\n", "c\n"), Change("x.py", "d\n", "e\n")],
        ),
        ("gone.py\n*** Delete File: gone.py", []),
        (
            "x.py\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n b = 0\n-a = 1\n+a = 2\n\\ No newline at end of file",
            [Change("x.py", "b = 0\na = 1\n", "b = 0\na = 2\n")],
        ),
        ("x.py\n<<<<<<< SEARCH\na = 1\n=======\na = 2\n>>>>>>> REPLACE", [Change("x.py", A, B)]),
        ("x.py\n------- SEARCH\na = 1\n=======\na = 2\n+++++++ REPLACE\n", [Change("x.py", A, B)]),
        ("x.py\nimport os\na = 1\n", [Change("x.py", None, "import os\na = 1\n")]),
        ("x.yaml\n- a\n- b", [Change("x.yaml", None, "- a\n- b")]),
        ("x.py\nreplace all:\n-a\n+b", []),
        ("x.py\nedit 3:4\na = 2\nend_of_edit\n", []),
        ("x.py\ninsert 'a = 2'", []),
        ("x.py\n", []),
        ("x.py", []),
    ],
)
def test_each_form_of_an_edit_tells_what_it_replaced(edit: str, found: list[Change]) -> None:
    assert changes(edit) == found


@pytest.mark.parametrize(
    "line", ["<<<<<<< SEARCH", "<<<<<<< SEARCH\n=======", "@@", "-a\n+b", "*** Update File: x", "=" * 7]
)
def test_a_hostile_edit_is_read_in_linear_time(line: str) -> None:
    started = time.process_time()
    changes("x\n" + f"{line}\n" * 50_000)
    assert time.process_time() - started < 2
