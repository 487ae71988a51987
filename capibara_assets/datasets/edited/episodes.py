"""Episodes of sessions: a command failed, files were edited, and the same command passed."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.edited.files import Contents
from capibara_assets.datasets.kinds.evidence import Evidence
from capibara_assets.executions.patterns.attempts import bare_command, folder_of
from capibara_assets.executions.schema import PATCH, SHELL

_MOST_BETWEEN = 200  # rows between the two runs: one mistake takes fewer


@dataclass(frozen=True)
class Episode:
    """The two runs of a command, what stands between them, and the files whose content the session knew before it.

    Attributes:
        known: path -> content; it holds until the next episode is asked for.
    """

    command: str
    failing: Row
    between: Sequence[Row]
    passed: Row
    known: Mapping[str, str]


def episodes(evidence: Evidence) -> Iterator[Episode]:
    """The episodes in which files were edited: of several failures before a command passed, the last."""
    pairs: dict[str, list[Row]] = defaultdict(list)
    for pair in evidence.mended.iter_rows(named=True) if evidence.mended is not None else ():
        pairs[pair["sandbox_id"]].append(pair)
    for sandbox in sorted(pairs):
        yield from _of_session(evidence.command_sessions.get(sandbox, []), pairs[sandbox])


def _of_session(session: Sequence[Row], pairs: Sequence[Row]) -> Iterator[Episode]:
    at = {row["execution_id"]: number for number, row in enumerate(session)}
    commands = [bare_command(row["code"]) if row["language"] == SHELL else None for row in session]
    failures: dict[str | None, list[int]] = defaultdict(list)
    for number, row in enumerate(session):
        if row["outcome"] != "ok":
            failures[commands[number]].append(number)
    spans = {(at.get(pair["failing_execution_id"]), at.get(pair["fixed_execution_id"])) for pair in pairs}
    known, read = Contents(), 0
    # a row that is missing is of a tenant that the recipe does not name
    for failed, passed in sorted((a, b) for a, b in spans if a is not None and b is not None):
        between, again = session[failed + 1 : passed], failures[commands[failed]]
        if len(between) > _MOST_BETWEEN or not any(row["language"] == PATCH for row in between):
            continue
        if any(failed < number < passed for number in again):
            continue  # that failure has an episode of its own
        if folder_of(session[failed]["code"]) != folder_of(session[passed]["code"]):
            continue  # the command of another package
        later = any(number > passed and session[number]["outcome"] != "unknown" for number in again)
        if later and session[passed]["outcome"] != "ok":
            continue  # nothing told that it had passed
        known.take(session[read : failed + 1])
        read = failed + 1
        yield Episode(commands[failed] or "", session[failed], between, session[passed], known.files)
