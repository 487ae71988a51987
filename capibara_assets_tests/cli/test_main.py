"""The command itself: what it lists is what there is, and listing loads nothing."""

import json
import os
import shlex
import sqlite3
import subprocess
import sys
import warnings
from contextlib import closing
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from dagster._utils.warnings import beta_warning, preview_warning

from capibara_assets.cli.main import COMMANDS, GROUPS, cli, database_problem, hush_dagster
from capibara_assets.cli.terminal.help import examples_of


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_is_listed_with_its_own_first_sentence(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.name == name
    assert COMMANDS[name][1] == command.get_short_help_str(limit=1000)


def test_help_lists_every_command() -> None:
    shown = CliRunner().invoke(cli, ["--help"])
    assert shown.exit_code == 0 and all(f"\n  {name} " in shown.output for name in COMMANDS)
    assert all(f"\n{title}:\n" in shown.output for title in GROUPS)


def commands_of(name: str) -> dict[str, click.Command]:
    """A command and all below it, by the words that are typed for them."""
    top = cli.get_command(click.Context(cli), name)
    assert top is not None
    found, waiting = dict[str, click.Command](), [(f"capibara {name}", top)]
    while waiting:
        words, command = waiting.pop()
        found[words] = command
        if isinstance(command, click.Group):
            waiting += [(f"{words} {below}", one) for below, one in command.commands.items()]
    return found


FILES = ("registry.json", "organiser.key", "acme.key", "examples.parquet", "items.jsonl")
FOLDERS = ("adapter", "result", "rounds")


def parse(given: list[str]) -> None:
    """Take a command line as click does before it calls the command. Raises click's errors."""
    part: click.Command = cli
    inner: click.Context | None = None
    while isinstance(part, click.Group):
        inner = click.Context(part, info_name=part.name, parent=inner)
        found = part.get_command(inner, given[0])
        assert found is not None, given
        part, given = found, given[1:]
    with part.make_context(part.name, given, parent=inner):
        pass


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_commands_help_has_an_example_that_parses(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a line of this command, and its words, options and values are taken."""
    monkeypatch.chdir(tmp_path)
    for file in FILES:
        (tmp_path / file).touch()
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
    for words, command in commands_of(name).items():
        lines = examples_of(command)
        assert lines, f"{words} has no example"
        for line in lines:
            assert line in command.get_help(click.Context(command, info_name=words)), line
            given = shlex.split(line.partition(" > ")[0])
            assert given[: len(words.split())] == words.split(), line
            parse(given[1:])


def test_an_example_with_a_wrong_option_would_be_noticed() -> None:
    with pytest.raises(click.NoSuchOption):
        parse(["run", "--domain", "sql"])


def test_the_groups_hold_each_command_once() -> None:
    listed = [name for group in GROUPS.values() for name in group]
    assert sorted(listed) == sorted(COMMANDS) and len(set(listed)) == len(listed)
    assert list(GROUPS) == ["The whole graph", "Data", "Train", "Judge", "Ship", "Operate"]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_can_be_quiet(name: str) -> None:
    for words, command in commands_of(name).items():
        quiet = [one for one in command.params if "--quiet" in one.opts]
        assert len(quiet) == (not isinstance(command, click.Group)), words


def test_what_is_piped_holds_no_escape_sequence(tmp_path: Path) -> None:
    """Help, a table, and an error, of real processes whose environment begs for colours."""
    program = "import sys; from capibara_assets.cli.main import main; sys.argv[0] = 'capibara'; main()"
    loud = {"CAPIBARA_HOME": str(tmp_path), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    for words, code in ((["--help"], 0), (["config"], 0), (["jobs", "status", "none"], 2)):
        done = subprocess.run(
            [sys.executable, "-c", program, *words], env=os.environ | loud, capture_output=True, check=False
        )
        assert done.returncode == code and (done.stdout or done.stderr)
        assert b"\x1b" not in done.stdout + done.stderr and b"\r" not in done.stdout + done.stderr


def test_a_shell_completes_commands_and_options() -> None:
    """What bash asks for after `capibara ui --po<TAB>`, in a process, and after `capibara tr<TAB>`, here."""

    def asked(*words: str) -> dict[str, str]:
        typed = " ".join(["capibara", *words])
        return {"_CAPIBARA_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words))}

    program = "import sys; from capibara_assets.cli.main import main; sys.argv[0] = 'capibara'; main()"
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, env=os.environ | asked("ui", "--po"), capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["plain,--port"]
    here = CliRunner().invoke(cli, [], prog_name="capibara", env=asked("tr"))
    assert here.output.split() == ["plain,train"]


def test_help_and_plan_load_nothing_that_takes_time() -> None:
    """Neither lists of commands nor a plan without XLA need arrays, file systems, Dagster or a trainer."""
    plan = ["plan", "--model", "llama2-7b", "--hardware", "tpu-v5e-64", "--examples", "50", "--json"]
    program = (
        "import json, sys\n"
        "from capibara_assets.cli.main import main\n"
        "heavy = {'dagster', 'torch', 'jax', 'transformers', 'polars', 'numpy', 'fsspec'}\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['capibara', *arguments]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as end:\n"
        "        assert not end.code, end.code\n"
        "    print('loaded', arguments[0], sorted(heavy & set(sys.modules)))\n"
    )
    commands = json.dumps([["--help"], ["merge", "--help"], plan])
    done = subprocess.run([sys.executable, "-c", program, commands], capture_output=True, text=True, check=True)
    loaded = [line for line in done.stdout.splitlines() if line.startswith("loaded")]
    assert loaded == ["loaded --help []", "loaded merge []", "loaded plan []"]


def test_of_warnings_only_dagsters_about_its_own_features_are_silenced() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hush_dagster()
        beta_warning("Parameter `owners`")
        preview_warning("Class\n`Component`")
        warnings.warn("the beta of this model is 0.9", stacklevel=1)
    assert [str(one.message) for one in caught] == ["the beta of this model is 0.9"]


def test_a_lanes_process_is_silenced_before_it_loads_the_graph() -> None:
    """Unpickling what it opens imports no Dagster: the graph is made as it is imported, a warning for each asset."""
    program = (
        "import pickle, sys\n"
        "from capibara_assets.deployment.environment import Deployment\n"
        "assert not {'dagster', 'capibara_assets.definitions'} & set(sys.modules)\n"
        "from capibara_assets.cli.graph.lane import opener\n"
        "pickle.loads(pickle.dumps(opener(Deployment.from_environment(), False)))\n"
        "assert not {'dagster', 'capibara_assets.definitions'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_a_disk_refuses_a_database_is_no_traceback_and_what_we_ask_wrongly_is_one(tmp_path: Path) -> None:
    (tmp_path / "no.db").write_bytes(b"no database" * 100)
    for made, asked, told in (
        (tmp_path / "no.db", "SELECT 1 FROM x", "file is not a database"),
        (tmp_path / "absent" / "x.db", "SELECT 1", "unable to open"),
        (":memory:", "SELECT nothing", ""),
    ):
        with pytest.raises(sqlite3.Error) as raised, closing(sqlite3.connect(made)) as database:
            database.execute(asked)
        said = database_problem(raised.value)
        assert (told in said and "a database cannot be used" in said) if told else said == ""


@pytest.mark.parametrize("words", [["backfill", "--domains"], ["merge", "linear"], ["checkpoint", "show"], ["schema"]])
def test_a_refusal_does_not_repeat_all_that_was_given(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "capibara_assets.cli", *words, "x" * 100_000],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and 0 < len(done.stderr) < 3000 and not done.stdout
