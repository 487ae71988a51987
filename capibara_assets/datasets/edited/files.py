"""What a session tells of its files before a moment: contents that were written or printed, and edits of them."""

import re
from collections.abc import Sequence

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.edited.changes import changes
from capibara_assets.datasets.edited.commands import only_looks
from capibara_assets.executions.schema import PATCH

_PRINTED = re.compile(r"\s*(?:cd\s+\S+\s*&&\s*)?cat\s+(?P<path>[\w./~@+-]+)\s*(?:2>/dev/null)?\s*\Z")


def contents(session: Sequence[Row]) -> dict[str, str]:
    """Path -> content, of the files whose whole content the session knows at its end.

    A command that may change files makes all of it unknown, as does an edit that does not fit.
    """
    known: dict[str, str] = {}
    for row in session:
        if row["language"] == PATCH:
            for path, old, new in changes(row["code"]):
                if old is None:
                    known[path] = new
                elif path in known and known[path].count(old) == 1:
                    known[path] = known[path].replace(old, new)
                else:
                    known.pop(path, None)
        elif printed := _PRINTED.match(row["code"]):
            if row["outcome"] == "ok" and row["stdout"]:
                known[printed["path"]] = row["stdout"]
        elif not only_looks(row["code"]):
            known.clear()
    return known
