"""Commands print no characters on which a terminal acts: output, errors of the user, bugs, warnings and logs."""

import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from capibara_assets.cli.graph.jobs import follow_file
from capibara_assets.escaping.terminal import PlainRecord, PlainStream, print_marked
from capibara_assets_tests.escaping.hostile import ACTING, HOSTILE

# What a command says of foreign text, each way by which it can be said
PROGRAM = """
import json, logging, sys, warnings
import click
from capibara_assets.cli.main import run_command_line
from capibara_assets.errors import InputError, IntegrityError

@click.command()
@click.argument("how")
@click.argument("choice", type=click.Choice(["a"]), required=False)
def command(how, choice):
    text = json.loads(sys.stdin.read())
    if how == "echo": click.echo(text); click.echo(text, err=True); click.secho(text, bold=True); print(text, text)
    if how == "input": raise InputError(f"no such id: {text}")
    if how == "damaged": raise IntegrityError(text)
    if how == "usage": raise click.UsageError(text)
    if how == "bug": raise RuntimeError(text) from KeyError(text)
    if how == "warning": warnings.warn(text)
    if how == "log": logging.basicConfig(); logging.getLogger("x").warning("said %s", text)
    if how == "json": click.echo(json.dumps({"text": text}))

run_command_line(command, "command")
"""


def said(how: str, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, how, *arguments]
    return subprocess.run(command, input=json.dumps(text), capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("how", "code"),
    {"echo": 0, "input": 2, "damaged": 1, "usage": 2, "bug": 1, "warning": 0, "log": 0, "json": 0}.items(),
)
def test_whatever_a_command_says_is_plain(how: str, code: int) -> None:
    text = "first\n" + " ".join(HOSTILE.values()) + "\ud800"
    done = said(how, text)
    assert done.returncode == code, done.stderr
    assert not ACTING.search(done.stdout + done.stderr)
    if how == "json":
        assert json.loads(done.stdout) == {"text": text}
    else:
        assert "all tests passed" in done.stdout + done.stderr  # click leaves sequences out where no terminal is


def test_at_a_terminal_sequences_are_shown() -> None:
    here, there = os.openpty()
    command = [sys.executable, "-c", PROGRAM, "echo"]
    text = json.dumps(HOSTILE["title and link"])
    subprocess.run(command, input=text, stdout=there, stderr=there, text=True, check=True)
    shown = os.read(here, 65536).decode().replace("\r\n", "\n")
    os.close(here), os.close(there)
    assert shown.count("\\u001b]8;;https") == 5 and not ACTING.search(shown)


def test_an_argument_that_is_quoted_in_an_error_is_plain() -> None:
    done = said("echo", "x", "\x1b[2J\u202e")
    assert done.returncode == 2 and "[2J" in done.stderr and not ACTING.search(done.stderr)


@pytest.mark.extended  # the stream that it prints to is tested below
def test_the_jax_trainer_quotes_a_file_in_plain_characters() -> None:
    command = [sys.executable, "-m", "capibara_assets.training.jax", "\x1b[2J\u202e.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and r"\x1b[2J" in done.stderr and not ACTING.search(done.stderr)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_stream_takes_text_alone(text: str) -> None:
    written = Terminal()
    stream = PlainStream(written)
    print(text, text, file=stream)
    stream.writelines([text])
    assert not ACTING.search(written.getvalue()) and stream.isatty() and not hasattr(stream, "buffer")
    with pytest.raises(TypeError):
        stream.write(text.encode())  # type: ignore[arg-type]


def test_a_progress_bar_moves_and_text_does_not() -> None:
    written = Terminal()
    stream = PlainStream(written, bars=True)
    for text in ("\r 50%", "\n\x1b[A", "\r100%\r0%", "a\rb", "\x1b[A b"):
        stream.write(text)
    assert written.getvalue() == "\r 50%\n\x1b[A\r100%\\u000d0%a\\u000db\\u001b[A b"


def test_a_jobs_log_is_shown_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    log.write_bytes("größer \x1b[2J".encode() + b"\xff\n")
    follow_file(log, lambda: False)
    assert capsys.readouterr().out == "größer \x1b[2J\\xff\n"  # `main` makes standard output plain


def test_a_log_record_is_plain() -> None:
    record = PlainRecord("x", logging.INFO, "", 1, "said %s", ("\x1b[2J",), None)
    assert record.getMessage() == "said \\u001b[2J"


def test_a_mark_has_a_colour_at_a_terminal_and_its_text_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    written = Terminal()
    stream = PlainStream(written)
    monkeypatch.setattr(sys, "stdout", stream)
    print_marked("red", "fail\x1b[2J", "  disk \x1b[2J")
    assert written.getvalue() == "\x1b[31mfail\\u001b[2J\x1b[0m  disk \\u001b[2J\n"
    monkeypatch.setenv("NO_COLOR", "1")
    print_marked("red", "fail", "  disk")
    assert written.getvalue().endswith("\nfail  disk\n")


@pytest.mark.parametrize("stream", [io.StringIO(), PlainStream(io.StringIO())])
def test_a_mark_has_none_elsewhere(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", stream)
    print_marked("green", "pass", "  disk")
    assert stream.getvalue() == "pass  disk\n"
