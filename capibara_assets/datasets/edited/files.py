"""What a session tells of its files: contents that were written or printed, and edits of them."""

import re
from collections.abc import Sequence

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.edited.changes import changes
from capibara_assets.datasets.edited.commands import only_looks
from capibara_assets.executions.schema import PATCH

_PRINTED = re.compile(r"\s*(?:cd\s+\S+\s*&&\s*)?cat\s+(?P<path>[\w./~@+-]+)\s*(?:2>/dev/null)?\s*\Z")


class Contents:
    """The files whose whole content is known after the rows that were taken.

    A command that may change files makes all of it unknown, as does an edit that does not fit.
    """

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def take(self, rows: Sequence[Row]) -> None:
        """Takes the next rows of the session."""
        for row in rows:
            if row["language"] == PATCH:
                self._edited(row["code"])
            elif printed := _PRINTED.match(row["code"]):
                if row["outcome"] == "ok" and row["stdout"]:
                    self.files[printed["path"]] = row["stdout"]
            elif not only_looks(row["code"]):
                self.files.clear()

    def _edited(self, edit: str) -> None:
        for path, old, new in changes(edit):
            if old is None:
                self.files[path] = new
            elif path in self.files and self.files[path].count(old) == 1:
                self.files[path] = self.files[path].replace(old, new)
            else:
                self.files.pop(path, None)
