"""AppWorld's interactions with its environment, as Markdown."""

import pytest

from capibara_assets.executions.formats.agents.programs.appworld import READER
from capibara_assets.executions.formats.agents.readers import find_reader
from capibara_assets.executions.formats.agents.runs import AgentRun, LogDocument, NotRun
from capibara_assets.executions.formats.strict_json import Fault
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, reads, runs, survives

RAISED = "Execution failed. Traceback:\n  File \"<python-input>\", line 1, in <module>\nKeyError: 'tea'"


def interaction(number: int, code: str, said: str) -> str:
    return f"\n### Environment Interaction {number}\n{'-' * 76}\n```python\n{code}\n```\n\n```\n{said}\n```\n\n"


QUOTES = "print('''\n```\n### Environment Interaction 7\n-----\n```\n''')"
LOG = (
    interaction(1, "shelf['tea']", RAISED)
    + interaction(2, "shelf['tea'] = 2", "Execution successful.")
    + interaction(3, QUOTES, "```\n### Environment Interaction 7\n-----\n```")
)


def test_codes_what_they_printed_and_what_they_raised() -> None:
    assert find_reader(LogDocument(LOG.encode())) is READER
    assert [(run.code, run.success, run.output, run.stderr) for run in runs(READER, LOG)] == [
        ("shelf['tea']", False, "", RAISED),
        ("shelf['tea'] = 2", True, "", ""),
        (QUOTES, True, "```\n### Environment Interaction 7\n-----\n```", ""),
    ]
    assert {run.language for run in runs(READER, LOG)} == {"python"}
    assert runs(READER, LOG.replace("\n", "\r\n")) and reads(READER, "\ufeff" + LOG)


@pytest.mark.parametrize("cut", ["\n```\n\n", "\n```\n\n```\nhal", "\n```", "\n```\n\n```\nall of it\nbut the fence"])
def test_an_interaction_in_which_the_log_ends_has_not_run(cut: str) -> None:
    begun = f"\n### Environment Interaction 4\n{'-' * 76}\n```python\nshelf.sort(){cut}"
    found = entries(READER, LOG + begun)
    assert len([one for one in found if isinstance(one, AgentRun)]) == 3
    assert [(one.kind, one.code) for one in found if isinstance(one, NotRun)] == [("unanswered", "shelf.sort()")]


def test_without_code_nothing_ran_and_where_the_code_ends_is_not_guessed() -> None:
    empty = interaction(4, "", "No code available to execute.")
    unsure = interaction(5, "a = '''\n```\n\n```\n'''", "Execution successful.")
    *_, nothing, fault = entries(READER, LOG + empty + unsure)
    assert nothing == NotRun("no_code") and isinstance(fault, Fault) and fault.reason == "unpaired"


@pytest.mark.parametrize(
    "page",
    [
        "# How AppWorld logs\n" + LOG,
        LOG.replace("Interaction 1", "Interaction 9"),
        "### Environment Interaction 1\nwith words alone\n",
        f"### Environment Interaction 1\n{'-' * 76}\n```python\nx = 1\n```\n",
    ],
)
def test_pages_that_quote_one_are_no_logs(page: str) -> None:
    assert not reads(READER, page)


def test_nothing_damaged_makes_the_reader_fail() -> None:
    lines = LOG.split("\n")
    for at in range(len(lines)):
        survives(READER, "\n".join(lines[:at] + lines[at + 1 :]).encode())
        survives(READER, "\n".join([*lines[:at], "```", *lines[at:]]).encode())
        survives(READER, LOG.encode()[: at * 20])
