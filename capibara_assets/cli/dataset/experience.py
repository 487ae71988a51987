"""`capibara experience`: exports agents' sessions in other projects' formats."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capibara_assets.cli.terminal.documents import AS_JSON
from capibara_assets.cli.terminal.help import with_example
from capibara_assets.cli.terminal.progress import shows_progress
from capibara_assets.deployment.environment import Deployment
from capibara_assets.errors import InputError

if TYPE_CHECKING:
    import polars as pl


@with_example("capibara experience export --format atif --out trajectories")
@click.group()
def experience() -> None:
    """Export the recorded executions as trajectories: ATIF, Agent Data Protocol."""


@with_example("capibara experience export --format atif --out trajectories")
@experience.command("export")
@click.option("--format", "form", type=click.Choice(["atif", "adp"]), required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="New or empty folder.")
@click.option("--domains", "domain_list", help="Only sessions with an execution of these domains, comma-separated.")
@click.option("--sessions", "session_list", help="Only these sessions: comma-separated sandbox ids.")
@AS_JSON
@shows_progress("exporting")
def export(form: str, out: Path, domain_list: str | None, session_list: str | None, as_json: bool) -> None:
    """Export whole sessions, redacted as they were read: ATIF a file each, ADP as JSON lines.

    The last line says what the format has no place for, and in how many executions.
    """
    from capibara_assets.cli.graph.results import open_inputs

    with open_inputs(Deployment.from_environment()) as inputs:
        executions = inputs.artifact("e2b_logs").frame("executions")
    report = export_sessions(executions, form, out, domain_list, session_list)
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    click.echo(f"{out}: {report['executions']} executions in {report['sessions']} sessions")
    click.echo(report["said"])


def export_sessions(
    executions: "pl.DataFrame", form: str, out: Path, domain_list: str | None, session_list: str | None
) -> dict[str, Any]:
    """Write sessions of a table Execution in a format; returns counts, and fields the format cannot represent.

    Raises:
        InputError: the folder is not empty, or a domain or session does not exist.
    """
    from capibara_assets.cli.graph.run import parse_domains
    from capibara_assets.executions.export.adp import adp
    from capibara_assets.executions.export.atif import atif
    from capibara_assets.executions.export.trajectories import (
        Lacks,
        empty_unless_whole,
        sessions_of,
        write_files,
        write_lines,
    )

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} is no empty folder: choose another one")
    domains = parse_domains(domain_list) if domain_list else None
    names = [name.strip() for name in session_list.split(",") if name.strip()] if session_list else None
    chosen, lacks = sessions_of(executions, domains, names), Lacks()
    with empty_unless_whole(out):
        if form == "atif":
            sessions, number = write_files(chosen, out, atif, lacks)
        else:
            sessions, number = write_lines(chosen, out / "adp.jsonl", adp, lacks)
    counts = {"beside": dict(lacks.beside), "not_told": dict(lacks.lost)}
    said = lacks.said(form.upper(), "extra" if form == "atif" else "details")
    return {"format": form, "sessions": sessions, "executions": number, **counts, "said": said}
