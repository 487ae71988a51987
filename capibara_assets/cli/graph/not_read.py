"""What the readers of the experience left out beside log lines: files of no known form, and entries of playbooks."""

import re
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from capibara_assets.assets.inputs import Inputs
from capibara_assets.errors import named
from capibara_assets.executions.ingest.file_plan import LOGS, files_beside
from capibara_assets.playbooks.read import PLAYBOOKS
from capibara_assets.playbooks.schema import QuarantinedBullet
from capibara_assets.storage.records import table

NOT_READ = "not_read"
"""The reason of a file that is neither a log nor a playbook, in a list of what was left out."""
_NEITHER = "neither log nor playbook by content"
_NO_LOG = "no log by content; playbooks are not read yet"
_WHY = {
    _NEITHER: "neither a log nor a playbook by its content: docs/experience.md lists what is read",
    _NO_LOG: "no log by its content; whether it is a playbook, `capibara run --select ace_playbooks` tells",
}
_WHERE = f"beside {LOGS}/, which alone is read for logs: move it there if it is one, a playbook to {PLAYBOOKS}/"
_DOCUMENTS = re.compile(r"(?:readme|licen[cs]e|notice|changelog)(?:\.\w+)?", re.IGNORECASE)  # a folder's own
_COLUMNS = ("quarantine_id", "file", "line", "reason", "detail", "text")


@dataclass(frozen=True)
class NotRead:
    """What was left out beside log lines.

    Attributes:
        files: in the folders that are read, as the tables name them.
        beside: other files of the experience folder.
        entries: of playbooks, as the quarantine of `ace_playbooks` has them.
        what: what the files are not.
    """

    files: list[str]
    beside: list[str]
    entries: pl.DataFrame
    what: str = _NEITHER

    @classmethod
    def of(cls, inputs: Inputs, experience: Path | None) -> "NotRead":
        """That of the latest `e2b_logs` and `ace_playbooks`; nothing where one was never made.

        Args:
            experience: the folder that they were read from.
        """
        logs, playbooks = inputs.available("e2b_logs"), inputs.available("ace_playbooks")
        entries = playbooks.frame("quarantine") if playbooks else table(QuarantinedBullet, [])
        files = dict[str, bool]()  # a file is read if one of the two readers took it, or says what is wrong with it
        if logs and logs.has("files"):
            for path, kind, faults in logs.frame("files").select("path", "kind", "quarantined").iter_rows():
                files[path] = kind == "executions" or faults > 0
        if playbooks:
            for path, status in playbooks.frame("files").select("path", "status").iter_rows():
                files[path] = files.get(path, False) or status != "ignored"
        # without a folder of their own playbooks are looked for everywhere
        others = [PLAYBOOKS] if experience and (experience / PLAYBOOKS).is_dir() else []
        beside = files_beside(experience, others) if experience and logs else []
        beside = [name for name in beside if name not in files and not _DOCUMENTS.fullmatch(name)]
        left = sorted(path for path, read in files.items() if not read)
        return cls(left, beside, entries, _NEITHER if playbooks else _NO_LOG)

    def rows(self) -> pl.DataFrame:
        """Entries and files as rows like those of the logs' quarantine; a file has no id, as nothing of it is kept."""
        why = [*([_WHY[self.what]] * len(self.files)), *([_WHERE] * len(self.beside))]
        names = [*self.files, *self.beside]
        files = {"quarantine_id": "", "file": names, "line": 0, "reason": NOT_READ, "detail": why, "text": ""}
        of_files = pl.DataFrame(files) if names else self.entries.select(_COLUMNS).clear()
        return pl.concat([self.entries.select(_COLUMNS), of_files], how="vertical_relaxed").sort("file", "line")

    def words(self) -> str:
        """How much was left out and why, for a run's summary; empty if nothing was."""
        said = []
        whys = ((self.what, self.files), (f"beside {LOGS}/", self.beside))
        for why, files in whys:
            if files:
                count = f"{len(files)} file{'s' * (len(files) > 1)}"
                said.append(f"{count} not read, {why} (first: {named(files[0])})")
        if height := self.entries.height:
            count = f"{height} {'entries' if height > 1 else 'entry'}"
            said.append(f"{count} of playbooks left out (first: {self.entries['reason'][0]})")
        return "; ".join(said)
