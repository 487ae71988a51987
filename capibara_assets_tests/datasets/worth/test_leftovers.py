"""What is left over in answers: each class with a sound neighbour."""

import pytest

from capibara_assets.datasets.worth import leftovers, worth
from capibara_assets_tests.datasets.worth.test_worth import candidate, unworthy

SOUND = """def total(xs):
    # the mean = whole / len(xs)
    whole = sum(x for x in xs if x > 0)
    return whole / len(xs)"""
PASSED = "try:\n        xs[0]\n    except IndexError:\n        pass\n    return"
FIELDS = "class Box:\n    def grow(self):\n        class Inner:\n            width = 2\n        return Inner"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (SOUND, None),
        (SOUND.replace("# the", "# whole = sum(xs)\n    # mean = whole / 2\n    # the"), leftovers.COMMENTED_OUT),
        (SOUND.replace("# the", "# return whole\n    # the"), leftovers.COMMENTED_OUT),
        (SOUND.replace("# the", "#print(xs)\n    # the"), leftovers.COMMENTED_OUT),
        (SOUND.replace("# the", "# for each of them:\n    # O(n)\n    # see mean(xs), xs: list\n    # the"), None),
        (SOUND.replace("# the", "# area = width * height\n    # the"), None),
        (SOUND.replace("    return", "    n = len(xs)\n    return"), leftovers.UNREAD),
        (SOUND.replace("    return", "    n = 0\n    n += 1\n    return"), leftovers.UNREAD),
        (SOUND.replace("    return", "    _ = len(xs)\n    a, b = 1, 2\n    return"), None),
        (SOUND.replace("    return", "    n = 1\n    print(locals())\n    return"), None),
        (SOUND.replace("    return", "    n = 1\n    def more():\n        return n\n    return"), None),
        (SOUND.replace("    return", "    global n\n    n = 1\n    return"), None),
        (SOUND.replace("    return", "    if not xs:\n        pass\n    return"), leftovers.IDLE_BRANCH),
        (SOUND.replace("return", PASSED), None),
        (SOUND.replace("# the", "# Write your code here\n    # the"), leftovers.TO_BE_WRITTEN),
        (SOUND.replace("# the", "# TODO: an empty list\n    # the"), leftovers.TO_BE_WRITTEN),
        (SOUND.replace("# the", "# begin solution\n    # the"), leftovers.TO_BE_WRITTEN),
        (SOUND.replace("# the", "# each todo of the list, where it ends: the\n    # the"), None),
        (SOUND.replace("    return", "    seen = []\n    seen.append(whole)\n    return"), leftovers.UNREAD),
        (SOUND.replace("    return", "    seen = []\n    xs.append(seen)\n    seen.append(whole)\n    return"), None),
        (SOUND.replace("    return", "    seen = xs\n    seen.append(whole)\n    return"), None),
        (SOUND.replace("(xs):", "(xs, seen):").replace("    return", "    seen.append(whole)\n    return"), None),
        (FIELDS, None),
        ("mean = 3", None),
        ("def broken(:", None),
    ],
)  # fmt: skip
def test_python(code: str, why: str | None) -> None:
    assert leftovers.left_over(code, "python") == why


@pytest.mark.parametrize(
    ("inside", "why"),
    [
        ("", None),
        ("// the sum; see more.js", None),
        ("// return xs;", leftovers.COMMENTED_OUT),
        ("/* your code here */", leftovers.TO_BE_WRITTEN),
        ("// console.log(xs)", leftovers.COMMENTED_OUT),
        ("// let n = xs.length;", leftovers.COMMENTED_OUT),
        ("let n = xs.length;", leftovers.UNREAD),
        ("let n = xs.length; n += 1;", None),  # two mentions: taken for a use
        ("const { n } = xs;", None),
    ],
)
def test_javascript(inside: str, why: str | None) -> None:
    code = f"const UNITS = 3;\nfunction total(xs) {{\n  {inside}\n  return xs.reduce((a, b) => a + b, 0);\n}}"
    assert leftovers.left_over(code, "javascript") == why


def test_only_what_is_to_be_written_is_judged() -> None:
    left = SOUND.replace("    return", "    n = len(xs)\n    return")
    assert unworthy(candidate("solve", left)) == leftovers.UNREAD
    assert unworthy(candidate("solve", SOUND)) is None
    assert unworthy(candidate("repair", left)) is None  # as its author wrote it: the mend is the lesson
    assert worth.unworthy(candidate("apply", left), 3) == leftovers.UNREAD
