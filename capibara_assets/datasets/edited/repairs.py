"""*repair* examples of agents' edits: a failing command, its output and the files -> the edits that mended it."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.edited.commands import changes_files, only_looks
from capibara_assets.datasets.edited.episodes import Episode, episodes
from capibara_assets.datasets.edited.places import LONG, EditPlace, places
from capibara_assets.datasets.edited.shown import named, printed, without_roots, without_users
from capibara_assets.datasets.edited.soundness import TRIES, unsound_edit
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, mean_quality
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.formats.agents.failures import any_shows_failure, raised
from capibara_assets.executions.patterns.similarity import unified_diff
from capibara_assets.executions.schema import HIDDEN_EXIT, PATCH

NO_EDIT = "no edit of a file stands between the command's runs"
OTHERS = "another command between the command's runs may have changed files"
UNKNOWN_END = "the log does not tell that the command passed"
MARKED = "it edits lines that look like the marks of SEARCH/REPLACE blocks"
MANY = "more places were edited than one mistake has"

_MOST_PLACES, _NAME_ENDS, _PATH_ENDS = 3, 200, 300
_EDITOR = re.compile(r"\s*(?:edit|insert|append|create)\s")  # lines for SWE-agent's shell
_MARKS = re.compile(r"^(?:<{7} |={7}$|>{7} )", re.MULTILINE)
_PROSE = (".md", ".txt", ".rst", ".adoc", ".log")
_NOTHING_RAN = re.compile(
    r"no tests ran|collected 0 items|\[no tests to run\]|\b[1-9]\d* xfailed|No tests found", re.IGNORECASE
)
_PASSES = re.compile(
    r"^(?:ok|PASS)\b|\b\d+ passed\b|\b0 issues\b|\ball tests passed\b|\bOK \(|^OK$", re.MULTILINE | re.I
)


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per episode."""
    for episode in episodes(evidence):
        yield _candidate(episode, recipe)


def _candidate(episode: Episode, recipe: DatasetRecipe) -> ExampleCandidate:
    failing, passed = episode.failing, episode.passed
    edits = [row for row in episode.between if row["language"] == PATCH and not _is_remark(row, failing)]
    ids = [row["execution_id"] for row in edits]
    made = places(edits, episode.known)
    changed = [] if isinstance(made, str) else named(made, failing)
    answer = "\n\n".join(block(place) for place in changed)
    lacking = made if isinstance(made, str) else _lacking(changed, episode)
    if lacking is None and len(answer) > recipe.max_answer_chars:
        lacking = LONG
    if lacking is None and any(_MARKS.search(f"{place.old}\n{place.new}") for place in changed):
        lacking = MARKED
    if lacking is not None:
        changed, answer = [], ""
    heads = [row["code"][:_PATH_ENDS] for row in edits]
    told = "\n".join([failing["code"], failing["stdout"], failing["stderr"], *heads])
    output = without_users(without_roots(printed(failing), changed), told)
    command = without_users(episode.command, told)
    prompt = prompts.edit([(place.path, place.shown.strip("\n")) for place in changed], command, output)
    old, new = ("\n".join(getattr(place, side) for place in changed) for side in ("old", "new"))
    return ExampleCandidate(
        kind="repair",
        language=PATCH,
        prompt=prompt,
        answer=answer,
        execution_ids=(*ids, passed["execution_id"], failing["execution_id"]),
        subjects=len(ids),
        duplicate_key="\n".join(f"{place.old}\0{place.new}" for place in changed),
        difficulty=difficulty(new, PATCH, 1, [failing["error_name"] or ""], recipe.difficulty),
        quality=mean_quality([passed]),
        lacking=lacking or unsound_edit(changed, output, prompt),
        proof=f"passed: {command}",
        diff=unified_diff(old, new),
        lesson=f"{output}\n{answer}",
    )


def _is_remark(edit: Row, failing: Row) -> bool:
    """Whether an edit is of a file of prose that the command's output does not name: notes that an agent keeps."""
    name = edit["code"].partition("\n")[0].rsplit("/", 1)[-1]
    return name.lower().endswith(_PROSE) and name not in f"{failing['stdout']}{failing['stderr']}"


def _lacking(changed: Sequence[EditPlace], episode: Episode) -> str | None:
    """Why the edits are not known to be what mended the command."""
    if not changed:
        return NO_EDIT
    if len(changed) > _MOST_PLACES:
        return MANY
    if changes_files(episode.command):
        return OTHERS
    followed = pairwise([*episode.between, episode.passed])
    if not all(_is_told(row, after) for row, after in followed):
        return OTHERS
    return None if _passed(episode.failing, episode.passed) else UNKNOWN_END


def _is_told(row: Row, after: Row) -> bool:
    """Whether all that a row may have changed is known: an edit, or a line for SWE-agent's editor beside its edit."""
    if row["language"] == PATCH or only_looks(row["code"]):
        return True
    return _EDITOR.match(row["code"]) is not None and (row["outcome"] == "error" or after["language"] == PATCH)


def _passed(failing: Row, passed: Row) -> bool:
    """Whether the log tells that a command passed: its end, a test's summary, or no exception any more.

    A script that an agent wrote to see something shows by what it prints whether it is mended, for its author to tell.
    """
    said, before = (f"{row['stdout']}\n{row['stderr']}" for row in (passed, failing))
    if _NOTHING_RAN.search(said) or any_shows_failure((passed["stdout"], passed["stderr"]), passed["code"]):
        return False
    if passed["outcome"] == "ok" or _PASSES.search(said):
        return True
    told = HIDDEN_EXIT not in passed["flags"] and TRIES.search(failing["code"].strip()[-_NAME_ENDS:]) is None
    return told and raised(before) and not raised(said)


def block(place: EditPlace) -> str:
    """An edit as a SEARCH/REPLACE block below its path: the form of aider, which can be applied by machine."""
    old, new = (f"{text.rstrip(chr(10))}\n" if text.strip() else "" for text in (place.old, place.new))
    return f"{place.path}\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE"
