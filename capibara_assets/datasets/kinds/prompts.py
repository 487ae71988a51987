"""Templates of all prompts: short, and the same in every domain."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from capibara_assets.executions.parsing import JAVASCRIPT

_NAMES = {
    "python": "Python",
    "javascript": "JavaScript",
    "typescript": "TypeScript",
    "sql": "SQL",
    "bash": "Bash",
    "java": "Java",
}


SIGNATURE, TESTS, SESSION, SCHEMA, FILES = "Signature:", "It has to pass:", "Session so far:", "Schema:", "Files:"
CODE, ERROR, COMMAND, OUTPUT = "Code:", "Error:", "Command:", "Output:"
SECTIONS = (SIGNATURE, TESTS, SESSION, SCHEMA, FILES, CODE, ERROR, COMMAND, OUTPUT)
"""Titles of the parts of a prompt that hold code or output; what stands before the first is prose."""
PREDICT_ERROR = "Predict the error"
"""How a request for the error that code raises begins."""
ONLY_ERROR = "Fix the error in this"
"""How a request for a repair begins of which nothing but the error says what is wanted."""
_CALL = re.compile(r"([A-Za-z_$][\w$]*)\(.*\);?[ \t]*(?://.*)?$")
_SPLIT_TITLES = re.compile(rf"(?:\A|\n\n)({'|'.join(re.escape(title) for title in SECTIONS)})\n")


@dataclass(frozen=True)
class Shown:
    """Additional content of a prompt: tables, beginnings of files, and the test of a repair."""

    schema: str = ""
    files: Sequence[tuple[str, str]] = ()  # name, beginning
    test: str = ""

    def parts(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """The sections of tables and files."""
        return (SCHEMA, self.schema), (FILES, "\n".join(f"{name}:\n{head}" for name, head in self.files))


NOTHING = Shown()


def section(prompt: str, title: str) -> str:
    """The content of a titled part of a prompt; "" where it has none."""
    _, heading, rest = f"\n\n{prompt}".partition(f"\n\n{title}\n")
    ends = [at for other in SECTIONS if heading and (at := rest.find(f"\n\n{other}\n")) >= 0]
    return rest[: min(ends)] if ends else rest


def states_task(prompt: str) -> bool:
    """Whether prose says what is asked, below the line that names the language."""
    return "\n" in prompt.partition("\n\n")[0]


def stated(prompt: str) -> str:
    """The text of a prompt before its sections."""
    return _SPLIT_TITLES.split(prompt)[0]


def sections(prompt: str) -> list[tuple[str, str]]:
    """(title, content) of the titled parts of a prompt, in order."""
    _, *parts = _SPLIT_TITLES.split(prompt)
    return list(zip(parts[::2], parts[1::2], strict=True))


def language_name(language: str) -> str:
    """The language's name as people write it."""
    return _NAMES.get(language, language.capitalize())


def solve(
    language: str,
    statement: str,
    signature: str,
    tests: Sequence[str],
    context: Sequence[str],
    shown: Shown = NOTHING,
    libraries: Sequence[str] = (),
) -> str:
    """Prompt of a task to solve, with these libraries; any part may be empty, but not statement and tests at once."""
    using = f" with {', '.join(libraries)}" if libraries else ""
    return _joined(
        f"Write {language_name(language)} code{using}." + (f"\n{statement}" if statement else ""),
        (SIGNATURE, signature),
        (TESTS, "\n".join(tests)),
        (SESSION, "\n".join(context)),
        *shown.parts(),
    )


def repair(
    language: str,
    statement: str,
    failing: str,
    error: str,
    context: Sequence[str],
    shown: Shown = NOTHING,
    only_error: bool = False,
) -> str:
    """Prompt to repair failing code, with its error and the test that it did not pass.

    Args:
        only_error: what is asked for is that the error ends; the statement says what the code belongs to.
    """
    name = language_name(language)
    head = f"Fix this {name} code."
    if only_error:
        head = f"{ONLY_ERROR} {name} code" + (", which belongs to this task:" if statement else ".")
    return _joined(
        head + (f"\n{statement}" if statement else ""),
        (SESSION, "\n".join(context)),
        *shown.parts(),
        (CODE, failing),
        (TESTS, shown.test),
        (ERROR, error),
    )


def edit(files: Sequence[tuple[str, str]], command: str, output: str) -> str:
    """Prompt to edit files so that a command passes; `files`: (path, what is shown of it before the edit)."""
    return _joined(
        "Edit these files so that the command passes, with SEARCH/REPLACE blocks.",
        (FILES, "\n\n".join(f"{path}:\n{text}" for path, text in files)),
        (COMMAND, command),
        (OUTPUT, output),
    )


def diagnose(language: str, statement: str, failing: str, error: str, shown: str) -> str:
    """Prompt to explain why code fails, with its error; `shown`: the call that fails and what it should give, or ""."""
    head = " ".join(filter(None, [f"Explain why this {language_name(language)} code fails.", shown]))
    return _joined(head + (f"\n{statement}" if statement else ""), (CODE, failing), (ERROR, error))


def explain(code: str, asked: str, context: Sequence[str] = ()) -> str:
    """Prompt to explain code; `asked`: what of it, as `walk_through` words it."""
    return _joined(asked, (SESSION, "\n".join(context)), (CODE, code))


def requests(sent: Sequence[str]) -> str:
    """Question for an explanation of the requests `sent`, in order."""
    order = ", sent one after the other" if len(sent) > 1 else ""
    listed = " and ".join(filter(None, [", ".join(sent[:-1]), sent[-1]]))
    return f"Say which function answers {listed}{order}, with which arguments, and what the client gets."


WALK_QUERY = "Walk through this SQL query on this database, clause by clause: which rows each leaves, to the result."


def walk_through(call: str) -> str:
    """Question for a walk through one call."""
    return (
        f"Walk through `{call}` step by step: what each test compares and which branch is taken, what the variables "
        "become, and what is returned."
    )


def predict(language: str, code: str, context: Sequence[str]) -> str:
    """Prompt to predict the output of code; it tells that a promise at the end is awaited, as recorders do."""
    awaited = language in JAVASCRIPT and _ends_with_promise(code, "\n".join([*context, code]))
    return _joined(
        f"Predict the output of this {language_name(language)} code{'; the promise at its end is awaited' * awaited}.",
        (SESSION, "\n".join(context)),
        (CODE, code),
    )


def _ends_with_promise(code: str, whole: str) -> bool:
    """Whether JavaScript ends with a promise that it does not await itself."""
    last = code.rstrip().rpartition("\n")[2]
    called = _CALL.match(last)
    if called is not None and re.search(rf"\basync function {called[1]}\b|\b{called[1]} = async\b", whole):
        return True
    return last.startswith("Promise.") or (last.startswith(("})(", "(async ")) and "(async " in code)


def predict_error(language: str, code: str, context: Sequence[str]) -> str:
    """Prompt to predict the error that code raises; of a query in SQLite, which names no place."""
    place = " in SQLite" if language == "sql" else ", and where"
    return _joined(
        f"{PREDICT_ERROR} that this {language_name(language)} code raises{place}.",
        (SESSION, "\n".join(context)),
        (CODE, code),
    )


def apply(advice: Sequence[str], task: str) -> str:
    """Prompt of a task as `solve` words it, below the advice that helped with it."""
    return "\n\n".join(["Advice from the playbook:\n" + "\n".join(f"- {each}" for each in advice), task])


def _joined(head: str, *parts: tuple[str, str]) -> str:
    return "\n\n".join([head, *(f"{title}\n{text}" for title, text in parts if text)])
