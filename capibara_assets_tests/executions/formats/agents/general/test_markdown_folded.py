"""Sessions exported as Markdown that fold each call and its output, and the pages that are made of them."""

import html
import re
import time

import pytest

from capibara_assets.executions.formats.agents.general.markdown_calls import READER
from capibara_assets.executions.formats.agents.page_markdown import page_markdown
from capibara_assets.executions.formats.agents.runs import AgentRun, Edit, Entry, NotRun
from capibara_assets_tests.executions.formats.agents.tools.damage import entries, reads

SESSION = "11111111-2222-4333-8444-555555555555"
HEAD = f"# Tally\n\n**Session:** `{SESSION}`\n\n---\n\n## 👤 User\n\nMend the tally.\n\n\n"
SCRIPT = "cat <<'EOF' > a.md\n```sh\nls\n```\nEOF"
SHOWS_ONE = "\\`\\`\\`\n</details>\n\n<details>\n<summary>Bash: none</summary>\n\n\\`\\`\\`bash\nrm\n\\`\\`\\`"


def folded(summary: str, body: str) -> str:
    return f"<details>\n<summary>{summary}</summary>\n\n{body}\n</details>\n"


def fence(text: str, language: str = "") -> str:
    ticks = "````" if "```" in text.replace("\\`", "") else "```"
    return f"{ticks}{language}\n{text}\n{ticks}"


def call(summary: str, body: str, output: str | None = None) -> str:
    shown = "" if output is None else "\n" + folded("Tool Result", fence(output))
    return f"## 🤖🔧 Assistant\n{folded(summary, body)}{shown}\n\n"


def bash(command: str, output: str | None, about: str = "Run tool call tests") -> str:
    return call(f"Bash: {about}", fence(command, "bash"), output)


EDITED = "**Before:**\n" + fence("a = 1", "python") + "\n\n**After:**\n" + fence("a = 2", "python")
TODO = call("TodoWrite", "🔄 Run the tests  ", "Todos have been modified successfully.")
WORDS = "## 🤖 Assistant\n<!-- msg_01 -->\n\nNow run it:\n\n```bash\nmake all\n```\n\n\n"
EXPORT = (
    HEAD
    + TODO
    + call("Write tally.py", fence("a = 1", "python"), "File created successfully at: tally.py")
    + bash("make test", "Use \\`make -k\\`")
    + call("Edit tally.py", EDITED, "The file tally.py has been updated.")
    + bash(SCRIPT, "")
    + bash("git log", SHOWS_ONE)
    + WORDS
    + bash("make slow", None)
    + WORDS
    + call("LS", fence('{\n  "path": "."\n}', "json"), "- tally.py")
)


def page(export: str) -> str:
    """The page that a converter makes of an export."""

    def block(found: re.Match[str]) -> str:
        named = f' class="language-{found[2]}"' if found[2] else ""
        return f"<pre><code{named}>{html.escape(found[3])}\n</code></pre>"

    text = re.sub(r"^(`{3,})(\w*)\n(.*?)\n\1$", block, export, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(#+) (.*)$", lambda found: f"<h{len(found[1])}>{found[2]}</h{len(found[1])}>", text, flags=re.M)
    text = re.sub(r"^\*\*Session:\*\* `(.*)`$", r"<p><strong>Session:</strong> <code>\1</code></p>", text, flags=re.M)
    text = re.sub(r"^\*\*(\w+):\*\*$", r"<p><strong>\1:</strong></p>", text, flags=re.MULTILINE)
    script = "<script>var a = '<pre><code>';</script>" + "/* */" * 1000
    return f'<!DOCTYPE html>\n<html>\n<head>{script}</head>\n<body class="x">\n{text}</body>\n</html>\n'


def told(found: list[Entry]) -> list[object]:
    return [(one.code, one.success, one.output) if isinstance(one, AgentRun) else one for one in found]


@pytest.mark.parametrize("text", [EXPORT, page(EXPORT)], ids=["markdown", "page"])
def test_what_is_folded_is_a_call_and_below_it_its_output(text: str) -> None:
    found = entries(READER, text)
    assert told(found) == [
        Edit(SESSION, "tally.py", "a = 1"),
        ("make test", None, "Use `make -k`"),
        Edit(SESSION, "tally.py", "-a = 1\n+a = 2"),
        (SCRIPT, None, ""),
        ("git log", None, SHOWS_ONE.replace("\\", "")),
        NotRun("unanswered"),
    ]
    (task,) = {one.task for one in found if isinstance(one, AgentRun)}
    assert task == "Mend the tally."


@pytest.mark.parametrize(
    "text",
    [
        EXPORT.replace(SESSION, "").replace("**Session:**", ""),  # such as a page that shows the format
        HEAD + TODO + bash("ls", None) + WORDS,
        HEAD + bash("ls", "a").replace("<details>", "<div>"),
        HEAD + call("Make files", fence("ls", "bash"), "a"),
    ],
)
def test_what_names_no_session_or_shows_no_answered_call_is_no_log(text: str) -> None:
    assert not reads(READER, text)
    assert not reads(READER, page(text))


def test_a_text_that_is_no_such_page_is_not_changed() -> None:
    assert page_markdown(EXPORT) is None
    assert page_markdown("<!DOCTYPE html>\n<body><pre><code>ls\n</code></pre></body>") is None
    assert page_markdown(page(EXPORT)[:-400]) is not None


@pytest.mark.parametrize("piece", ["<pre><code>", "<details>", "<", "<summary>Bash: x</summary>", "</code></pre>"])
def test_repeated_pieces_take_no_time(piece: str) -> None:
    began = time.process_time()
    for text in (EXPORT, page(EXPORT)[:-40]):
        reads(READER, text + (piece + "\n") * 20_000)
    assert time.process_time() - began < 5
