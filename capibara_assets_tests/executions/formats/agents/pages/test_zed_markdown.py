"""Threads of Zed's agent, saved as Markdown."""

from capibara_assets.executions.formats.agents.pages.zed_markdown import READER
from capibara_assets.executions.formats.agents.runs import Edit
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, reads, runs


def used(key: str, name: str, given: str, result: str) -> str:
    head = f"**Tool Use**: {name} (ID: {key})\n```json\n{given}\n```\n"
    return f"## Assistant\n\n{head}\n**Tool Result**: {name} (ID: {key})\n\n{result}\n\n"


THREAD = (
    "## User\n\nMove it.\n\n"
    + used("a", "terminal", '{"cd": "w", "command": "uv add x"}',
           'Command "uv add x" failed with exit code 2.\n\n```\nerror: no x\n```')
    + used("b", "edit_file", '{"path": "a.toml", "content": "x = 1"}', "Edited a.toml")
    + used("c", "terminal", '{"cd": "w", "command": "uv add y"}', "```\nInstalled\n```")
    + used("d", "terminal", '{"cd": "w", "command": "git rm z"}', "Command executed successfully.")
)  # fmt: skip


def test_commands_edits_and_how_they_ended() -> None:
    found = runs(READER, THREAD)
    assert [(run.code, run.success, run.exit_code, run.output) for run in found] == [
        ("uv add x", False, 2, "error: no x"), ("uv add y", None, None, "```\nInstalled\n```"),
        ("git rm z", True, None, ""),
    ]  # fmt: skip
    assert {run.task for run in found} == {"Move it."}
    assert [entry.path for entry in entries(READER, THREAD) if isinstance(entry, Edit)] == ["a.toml"]


def test_a_call_without_answer_and_words_about_tools() -> None:
    begun = THREAD + "## Assistant\n\n**Tool Use**: terminal (ID: e)\n```json\n{broken\n```\n"
    assert len(runs(READER, begun)) == 3
    assert not reads(READER, "It writes **Tool Use**: terminal into the text.")
