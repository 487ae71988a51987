"""The command itself: what it lists is what there is, and listing loads nothing."""

import subprocess
import sys
import warnings

import click
import pytest
from click.testing import CliRunner
from dagster._utils.warnings import beta_warning, preview_warning

from capibara_assets.cli.main import COMMANDS, cli, hush_dagster


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_is_listed_with_its_own_first_sentence(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None and command.name == name
    assert COMMANDS[name][1] == command.get_short_help_str(limit=1000)


def test_help_lists_every_command() -> None:
    shown = CliRunner().invoke(cli, ["--help"])
    assert shown.exit_code == 0 and all(f"\n  {name} " in shown.output for name in COMMANDS)


def test_help_and_plan_load_nothing_that_takes_time() -> None:
    """Neither lists of commands nor a plan without XLA need arrays, file systems, Dagster or a trainer."""
    plan = ["plan", "--model", "llama2-7b", "--hardware", "tpu-v5e-64", "--examples", "50", "--json"]
    program = (
        "import sys\n"
        "sys.argv = ['capibara', *sys.argv[1:]]\n"
        "from capibara_assets.cli.main import main\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    heavy = {'dagster', 'torch', 'jax', 'transformers', 'polars', 'numpy', 'fsspec'}\n"
        "    print(sorted(heavy & set(sys.modules)))\n"
    )
    for arguments in (["--help"], ["merge", "--help"], plan):
        done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]"


def test_of_warnings_only_dagsters_about_its_own_features_are_silenced() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hush_dagster()
        beta_warning("Parameter `owners`")
        preview_warning("Class\n`Component`")
        warnings.warn("the beta of this model is 0.9", stacklevel=1)
    assert [str(one.message) for one in caught] == ["the beta of this model is 0.9"]
