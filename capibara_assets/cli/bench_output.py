"""How a bench prints its result."""

import json
from typing import Any

import click


def print_result(result: dict[str, Any], as_json: bool) -> None:
    """One JSON line, or the same indented."""
    click.echo(json.dumps(result) if as_json else json.dumps(result, indent=2))
