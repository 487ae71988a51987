"""Here-documents line by line, and texts by which no reader of logs waits."""

from collections.abc import Callable

import pytest

from capibara_assets.datasets.code.schemas import _ASKED
from capibara_assets.datasets.duplicates.problems import problem_view
from capibara_assets.datasets.kinds.evidence import has_substance
from capibara_assets.datasets.kinds.files_shown import _written
from capibara_assets.executions.formats.agents.tools.claude_calls import words_of
from capibara_assets.executions.formats.notebook_tasks import task_above
from capibara_assets.executions.heredocs import heredocs, without_heredocs
from capibara_assets.executions.labels.classify import shell_domains

TWO = "cat > a.txt <<'EOF' && pytest\none\n  EOF2\nEOF\nls <<-END\n\tx\n\tEND | wc\n"


def test_what_stands_in_them_and_around_them() -> None:
    first, second = heredocs(TWO)
    assert (first.before, first.after, first.body) == ("cat > a.txt ", " && pytest", "one\n  EOF2")
    assert (second.before, second.after, second.body) == ("ls ", "", "\tx")
    assert without_heredocs(TWO) == "cat > a.txt  && pytest\nls  | wc\n"
    assert not list(heredocs("cat <<EOF\nnever closed")) and without_heredocs("a << 2\nb") == "a << 2\nb"


@pytest.mark.parametrize("command", ["cat > notes.txt <<EOF\nx\nEOF", "cat <<EOF > 'notes.txt'\nx\nEOF"])
def test_the_file_that_one_is_written_to(command: str) -> None:
    assert _written(command, "bash", "notes.txt") == "x" and _written(command, "bash", "otes.txt") is None


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "unit", ["<<a\n", "<<a ", "table_info ", " ", "\n", "* - ", "# a ", "<command-name>", "> n <<a\n"]
)
@pytest.mark.parametrize(
    "read",
    [
        lambda text: list(heredocs(text)),
        shell_domains,
        lambda text: _ASKED.search(text),
        lambda text: problem_view(text, ""),
        has_substance,
        lambda text: _written(text, "bash", "n"),
        lambda text: words_of([text]),
        lambda text: task_above([text], titled=False),
    ],
    ids=["heredocs", "shell", "schemas", "problems", "substance", "files", "words", "tasks"],
)
def test_hostile_text_is_read_at_once(read: Callable[[str], object], unit: str) -> None:
    read(unit * (20_000 // len(unit)) + "\x01!")
