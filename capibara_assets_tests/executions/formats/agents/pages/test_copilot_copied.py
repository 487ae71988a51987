"""Chats with Copilot as VS Code copies them: commands without outputs."""

import pytest

from capibara_assets.executions.formats.agents.pages.copilot_copied import READER
from capibara_assets_tests.executions.formats.agents.tools.damage import reads, runs

CHAT = """User: Which files are tracked?

GitHub Copilot: I'll look.

Read [](file:///w)

Ran terminal command: Get-ChildItem -Force | Format-Table Name

Now the index:

Ran terminal command: git ls-files -s;
git status

```
Ran terminal command: an example
```

User: Thanks.
Ran terminal command: of the user
"""


@pytest.mark.parametrize("text", [CHAT, CHAT.replace("\n", "\r\n"), CHAT.replace("User: ", "ann-b: ")])
def test_each_command_is_one_of_unknown_end(text: str) -> None:
    assert [(run.language, run.code, run.success, run.output, run.task) for run in runs(READER, text)] == [
        ("powershell", "Get-ChildItem -Force | Format-Table Name", None, "", "Which files are tracked?"),
        ("bash", "git ls-files -s;\ngit status", None, "", "Which files are tracked?"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "# How to\n\nRan terminal command: ls\n",
        "User: What does it mean?\n\nRan terminal command: ls\n",
        "Notes\n\nUser: Hi\n\nGitHub Copilot: Hello\n\nRan terminal command: ls\n",
        "User: Hi\n\nGitHub Copilot: Hello. It wrote that it Ran terminal command: ls\n",
    ],
)
def test_other_text_is_none(text: str) -> None:
    assert not reads(READER, text)
