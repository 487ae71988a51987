"""YAML front matter above a playbook in text or markdown; the lines below it keep their numbers."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

_FENCED = re.compile(r"\A---[ \t]*\r?\n(?P<yaml>.*?)^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)


def split_front_matter(text: str) -> tuple[Mapping[str, Any], str]:
    """(the mapping between the two `---` lines, the text with these lines blank); no mapping, no front matter."""
    fenced = _FENCED.match(text)
    if fenced is None:
        return {}, text
    try:
        values = yaml.safe_load(fenced["yaml"])
    except yaml.YAMLError:
        return {}, text
    if not isinstance(values, dict):
        return {}, text
    return values, "\n" * fenced[0].count("\n") + text[fenced.end() :]
