"""The command `python -m benchmarks`: one bench by its name, or the list of all."""

import os

import click

from benchmarks.peers import ROOT
from benchmarks.registry import BENCHES, STAGES
from capibara_assets.cli.main import hush_dagster, run_command_line


class Benches(click.Group):
    """Benches, each imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*sorted(BENCHES), "evidence"]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Benches"):
            formatter.write_dl([(name, BENCHES[name].line) for name in sorted(BENCHES)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "evidence":
            from benchmarks.evidence import evidence

            return evidence
        if cmd_name not in BENCHES:
            return None
        hush_dagster()
        return BENCHES[cmd_name].load()


def _list(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Every bench with one line, by stage."""
    if not wanted or ctx.resilient_parsing:
        return
    width = max(map(len, BENCHES))
    for stage in STAGES:
        click.echo(stage)
        for name, bench in BENCHES.items():
            if bench.stage == stage:
                click.echo(f"  {name:{width}}  {bench.line}")
    ctx.exit()


@click.group(cls=Benches, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="Every bench, by stage.")
def benches() -> None:
    """Measure what the project promises. `evidence` runs what shows each promise and writes docs/evidence."""


def main() -> None:
    """Run the bench that this process's arguments name."""
    # Benches measure in processes of their own, which have to find this folder from wherever they run.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    run_command_line(benches, "benchmarks")
