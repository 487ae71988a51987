"""Where a record stands in its file, for people: agents' logs are read as a whole, and have no line for a record."""

import re

_COUNTED = re.compile(r"(\d+)-[0-9a-f]{8}")  # the id of a call that its log does not name


def in_file(execution_id: str, file: str, line: int) -> str:
    """Where a record stands in a file: its line, or its call in an agent's log, which is read as a whole."""
    from capibara_assets.executions.formats.agents.readers import READERS

    reader, colon, rest = execution_id.partition(":")
    if not colon or reader not in {one.name for one in READERS}:
        return f"{file}:{line}"
    call = rest.rpartition(":")[2]
    counted = _COUNTED.fullmatch(call)
    return f"{file}, " + (f"call {int(counted[1]) + 1} of its session" if counted else f"call {call}")
