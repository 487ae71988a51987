"""How a bench prints its result, and says that it is rough."""

import json
from typing import Any

import click

ROUGH = "benchmarks.rough"  # in the context's `meta`: whether --quick was given


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """One JSON line, or the same indented; with --quick it also says `"rough": true`."""
    context = click.get_current_context(silent=True)
    if context is not None and context.meta.get(ROUGH):
        result = {**result, "rough": True}
    click.echo(json.dumps(result) if as_json else json.dumps(result, indent=2))
