"""Faults of repairs by edits (SEARCH/REPLACE blocks): a place that the prompt lacks, no change, a silenced check."""

import re

from benchmarks.datasets.faults.cases import Case

_BLOCK = re.compile(r"(?P<path>[^\n]+)\n<{7} SEARCH\n(?P<old>.*?)={7}\n(?P<new>.*?)>{7} REPLACE(?:\n|\Z)", re.DOTALL)
_SKIPS = re.compile(r"(?i)\bskip|noqa|nolint|ts-ignore|eslint-disable|type:\s*ignore|xfail|allow\(")


def is_edit(case: Case) -> bool:
    """Whether the answer is made of SEARCH/REPLACE blocks."""
    return case.language == "patch"


def without_place(case: Case) -> str | None:
    """The first block whose file or text the prompt does not hold; None where all can be found."""
    blocks = list(_BLOCK.finditer(case.answer))
    if not blocks:
        return "the answer has no SEARCH/REPLACE block"
    for block in blocks:
        if block["path"] not in case.prompt:
            return f"the prompt does not name {block['path']}"
        if block["old"].strip() and _flat(block["old"]) not in _flat(case.prompt):
            return f"the prompt does not show what is replaced in {block['path']}"
    return None if re.search(r"\n\nOutput:\n\s*\S", case.prompt) else "the prompt shows no output of the command"


def changes_nothing(case: Case) -> str | None:
    """Whether all blocks replace a text by the same one, but for spaces."""
    same = all(_bare(block["old"]) == _bare(block["new"]) for block in _BLOCK.finditer(case.answer))
    return "each block replaces a text by itself" if same else None


def silences(case: Case) -> str | None:
    """The mark that an edit adds so that a check looks away."""
    for block in _BLOCK.finditer(case.answer):
        if (mark := _SKIPS.search(block["new"])) and not _SKIPS.search(block["old"]):
            return f"adds {mark[0]!r}"
    return None


def _flat(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))


def _bare(text: str) -> str:
    return re.sub(r"\s+", "", text)
