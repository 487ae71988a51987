"""The command itself: what it lists is what there is, and listing loads nothing."""

import json
import os
import subprocess
import sys
import warnings

import click
import pytest
from click.testing import CliRunner
from dagster._utils.warnings import beta_warning, preview_warning

from capibara_assets.cli.main import COMMANDS, GROUPS, cli, hush_dagster


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_is_listed_with_its_own_first_sentence(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.name == name
    assert COMMANDS[name][1] == command.get_short_help_str(limit=1000)


def test_help_lists_every_command() -> None:
    shown = CliRunner().invoke(cli, ["--help"])
    assert shown.exit_code == 0 and all(f"\n  {name} " in shown.output for name in COMMANDS)
    assert all(f"\n{title}:\n" in shown.output for title in GROUPS)


def test_a_shell_completes_commands_and_options() -> None:
    """What bash asks for after `capibara tr<TAB>` and `capibara ui --po<TAB>`."""
    for words, expected in ((["tr"], "plain,train"), (["ui", "--po"], "plain,--port")):
        asked = {
            "_CAPIBARA_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["capibara", *words]),
            "COMP_CWORD": str(len(words)),
        }
        program = "import sys; from capibara_assets.cli.main import main; sys.argv[0] = 'capibara'; main()"
        said = subprocess.run(
            [sys.executable, "-c", program], env=os.environ | asked, capture_output=True, text=True, check=True
        ).stdout
        assert said.split() == [expected]


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
