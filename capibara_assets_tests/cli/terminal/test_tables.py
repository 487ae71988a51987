"""Tables: plain and whole where they are piped, drawn at a terminal, and what is foreign is text in both."""

import io
import sys

import pytest

from capibara_assets.cli.terminal.tables import TerminalTable, say, show
from capibara_assets.escaping.terminal import PlainStream
from capibara_assets_tests.cli.terminal.conftest import Terminal

TABLE = TerminalTable(
    ("name", "count"), [("a [bold]word[/bold] :smile:", "7"), ("evil \x1b[31mred\u202e", "12,345")], [1]
)


def test_a_piped_table_is_aligned_text(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = io.StringIO()
    monkeypatch.setattr(sys, "stdout", PlainStream(kept))
    long = "x" * 300
    show("above", TerminalTable(("name", "n"), [(long, "1"), ("b", "10")], [1]), "below")
    assert kept.getvalue().splitlines() == [
        "above",
        "name" + " " * 296 + "   n",
        f"{long}   1",
        "b" + " " * 299 + "  10",
        "below",
    ]


def test_at_a_terminal_titles_are_bold_and_cells_are_text(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", PlainStream(terminal.stream))
    show(TABLE)
    seen = terminal.seen()
    assert "\x1b[1m" in seen and "─" in seen
    assert "[bold]word[/bold] :smile:" in seen, "no markup of rich's in what is foreign"
    assert "\\u001b[31mred\\u202e" in seen and "\x1b[31m" not in seen and "\u202e" not in seen


def test_a_terminal_without_styles_gets_plain_text(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(sys, "stdout", PlainStream(terminal.stream))
    show(TABLE)
    assert "\x1b" not in terminal.seen()


def test_a_table_without_colours_keeps_its_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", PlainStream(terminal.stream))
    show(TerminalTable(("a", "b"), [("1", "2")]))
    seen = terminal.seen()
    assert "─" in seen and "\x1b[3" not in seen


def test_no_cell_and_no_line_makes_a_line_of_its_own(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids and names of files are the authors' of logs."""
    forged = "a.jsonl\nreal  b.jsonl\tinvalid\r\x85\u2028"
    written = "a.jsonl\\u000areal  b.jsonl\\u0009invalid\\u000d\\u0085\\u2028"
    kept = io.StringIO()
    monkeypatch.setattr(sys, "stdout", PlainStream(kept))
    show(TerminalTable(("id", "place"), [("1", forged)]))
    say(f"place: {forged}", "next")
    assert kept.getvalue().split("\n") == ["id  place", f"1   {written}", f"place: {written}", "next", ""]
    monkeypatch.setattr(sys, "stdout", PlainStream(terminal.stream))
    show(TerminalTable(("id", "place"), [("1", forged)]))
    assert written in terminal.seen()
