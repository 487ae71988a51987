"""No text on the command line may be empty: it comes of a variable that was not set, and would stand for anything.

As the beginning of an id it fits every id, and as a choice it would be the default: `--checkpoint "$UNSET"` promoted
the latest checkpoint.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakSet

import click
from click.core import ParameterSource

_Callback = Callable[[click.Context, click.Parameter, Any], Any]
_refusing = WeakSet[click.Parameter]()


def refusing_empty(command: click.Command) -> click.Command:
    """Make a command, or those of a group, refuse empty texts as values of arguments and options, once."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            refusing_empty(below)
    for parameter in command.params:
        if isinstance(parameter.type, click.types.StringParamType) and parameter not in _refusing:
            _refusing.add(parameter)
            parameter.callback = partial(_refused, parameter.callback)
    return command


def _refused(before: _Callback | None, context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    given = context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    texts = (value,) if isinstance(value, str) else value or ()
    if given and any(not text.strip() for text in texts):
        raise click.BadParameter(
            "it is empty: was a variable not set? Give a value or leave it out", context, parameter
        )
    return value if before is None else before(context, parameter, value)
