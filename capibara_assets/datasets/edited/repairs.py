"""*repair* examples of agents' edits: a failing command, its output and the files -> the edits that mended it."""

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from capibara_assets.datasets.code.sessions import Row
from capibara_assets.datasets.edited.commands import only_looks
from capibara_assets.datasets.edited.files import contents
from capibara_assets.datasets.edited.names import code_lexer
from capibara_assets.datasets.edited.places import EditPlace, places
from capibara_assets.datasets.edited.soundness import TRIES, unsound_edit
from capibara_assets.datasets.kinds import prompts
from capibara_assets.datasets.kinds.difficulty import difficulty
from capibara_assets.datasets.kinds.evidence import Evidence, ExampleCandidate, mean_quality
from capibara_assets.datasets.kinds.repair import unified_diff
from capibara_assets.datasets.recipe import DatasetRecipe
from capibara_assets.executions.formats.agents.failures import raised
from capibara_assets.executions.patterns.repairs import bare_command
from capibara_assets.executions.schema import HIDDEN_EXIT, PATCH, SHELL

NO_EDIT = "no edit of a file stands between the command's runs"
OTHERS = "another command between the command's runs may have changed files"
UNKNOWN_END = "the log does not tell that the command passed"
MANY = "more places were edited than one mistake has"

_MOST_PLACES, _MOST_OUTPUT = 3, 1500
_EDITOR = re.compile(r"\s*(?:edit|insert|append|create)\s")  # lines for SWE-agent's shell
_ABSOLUTE = r"((?:[A-Za-z]:)?[/\\][^\s:\"'()\[\]]*?[/\\])"
_ROOTED = re.compile(r"/|[A-Za-z]:/")
_PASSES = re.compile(
    r"^(?:ok|PASS)\b|\b\d+ passed\b|\b0 issues\b|\ball tests passed\b|\bOK \(|^OK$", re.MULTILINE | re.I
)


def candidates(evidence: Evidence, recipe: DatasetRecipe) -> Iterator[ExampleCandidate]:
    """One candidate per command that was repeated unchanged: of several failures before it passed, the last."""
    for pair in evidence.mended.sort("pair_id").iter_rows(named=True) if evidence.mended is not None else ():
        session = evidence.command_sessions.get(pair["sandbox_id"], [])
        places_of = {row["execution_id"]: place for place, row in enumerate(session)}
        failed, passed = (places_of.get(pair[side]) for side in ("failing_execution_id", "fixed_execution_id"))
        if failed is None or passed is None:
            continue  # of a tenant that the recipe does not name
        between = session[failed + 1 : passed]
        if any(row["language"] == PATCH for row in between) and not any(_is_attempt(row, pair) for row in between):
            later = [row for row in session[passed + 1 :] if _is_attempt(row, pair) and row["outcome"] != "unknown"]
            if later and session[passed]["outcome"] != "ok":
                continue  # nothing told that it had passed
            yield _candidate(pair, session[: failed + 1], between, session[passed], recipe)


def _is_attempt(row: Row, pair: Row) -> bool:
    """Whether the same command failed again: that failure has a pair of its own."""
    same = row["language"] == SHELL and bare_command(row["code"]) == bare_command(pair["failing_code"])
    return bool(same and row["outcome"] != "ok")


def _candidate(
    pair: Row, before: Sequence[Row], between: Sequence[Row], passed: Row, recipe: DatasetRecipe
) -> ExampleCandidate:
    failing = before[-1]
    edits = [row for row in between if row["language"] == PATCH and not _is_remark(row, failing)]
    made = places(edits, contents(before))
    changed = [] if isinstance(made, str) else _named(made, failing)
    ids = [row["execution_id"] for row in edits]
    output = _without_roots(_output(failing), changed)
    command = bare_command(pair["failing_code"])
    answer = "\n\n".join(block(place) for place in changed)
    old, new = ("\n".join(getattr(place, side) for place in changed) for side in ("old", "new"))
    prompt = prompts.edit([(place.path, place.shown.strip("\n")) for place in changed], command, output)
    lacking = made if isinstance(made, str) else _lacking(changed, before, between, passed)
    return ExampleCandidate(
        kind="repair",
        language=PATCH,
        prompt=prompt,
        answer=answer,
        execution_ids=(*ids, passed["execution_id"], failing["execution_id"]),
        subjects=len(ids),
        duplicate_key="\n".join(f"{place.old}\0{place.new}" for place in changed),
        difficulty=difficulty(new, PATCH, 1, [pair["error_name"] or ""], recipe.difficulty),
        quality=mean_quality([passed]),
        lacking=lacking or unsound_edit(changed, output, prompt),
        proof=f"passed: {command}",
        diff=unified_diff(old, new),
        lesson=f"{output}\n{answer}",
    )


def _is_remark(edit: Row, failing: Row) -> bool:
    """Whether an edit is of a file of prose that the command's output does not name: notes that an agent keeps."""
    name = edit["code"].partition("\n")[0].rsplit("/", 1)[-1]
    return bool(name) and code_lexer(name) is None and name not in f"{failing['stdout']}{failing['stderr']}"


def _lacking(changed: Sequence[EditPlace], before: Sequence[Row], between: Sequence[Row], passed: Row) -> str | None:
    """Why the edits are not known to be what mended the command."""
    if not changed:
        return NO_EDIT
    if len(changed) > _MOST_PLACES:
        return MANY
    if not all(_is_told(row, after) for row, after in zip(between, [*between[1:], passed], strict=True)):
        return OTHERS
    return None if _passed(before[-1], passed) else UNKNOWN_END


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
    if passed["outcome"] == "ok" or _PASSES.search(said):
        return True
    told = HIDDEN_EXIT not in passed["flags"] and TRIES.search(failing["code"]) is None
    return told and raised(before) and not raised(said)


def _output(row: Row) -> str:
    """What a failing command printed, from the end so much as is shown."""
    stdout, stderr = row["stdout"].strip("\n"), row["stderr"].strip("\n")
    whole = stdout if stderr in stdout else "\n".join(filter(None, [stdout, stderr]))
    if len(whole) <= _MOST_OUTPUT:
        return whole
    return f"...\n{whole[-_MOST_OUTPUT:].partition(chr(10))[2]}"


def _named(made: Sequence[EditPlace], failing: Row) -> list[EditPlace]:
    """The places with their paths as the command and its output write them, without the folders of the machine."""
    told = f"{failing['code']}\n{failing['stdout']}\n{failing['stderr']}".replace("\\", "/")
    return [EditPlace(_short(place.path, told), place.old, place.new, place.shown) for place in made]


def _short(path: str, told: str) -> str:
    path = path.replace("\\", "/")
    if not _ROOTED.match(path):
        return path
    parts = path.strip("/").split("/")
    ends = ["/".join(parts[n:]) for n in range(len(parts))]
    told_ends = list(takewhile(lambda end: end in told, reversed(ends)))
    return max("".join(told_ends[-1:]), "/".join(parts[-2:]), key=len)


def _without_roots(output: str, changed: Sequence[EditPlace]) -> str:
    """Output without the folder of the machine in which the project stood, told by the paths of edited files."""
    for root in {match[1] for place in changed for match in re.finditer(_ABSOLUTE + re.escape(place.path), output)}:
        output = output.replace(root, "").replace(root.rstrip("/\\"), ".")
    return output


def block(place: EditPlace) -> str:
    """An edit as a SEARCH/REPLACE block below its path: the form of aider, which can be applied by machine."""
    old, new = (f"{text.rstrip(chr(10))}\n" if text.strip() else "" for text in (place.old, place.new))
    return f"{place.path}\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE"
