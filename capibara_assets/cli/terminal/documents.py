"""`--json`: one JSON document on standard output, and nothing else there."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from capibara_assets.cli.terminal.tables import say

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def echo_json(document: Any) -> None:
    """Print one JSON document; NaN and infinity, which JSON lacks, become null."""
    click.echo(json.dumps(_plain(document), indent=2))


def echo_result(document: Any, text: str | Sequence[str], as_json: bool) -> None:
    """Print a result as a document, or as a line or lines of text, each of which stays one."""
    echo_json(document) if as_json else say(*([text] if isinstance(text, str) else text))


@contextmanager
def stdout_for_document(as_json: bool) -> Iterator[None]:
    """Context in which what is printed goes to standard error, where a document follows on standard output."""
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        yield


def _plain(node: Any) -> Any:
    if hasattr(node, "__dataclass_fields__"):
        return _plain(asdict(node))
    if isinstance(node, dict):
        return {key: _plain(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_plain(value) for value in node]
    if isinstance(node, Path):
        return str(node)
    if isinstance(node, float) and node - node != 0:
        return None
    return node
